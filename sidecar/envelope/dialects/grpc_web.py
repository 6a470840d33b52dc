"""gRPC-Web and Connect: the status of a call stands in headers, in trailers or in the last frame.

gRPC-Web answers 200 and says what happened in `grpc-status`: in the headers where no body is, else
in a frame of trailers behind it; the text form is base64. Connect answers a single call with an
HTTP status and `{"code", "message", "details"}`, a stream with 200 and a last frame of JSON. They
share one list of codes, by number and by name (grpc.github.io/grpc/core/md_doc_statuscodes,
connectrpc.com/docs/protocol). Without any of these the HTTP status decides.
"""

from __future__ import annotations

import base64
import json
from typing import Any, ClassVar
from urllib.parse import quote, unquote

import msgspec

from sidecar.envelope import retry_after
from sidecar.envelope.decode import decode
from sidecar.envelope.dialects.base import Heard
from sidecar.envelope.dialects.exhausted import MESSAGE_TOO_LARGE
from sidecar.envelope.dialects.generic import Generic
from sidecar.envelope.dialects.rule import BUDGET_WORDS, Rule, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    PERMANENT,
    RATE_LIMIT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import as_word
from sidecar.envelope.frames import Frame, FramesParser
from sidecar.envelope.headers import Headers
from sidecar.envelope.inflate import inflate
from sidecar.envelope.locate import Found
from sidecar.envelope.model import Envelope, ErrorClass, Seen, Verdict
from sidecar.envelope.protobuf import (
    RETRY_INFO,
    from_base64,
    retry_delay,
    retry_delay_in_status,
)

_TRAILERS = 0x80
_END_STREAM = 0x02
_LONGEST_END = 65536

GRPC_RULES = (
    Rule(
        name="cancelled or aborted",
        why="1: the caller or the server let go, 10: a conflict that passes; the server is well",
        codes=words("1 canceled cancelled 10 aborted"),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="the request is at fault",
        why="3: an argument, 9: the state it needs, 11: a range",
        codes=words("3 invalid_argument 9 failed_precondition 11 out_of_range"),
        class_=VALIDATION,
    ),
    Rule(
        name="no repetition mends it",
        why="5: not there, 6: there already, 12: not implemented",
        codes=words("5 not_found 6 already_exists 12 unimplemented"),
        class_=PERMANENT,
    ),
    Rule(
        name="the credential is refused",
        why="7: no right, 16: no valid credential",
        codes=words("7 permission_denied 16 unauthenticated"),
        class_=AUTHENTICATION,
    ),
    MESSAGE_TOO_LARGE,
    Rule(
        name="throttled",
        why="8: something is used up; gRPC's retries treat it as a rate",
        codes=words("8 resource_exhausted"),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="a fault of the server",
        why="2: unknown, 4: too late, 13: internal, 14: not there for the moment, 15: data lost",
        codes=words("2 4 deadline_exceeded 13 internal 14 unavailable 15 data_loss"),
        class_=TRANSIENT,
    ),
)

_NAMES = (
    "ok", "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found",
    "already_exists", "permission_denied", "resource_exhausted", "failed_precondition", "aborted",
    "out_of_range", "unimplemented", "internal", "unavailable", "data_loss", "unauthenticated",
)  # fmt: skip

# How the daemon's own answers are spoken: number, name.
_SPOKEN = {
    ErrorClass.VALIDATION: (3, "invalid_argument"),
    ErrorClass.AUTHENTICATION: (16, "unauthenticated"),
    ErrorClass.RATE_LIMIT: (8, "resource_exhausted"),
    ErrorClass.TRANSIENT: (14, "unavailable"),
    ErrorClass.PERMANENT: (12, "unimplemented"),
}


def end_flag(content_type: str | None) -> int | None:
    """The flag of the last frame of a body of this media type; None if it has no frames."""
    kind = (content_type or "").lower()
    if kind.startswith("application/grpc-web"):
        return _TRAILERS
    return _END_STREAM if kind.startswith("application/connect+") else None


def is_text(content_type: str | None) -> bool:
    """Whether the frames are base64 on the wire."""
    return (content_type or "").lower().startswith("application/grpc-web-text")


class GrpcWeb(Generic):
    """A service that speaks gRPC-Web or Connect."""

    name = "grpc-web"
    rules: ClassVar[tuple[Rule, ...]] = (*GRPC_RULES, *Generic.rules)
    code_places: ClassVar[tuple[str, ...]] = ("code",)
    reads_errors_in_2xx: ClassVar[bool] = True
    unknown_in_success: ClassVar[ErrorClass] = ErrorClass.TRANSIENT

    def is_model_route(self, method: str, path: str) -> bool:
        """None: what a method does stands in no path."""
        del method, path
        return False

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """Never: under a 2xx the JSON of Connect is a message, whatever its members are called."""
        del body, seen
        return False

    def outside(self, seen: Seen) -> Evidence | None:
        """The status in the headers, else in the last frame of the body."""
        if "grpc-status" in seen.headers:
            return _of_trailers(seen, seen.headers)
        flag = end_flag(seen.headers.get("content-type"))
        if flag is None:
            return None
        parser = FramesParser(flag, text=is_text(seen.headers.get("content-type")))
        for frame in parser.feed(seen.body):
            return self.hear_frame(frame, seen).evidence
        return None

    def hear_frame(self, frame: Frame, seen: Seen) -> Heard:
        """The end of a body of frames: trailers of gRPC-Web, JSON of Connect."""
        flag = end_flag(seen.headers.get("content-type"))
        payload = frame.payload
        if frame.compressed:
            name = "grpc-encoding" if flag == _TRAILERS else "connect-content-encoding"
            payload = inflate(payload, seen.headers.get(name) or "identity", _LONGEST_END) or b""
        if flag == _TRAILERS:
            evidence = _of_trailers(seen, _trailers(payload))
        else:
            evidence = self._of_end_stream(seen, payload)
        return Heard(evidence=evidence, done=True, terminated=True)

    def _of_end_stream(self, seen: Seen, payload: bytes) -> Evidence | None:
        value = decode(payload)
        error = value.get("error") if isinstance(value, dict) else None
        if not isinstance(error, dict):
            return None
        return self.read(
            Found(error, value), msgspec.structs.replace(seen, body=payload), stream=True
        )

    def wait_in_body(self, evidence: Evidence) -> tuple[float, str] | None:
        """The pushback in milliseconds, else the delay in the details of the status."""
        text = evidence.headers.get("grpc-retry-pushback-ms")
        wait = None if text is None else _pushback(text)
        if text is not None and wait is not None:
            return wait, text
        status = evidence.headers.get("grpc-status-details-bin")
        wait = None if status is None else retry_delay_in_status(from_base64(status))
        if wait is None:
            wait = _delay_in_details(evidence.error.get("details"))
        return None if wait is None else (wait, f"{wait:g}s")

    # --- how it is spoken -----------------------------------------------------------------

    def error_headers(self, envelope: Envelope, path: str) -> list[tuple[str, str]]:
        """What gRPC-Web reads of an answer without frames."""
        del path
        number = str(_spoken(envelope)[0])
        return [("grpc-status", number), ("grpc-message", quote(envelope.message, safe=" ,:;'()"))]

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """What Connect reads, with the envelope beside the members."""
        del status, path
        return msgspec.json.encode(
            {"code": _spoken(envelope)[1], "message": envelope.message, "envelope": envelope}
        )

    def frame_error(self, envelope: Envelope, content_type: str) -> bytes:
        """The last frame: trailers or JSON, the envelope among the metadata."""
        line = json.dumps(envelope.for_model(), separators=(",", ":"))
        if end_flag(content_type) == _END_STREAM:
            error = {"code": _spoken(envelope)[1], "message": envelope.message}
            payload = msgspec.json.encode(
                {"error": error, "metadata": {"x-error-envelope": [line]}, "envelope": envelope}
            )
            return _framed(_END_STREAM, payload)
        trailers = [*self.error_headers(envelope, ""), ("x-error-envelope", line)]
        text = "".join(f"{name}: {value}\r\n" for name, value in trailers)
        frame = _framed(_TRAILERS, text.encode("ascii", "replace"))
        return base64.b64encode(frame) if is_text(content_type) else frame


def _spoken(envelope: Envelope) -> tuple[int, str]:
    if envelope.code in BUDGET_WORDS:
        return 8, "resource_exhausted"
    if envelope.code.endswith("_timeout"):
        return 4, "deadline_exceeded"
    return _SPOKEN[envelope.class_]


def _framed(flag: int, payload: bytes) -> bytes:
    return bytes((flag,)) + len(payload).to_bytes(4, "big") + payload


def _trailers(payload: bytes) -> Headers:
    """The lines of a frame of trailers, in the form of HTTP/1.1's headers."""
    pairs = []
    for line in payload.decode("latin-1").split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            pairs.append((name.strip(), value.strip()))
    return Headers(pairs)


def _of_trailers(seen: Seen, trailers: Headers) -> Evidence | None:
    """What `grpc-status` and its kin say; None where they say that all is well."""
    code = (trailers.get("grpc-status") or "").strip()
    if code in {"", "0"}:
        return None
    if trailers is not seen.headers:
        pairs = (*seen.headers.pairs, *trailers.pairs)
        seen = msgspec.structs.replace(seen, headers=Headers(pairs), body=b"")
    headers = seen.headers
    pushback = headers.get("grpc-retry-pushback-ms")
    if pushback is not None and _pushback(pushback) is None:
        # gRPC A6: a negative or unreadable pushback forbids the retry.
        headers = Headers((*headers.pairs, ("x-should-retry", "false")))
    return Evidence(
        status=seen.status,
        seen=seen,
        code=code,
        words={code: code},
        message=unquote(headers.get("grpc-message") or "", errors="replace") or _named(code),
        headers=headers,
        stream=trailers is not headers,
    )


def _named(code: str) -> str:
    """The code in words, for a server that says no more than its number."""
    known = code.isdecimal() and len(code) < 3 and int(code) < len(_NAMES)
    name = _NAMES[int(code)] if known else "unknown"
    return f"gRPC status {code} ({name})"


def _pushback(text: str) -> float | None:
    return retry_after.seconds_of(text, 0.0, 0.001) if text.strip().isdecimal() else None


def _delay_in_details(details: Any) -> float | None:
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("type")).endswith(RETRY_INFO):
            wait = retry_delay(from_base64(as_word(detail.get("value")) or ""))
            if wait is not None:
                return wait
    return None
