"""Where an SDK keeps what it knows about a failure: attributes by the names of classes.

Most SDKs keep a status, headers and a body under one of a few names, on the exception or on the
answer that hangs on it; these are looked for everywhere. A family that keeps them elsewhere has a
reader of its own. Nothing is read that would have to be fetched: a body counts only where the
library has read it already.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from sidecar.envelope.headers import Headers
from sidecar.envelope.peek import body_of, headers_of, member, members, plain, woken
from sidecar.envelope.sdks import family_of_classes

_STATUS = ("status_code", "http_status", "status")
_BODY = ("json_body", "body", "data", "content", "http_body")
_BODY_OF_ANSWER = ("_content", "_body", "content", "data")
_CODE = ("code", "error_code")

Fields = dict[str, Any]


def fields(error: BaseException, names: tuple[str, ...]) -> Fields:
    """The fields of `Raised` that a live exception of an SDK fills; empty for any other.

    `cause` and `exceptions`, where a reader gives them, are live exceptions.

    Args:
        error: the exception.
        names: its dotted class name and those of its bases.
    """
    family = family_of_classes(names)
    if family is None and "." not in names[0]:
        return {}
    told = _common(error)
    reader = None if family is None else _READERS.get(family.name)
    if reader is not None:
        told |= reader(error)
    if family is None or family.plain or family.shared:
        host = _host(error)
        if host is not None:
            told["attrs"] = {**told.get("attrs", {}), "host": host}
    return {name: value for name, value in told.items() if value is not None}


# --- what most have -------------------------------------------------------------------------


def _common(error: BaseException) -> Fields:
    answer = member(error, "response")
    if isinstance(answer, BaseException | Mapping):
        answer = None
    headers = _pairs(member(error, "headers")) or _pairs(member(answer, "headers"))
    status = _status(error)
    told: Fields = {
        "status": status if status is not None else _status(answer),
        "headers": Headers(headers),
        "body": _first_body(error, _BODY),
        "code": _code(error),
        "attrs": members(error),
    }
    if told["body"] is None:
        told["body"] = _first_body(answer, _BODY_OF_ANSWER)
    return told


def _status(owner: object) -> int | None:
    for name in _STATUS:
        value = member(owner, name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1000:
            return int(value)
    return None


def _code(error: BaseException) -> str | int | None:
    for name in _CODE:
        value = member(error, name)
        if isinstance(value, str):
            return str(value)[:200]
        if isinstance(value, int) and not isinstance(value, bool):
            return int(value)
    return None


def _first_body(owner: object, names: Iterable[str]) -> Any:
    for name in names:
        body = body_of(member(owner, name))
        if body not in (None, "", {}):
            return body
    return None


def _pairs(value: Any) -> list[tuple[str, str]]:
    return [] if value is None else headers_of(value)


def _host(error: BaseException) -> str | None:
    """The host that was asked, where the library still knows."""
    answer = member(error, "response")
    request = (
        member(error, "request")
        or member(error, "_request")
        or member(error, "request_info")
        or member(answer, "_request")
        or member(answer, "request")
    )
    for url in (member(request, "url"), member(answer, "url"), member(error, "url")):
        if isinstance(url, str):
            return _host_of(url)
        host = None if url is None else woken(url, "host")
        if isinstance(host, str) and host:
            return host
    return None


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url[:2048]).hostname
    except ValueError:
        return None


# --- who keeps it elsewhere -----------------------------------------------------------------


def _botocore(error: BaseException) -> Fields:
    answer = member(error, "response")
    kwargs = member(error, "kwargs")
    cause = kwargs.get("error") if isinstance(kwargs, Mapping) else None
    told: Fields = {"cause": cause if isinstance(cause, BaseException) else None}
    if not isinstance(answer, Mapping):
        return told
    metadata = answer.get("ResponseMetadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    known = answer.get("Error")
    code = known.get("Code") if isinstance(known, Mapping) else None
    request_id = metadata.get("RequestId")
    status = metadata.get("HTTPStatusCode")
    body = {name: held for name, held in answer.items() if name != "ResponseMetadata"}
    attrs = {**members(error)}
    if isinstance(request_id, str):
        attrs["request_id"] = request_id
    return {
        **told,
        "code": code if isinstance(code, str) else None,
        "status": status if type(status) is int else None,
        "headers": Headers(_pairs(metadata.get("HTTPHeaders"))),
        "body": body_of(body),
        "attrs": attrs,
    }


def _google_core(error: BaseException) -> Fields:
    answer = member(error, "_response")
    status = member(error, "code")
    errors, details = member(error, "_errors"), member(error, "_details")
    info = member(error, "_error_info")
    reason = info.get("reason") if isinstance(info, Mapping) else woken(info, "reason")
    attrs = members(error)
    if isinstance(reason, str) and reason:
        attrs["reason"] = reason
    if details:
        attrs["details"] = [_detail(one) for one in list(details)[:32]]
    listed = [one for one in errors if isinstance(one, Mapping)] if errors else []
    told: Fields = {
        "status": int(status) if isinstance(status, int) else None,
        "code": None,
        "attrs": attrs,
        "headers": Headers(_pairs(member(answer, "headers"))),
        "body": {"errors": body_of(listed)} if listed else _first_body(answer, _BODY_OF_ANSWER),
    }
    if type(answer).__module__.startswith("grpc"):
        call = _grpc(answer)
        told |= {"headers": call["headers"], "code": call["code"], "body": None}
    return told


def _detail(detail: Any) -> Any:
    """A detail of google.rpc as JSON writes it; of a message, the fields that anybody needs."""
    if isinstance(detail, Mapping):
        return plain(detail)
    kind = type(detail).__name__
    shown: dict[str, Any] = {"@type": f"google.rpc.{kind}"}
    if kind == "RetryInfo":
        delay = woken(detail, "retry_delay")
        shown["retry_delay"] = {name: plain(woken(delay, name)) for name in ("seconds", "nanos")}
    elif kind == "ErrorInfo":
        shown |= {name: plain(woken(detail, name)) for name in ("reason", "domain")}
    return shown


def _google_genai(error: BaseException) -> Fields:
    status, name = member(error, "code"), member(error, "status")
    return {
        "status": status if type(status) is int and 100 <= status < 600 else None,
        "code": name if isinstance(name, str) else None,
        "body": body_of(member(error, "details")),
    }


def _google_auth(error: BaseException) -> Fields:
    return {"attrs": {**members(error), "retryable": bool(member(error, "_retryable"))}}


def _grpc(call: object) -> Fields:
    """Of a call that has ended: the state that its object keeps, without asking it."""
    state = member(call, "_state")
    owner, prefix = (call, "_") if state is None else (state, "")
    code = member(owner, f"{prefix}code")
    details = member(owner, f"{prefix}details")
    trailers = member(owner, f"{prefix}trailing_metadata") or ()
    name = woken(code, "name")
    told: Fields = {
        "code": name if isinstance(name, str) else None,
        "status": None,
        "headers": Headers(_metadata(trailers)),
    }
    if isinstance(details, str):
        told["message"] = details
    return told


def _metadata(trailers: Any) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for pair in list(trailers)[:128]:
        name, value = pair[0], pair[1]
        held = base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
        pairs.append((str(name), held))
    return pairs


def _azure(error: BaseException) -> Fields:
    odata = member(error, "error")
    code = member(error, "error_code") or member(odata, "code")
    told = member(odata, "message") or member(error, "message")
    return {
        "code": str(code) if isinstance(code, str) else None,
        "message": told[:8192] if isinstance(told, str) else None,
    }


def _elasticsearch(error: BaseException) -> Fields:
    meta = member(error, "meta")
    told: Fields = {}
    if meta is not None:
        status = member(meta, "status")
        told = {
            "status": status if type(status) is int else None,
            "headers": Headers(_pairs(member(meta, "headers"))),
            "code": member(error, "message"),
        }
    elif len(error.args) == 3 and type(error.args[0]) is int:
        # OpenSearch's: status, type and body are its arguments.
        told = {
            "status": error.args[0],
            "code": plain(error.args[1]),
            "body": body_of(error.args[2]),
        }
    elif len(error.args) == 2 and isinstance(error.args[1], list):
        told = {"body": {"errors": body_of(error.args[1])}}
    wrapped = member(error, "errors")
    if error.__cause__ is None and isinstance(wrapped, tuple | list) and wrapped:
        told["cause"] = wrapped[0]
    return told


def _slack(error: BaseException) -> Fields:
    answer = member(error, "response")
    data = answer if isinstance(answer, Mapping) else member(answer, "data")
    word = data.get("error") if isinstance(data, Mapping) else None
    told: Fields = {"body": body_of(data), "code": word if isinstance(word, str) else None}
    if isinstance(answer, Mapping):
        told["status"] = 200
    return told


def _github(error: BaseException) -> Fields:
    status = member(error, "_GithubException__status")
    return {
        "status": status if type(status) is int else None,
        "body": body_of(member(error, "_GithubException__data")),
        "headers": Headers(_pairs(member(error, "_GithubException__headers"))),
    }


def _stripe(error: BaseException) -> Fields:
    return {"attrs": {**members(error), "user_message": plain(member(error, "_message"))}}


def _urllib(error: BaseException) -> Fields:
    return {"headers": Headers(_pairs(member(error, "hdrs")))}


def _tenacity(error: BaseException) -> Fields:
    return {"cause": member(member(error, "last_attempt"), "_exception")}


def _websockets(error: BaseException) -> Fields:
    code = member(member(error, "rcvd"), "code")
    return {"code": int(code) if isinstance(code, int) else None}


_READERS: dict[str, Callable[[BaseException], Fields]] = {
    "botocore": _botocore,
    "google-api-core": _google_core,
    "google-genai": _google_genai,
    "google-auth": _google_auth,
    "grpc": _grpc,
    "azure": _azure,
    "azure-cosmos": _azure,
    "elasticsearch": _elasticsearch,
    "slack_sdk": _slack,
    "PyGithub": _github,
    "stripe": _stripe,
    "urllib": _urllib,
    "tenacity": _tenacity,
    "websockets": _websockets,
}
