"""The state file as a text: believed whole or not at all, and never the cause of a fault."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.breaker.model import Kind, Mode, ProviderSettings, State
from sidecar.breaker.registry import Registry
from sidecar.breaker.saved import (
    Hold,
    KeyWait,
    SavedBreaker,
    SavedLimit,
    SavedProvider,
    SetMode,
    SpentBudget,
    Wait,
)
from sidecar.envelope.redact import shown_name
from sidecar.fleet.document import SLACK, Unusable, decode, encode, lasting

NOW, WALL = 500.0, 1_800_000_000.0
BREAKER = SavedBreaker(
    subject="gpt-x",
    since=400.0,
    hold=Hold(state=State.OPEN, until=900.0, reason="maintenance"),
    mode=SetMode(mode=Mode.OBSERVE),
    wait=Wait(until=800.0, hint=300.0, kind=Kind.TIMEOUT, reason="5 failures in a row"),
)
LIMIT = SavedLimit(
    credential="0f" * 16,
    subject="gpt-x",
    wait=KeyWait(until=600.0, hint=100.0, source="retry-after"),
    budget=SpentBudget(code="credits_exhausted", until=9000.0, next_check=560.0),
)
KEPT = {"up": SavedProvider(identity="a" * 32, breakers=(BREAKER,), limits=(LIMIT,))}
SECRET = b"s" * 32
FILE = encode(KEPT, SECRET, NOW, WALL)


def read(content, *, now=NOW, wall=WALL):
    return decode(content, now, wall)


def test_there_and_back():
    assert read(FILE) == (KEPT, SECRET, 0.0)


def test_times_are_of_the_wall_clock():
    found, _, age = decode(FILE, 7.0, WALL + 100)
    assert age == 100
    assert found["up"].breakers[0].hold.until == pytest.approx(7 + 400 - 100)


def test_later_members_do_not_count():
    document = json.loads(FILE)
    document["x"] = 1
    document["providers"]["up"]["breakers"][0]["x"] = {}
    assert read(json.dumps(document).encode()) == (KEPT, SECRET, 0.0)


def test_from_the_future():
    with pytest.raises(Unusable, match="3600 s from now"):
        read(FILE, wall=WALL - 3600)
    # A clock that was a little fast makes nothing last longer.
    assert read(FILE, wall=WALL - SLACK) == (KEPT, SECRET, 0.0)


@pytest.mark.parametrize("version", [0, 2, -1, 10**30])
def test_of_another_version(version):
    with pytest.raises(Unusable):
        read(json.dumps({"schema": version, "anything": []}).encode())


def test_cut_anywhere():
    for end in range(len(FILE) - 1):
        with pytest.raises(Unusable):
            read(FILE[:end])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 4096,
        b"null",
        b"[]",
        b"{}",
        b'"schema"',
        b"\xff\xfe",
        b'{"schema": 1}',
        b'{"schema": "1"}',
        b'{"schema": 1, "saved_at": 1e400, "secret": "%b", "providers": {}}' % (b"0" * 64),
        b'{"schema": 1, "saved_at": 1, "secret": "0", "providers": {}}',
        b'{"schema": 1, "saved_at": NaN, "providers": {}}',
        b'{"schema": 1, "saved_at": -1, "providers": {}}',
        b'{"schema": 1, "saved_at": 1, "providers": []}',
        b'{"schema": 1, "saved_at": 1, "providers": {"a": {"identity": "b", "breakers": [{}]}}}',
        b'{"schema": 1, "x": ' + b"[" * 100_000,
        b'{"schema": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=range(17),
)
def test_broken(content):
    with pytest.raises(Unusable):
        read(content)


def edited(path, value):
    document = json.loads(FILE)
    at = document["providers"]["up"]
    if path[0] == "limits":
        at, path = at["limits"][0], path[1:]
    elif path[0] != "identity":
        at = at["breakers"][0]
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["identity"], "x" * 65),
        (["subject"], ""),
        (["subject"], "x" * 257),
        (["since"], 1e13),
        (["hold", "state"], "ajar"),
        (["hold", "until"], "soon"),
        (["hold", "until"], 1e308),
        (["hold", "reason"], "x" * 513),
        (["mode", "mode"], None),
        (["wait", "until"], None),
        (["wait", "hint"], -1),
        (["wait", "kind"], "unknown"),
        (["limits", "credential"], "secret"),
        (["limits", "subject"], None),
        (["limits", "wait", "source"], "x" * 65),
        (["limits", "budget", "code"], 5),
        (["limits", "budget", "next_check"], 1e300),
    ],
)
def test_a_value_out_of_bounds(path, value):
    with pytest.raises(Unusable):
        read(edited(path, value))


def restored(found):
    registry = Registry(lambda _transition: None)
    registry.configure({"up": ProviderSettings(upstream="https://a.test")}, NOW)
    identity = registry._providers["up"]._identity()
    same = {name: msgspec.structs.replace(one, identity=identity) for name, one in found.items()}
    registry.restore(same, NOW)
    registry.tick(NOW + 1)
    registry.snapshots("up", NOW + 2)
    registry.admit("up", "gpt-x", NOW + 3)
    # What was restored can be kept again.
    assert read(encode(lasting(registry.saved(NOW + 3)), SECRET, NOW + 3, WALL), now=NOW + 3)
    assert registry.faults == 0


@given(st.binary(max_size=400))
@example(FILE)
def test_any_bytes(content):
    try:
        found = read(content).providers
    except Unusable:
        return
    restored(found)


@given(st.data())
def test_bytes_that_changed(data):
    content = bytearray(FILE)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read(bytes(content)).providers
    except Unusable:
        return
    restored(found)


MOMENTS = st.floats(-1e12, 1e12, allow_nan=False)
REASONS = st.none() | st.text(max_size=20)
BREAKERS = st.builds(
    SavedBreaker,
    since=MOMENTS,
    subject=st.none() | st.text(min_size=1, max_size=8),
    hold=st.none()
    | st.builds(Hold, state=st.sampled_from(State), until=st.none() | MOMENTS, reason=REASONS),
    mode=st.none()
    | st.builds(SetMode, mode=st.sampled_from(Mode), until=st.none() | MOMENTS, reason=REASONS),
    wait=st.none()
    | st.builds(
        Wait,
        until=MOMENTS,
        hint=st.none() | st.floats(0, 1e12),
        kind=st.none() | st.sampled_from(Kind),
        reason=REASONS,
    ),
)


@given(st.lists(BREAKERS, max_size=5))
def test_any_legal_file_can_be_restored(breakers):
    restored({"up": SavedProvider(identity="", breakers=tuple(breakers))})


def test_names_that_mean_nothing_to_the_next_process():
    secret = shown_name("sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD")
    assert secret.startswith("[redacted]-")
    known = {
        name: SavedBreaker(subject=name, since=0.0)
        for name in (secret, "\ud800", "~v1/[redacted]", "gpt-x")
    }
    providers = {"up": SavedProvider(identity="a", breakers=tuple(known.values()))}
    kept = [one.subject for one in lasting(providers)["up"].breakers]
    assert kept == ["~v1/[redacted]", "gpt-x"]
    nothing = SavedProvider(identity="a", breakers=(known[secret],))
    assert lasting({"up": nothing}) == {}
    limits = tuple(
        SavedLimit(credential="0" * 32, subject=subject) for subject in (secret, "\ud800", "m", "")
    )
    found = lasting({"up": SavedProvider(identity="a", limits=limits)})
    assert [one.subject for one in found["up"].limits] == ["m", ""]
