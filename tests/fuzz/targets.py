"""What is promised of everything that is read, as functions of plain bytes.

Each target takes any bytes and raises only where a promise is broken. Inputs are texts that a
person can read and write: an exchange as HTTP shows it, a record as `/v1/classify` takes it, a
configuration as it stands in its file; so the corpus is readable, and a find is a file.
"""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

from sidecar import correlation
from sidecar.admin.answers import encode_json
from sidecar.admin.guard import host_allowed, origin_allowed
from sidecar.breaker.model import Refusal, Verb
from sidecar.breaker.registry import Registry
from sidecar.cli.explain import explain
from sidecar.client import for_model, judged
from sidecar.client.wire import AnswerReader, WireError
from sidecar.config.fault_rules import (
    FaultOrder,
    header_document,
    read_fault_document,
    read_order,
    write_fault,
)
from sidecar.config.load import ConfigError, default_path, load
from sidecar.config.resolved import Dependency
from sidecar.dependencies.guard import Dependencies
from sidecar.dependencies.reports import ReportError, read_object, read_report
from sidecar.envelope.dialects import NAMES, get
from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.inflate import StreamInflater, inflate
from sidecar.envelope.model import Classified, Seen, Verdict
from sidecar.envelope.model_name import (
    ModelScan,
    model_in_json,
    model_in_multipart,
    model_in_query,
)
from sidecar.envelope.policy import should_retry
from sidecar.envelope.recorded import RecordedError, read
from sidecar.envelope.recorded import classify as classify_recorded
from sidecar.envelope.redact import shown_path
from sidecar.envelope.rules import OperatorRule
from sidecar.envelope.stream import StreamReader
from sidecar.faults.injector import Fault, Injected
from sidecar.fleet import document
from sidecar.proxy import headers as header_lines
from sidecar.proxy import replies
from sidecar.proxy import target as targets_of
from sidecar.proxy.events import EventTail, FrameTail, Scanner
from sidecar.proxy.failures import Refused
from sidecar.proxy.head_guard import HeadGuard
from sidecar.proxy.hints import hint_of, nothing_left
from sidecar.proxy.limit_key import limit_key
from sidecar.proxy.runtime import Runtime, breakers_of
from sidecar.proxy.websocket import Frames
from sidecar.telemetry import observer as telemetry
from tests.cases import NOW, all_cases

from . import promises

CORPUS = Path(__file__).resolve().parents[1] / "data" / "fuzz"
DIALECTS = sorted(NAMES)
SECRET = "sk-live-0A1b2C3d4E5f6G7h8I9j"


def dice(data: bytes) -> Random:
    """Choices that belong to an input, so that it always runs alike."""
    return Random(zlib.crc32(data))


def told_to_retry(data: bytes) -> bool:
    """Does an input hold the header by which a server says that it may be asked again?"""
    return b"should-retry" in data.lower()


# -- an exchange, as HTTP shows it ----------------------------------------------------------


class Exchange(NamedTuple):
    """What an input says was asked and answered."""

    method: str
    path: str
    status: int
    headers: Headers
    body: bytes

    def seen(self, **more: Any) -> Seen:
        return Seen(
            status=self.status,
            headers=self.headers,
            body=self.body,
            method=self.method,
            path=self.path,
            now=NOW,
            **more,
        )


def exchange_of(data: bytes) -> Exchange:
    """Reads `METHOD path`, a status, header lines, an empty line and a body; all of it leniently."""
    head, _, body = data.partition(b"\n\n")
    asked, _, rest = head.partition(b"\n")
    method, _, path = asked.decode("latin-1").partition(" ")
    status, _, lines = rest.partition(b"\n")
    digits = "".join(char for char in status[:8].decode("latin-1") if "0" <= char <= "9")
    pairs = [
        (name.strip(), value.strip())
        for line in lines.decode("latin-1").split("\n")
        for name, _, value in [line.partition(":")]
    ]
    number = int(digits[:3] or 0)
    return Exchange(
        method, path or "/", number if 100 <= number <= 599 else 500, Headers(pairs), body
    )


def written(case: dict[str, Any]) -> bytes:
    """A recorded case as an input."""
    asked, answer = case["request"], case["response"]
    lines = [f"{asked['method']} {asked['path']}", str(answer["status"])]
    for name, held in (answer.get("headers") or {}).items():
        lines += [f"{name}: {one}" for one in (held if isinstance(held, list) else [held])]
    body = answer.get("body") or ""
    encoded = answer.get("body_encoding") == "base64"
    raw = base64.b64decode(body) if encoded else body.encode("utf-8", "surrogatepass")
    return "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n\n" + raw


def answer(data: bytes) -> None:
    """A whole answer, of some dialects: an envelope that keeps its promises, without a secret."""
    found = exchange_of(data)
    random = dice(data)
    for name in {"auto", "generic", *random.sample(DIALECTS, 6)}:
        seen = found.seen(truncated=random.random() < 0.1, complete=random.random() > 0.1)
        classified = classify(
            seen,
            get(name),
            rules=operator_rules(),
            correlation_id="corr-1",
            secrets=lambda: (SECRET,),
        )
        assert not classified.rule.startswith("fault"), (name, classified.rule)
        if name != "sidecar":
            promises.check(classified, status=found.status, told=_should_retry(found))
        elif classified.envelope is not None:
            # Another sidecar's verdict is its own; its envelope has to be one all the same.
            promises.check_envelope(classified.envelope)
        if classified.envelope is not None:
            assert SECRET not in json.dumps(msgspec.to_builtins(classified.envelope)), name
            _worn(found, get(name).for_answer(seen), classified)


def _worn(found: Exchange, dialect: Dialect, classified: Classified) -> None:
    """What an error is dressed in on its way to the caller."""
    envelope = classified.envelope
    assert envelope is not None
    if classified.verdict is Verdict.THROTTLE:
        hint = hint_of(envelope, found.headers, NOW)
        assert hint is None or hint.seconds >= 0
    nothing_left(found.headers, NOW)
    advice = should_retry(
        envelope, terminal=classified.terminal, upstream=dialect.should_retry(found.headers)
    )
    names = dialect.should_retry_headers
    lines = [
        *replies.error_headers(envelope, classified.verdict, advice, names),
        *dialect.error_headers(envelope, found.path),
    ]
    for name, value in lines:
        # The upstream's own advice is passed on as it came; HTTP's parser has looked at it.
        assert value.isprintable() or name in names, (name, value)
        (name + value).encode("latin-1")
    json.loads(dialect.error_body(envelope, 503, found.path))
    event = dialect.stream_error(envelope, found.path)
    assert event.endswith(b"\n") or not event.isascii() or event[:1] == b"\0", event
    dialect.frame_error(envelope, found.headers.get("content-type") or "")


@cache
def operator_rules() -> tuple[OperatorRule, ...]:
    """Rules that look everywhere, read as an operator writes them."""
    return load(CORPUS / "operator-rules.yaml", environ={}).providers["up"].rules


# -- streams --------------------------------------------------------------------------------


def stream(data: bytes) -> None:
    """A stream: the same verdict however it is cut, and no byte lost where events are kept whole."""
    found = exchange_of(data)
    random = dice(data)
    coding = found.headers.get("content-encoding")
    for name in {"auto", *random.sample(DIALECTS, 3)}:
        if name == "sidecar":
            continue
        whole = _told(found, name, [found.body], coding)
        for pieces in _cuts(found.body, random):
            told = _told(found, name, pieces, coding)
            assert told == whole, (name, [len(piece) for piece in pieces], told, whole)
    for pieces in _cuts(found.body, random):
        for tail in (EventTail(lines=False), EventTail(lines=True), FrameTail()):
            passed = b"".join(tail.whole(piece, 0.0) for piece in pieces)
            assert passed + tail.give_up() == found.body, tail


def _should_retry(found: Exchange) -> bool:
    return any("should-retry" in name.lower() for name, _ in found.headers)


def _cuts(body: bytes, random: Random) -> list[list[bytes]]:
    cuts = [
        sorted(random.randint(0, len(body)) for _ in range(count))
        for count in (1, random.randint(2, 12))
    ]
    found = [[body[a:b] for a, b in zip([0, *cut], [*cut, len(body)], strict=True)] for cut in cuts]
    if len(body) <= 2048:
        found.append([body[at : at + 1] for at in range(len(body))])
    return found


def _told(
    found: Exchange, name: str, pieces: Sequence[bytes], coding: str | None
) -> tuple[Any, ...]:
    """What a stream comes to in these pieces, as the relay reads them."""
    reader = StreamReader(
        get(name),
        found.seen(),
        rules=operator_rules(),
        correlation_id="corr-1",
        secrets=lambda: (SECRET,),
    )
    identity = coding is None or coding.strip().lower() == "identity"
    scanner = Scanner(reader, None if identity else StreamInflater(coding or ""))
    for piece in pieces:
        if piece:
            scanner.feed(piece)
    classified = scanner.finish(clean=True)
    promises.check(classified, status=found.status, told=_should_retry(found))
    scanner.error_body()
    envelope = classified.envelope
    brief = None
    if envelope is not None:
        assert SECRET not in json.dumps(msgspec.to_builtins(envelope))
        brief = (
            envelope.class_,
            envelope.code,
            envelope.message,
            envelope.retryable,
            envelope.retry_after,
        )
    return classified.verdict, classified.rule, brief, scanner.terminated, scanner.done


# -- failures outside HTTP ------------------------------------------------------------------


def record(data: bytes) -> None:
    """What is pasted into `/v1/classify`: an envelope, or one clear sentence why not."""
    try:
        found = read(data, NOW)
        classified = classify_recorded(found, correlation_id="corr-1")
    except RecordedError as error:
        encode_json(_said(str(error)))
        return
    assert not classified.rule.startswith("fault"), classified.rule
    encode_json(classified.rule)
    if classified.envelope is not None:
        promises.check_envelope(classified.envelope)
        encode_json(msgspec.to_builtins(classified.envelope))


DEPENDENCIES = {
    name: Dependency(name=name, source=source, **more)
    for name, source, more in (
        ("orders-db", "database", {"vendor": "postgresql"}),
        ("some-db", "database", {}),
        ("some-sdk", "sdk", {"sdk": "openai"}),
    )
}  # fmt: skip


def _said(why: str) -> str:
    assert why, "a refusal says why"
    return why


def report(data: bytes) -> None:
    """A report about a dependency: it settles its permit whatever it holds, and is judged."""
    with suppress(ReportError):
        document = read_object(data)
        encode_json(str(document.get("correlation_id"))[:10])
    try:
        found = read_report(data)
    except ReportError as error:
        _said(str(error))
        return
    faults: list[Any] = []
    observer = telemetry.Observer(
        lambda fact: faults.append(fact) if isinstance(fact, telemetry.Fault) else None
    )
    registry = Registry(observer.emit, on_fault=lambda error: faults.append(error))
    registry.configure(_settings(), 0.0)
    dependencies = Dependencies(DEPENDENCIES, registry, observer)
    for name in DEPENDENCIES:
        lease = dependencies.permit(name, "corr-1", 1.0)
        told = dependencies.report(name, msgspec.structs.replace(found, permit=lease.id), None, 2.0)
        assert told.trouble is None
        assert dependencies.in_flight(name) == 0
        assert not faults, faults
        promises.check(told.classified, told=told_to_retry(data))
        encode_json(msgspec.to_builtins(told.classified.envelope))
        encode_json(told.correlation_id)
        stranger = dependencies.report(name, found, "corr-2", 3.0)
        assert stranger.trouble is not None


def _settings() -> dict[str, Any]:
    from sidecar.dependencies.guard import breaker_settings

    return {name: breaker_settings(one) for name, one in DEPENDENCIES.items()}


# -- live exceptions ------------------------------------------------------------------------


class _Held:
    """Something that an exception holds: attributes, and properties that fail."""

    def __init__(self, members: dict[str, Any]) -> None:
        vars(self).update(members)

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    @property
    def text(self) -> str:
        raise OSError("nobody has read it yet")


def live(error: Any, deep: int = 6) -> Exception:
    """An exception as some library would raise it, out of what a report would tell of it."""
    told = error if isinstance(error, dict) else {}
    dotted = "".join(filter(str.isprintable, str(told.get("type") or "x.Error")))[:200]
    module, _, name = dotted.rpartition(".")
    kind = type(name or "Error", (Exception,), {"__module__": module or "builtins"})
    held = told.get("args")
    made = kind(*(held if isinstance(held, list) else [told.get("message")])[:8])
    attrs = told.get("attrs") if isinstance(told.get("attrs"), dict) else {}
    members = {name: told[name] for name in told.keys() - {"args", "cause", "exceptions", "type"}}
    members["status_code"] = told.get("status")
    members["response"] = _Held({**members, "status_code": told.get("status")})
    if isinstance(attrs.get("response"), dict):
        members["response"] = attrs["response"]
    for spelt, value in {**members, **attrs}.items():
        place, _, last = str(spelt).rpartition(".")
        with suppress(Exception):
            if place:
                setattr(made, place, _Held({last: value}))
            else:
                setattr(made, last, value)
    if deep and told.get("cause") is not None:
        made.__cause__ = live(told["cause"], deep - 1)
    several = told.get("exceptions")
    if deep and isinstance(several, list) and several:
        return ExceptionGroup("several", [live(one, deep - 1) for one in several[:8]])
    return made


def exception(data: bytes) -> None:
    """Whatever was raised in the agent's process: judged, told to a model, and reported."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    told = document.get("error") if isinstance(document, dict) else None
    error = live(told)
    for phase, origin in (
        (None, None),
        ("commit", judged.Origin(source="database")),
        (None, judged.Origin(source="sdk", sdk="openai")),
    ):
        found = judged.judge(error, origin, phase=phase, correlation_id="corr-1")
        promises.check_envelope(found.envelope)
        said = for_model(found.envelope)
        assert said
        said.encode()
        report = json.dumps(judged.told_of(found, error, phase), default=str)
        assert len(report) < 256 * 1024
        read_report(json.dumps({"permit": "x", "error": json.loads(report)}).encode())
    for_model(error)
    judged.judge_answer(_Held({"headers": told}))


# -- the configuration ----------------------------------------------------------------------

ENVIRON = {"A": "one", "B": "", "C": "\udcff", "D": "https://[::1", "E": "${A}"}


def _check_told(error: ConfigError) -> None:
    """Something is said of what is wrong, and all of it can be shown."""
    problems = [str(problem) for problem in error.problems]
    assert problems
    assert all(_said(problem).isprintable() for problem in problems), problems


def config(data: bytes) -> None:
    """A file: a configuration that a daemon can work with, or clear problems."""
    file = _scratch()
    file.write_bytes(data)
    try:
        found = load(file, environ=ENVIRON)
    except ConfigError as error:
        _check_told(error)
        return
    msgspec.json.encode(found.redacted())
    for name in (*found.providers, *found.dependencies, *found.disabled):
        told = explain(found, name)
        assert told
        told.encode()
    registry = Registry(lambda _: None)
    registry.configure(breakers_of(found), 0.0)
    asyncio.run(_runtimes(found, registry))


async def _runtimes(found: Any, registry: Registry) -> None:
    loop = asyncio.get_running_loop()
    for name, provider in found.providers.items():
        runtime = Runtime(provider, loop, registry.gates(name))
        assert runtime.reconfigured(provider)
        await runtime.upstream.close()


@cache
def _scratch() -> Path:
    import tempfile

    return Path(tempfile.mkdtemp(prefix="fuzz-")) / "breakers.yaml"


def fault(data: bytes) -> None:
    """A fault that a call or a person asks for: a rule, or clear problems."""
    for read_it, given in (
        (read_fault_document, header_document(data.decode("latin-1"))),
        (read_fault_document, data),
        (read_order, data),
    ):
        try:
            found = read_it(given)
        except ConfigError as error:
            _check_told(error)
            continue
        for rule in found.rules if isinstance(found, FaultOrder) else [found]:
            json.dumps(write_fault(rule))
            seen = Injected(
                number=1, rule="r", call=1, at=1.0, correlation_id="c", provider="up", model=None,
                method="POST", path="/", fault=str(rule.kind or rule.class_),
            )  # fmt: skip
            _, value = Fault(rule, rule.name or "rule", seen, 1.0).mark
            assert value.isprintable()
            assert value.isascii()


def state(data: bytes) -> None:
    """A state file: believed as a whole, and then it can be written again; or not at all."""
    faults: list[Exception] = []
    try:
        kept = document.decode(data, 1000.0, NOW)
    except document.Unusable as error:
        _said(str(error))
        return
    registry = Registry(lambda _: None, on_fault=faults.append)
    registry.configure(_kept_providers(), 1000.0)
    registry.restore(kept.providers, 1000.0)
    for now in (1000.0, 1001.0, 1e6):
        registry.tick(now)
        for name in _kept_providers():
            for shot in registry.snapshots(name, now):
                json.dumps(msgspec.to_builtins(shot), allow_nan=False)
            registry.gates(name).gate_snapshots(now)
            registry.gates(name).quota_snapshots()
            admitted = registry.admit(name, "m", now)
            if not isinstance(admitted, Refusal):
                admitted.release(now)
        saved = document.lasting(registry.saved(now))
        document.decode(
            document.encode(saved, kept.secret, now, NOW + now - 1000), now, NOW + now - 1000
        )
    assert not faults, faults


@cache
def _kept_providers() -> dict[str, Any]:
    return breakers_of(load(CORPUS / "operator-rules.yaml", environ={}))


# -- pieces of a request --------------------------------------------------------------------


def request(data: bytes) -> None:
    """A request: its model however it is cut, its target, its host; refused or read, never a fault."""
    found = exchange_of(data)
    random = dice(data)
    body = found.body
    whole = model_in_json(body)
    for pieces in _cuts(body, random):
        scan = ModelScan(1 << 20)
        for piece in pieces:
            scan.feed(piece)
        assert scan.name == whole, ([len(piece) for piece in pieces], scan.name, whole)
    kind = found.headers.get("content-type") or ""
    for name in (whole, model_in_multipart(body, kind), model_in_query(found.path)):
        if name is not None:
            targets_of.model(name).encode("utf-8", "surrogatepass")
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in found.headers]
    host = found.headers.get("host")
    host_allowed(host, ("a.example",))
    origin_allowed(found.headers.get("origin"), found.headers.get("sec-fetch-site"), host)
    named = header_lines.by_name(raw)
    id_ = correlation.given(named)
    assert id_ is None or (0 < len(id_) <= 128 and id_.isascii())
    lines = header_lines.request_lines(raw, b"up.example", (), header_lines.connection_names(raw))
    assert all(isinstance(line, bytes) for line in lines)
    header_lines.response_lines(raw, (), keep_own=False)
    limit_key(found.path, raw, found.path)
    for own in (None, True, False):
        try:
            routed = targets_of.parse(found.method, found.path, own=own)
        except Refused:
            continue
        targets_of.climbs(routed.path)
        assert targets_of.route(shown_path(routed.path)).startswith("~")
        for name in random.sample(DIALECTS, 3):
            dialect = get(name)
            dialect.model_of(routed.path)
            dialect.is_model_route(found.method, routed.path)
            shown_path(routed.path, dialect.secret_paths)
            dialect.repeatable(found.method, routed.path)


# -- bytes of codings and protocols ---------------------------------------------------------

CODINGS = (
    "gzip",
    "deflate",
    "br",
    "zstd",
    "gzip, br",
    "x-gzip",
    "identity",
    "deflate, deflate",
    "weird",
)


def coding(data: bytes) -> None:
    """A coded body: bounded output, the same for a stream however it is cut."""
    name, body = CODINGS[data[0] % len(CODINGS)] if data else "gzip", data[1:]
    for limit in (0, 10, 4096, 1 << 16):
        found = inflate(body, name, limit)
        assert found is None or len(found) <= limit
    random = dice(data)
    told = {_inflated(pieces, name) for pieces in (*_cuts(body, random), [body])}
    # How much of what is damaged can be read depends on the cut; nobody reads anything else.
    longest = max(told, key=len)
    assert all(longest.startswith(one) for one in told)


def _inflated(pieces: Sequence[bytes], name: str) -> bytes:
    inflater, out = StreamInflater(name), b""
    for piece in pieces:
        if not piece:
            continue
        text = inflater.feed(piece)
        if text is None:
            break
        out += text
    return out


def frames(data: bytes) -> None:
    """WebSocket frames and the heads of answers: the same however they are cut."""
    random = dice(data)
    told = set()
    for pieces in (*_cuts(data, random), [data]):
        reader = Frames()
        for piece in pieces:
            reader.feed(piece)
        told.add((reader.close_code, reader.reason, reader.whole))
        assert reader.reason.encode("utf-8")[:0] == b""
    assert len(told) == 1, told
    sizes = set()
    for pieces in (*_cuts(data, random), [data]):
        guard, taken = HeadGuard(bodiless=True), 0
        for piece in pieces:
            if not piece:
                continue
            if not guard.open:
                break
            own = guard.look(piece)
            if own is None:
                taken = -1
                break
            taken += own
            if own < len(piece):
                break
        sizes.add((taken, guard.switched, guard.open))
    assert len(sizes) == 1, sizes


def daemon_answer(data: bytes) -> None:
    """What the client library reads from whoever listens where the daemon should."""
    random = dice(data)
    told = set()
    for pieces in (*_cuts(data, random), [data]):
        reader, answers = AnswerReader(), []
        try:
            for piece in pieces:
                reader.feed(piece)
                while (found := reader.next()) is not None:
                    answers.append(found)
        except WireError:
            answers.append(None)
        told.add(tuple(answers))
    assert len(told) == 1


# -- what they begin with -------------------------------------------------------------------


class Target(NamedTuple):
    """One function of bytes, and what it is fed at first."""

    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    tokens: tuple[bytes, ...] = ()


def _kinds() -> list[dict[str, Any]]:
    folder = Path(__file__).resolve().parents[1] / "envelope" / "kinds"
    files = [folder.with_suffix(".jsonl"), *sorted(folder.glob("*.jsonl"))]
    return [
        json.loads(line) for file in files for line in file.read_text().splitlines() if line.strip()
    ]


@cache
def exchanges() -> list[bytes]:
    cases = [*all_cases(), *_kinds()]
    marked = (
        f"POST /v1/chat/completions\n503\nx-error-envelope: {json.dumps(ENVELOPE)}\n"
        "x-sidecar-verdict: failure\nx-sidecar-decision: forwarded\n\n{}"
    )
    return [marked.encode()] * 20 + [
        written(case) for case in cases if "response" in case and "request" in case
    ]


def _streams() -> list[bytes]:
    found = [
        one for one in exchanges() if b"data:" in one or b"event-stream" in one or b"ndjson" in one
    ]
    return found + [one for one in exchanges() if one.endswith((b"]", b"]\n"))]


def _records() -> list[bytes]:
    cases = [*all_cases(), *all_cases("db-cases.jsonl"), *all_cases("sdk-cases.jsonl")]
    return [json.dumps(case).encode() for case in cases]


def _reports() -> list[bytes]:
    cases = [*all_cases("db-cases.jsonl"), *all_cases("sdk-cases.jsonl")]
    good = {"permit": "x", "ok": True, "correlation_id": "c", "duration": 0.5}
    return [json.dumps(good).encode()] + [
        json.dumps(
            {"permit": "x", "error": case["error"], "driver": case.get("driver"), "now": 1}
        ).encode()
        for case in cases
    ]


ENVELOPE = {
    "class": "rate_limit", "source": "http", "code": "429", "message": "m", "retryable": True, "retry_after": 1.5,
    "correlation_id": "c",
}  # fmt: skip


def _exceptions() -> list[bytes]:
    marked = {"x-error-envelope": json.dumps(ENVELOPE), "x-should-retry": "false"}
    return _reports() + [
        json.dumps({"permit": "x", "error": error}).encode()
        for error in (
            {"type": "openai.RateLimitError", "status": 429, "headers": marked},
            {"type": "botocore.exceptions.ClientError", "attrs": {"response": {"ResponseMetadata": {"HTTPHeaders": marked}}}},
        )
    ]  # fmt: skip


def _configs() -> list[bytes]:
    root = Path(__file__).resolve().parents[2]
    pages = (root / "docs").glob("*.md")
    shown = [
        part.split("```")[0] for page in pages for part in page.read_text().split("```yaml\n")[1:]
    ]
    files = [default_path(), *root.glob("helm/**/breakers.yaml"), *root.glob("tests/data/*.yaml")]
    return [file.read_bytes() for file in files] + [text.encode() for text in shown]


def _faults() -> list[bytes]:
    return [
        b"class=rate_limit; retry_after=7", b"kind=cut; events=3", b"kind=delay; after=2s; name=a b",
        b'{"class": "transient", "code": "x", "status": 503, "nth": 3, "provider": "openai", "share": 0.5}',
        b'{"rules": [{"kind": "error_event", "class": "permanent", "events": 2}], "for": "10m", "seed": 1}',
    ]  # fmt: skip


def _states() -> list[bytes]:
    registry = Registry(lambda _: None)
    registry.configure(_kept_providers(), 1000.0)
    registry.control("up/m", Verb.OPEN, 1000.0, 600.0, "by hand")
    registry.control("up", Verb.OBSERVE, 1000.0)
    registry.control("up/~v1/x", Verb.OPEN, 1000.0)
    kept = document.lasting(registry.saved(1001.0))
    return [document.encode(one, b"s" * 32, 1001.0, NOW) for one in (kept, {})]


def _requests() -> list[bytes]:
    body = b'{"messages": [{"role": "user", "content": "\\u00e9 \\"model\\""}], "stream": true, "model": "gpt-x"}'
    form = (
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n--b\r\n'
        b'Content-Disposition: form-data; name="file"; filename="a.mp3"\r\n\r\nxxx\r\n--b--\r\n'
    )
    head = b"host: localhost:7600\nauthorization: Bearer sk-1234567890\nx-request-id: abc\nconnection: close, x-a\n"
    lines = [
        b"POST /openai/v1/chat/completions", b"GET http://localhost:7600/up/x?model=a&key=b", b"POST /up/x/../%2e%2e/y",
        b"POST /gemini/v1beta/models/gemini-2:streamGenerateContent?alt=sse", b"OPTIONS *",
        b"POST /azure/openai/deployments/a%2Fb/chat/completions?api-version=1", b"POST /slack/services/T0/B0/xyz",
        b"POST /bedrock/model/arn%3Aaws%3A1/invoke-with-response-stream", b"GET //x/y", b"GET /",
    ]  # fmt: skip
    return [
        line + b"\n200\n" + head + kind + b"\n\n" + one
        for line in lines
        for kind, one in (
            (b"content-type: application/json", body),
            (b'content-type: multipart/form-data; boundary="b"', form),
        )
    ]


def _codings() -> list[bytes]:
    import brotli
    import zstandard

    text = b'{"error": {"message": "too many", "code": "rate_limit_exceeded"}}' * 9
    raw = zlib.compressobj(wbits=-15)
    gzip = zlib.compressobj(wbits=31)
    coded = [
        gzip.compress(text) + gzip.flush(), zlib.compress(text), brotli.compress(text), zstandard.compress(text),
        brotli.compress(zlib.compress(text)), b"", text, raw.compress(text) + raw.flush(), b"\0",
    ]  # fmt: skip
    return [bytes((index,)) + one for index, one in enumerate(coded)]


def _frames() -> list[bytes]:
    from sidecar.proxy.websocket import close_frame

    return [
        b"\x81\x05hello" + close_frame(1011, "no", masked=False),
        b"\x82\xfe\x01\x00abcd" + b"x" * 256 + close_frame(1000, "", masked=True),
        b"\x81\x7f" + (70000).to_bytes(8) + b"x" * 200,
        b"HTTP/1.1 103 X\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n\r\nbody",
        b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\n\r\n\x81\x01a",
        b"HTTP/1.1 200 OK\nA: b\n c\n\n",
    ]


def _answers_of_a_daemon() -> list[bytes]:
    one = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{"permit": "x"}'
    return [one + one, b"HTTP/1.1 503 X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"]


def _words() -> tuple[bytes, ...]:
    """Keys of the configuration, which nobody finds by chance."""
    from sidecar.config.suggest import ANY_NAME, all_paths

    names = sorted({path[-1].removesuffix("[]") for path in all_paths()} - {ANY_NAME})
    keys = (f"{name}: ".encode() for name in names)
    return (
        *keys,
        b"${A}", b"${B:-5s}", b"${", b"unix:/x", b"https://b\xc3\xbccher.example", b"http://[::1]:99999", b"<<: *a",
        b"&a ", b"!!python/object:os.system ", b"? ", b"--- ", b"https://a..b", b"https://" + b"a" * 70 + b".example",
        b"https://u:p@h", b"https://h:0", b"http://\xe2\x82\xac", b"5s", b"1MiB", b"[*a, *a]",
    )  # fmt: skip


TARGETS: dict[str, Target] = {
    "answer": Target(answer, exchanges, (SECRET.encode(), b"Bearer " + SECRET.encode())),
    "stream": Target(stream, _streams, (SECRET.encode(),)),
    "record": Target(record, _records),
    "report": Target(report, _reports),
    "exception": Target(exception, _exceptions, (b'"headers": {"x-error-envelope": "{}"}',)),
    "fault": Target(fault, _faults, (b"kind=", b"class=", b"; ", b"share=", b"every=", b"times=")),
    "state": Target(state, _states, (b'"limits": [', b'"until": ', b'"subject": ', b"1e308")),
    "config": Target(config, _configs, _words()),
    "request": Target(request, _requests, (b"%2F", b"%", b"model", b'"model": ', b"boundary=")),
    "coding": Target(coding, _codings, (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"x\x9c")),
    "frames": Target(frames, _frames, (b"\x88\x02\x03\xe8", b"\x81\x7e", b"\x81\xff")),
    "daemon": Target(daemon_answer, _answers_of_a_daemon, (b"content-length: ", b"HTTP/1.1 100 ")),
}


def corpus(name: str) -> list[tuple[str, bytes]]:
    """The inputs that are kept for a target: finds of the past, and what is odd in a way of its own."""
    return [(file.name, file.read_bytes()) for file in sorted((CORPUS / name).glob("*"))]


def seeds(name: str) -> list[bytes]:
    """Everything that a target begins with."""
    return [*TARGETS[name].seeds(), *(data for _, data in corpus(name))]


__all__ = ["CORPUS", "TARGETS", "Target", "corpus", "seeds"]
