"""Every call of the admin plane, once: what routes it also guards it, and describes it.

The router, the guards, the texts of 404 and 405 and `/openapi.json` are all made of this table, so
that none of them can know of a call that the others do not. The raw target is matched, since a key
is one percent-encoded segment and a decoded slash would split it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from sidecar.admin.answers import AdminError
from sidecar.breaker.model import Verb

LARGEST_BODY = 64 * 1024
"""Bytes of a body that steers something."""
LARGEST_ERROR = 1024 * 1024
"""Bytes of a recorded error: it may quote a whole stream."""
LARGEST_REPORT = 256 * 1024

JSON = "application/json"


class Access(Enum):
    """Who may make a call, beside the checks of Host and Origin that all of them pass.

    Attributes:
        PROBE: anybody, by any address.
        READ: anybody on this machine; beyond loopback who has the token.
        RAW: the same; `raw` is for who sends the admin header, and the token if there is one.
        SETTLE: who sends the admin header, and the token if there is one.
        STEER: the same, and only if `admin.mutations` is on.
    """

    PROBE = "probe"
    READ = "read"
    RAW = "raw"
    SETTLE = "settle"
    STEER = "steer"


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the path or of the query.

    Attributes:
        name: as it is written.
        about: one sentence.
        schema: its JSON Schema.
        rest: it takes the rest of the path, slashes included.
    """

    name: str
    about: str
    schema: Mapping[str, Any]
    rest: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a call.

    Attributes:
        about: one sentence.
        shape: the struct of `documents` that describes its JSON, by its name, since a daemon that
            starts has no use for it; None where it is none.
        media: its media types.
        headers: names of the headers that it carries beside those of every answer.
    """

    about: str
    shape: str | None = None
    media: tuple[str, ...] = (JSON,)
    headers: tuple[str, ...] = ()


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One call.

    Attributes:
        id: names it, and the method that answers it.
        method: `GET`, which HEAD goes with, or `POST`.
        path: its path, with `{name}` for each part that varies.
        about: one sentence.
        access: who may make it.
        answers: by status, what it answers by itself; those of its guards follow from the rest.
        parts: of the path.
        query: parameters.
        body: the name of the schema of its body; None if it reads none.
        empty: the body may be left out.
        largest: bytes of a body.
    """

    id: str
    method: str
    path: str
    about: str
    access: Access
    answers: Mapping[int, Answer]
    parts: tuple[Parameter, ...] = ()
    query: tuple[Parameter, ...] = ()
    body: str | None = None
    empty: bool = False
    largest: int = LARGEST_BODY


_TEXT: Mapping[str, Any] = {"type": "string", "minLength": 1}
_NAME = Parameter(name="name", about="A name of `dependencies`.", schema=_TEXT)
_MARKED = ("x-correlation-id",)
_REFUSED = (*_MARKED, "x-error-envelope", "x-sidecar-decision", "retry-after", "retry-after-ms")
_SETTLED = Answer(about="The report settles nothing; it is judged all the same.", shape="Refusal")

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="page",
        method="GET",
        path="/",
        about="The status page, for people.",
        access=Access.READ,
        answers={200: Answer(about="A page.", media=("text/html",))},
    ),
    Operation(
        id="healthz",
        method="GET",
        path="/healthz",
        about="Whether the loop runs.",
        access=Access.PROBE,
        answers={200: Answer(about="It does.", shape="Health")},
    ),
    Operation(
        id="readyz",
        method="GET",
        path="/readyz",
        about="Whether calls are accepted; no upstream has a say in it.",
        access=Access.PROBE,
        answers={
            200: Answer(about="They are.", shape="Health"),
            503: Answer(about="Not yet, or no more.", shape="Health"),
        },
    ),
    Operation(
        id="status",
        method="GET",
        path="/status",
        about="One reading of the whole daemon.",
        access=Access.READ,
        answers={200: Answer(about="The document.", shape="Status")},
    ),
    Operation(
        id="metrics",
        method="GET",
        path="/metrics",
        about="Everything that is measured, as Prometheus or OpenMetrics text.",
        access=Access.READ,
        answers={
            200: Answer(about="The text.", media=("text/plain", "application/openmetrics-text"))
        },
    ),
    Operation(
        id="events",
        method="GET",
        path="/events",
        about="Each transition of a breaker as a server-sent event; the connection stays open.",
        access=Access.READ,
        answers={
            200: Answer(about="The stream.", media=("text/event-stream",)),
            503: Answer(about="All streams are taken.", shape="Refusal"),
        },
    ),
    Operation(
        id="config",
        method="GET",
        path="/config",
        about="The effective configuration, secrets redacted.",
        access=Access.READ,
        answers={200: Answer(about="In the shape of breakers.yaml.", shape="Anything")},
    ),
    Operation(
        id="openapi",
        method="GET",
        path="/openapi.json",
        about="This description.",
        access=Access.READ,
        answers={200: Answer(about="OpenAPI 3.1.", shape="Anything")},
    ),
    Operation(
        id="faults",
        method="GET",
        path="/faults",
        about="The faults that are injected, and the last injections.",
        access=Access.READ,
        query=(
            Parameter(
                name="rules",
                about="Given, with whatever value: the rules alone; the record is left empty.",
                schema={"type": "string"},
            ),
        ),
        answers={200: Answer(about="The rules and the record.", shape="Faults")},
    ),
    Operation(
        id="add_faults",
        method="POST",
        path="/faults",
        about="Inject by further rules for a while; an empty list ends those that run.",
        access=Access.STEER,
        body="FaultOrder",
        answers={
            200: Answer(about="The rules and the record.", shape="Faults"),
            400: Answer(about="The body is no set of rules.", shape="Refusal"),
        },
    ),
    Operation(
        id="reload",
        method="POST",
        path="/reload",
        about="Read the configuration again, as SIGHUP does.",
        access=Access.STEER,
        answers={
            200: Answer(about="It is in force.", shape="Reloaded"),
            422: Answer(about="It is wrong; the old one stays.", shape="NotReloaded"),
        },
    ),
    Operation(
        id="control",
        method="POST",
        path="/breakers/{key}/{verb}",
        about="Steer one breaker.",
        access=Access.STEER,
        parts=(
            Parameter(
                name="key",
                about="PROVIDER, PROVIDER/MODEL, PROVIDER/~ROUTE or a dependency's name, as one"
                " segment: a slash in it is written %2F.",
                schema=_TEXT,
            ),
            Parameter(
                name="verb",
                about="What to do.",
                schema={"type": "string", "enum": [verb.value for verb in Verb]},
            ),
        ),
        body="Orders",
        empty=True,
        answers={
            200: Answer(about="The breaker's entry of /status.", shape="Breaker"),
            400: Answer(about="The body is not as it should be.", shape="Refusal"),
            404: Answer(about="No such breaker or verb.", shape="Refusal"),
            409: Answer(about="The provider has its most breakers.", shape="Refusal"),
        },
    ),
    Operation(
        id="classify",
        method="POST",
        path="/v1/classify",
        about="Judge one recorded error; it counts nowhere.",
        access=Access.RAW,
        body="RecordedError",
        largest=LARGEST_ERROR,
        answers={
            200: Answer(about="What it is.", shape="Classification", headers=_MARKED),
            400: Answer(about="The body is no JSON object.", shape="Refusal"),
            422: Answer(about="It is no recorded error.", shape="Refusal"),
        },
    ),
    Operation(
        id="permit",
        method="POST",
        path="/v1/dependencies/{name}/permit",
        about="Ask whether a dependency may be called now.",
        access=Access.SETTLE,
        parts=(_NAME,),
        body="PermitRequest",
        empty=True,
        answers={
            200: Answer(about="It may.", shape="Permit", headers=_MARKED),
            400: Answer(about="The body is no JSON object.", shape="Refusal"),
            404: Answer(about="No such dependency.", shape="Refusal"),
            503: Answer(about="Its breaker is open.", shape="NoPermit", headers=_REFUSED),
        },
    ),
    Operation(
        id="report",
        method="POST",
        path="/v1/dependencies/{name}/report",
        about="Say how a permitted call went.",
        access=Access.SETTLE,
        parts=(_NAME,),
        body="Report",
        largest=LARGEST_REPORT,
        answers={
            200: Answer(about="What it was.", shape="Reported", headers=_MARKED),
            400: Answer(about="The body is no JSON object.", shape="Refusal"),
            404: Answer(about="No such dependency or permit.", shape="Refusal"),
            409: _SETTLED,
            422: Answer(about="It is no report.", shape="Refusal"),
        },
    ),
    Operation(
        id="failures",
        method="GET",
        path="/v1/failures",
        about="The last hour's failures in groups; with `after`, the last ones by themselves.",
        access=Access.READ,
        query=(
            Parameter(
                name="by",
                about="What to group by; left out: class, source and code.",
                schema={
                    "type": "array",
                    "minItems": 1,
                    "items": {"type": "string", "enum": ["class", "source", "code", "provider"]},
                },
            ),
            Parameter(
                name="minutes",
                about="Given, with whatever value: each group's counts of the last sixty minutes.",
                schema={"type": "string"},
            ),
            Parameter(
                name="after",
                about="List failures with a higher number, the last one first.",
                schema={"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
            ),
            Parameter(
                name="refusals",
                about="Given, with whatever value: what the daemon refused is among them.",
                schema={"type": "string"},
            ),
        ),
        answers={
            200: Answer(about="The groups, or the list.", shape="Failures"),
            400: Answer(about="A parameter is not as it should be.", shape="Refusal"),
        },
    ),
    Operation(
        id="failure",
        method="GET",
        path="/v1/failures/{correlation_id}",
        about="All of the last failures that have one correlation id.",
        access=Access.RAW,
        parts=(
            Parameter(
                name="correlation_id", about="As it stands on the answer.", schema=_TEXT, rest=True
            ),
        ),
        answers={
            200: Answer(about="The failures, in their order.", shape="OneWorkflow"),
            404: Answer(about="None of the last ones has it.", shape="Refusal"),
        },
    ),
)


class Found(NamedTuple):
    """What a path leads to.

    Attributes:
        operations: by method.
        parts: what stands in the varying parts, decoded.
    """

    operations: Mapping[str, Operation]
    parts: Mapping[str, str]

    def allowed(self) -> str:
        """The methods that there are, as `Allow` says them."""
        names = [name for method in self.operations for name in _methods(method)]
        return ", ".join(names)


def _methods(method: str) -> tuple[str, ...]:
    return ("GET", "HEAD") if method == "GET" else (method,)


def _grouped() -> dict[str, dict[str, Operation]]:
    grouped: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        grouped.setdefault(operation.path, {})[operation.method] = operation
    return grouped


BY_PATH: Mapping[str, Mapping[str, Operation]] = _grouped()
_VARYING = tuple(
    (path.split("/"), operations) for path, operations in BY_PATH.items() if "{" in path
)


def find(path: str) -> Found | None:
    """What a path leads to.

    Args:
        path: still encoded, without its query.

    Returns:
        None if there is no such path.
    """
    literal = BY_PATH.get(path)
    if literal is not None and "{" not in path:
        return Found(literal, {})
    segments = path.split("/")
    for pattern, operations in _VARYING:
        parts = _match(pattern, segments, next(iter(operations.values())).parts)
        if parts is not None:
            return Found(operations, parts)
    return None


def _match(
    pattern: Sequence[str], segments: Sequence[str], parts: Sequence[Parameter]
) -> dict[str, str] | None:
    if parts and parts[-1].rest and len(segments) > len(pattern):
        last = len(pattern) - 1
        segments = [*segments[:last], "/".join(segments[last:])]
    if len(pattern) != len(segments):
        return None
    found = {}
    for wanted, given in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            if not given.strip("/"):
                return None
            found[wanted[1:-1]] = unquote(given)
        elif wanted != given:
            return None
    return found


def operation_of(found: Found, method: str) -> Operation:
    """The call that a method makes of a path.

    Raises:
        AdminError: 404 for a part of the path that is none of those there are, 405 for a method.
    """
    operations = found.operations
    for part in next(iter(operations.values())).parts:
        known = part.schema.get("enum")
        if known is not None and found.parts[part.name] not in known:
            raise AdminError(
                404,
                f"unknown_{part.name}",
                f"no such {part.name}; there are {', '.join(sorted(known))}",
            )
    operation = operations.get("GET" if method == "HEAD" else method)
    if operation is None:
        allowed = found.allowed()
        raise AdminError(
            405, "method_not_allowed", f"this call is {allowed}", headers={"Allow": allowed}
        )
    return operation


def not_found(path: str) -> AdminError:
    """What is said where there is no such path."""
    if path.startswith("/breakers/"):
        message = "POST /breakers/{key}/{verb}, a slash in the key written as %2F"
        return AdminError(404, "not_found", message)
    below = path.startswith("/v1/")
    calls: dict[str, list[str]] = {}
    for operation in OPERATIONS:
        if operation.path.startswith("/v1/") == below:
            calls.setdefault(operation.method, []).append(operation.path)
    told = "; ".join(f"{method} {', '.join(paths)}" for method, paths in calls.items())
    more = "" if below else "; what agents ask is below /v1/"
    return AdminError(404, "not_found", f"no such call: {told}{more}")
