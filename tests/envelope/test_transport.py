"""Failures without a code: what errno, class and text tell, alone and at the end of a chain."""

import pytest

from sidecar.envelope import transport
from sidecar.envelope.raised import recorded

TIMEOUT = {"type": "TimeoutError", "mro": ["OSError"]}


def word(error):
    signal = transport.of_chain(recorded(error))
    return None if signal is None else signal.meaning.code


@pytest.mark.parametrize(
    ("errno", "code", "verdict"),
    [
        (111, "connection_refused", "failure"),
        (10061, "connection_refused", "failure"),
        (104, "connection_reset", "failure"),
        (32, "connection_reset", "failure"),
        (110, "connect_timeout", "failure"),
        (113, "connection_error", "failure"),
        (101, "local_network_down", "neutral"),
        (24, "local_resource", "neutral"),
        (28, "local_resource", "neutral"),
        (99, "local_resource", "neutral"),
    ],
)
def test_numbers_of_the_operating_system(errno, code, verdict):
    for error in (
        {"type": "OSError", "errno": errno},
        {"type": "OSError", "args": [errno, "x"]},
        {"errno": errno},
        {"type": "acme.Error", "message": f"failed: [Errno {errno}] x"},
        {"type": "acme.Error", "cause": {"type": "acme.Inner", "mro": ["OSError"], "errno": errno}},
    ):
        meaning = transport.of_chain(recorded(error)).meaning
        assert (meaning.code, meaning.verdict, meaning.retryable) == (code, verdict, True), error


def test_a_number_of_another_kind_is_no_errno():
    assert word({"type": "acme.DriverError", "errno": 111}) is None
    assert word({"type": "ssl.SSLError", "mro": ["OSError"], "errno": 1}) == "tls_failure"
    assert word({"type": "acme.DriverError", "args": [24, "x"]}) is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"type": "socket.gaierror", "mro": ["OSError"], "errno": -3}, "dns_failure"),
        ({"type": "ssl.SSLEOFError", "mro": ["ssl.SSLError", "OSError"]}, "connection_reset"),
        (
            {"type": "ssl.SSLCertVerificationError", "mro": ["ssl.SSLError", "OSError"]},
            "tls_failure",
        ),
        ({**TIMEOUT, "message": "The read operation timed out"}, "read_timeout"),
        (
            {**TIMEOUT, "message": "_ssl.c:989: The handshake operation timed out"},
            "connect_timeout",
        ),
        (TIMEOUT, "timeout"),
        ({**TIMEOUT, "phase": "connect"}, "connect_timeout"),
        ({"type": "httpx.PoolTimeout"}, "pool_timeout"),
        ({"type": "httpcore2.ConnectTimeout"}, "connect_timeout"),
        ({"type": "MemoryError"}, "local_resource"),
        ({"type": "FileNotFoundError", "mro": ["OSError"], "errno": 2}, "FileNotFoundError"),
    ],
)
def test_classes(error, code):
    assert word(error) == code


def test_the_chain_is_walked_to_what_tells_most():
    refused = {"type": "ConnectionRefusedError", "mro": ["ConnectionError", "OSError"]}
    vague = {"type": "httpx.ConnectError", "message": "All connection attempts failed"}
    assert word(vague) == "connection_error"
    assert word({**vague, "cause": {"type": "x.Y", "cause": refused}}) == "connection_refused"
    assert word({"type": "httpx.ReadTimeout", "cause": TIMEOUT}) == "read_timeout"


def test_a_cancelled_cause_is_how_a_deadline_works():
    cancelled = {"type": "asyncio.exceptions.CancelledError"}
    assert word({**TIMEOUT, "cause": cancelled}) == "timeout"
    assert word(cancelled) == "cancelled"
    assert word({"type": "acme.Aborted", "cause": cancelled}) == "cancelled"


def test_a_mistake_in_code_may_be_about_anything():
    for kind in ("ValueError", "KeyError", "acme.ConfigError"):
        error = {"type": kind, "message": "no handler for 'connection refused'"}
        error["mro"] = ["LookupError"] if kind == "KeyError" else ["ValueError"]
        assert word(error) is None


def test_a_text_is_read_at_both_ends_only():
    far = "x" * 10_000
    assert word({"type": "acme.Error", "message": f"connection refused {far}"})
    assert word({"type": "acme.Error", "message": f"{far} connection refused"})
    assert word({"type": "acme.Error", "message": f"{far} connection refused {far}"}) is None
