"""What a dialect is: how a family of providers words its errors, and how to speak like one.

A dialect is mostly data: ordered rules, the places of its codes, the headers that carry its
request ids. The few methods say which routes it serves and write an error of the daemon's own in
the form that the provider's official client turns into the exception its users already catch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from sidecar.envelope import retry_after
from sidecar.envelope.decode import ERROR_IN_EARNEST
from sidecar.envelope.dialects.edges import EDGES
from sidecar.envelope.dialects.rule import Rule, RuleTable
from sidecar.envelope.evidence import Evidence, read, read_text, with_header_code
from sidecar.envelope.fields import as_number_text, at
from sidecar.envelope.frames import Frame
from sidecar.envelope.headers import Headers
from sidecar.envelope.locate import Found, find_error, is_problem
from sidecar.envelope.model import Classified, Envelope, ErrorClass, Seen
from sidecar.envelope.xml_error import error_in_xml

_MODEL_ROUTES = (
    "/chat/completions",
    "/completions",
    "/responses",
    "/embeddings",
    "/v1/messages",
    "/count_tokens",
    "/moderations",
    "/rerank",
    "/images/generations",
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/embeddings",
)

# The member of a body that is an error without the word; and those that may stand anywhere in one,
# as long as it is small: what a large body holds is data.
_EARLY_SIGN = re.compile(rb'\s*\{\s*"(?:detail|(?:ok|success)"\s*:\s*false)')
_SIGN_IN_SMALL = re.compile(
    rb'"statusCode"|"(?:ok|success)"\s*:\s*false|"error_message"\s*:\s*"[^"]'
)
_SMALL = 4096

_BODY_WAITS = (
    ("retry_after_ms", 0.001),
    ("retryAfterMs", 0.001),
    ("retry_after", 1.0),
    ("retryAfter", 1.0),
    ("retry_after_seconds", 1.0),
    ("retryAfterSeconds", 1.0),
    ("extensions.retryAfter", 1.0),
    ("extensions.retry_after", 1.0),
    ("metadata.retry_after_seconds", 1.0),
    ("parameters.retry_after", 1.0),
    ("retry_in_seconds", 1.0),
    ("extensions.retry_in_seconds", 1.0),
    ("limit.reset", 1.0),
)
_RESET_PLACES = (
    "resets_in_seconds", "resets_at", "reset_at", "metadata.resets_at", "metadata.reset_at",
)  # fmt: skip


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What an event of a stream says in words of its dialect's own.

    Attributes:
        error: the error that it is.
        evidence: the same, where it is no object in a body.
        content: it carries something of the answer.
        done: after it the answer is whole, if the stream then ends as it should.
        terminated: it is the explicit end.
    """

    error: Found | None = None
    evidence: Evidence | None = None
    content: bool = False
    done: bool = False
    terminated: bool = False


class Dialect:
    """How one family of providers words its errors.

    Attributes:
        name: the name it is configured by.
        rules: its own and the shared rules, in order.
        edges: rules for the boxes in front of any provider, tried after its own.
        code_places: dotted paths in an error object, the most specific code first.
        word_places: more paths whose values rules may look at.
        reads_errors_in_2xx: its clients read errors in a 2xx: the status is not corrected.
        request_id_headers: where the upstream's own id of a request stands, best first.
        hints_in_prose: its messages may be read for `try again in …`.
        body_wait_first: the wait in the body is finer than the header's.
        quota_may_be_a_rate: a quota word with a short wait is a rate limit here.
        sells_requests: 402 says that the budget is spent, whatever code came with it.
        failing_reasons: finish reasons that are errors, to their codes.
        should_retry_headers: where the provider says outright whether to repeat, `true` or
            `false`; its clients read the first of them that is there.
        unknown_in_success: the class of an error in a 2xx that says nothing else.
        table: all rules in order, made from `rules` and `edges`.
        secret_paths: routes whose path carries a credential, such as the address of a webhook:
            searched in the path as it came, each group of a pattern is a secret. In linear time,
            for whoever calls writes the path.
        signs: what stands in an event that `hear` must see after the first content too.
    """

    name: str = "base"
    rules: ClassVar[tuple[Rule, ...]] = ()
    edges: ClassVar[tuple[Rule, ...]] = EDGES
    code_places: ClassVar[tuple[str, ...]] = ("code", "type")
    word_places: ClassVar[tuple[str, ...]] = ()
    reads_errors_in_2xx: ClassVar[bool] = False
    request_id_headers: ClassVar[tuple[str, ...]] = (
        "x-request-id",
        "request-id",
        "x-oai-request-id",
        "apim-request-id",
        "x-amzn-requestid",
        "x-amz-request-id",
        "x-ms-request-id",
        "x-generation-id",
        "cf-ray",
        "apigw-requestid",
        "x-amz-cf-id",
        "x-azure-ref",
    )
    hints_in_prose: ClassVar[bool] = False
    body_wait_first: ClassVar[bool] = False
    quota_may_be_a_rate: ClassVar[bool] = False
    sells_requests: ClassVar[bool] = False
    failing_reasons: ClassVar[Mapping[str, str]] = {"error": "stream_error"}
    should_retry_headers: ClassVar[tuple[str, ...]] = ("x-should-retry",)
    unknown_in_success: ClassVar[ErrorClass] = ErrorClass.PERMANENT
    secret_paths: ClassVar[tuple[re.Pattern[str], ...]] = ()
    signs: ClassVar[tuple[bytes, ...]] = ()
    table: ClassVar[RuleTable] = RuleTable(EDGES)

    def __init_subclass__(cls) -> None:
        """Order the rules of a dialect once: its own, then those of the boxes in front."""
        super().__init_subclass__()
        cls.table = RuleTable((*cls.rules, *cls.edges))

    def for_answer(self, seen: Seen) -> Dialect:
        """The dialect that reads this answer; only `auto` differs from itself."""
        del seen
        return self

    def decided(self, seen: Seen, correlation_id: str) -> Classified | None:
        """A classification that the answer brings along; only another sidecar does."""
        del seen, correlation_id
        return None

    # --- what it serves -------------------------------------------------------------------

    def model_of(self, path: str) -> str | None:
        """The model that the path names, where this provider names it there."""
        del path
        return None

    def is_model_route(self, method: str, path: str) -> bool:
        """Whether a 2xx of this route must be an answer: a completion, an embedding and so on."""
        return method == "POST" and (
            path.endswith(_MODEL_ROUTES)
            or path.partition("?")[0].rstrip("/").endswith(_MODEL_ROUTES)
        )

    def ends_by_word(self, method: str, path: str) -> bool:
        """Whether a stream of this route is whole only with a word that says so."""
        return self.is_model_route(method, path)

    def streams_json(self, method: str, path: str) -> bool:
        """Whether an answer of this route in JSON is a stream: an array that grows."""
        del method, path
        return False

    def only_listens(self, method: str, path: str) -> bool:
        """Whether nothing is asked on this route: its stream tells what happens when it does."""
        del method, path
        return False

    def repeatable(self, method: str, path: str) -> bool:
        """Whether a POST of this route may be sent twice: asking a model changes nothing."""
        return self.is_model_route(method, path)

    # --- how it is read -------------------------------------------------------------------

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """Whether a 2xx body is worth decoding; few substring searches in the common case."""
        # `find`, and not `in`: that makes CPython (3.11) an exception for each word in bytes.
        find = body.find
        marked = find(b'"error') >= 0
        if marked and (
            find(b'"errors"') >= 0
            or find(b'"failed"') >= 0
            or ERROR_IN_EARNEST.search(body) is not None
        ):
            return True
        return (
            _EARLY_SIGN.match(body, 0, 512) is not None
            or (
                len(body) < _SMALL
                and (
                    (marked and find(b'"error_message"') >= 0)
                    or find(b"false") >= 0
                    or find(b'"statusCode"') >= 0
                )
                and _SIGN_IN_SMALL.search(body) is not None
            )
            or is_problem(seen)
        )

    def locate(self, body: Any, seen: Seen) -> Found | None:
        """The error in a decoded body, or None."""
        return find_error(
            body,
            failed=seen.status >= 400 or is_problem(seen),
            answers=self.is_model_route(seen.method, seen.path),
            failing=self.failing_reasons,
        )

    def outside(self, seen: Seen) -> Evidence | None:
        """An error that stands in headers, or in a body that is no JSON by design; else None."""
        del seen
        return None

    def hear(self, name: str | None, value: dict[str, Any]) -> Heard | None:
        """What an event says in this dialect's own words; None leaves it to the common ones.

        Args:
            name: the event's name, where it has one.
            value: its decoded data.
        """
        del name, value
        return None

    def hear_frame(self, frame: Frame, seen: Seen) -> Heard:
        """What the last frame of a body of frames says."""
        del frame, seen
        return Heard(done=True, terminated=True)

    def read(self, found: Found, seen: Seen, *, stream: bool = False) -> Evidence:
        """The evidence in a located error."""
        evidence = read(
            found,
            seen,
            code_places=self.code_places,
            word_places=self.word_places,
            stream=stream,
        )
        return with_header_code(evidence, self.code_in_headers(seen.headers))

    def read_text(self, seen: Seen) -> Evidence:
        """The evidence in a body that is no JSON: of XML what it says, a page, a text, nothing."""
        found = error_in_xml(seen)
        if found is not None:
            return self.read(found, seen)
        return with_header_code(read_text(seen), self.code_in_headers(seen.headers))

    def code_in_headers(self, headers: Headers) -> str:
        """The code that this provider puts into a header; empty where it does not."""
        del headers
        return ""

    def should_retry(self, headers: Headers) -> str | None:
        """What the provider says of repeating, as it was written; None if it says nothing."""
        for name in self.should_retry_headers:
            value = headers.get(name)
            if value is not None:
                return value
        return None

    def wait_in_body(self, evidence: Evidence) -> tuple[float, str] | None:
        """The wait that the body asks for: a member, else prose where the dialect has only that."""
        now = evidence.seen.now
        told = evidence.seen.body
        # All of these members are named so: most errors have none.
        likely = b"retry" in told or b'"reset"' in told
        for source in (evidence.error, evidence.body) if likely else ():
            if not isinstance(source, dict):
                continue
            for place, scale in _BODY_WAITS:
                text = as_number_text(at(source, place))
                wait = None if text is None else retry_after.seconds_of(text, now, scale)
                if text is not None and wait is not None:
                    return wait, text
        if self.hints_in_prose:
            return retry_after.from_prose(evidence.message)
        return None

    def resets_in(self, evidence: Evidence) -> float | None:
        """Seconds until a spent window reopens, where a machine field says so."""
        now = evidence.seen.now
        for place in _RESET_PLACES:
            text = as_number_text(at(evidence.error, place))
            wait = None if text is None else retry_after.seconds_of(text, now)
            if wait is not None:
                return wait
        outright = retry_after.from_headers(evidence.headers, now)
        found = outright or retry_after.from_reset(evidence.headers, now)
        return found[0] if found else None

    # --- how it is spoken -----------------------------------------------------------------

    def error_headers(self, envelope: Envelope, path: str) -> list[tuple[str, str]]:
        """Headers by which the official client knows an error of the daemon's own, if it does.

        Args:
            envelope: what happened.
            path: the path of the request.
        """
        del envelope, path
        return []

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """A JSON body in this dialect's error shape with the envelope beside it.

        Args:
            envelope: what happened.
            status: the status that the answer will wear.
            path: the path of the request: some servers speak several dialects.
        """
        del path
        return msgspec.json.encode(
            {
                "type": "about:blank",
                "title": envelope.code,
                "status": status,
                "detail": envelope.message,
                "message": envelope.message,
                "code": envelope.code,
                # Clients of a shape that was not asked for still find words where they look.
                "error": {
                    "type": envelope.class_,
                    "message": envelope.message,
                    "param": None,
                    "code": envelope.code,
                    "envelope": envelope,
                },
                "envelope": envelope,
            }
        )

    def stream_error(self, envelope: Envelope, path: str) -> bytes:
        """One event that ends a stream with an error, ready to send."""
        body = self.error_body(envelope, 200, path)
        return b"event: error\ndata: " + body + b"\n\n"

    def frame_error(self, envelope: Envelope, content_type: str) -> bytes:
        """One frame that ends a body of frames with an error; empty where there is no such form.

        Args:
            envelope: what happened.
            content_type: of the answer that it ends.
        """
        del envelope, content_type
        return b""
