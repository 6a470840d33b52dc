"""Whatever a driver raises, classification answers, and its answer keeps the contract."""

import json
import math
import re

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sidecar.envelope import sdk
from sidecar.envelope.database import classify
from sidecar.envelope.databases import READERS
from sidecar.envelope.headers import Headers
from sidecar.envelope.policy import header_envelope
from sidecar.envelope.raised import Raised, recorded
from tests.cases import all_cases

CODE = re.compile(r"[A-Za-z0-9._:/#-]{1,64}")
CASES = all_cases("db-cases.jsonl")

TYPES = sorted({case["error"]["type"] for case in CASES} | {"Exception", "x.Y", "", ".", "a..b"})
CODES = ["40001", "23505", 1205, "1205", "ORA-00060", "40P01", -1, 0, 10**30, "", "prose and more",
         "Neo.TransientError.X", "SQLITE_BUSY", 1.5, float("nan"), float("inf"), "ünïcode", "0" * 200]  # fmt: skip
STATES = ["40001", "08001", "HY000", "57P01"]
TEXTS = sorted(
    {text[:300] for case in CASES for text in case["error"]["args"] if isinstance(text, str)}
)
VENDORS = [None, "", "Azure SQL", "unheard-of", "x" * 500, *READERS]
DRIVERS = [None, "pyodbc", "sqlalchemy+asyncpg", "django", "+", "x" * 500]
ATTRIBUTES = sorted({name for case in CASES for name in case["error"].get("attrs") or {}})

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30), st.binary(max_size=30),
    st.sampled_from(CODES), st.sampled_from(TEXTS),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.sampled_from(ATTRIBUTES), st.text(max_size=5)), inner, max_size=4
        ),
    ),
    max_leaves=8,
)
names = st.one_of(st.sampled_from(TYPES), st.text(max_size=40))
attributes = st.dictionaries(
    st.one_of(st.sampled_from([*ATTRIBUTES, "number", "severity", "details"]), st.text(max_size=8)),
    st.one_of(values, st.builds(object)),
    max_size=5,
)


@st.composite
def exceptions(draw, inner=None):
    """Any exception; composite, for the representation of so many strategies is of no use."""
    return Raised(
        type=draw(names),
        mro=draw(st.lists(names, max_size=4).map(tuple)),
        code=draw(
            st.one_of(st.none(), st.sampled_from(CODES), st.text(max_size=40), st.integers())
        ),
        sqlstate=draw(st.one_of(st.none(), st.sampled_from(STATES), st.text(max_size=9))),
        status=draw(st.one_of(st.none(), st.integers())),
        headers=Headers([("retry-after", "5")]),
        body=draw(values),
        args=draw(st.lists(st.one_of(values, st.builds(object)), max_size=4).map(tuple)),
        message=draw(st.one_of(st.sampled_from(TEXTS), st.text(max_size=60))),
        attrs=draw(attributes),
        errno=draw(st.one_of(st.none(), st.integers(-5, 200))),
        phase=draw(st.sampled_from([None, "commit", "connect", "x"])),
        cause=draw(st.one_of(st.none(), inner)) if inner is not None else None,
        exceptions=draw(st.lists(inner, max_size=3).map(tuple)) if inner is not None else (),
    )


raised = st.recursive(exceptions(), exceptions, max_leaves=5)


def assert_contract(found):
    envelope = found.envelope
    class_, verdict = envelope.class_.value, found.verdict.value
    assert CODE.fullmatch(envelope.code), envelope.code
    assert 0 < len(envelope.message) <= 500
    assert not re.search(r"[\r\n\x00-\x1f\x7f\u2028\u2029]", envelope.message)
    if envelope.retry_after is not None:
        assert envelope.retryable
        assert math.isfinite(envelope.retry_after)
        assert envelope.retry_after >= 0
    if class_ == "transient":
        assert verdict in {"failure", "alive", "neutral"}
    elif class_ == "rate_limit":
        assert (verdict, envelope.retryable) == ("throttle", True)
    else:
        assert verdict == "alive"
        assert not envelope.retryable or envelope.code == "token_expired"
    assert isinstance(envelope.raw, dict)
    assert found.rule


@given(error=raised, vendor=st.sampled_from(VENDORS), driver=st.sampled_from(DRIVERS))
@settings(deadline=None)
@example(error=Raised(type=""), vendor=None, driver=None)
@example(
    error=Raised(type="a", code="", args=(None,), message=" \n "), vendor="oracle", driver=None
)
def test_whatever_is_raised(error, vendor, driver):
    assert_contract(classify(error, vendor=vendor, driver=driver))


@given(error=st.dictionaries(
    st.sampled_from(["type", "mro", "code", "sqlstate", "pgcode", "status", "headers", "body", "args",
                     "message", "attrs", "errno", "phase", "cause", "exceptions"]),
    values,
))  # fmt: skip
@settings(deadline=None)
def test_whatever_a_report_holds(error):
    assert_contract(classify(recorded(error)))


@pytest.mark.parametrize("vendor", [None, *READERS])
@pytest.mark.parametrize(
    "text",
    ["Key (" * 200_000, "Duplicate entry '" * 60_000, "[" * 1_000_000, "(1) (SQL" * 100_000, "*" * 10**6,
     "dup key: {" + 'a.b: "' * 100_000, "DB-Lib error message 1" * 40_000, " " * 10**6, "DETAIL:\n" * 10**5,
     "Code: " * 150_000, "(A" * 500_000, "\n" * 10**6, "(" + "a." * 400_000, "Neo." * 250_000],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_texts_without_an_end(vendor, text):
    """Each would take minutes of whoever looked at a character more than a few times."""
    for error in (
        Raised(type="Exception", message=text),
        Raised(type="pyodbc.Error", args=("HY000", text)),
        Raised(type="x.Error", code=text, sqlstate=text, attrs={"sqlite_errorname": text}),
        Raised(type="sqlalchemy.exc.DBAPIError", message=text, args=(text, text)),
    ):
        assert_contract(classify(error, vendor=vendor))


def test_chains_and_groups_without_an_end():
    error = Raised(type="psycopg.errors.DeadlockDetected", sqlstate="40P01")
    for _ in range(2000):
        error = Raised(type="builtins.Exception", cause=error)
    assert_contract(classify(error, vendor="postgresql"))
    for _ in range(2000):
        error = Raised(type="ExceptionGroup", exceptions=(error,))
    assert_contract(classify(error, vendor="postgresql"))


def test_nothing_lost_in_a_commit_is_retryable():
    """Of every recorded error whose verdict is a failure, in whatever driver."""
    for case in CASES:
        found = classify(recorded({**case["error"], "phase": "commit"}), vendor=case["vendor"])
        if found.verdict.value in {"failure", "neutral"}:
            assert not found.envelope.retryable, case["id"]
        assert found.verdict.value == case["expect"]["verdict"]


@pytest.mark.parametrize(
    "held", [[1], {"a": 1}, None, True, 1.5, "x", "9" * 5000, -(10**400), b"x"], ids=repr
)
def test_attributes_may_hold_values_of_any_kind(held):
    """What a report says is JSON that somebody wrote: each table has to ask before it looks up."""
    for name in TYPES:
        for attribute in ATTRIBUTES:
            for vendor in {None, name.partition(".")[0]} & {None, *READERS}:
                found = classify(
                    recorded({"type": name, "attrs": {attribute: held}}), vendor=vendor
                )
                assert not found.rule.startswith("fault"), (name, attribute)
        found = classify(
            recorded({"type": name, "attrs": dict.fromkeys(ATTRIBUTES, held), "args": [held]})
        )
        assert not found.rule.startswith("fault"), name


def test_a_fault_in_a_table_is_neutral_and_said(monkeypatch):
    def broken(_):
        raise KeyError("a table")

    monkeypatch.setitem(READERS, "postgresql", broken)
    found = classify(Raised(type="psycopg.Error", message="a"), vendor="postgresql")
    assert (found.rule, found.verdict.value) == ("fault in classification: KeyError", "neutral")
    assert found.envelope.class_ == "permanent"


HALF = "a\ud800b\udfff"


@pytest.mark.parametrize("place", ["type", "message", "code", "sqlstate", "phase", "body"])
def test_halves_of_surrogate_pairs_are_no_text(place):
    """They come from names of files that are no UTF-8; no other reader of JSON takes them."""
    for error in (
        {place: HALF, "args": [HALF], "headers": {HALF: HALF}, "attrs": {HALF: {HALF: [HALF]}}},
        {"cause": {place: HALF}, "exceptions": [{place: HALF}]},
    ):
        for judge in (classify, sdk.classify):
            envelope = judge(recorded(error)).envelope
            assert "\ufffd" in msgspec.json.encode(envelope).decode()
            assert envelope.message.isprintable()
            json.loads(header_envelope(envelope)).get("message").encode()
