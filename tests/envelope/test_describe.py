"""Live exceptions are read without waking, trusting or following them for ever."""

import smtplib
import socket
import ssl
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

from sidecar.envelope.credentials import Redactor
from sidecar.envelope.describe import describe
from sidecar.envelope.meaning import shown
from sidecar.envelope.raised import Raised
from sidecar.envelope.sdk import classify
from sidecar.proxy.websocket import SERVER_IN_TROUBLE

from .test_sdk_invariants import check


def caught(call):
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError


class Answer:
    """As requests and httpx keep it: a body that may be there, and one that would be fetched."""

    def __init__(self, status, headers, content=False):
        self.status_code = status
        self.headers = headers
        self._content = content
        self.woken = []

    @property
    def content(self):
        self.woken.append("content")
        return b"{}"

    text = content


class ApiError(Exception):
    def __init__(self, message, response=None, **more):
        super().__init__(message)
        self.response = response
        self.__dict__.update(more)


def test_an_unknown_sdk_is_read_by_the_usual_names():
    answer = Answer(
        429, {"Retry-After": "8"}, b'{"error": {"code": "slow", "message": "too fast"}}'
    )
    raised = describe(ApiError("no", answer, request_id="r-1"))
    assert (raised.status, raised.headers.get("retry-after")) == (429, "8")
    envelope = classify(raised).envelope
    assert (envelope.class_, envelope.code, envelope.retry_after) == ("rate_limit", "slow", 8)
    assert envelope.message == "too fast"
    assert envelope.raw["upstream_request_id"] == "r-1"


def test_a_body_that_nobody_has_read_is_not_fetched():
    answer = Answer(500, {}, content=False)
    assert describe(ApiError("no", answer)).body is None
    assert answer.woken == []


def test_properties_do_not_run():
    class Lazy(Exception):
        ran = False

        @property
        def status_code(self):
            Lazy.ran = True
            raise OSError("asked a server")

        body = response = headers = code = status_code

        def __getattr__(self, name):
            Lazy.ran = True
            raise RuntimeError(name)

    raised = describe(Lazy("x"))
    assert raised.status is None
    assert not Lazy.ran


def test_slots_are_read():
    class Slotted(Exception):
        __slots__ = ("status_code",)

    error = Slotted("x")
    assert describe(error).status is None
    error.status_code = 503
    assert describe(error).status == 503


def test_causes_are_found_where_they_hang():
    inner = ConnectionRefusedError(111, "Connection refused")

    def by_cause():
        raise ApiError("x") from inner

    def by_context():
        try:
            raise inner
        except OSError:
            raise ApiError("x")  # noqa: B904 - on purpose

    def suppressed():
        try:
            raise inner
        except OSError:
            raise ApiError("x") from None

    for error in (
        caught(by_cause),
        caught(by_context),
        ApiError("x", reason=inner),
        ApiError(inner),
        ApiError("x", orig=inner),
    ):
        raised = describe(error)
        assert raised.cause.type == "ConnectionRefusedError"
        assert raised.cause.errno == 111
        assert classify(raised).envelope.code == "connection_refused"
    assert describe(caught(suppressed)).cause is None


def test_a_group_gives_its_gravest_member():
    refused = ConnectionRefusedError(111, "x")
    group = BaseExceptionGroup(
        "all", [ValueError("v"), ExceptionGroup("in", [KeyError("k"), refused])]
    )
    raised = describe(group)
    assert [len(raised.exceptions), len(raised.exceptions[1].exceptions)] == [2, 2]
    assert classify(raised).envelope.code == "connection_refused"
    assert classify(describe(ExceptionGroup("x", [ValueError("v")]))).envelope.code == "ValueError"


def test_circles_end():
    one, two = ApiError("one"), ApiError("two")
    one.__cause__, two.__cause__ = two, one
    assert [link.message for link in describe(one).chain()] == ["one", "two"]
    group = ExceptionGroup("g", [one])
    one.__cause__ = group
    check(describe(group))


def test_the_standard_library():
    for call, code in (
        (lambda: socket.create_connection(("127.0.0.1", 1)), "connection_refused"),
        (lambda: socket.getaddrinfo("no-such-host.invalid", 80), "dns_failure"),
        (Path("/no/such/file").open, "FileNotFoundError"),
        (lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata="x"), "tls_failure"),
        (lambda: int("x"), "ValueError"),
    ):  # fmt: skip
        assert check(describe(caught(call))).envelope.code == code


def test_a_reply_of_smtp():
    for error, class_, code in (
        (smtplib.SMTPAuthenticationError(535, b"5.7.8 not accepted"), "authentication", "535"),
        (smtplib.SMTPResponseException(451, b"4.3.0 try later"), "transient", "451"),
        (smtplib.SMTPRecipientsRefused({"a@b.test": (550, b"no such user")}), "permanent", "550"),
    ):
        envelope = check(describe(error)).envelope
        assert (envelope.class_, envelope.code) == (class_, code)
        assert envelope.message


@pytest.mark.parametrize(
    ("code", "class_", "verdict"),
    [
        (1000, "transient", "alive"),
        (1002, "validation", "alive"),
        (1008, "permanent", "alive"),
        (1011, "transient", "failure"),
        (1012, "transient", "failure"),
        (1013, "transient", "failure"),
        (1014, "transient", "alive"),
        (3000, "authentication", "alive"),
        (4001, "permanent", "alive"),
    ],
)
def test_a_closed_websocket_is_held_as_on_its_way_through(code, class_, verdict):
    classified = check(describe(ConnectionClosedError(Close(code, "told"), None)))
    assert (classified.envelope.class_, classified.envelope.code) == (class_, str(code))
    assert classified.verdict == verdict
    in_trouble = code in SERVER_IN_TROUBLE
    assert in_trouble == (verdict == "failure")


def test_a_websocket_that_ended_without_a_close():
    for sent in (None, Close(1011, "keepalive ping timeout")):
        classified = check(describe(ConnectionClosedError(None, sent)))
        assert classified.envelope.code == "connection_reset"
        assert classified.verdict == "failure"


class Hostile(Exception):
    """Fails wherever it is touched."""

    def __str__(self):
        raise RuntimeError("no")

    __repr__ = __str__

    @property
    def args(self):
        raise KeyError("args")

    @property
    def __cause__(self):
        raise ValueError("cause")

    @property
    def __dict__(self):
        raise TypeError("dict")


def test_a_hostile_exception_is_described_all_the_same():
    raised = describe(Hostile())
    assert raised.type.endswith("Hostile")
    check(raised)
    check(describe(ApiError("x", reason=Hostile())))
    check(describe(ExceptionGroup("x", [Hostile()])))


class Evil:
    def __str__(self):
        raise ZeroDivisionError

    __repr__ = __iter__ = __len__ = __bool__ = __eq__ = __hash__ = items = keys = __str__


@pytest.mark.parametrize("module", ["acme", "openai", "botocore.exceptions", "google.api_core.exceptions", "google.genai.errors", "google.auth.exceptions", "grpc", "azure.core.exceptions", "elasticsearch", "slack_sdk.errors", "github.GithubException", "stripe._error", "urllib.error", "tenacity", "kubernetes.client.exceptions", "qdrant_client.http.exceptions", "litellm.exceptions", "smtplib", "kafka.errors", "pika.exceptions", "websockets.exceptions"])  # fmt: skip
@pytest.mark.parametrize("held", [Evil(), {}, {"Error": Evil()}, {"ResponseMetadata": 3}, [1], b"\xff\x00", 7, "x", [[]], {1: Evil()}, float("nan"), ()])  # fmt: skip
def test_members_of_the_wrong_kind(module, held):
    kind = type("Odd", (Exception,), {"__module__": module})
    error = kind(held, held, [held])
    names = (
        "response", "_response", "code", "status", "status_code", "headers", "body", "kwargs", "error",
        "_errors", "_details", "_error_info", "_state", "details", "meta", "last_attempt", "hdrs",
        "request", "json_body", "errors", "rcvd", "smtp_code", "smtp_error", "recipients", "_GithubException__headers", "reason", "_message",
    )  # fmt: skip
    for name in names:
        error.__dict__[name] = held
    check(describe(error))


plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary())


@given(st.lists(plain, max_size=4), st.dictionaries(st.text(max_size=12), plain, max_size=6))
@settings(deadline=None)
def test_any_arguments_and_members(args, members):
    error = ApiError("x")
    error.args = tuple(args)
    error.__dict__.update(members)
    raised = describe(error)
    assert isinstance(raised, Raised)
    check(raised)


def test_large_things_are_cut():
    error = ApiError("x" * 10_000_000, body=b"y" * 10_000_000)
    error.args = (["z" * 10_000] * 10_000,)
    raised = describe(error)
    assert len(raised.message) <= 65536
    assert len(raised.body) <= 65536
    assert len(str(raised.args)) < 1_000_000
    assert len(str(shown(raised, Redactor(())))) < 1_000_000
    many = ExceptionGroup(
        "g", [ExceptionGroup("h", [ValueError(n) for n in range(100)]) for _ in range(100)]
    )
    assert len(describe(many).exceptions) <= 128


def test_the_phase_belongs_to_the_call():
    error = ApiError("x")
    error.__cause__ = TimeoutError("timed out")
    raised = describe(error, phase="commit")
    assert (raised.phase, raised.cause.phase) == ("commit", None)


def test_secrets_do_not_reach_the_envelope():
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    answer = Answer(
        401, {"authorization": f"Bearer {key}"}, f'{{"error": "bad key {key}"}}'.encode()
    )
    plain = "hunter2"
    error = ApiError(f"key {key}", answer, api_key=plain, password=plain)
    envelope = classify(describe(error)).envelope
    assert key not in str(envelope)
    assert plain not in str(envelope)
