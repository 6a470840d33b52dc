"""`GET /openapi.json`: the table of routes in the words of OpenAPI 3.1."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from sidecar import __version__
from sidecar.admin import bodies
from sidecar.admin import documents as shapes
from sidecar.admin.answers import HEADERS
from sidecar.admin.routes import JSON, OPERATIONS, Access, Answer, Operation, Parameter
from sidecar.envelope.policy import ENVELOPE_TYPE

_REF = "#/components/schemas/{name}"
_ADMIN = {
    "name": "x-sidecar-admin",
    "in": "header",
    "description": "Which a web page cannot send across origins.",
    "schema": {"type": "string", "enum": ["1"]},
}
_ALWAYS = tuple(name.lower() for name in HEADERS if name != "Server")
_HEADERS_IN_WORDS = {
    "retry-after": "Seconds, rounded up.",
    "retry-after-ms": "Milliseconds.",
    "www-authenticate": "How to send the token.",
    "x-correlation-id": "Joins this answer with the line of the log and the failure.",
    "x-error-envelope": "The seven-field envelope as one line of JSON.",
    "x-sidecar-decision": "Why there is no permit.",
}
_GUARDS: Mapping[int, Answer] = {
    400: Answer(about="The request is not as it should be.", shape="Refusal"),
    401: Answer(
        about="The token is missing or wrong.",
        shape="Refusal",
        headers=("www-authenticate",),
    ),
    403: Answer(
        about="The Host is not answered here, a foreign page asks, or the admin header is missing.",
        shape="Refusal",
    ),
    404: Answer(about="There is no such path.", shape="Refusal"),
    408: Answer(about="The body did not come in time.", shape="Refusal"),
    413: Answer(about="The body is too large.", shape="Refusal"),
    500: Answer(about="A fault of the daemon's own.", shape="Refusal"),
}
_ABOUT = """\
Health, status, events and control of one daemon, and what agents ask of it. A `Host` that no
resolver had a say in is needed (a loopback name, an address, a name of `allowed_hosts`); foreign
web pages are refused. The probe listener, if there is one, serves /healthz, /readyz and /metrics
alone."""


@functools.cache
def document() -> bytes:
    """The description, as JSON."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        path = paths.setdefault(operation.path, {})
        path[operation.method.lower()] = _operation(operation)
        if operation.method == "GET":
            path["head"] = _operation(operation, head=True)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
            "info": {
                "title": "breaker-sidecar admin plane",
                "version": __version__,
                "description": " ".join(_ABOUT.split()),
            },
            "paths": paths,
            "components": {
                "schemas": _schemas(),
                "headers": {
                    name: {"schema": {"type": "string"}, "required": True} for name in _ALWAYS
                },
                "responses": {
                    _name(status, head=head): _answer(answer, head=head)
                    for status, answer in _GUARDS.items()
                    for head in (False, True)
                },
                "securitySchemes": {
                    "token": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "That of admin.token_file, where it is set.",
                    }
                },
            },
        }
    )


def _operation(operation: Operation, *, head: bool = False) -> dict[str, Any]:
    parameters = [_in_path(part) for part in operation.parts]
    parameters += [_in_query(one) for one in operation.query]
    if operation.access in (Access.RAW, Access.SETTLE, Access.STEER):
        parameters.append({**_ADMIN, "required": operation.access is not Access.RAW})
    described: dict[str, Any] = {
        "operationId": f"{operation.id}_head" if head else operation.id,
        "summary": operation.about,
        "responses": {
            str(status): _answer(answer, head=head)
            if status in operation.answers
            else {"$ref": f"#/components/responses/{_name(status, head=head)}"}
            for status, answer in sorted(answers_of(operation).items())
        },
    }
    if parameters:
        described["parameters"] = parameters
    if operation.access is not Access.PROBE:
        described["security"] = [{}, {"token": []}]
    if operation.body is not None:
        described["requestBody"] = {
            "required": not operation.empty,
            "description": f"At most {operation.largest // 1024} KiB.",
            "content": {JSON: {"schema": {"$ref": _REF.format(name=operation.body)}}},
        }
    return described


def answers_of(operation: Operation) -> dict[int, Answer]:
    """Every status that a call may be answered with: by itself, and by its guards."""
    guards = {400, 403, 500}
    if operation.access is not Access.PROBE:
        guards.add(401)
    if operation.body is not None:
        guards |= {408, 413}
    if operation.parts:
        guards.add(404)
    return {status: _GUARDS[status] for status in guards} | dict(operation.answers)


def _in_path(part: Parameter) -> dict[str, Any]:
    return {
        "name": part.name,
        "in": "path",
        "required": True,
        "description": part.about,
        "schema": dict(part.schema),
    }


def _in_query(one: Parameter) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": one.name,
        "in": "query",
        "description": one.about,
        "schema": dict(one.schema),
    }
    if one.schema.get("type") == "array":
        shown |= {"style": "form", "explode": False}
    return shown


def _answer(answer: Answer, *, head: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "description": answer.about,
        "headers": {
            **{name: {"$ref": f"#/components/headers/{name}"} for name in _ALWAYS},
            **{name: _header(name) for name in answer.headers},
        },
    }
    if not head:
        described["content"] = {media: _content(answer, media) for media in answer.media}
        if answer.shape == "NoPermit":
            described["content"][ENVELOPE_TYPE] = {"schema": {"$ref": _REF.format(name="Envelope")}}
    return described


def _header(name: str) -> dict[str, Any]:
    return {"schema": {"type": "string"}, "description": _HEADERS_IN_WORDS[name]}


def _name(status: int, *, head: bool) -> str:
    return f"{status}_head" if head else str(status)


def _content(answer: Answer, media: str) -> dict[str, Any]:
    if answer.shape is not None:
        return {"schema": {"$ref": _REF.format(name=answer.shape)}}
    shown: dict[str, Any] = {"schema": {"type": "string"}}
    if media == "text/event-stream":
        shown["x-event"] = {"transition": {"$ref": _REF.format(name="Moved")}}
    return shown


def _schemas() -> dict[str, Any]:
    """All shapes, and all bodies."""
    used = {answer.shape for one in OPERATIONS for answer in answers_of(one).values()}
    names = sorted(name for name in {*used, "Moved"} if name is not None)
    classes = tuple(getattr(shapes, name) for name in names)
    _, found = msgspec.json.schema_components(classes, ref_template=_REF)
    schemas = {name: _plain(schema) for name, schema in found.items()}
    return dict(sorted((schemas | bodies.schemas()).items()))


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with the first sentence of its docstring, which says the rest to programmers."""
    about = schema.get("description")
    if isinstance(about, str):
        schema["description"] = " ".join(re.split(r"\n\s*\n", about.strip())[0].split())
    return schema
