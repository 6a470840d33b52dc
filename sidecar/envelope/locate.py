"""Finds the error in a decoded body, and only where errors stand.

Providers agree on nothing but JSON: the error may be an object under `error`, a string there, the
whole body, the first of a list, or inside the first choice. A model writes about errors, and a
resource that failed is a good answer about a failure: neither is an error of this call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from sidecar.envelope.fields import as_word, status_like
from sidecar.envelope.model import Seen

# Beside these an `error` is an error; beside an `id` or a `status` it is the state of a resource.
_ERROR_MEMBERS = frozenset(
    {
        "error", "errors", "error_code", "error_description", "error_uri", "message", "msg", "code",
        "type", "detail", "details", "title", "request_id", "requestid", "trace_id", "timestamp",
        "success", "ok", "path", "statuscode", "status_code", "param", "user_id", "result", "data",
        "messages", "headers", "hint", "help", "error_type", "reason", "sequence_number",
        "retry_after", "docs", "documentation_url", "envelope", "signin_url", "interval",
        "extensions",
    }
)  # fmt: skip


class Found(msgspec.Struct, frozen=True):
    """An error located in a body: the object, what stands around it, and how sure it is."""

    error: dict[str, Any]
    around: dict[str, Any]
    weak: bool = False


def find_error(
    body: Any, *, failed: bool, answers: bool, failing: Mapping[str, str] = {}
) -> Found | None:
    """Locate the error in a decoded body.

    Args:
        body: decoded JSON.
        failed: the status already says that it is an error; then the body itself may be it.
        answers: the route answers with results only, so that an `error` beside them counts.
        failing: finish reasons that are errors, to their codes.

    Returns:
        The error, or None: there is none, or it is data of a resource.
    """
    if isinstance(body, list):
        first = body[0] if len(body) == 1 or (failed and body) else None
        return None if isinstance(first, list) else find_error(first, failed=failed, answers=False)
    if not isinstance(body, dict):
        return Found({"message": body}, {}) if failed and isinstance(body, str) else None
    lone = stands_alone(body)
    error = body.get("error")
    # `ok: false` is an answer's word for itself, whatever stands beside it; no resource has it.
    if is_truthy_error(error) and (failed or answers or lone or body.get("ok") is False):
        if isinstance(error, dict):
            return Found(_unwrapped(error), body)
        if isinstance(error, list):
            return Found(as_object(error[0]), body)
        if error is not True:
            return Found(_spoken(str(error), body), body)
    found = _find_flat(body, failed=failed, lone=lone)
    if found is None and answers:
        return _find_choice(body, failing) or _find_failed(body)
    return found


def stands_alone(body: dict[str, Any]) -> bool:
    """Whether an `error` in this object is one: beside an `id` it is the state of a resource."""
    return all(name.lower() in _ERROR_MEMBERS for name in body) and not (
        has_data(body.get("data") or None) or body.get("result")
    )


def is_problem(seen: Seen) -> bool:
    """Whether the answer calls itself a problem document (RFC 9457)."""
    return "problem+json" in (seen.headers.get("content-type") or "").lower()


def as_object(item: Any) -> dict[str, Any]:
    """An item of a list of errors: an object, or a sentence or number by itself."""
    if isinstance(item, dict):
        return item
    return {"message": item if isinstance(item, str) else as_word(item) or ""}


def _unwrapped(error: dict[str, Any]) -> dict[str, Any]:
    """The error in an `error` that holds nothing but another one."""
    inner = error.get("error")
    alone = not any(error.get(name) for name in ("message", "code", "type"))
    return inner if alone and isinstance(inner, dict) and is_truthy_error(inner) else error


def _spoken(error: str, body: dict[str, Any]) -> dict[str, Any]:
    """An `error` that is a string: a code of OAuth's kind, or a sentence."""
    member: dict[str, Any] = {
        name: value for name, value in body.items() if name != "error" and value is not None
    }
    described = (
        member.get("error_description") or member.get("message") or member.get("description")
    )
    if isinstance(described, list):
        # A validation report, under the phrase of the status.
        described = "; ".join(line for line in described if isinstance(line, str))
    told = isinstance(described, str) and bool(described.strip())
    member["message"] = described if told else error
    member.setdefault("word", error)
    return member


def _find_flat(body: dict[str, Any], *, failed: bool, lone: bool) -> Found | None:
    if body.get("object") == "error" or (body.get("type") == "error" and "message" in body):
        return Found(body, body)
    errors = body.get("errors")
    refused = body.get("success") is False or body.get("ok") is False
    if isinstance(errors, list) and errors and not has_data(body.get("data") or None):
        first = as_object(errors[0])
        if failed or refused or lone or is_graphql(first):
            return Found(_unwrapped(first), body)
    if failed:
        named = _named_otherwise(body)
        if named is not None:
            return Found(named, body)
        detail = body.get("detail")
        if isinstance(detail, dict) and not (body.get("code") or body.get("message")):
            inmost = isinstance(detail.get("detail"), dict)
            return Found(detail, body) if inmost else find_error(detail, failed=True, answers=False)
        status = body.get("status")
        told = status.get("error") if isinstance(status, dict) else None
        if isinstance(told, str) and told:
            return Found(_spoken(told, body), body)
        return Found(body, body) if body else None
    if refused and lone:
        return Found(body, body)
    return _find_stated(body)


def _named_otherwise(body: dict[str, Any]) -> dict[str, Any] | None:
    """The error of a body that calls it neither `error` nor by its members, in the common form.

    Gateways that began with SOAP say `fault`, OData before its fourth version `odata.error`.
    """
    if len(body) != 1:
        return None
    fault, odata = body.get("fault"), body.get("odata.error")
    if isinstance(fault, dict):
        detail = fault.get("detail")
        code = detail.get("errorcode") if isinstance(detail, dict) else None
        return {**fault, "code": code or fault.get("code"), "message": _text(fault, "faultstring")}
    if isinstance(odata, dict):
        told = odata.get("message")
        return {**odata, "message": _text(told, "value") if isinstance(told, dict) else told}
    return None


def _text(source: dict[str, Any], name: str) -> str:
    value = source.get(name) or source.get("message")
    return value if isinstance(value, str) else ""


def _find_stated(body: dict[str, Any]) -> Found | None:
    """The whole body of a 2xx, where it calls itself an error by its status and a sentence."""
    status = body.get("status")
    if status == "error" and isinstance(body.get("message"), str):
        return Found({name: value for name, value in body.items() if name != "status"}, body)
    stated = as_word(body.get("statusCode") or body.get("status_code") or status) or ""
    if (status_like(stated) or 0) >= 400 and body.keys() & {"title", "message", "error_message"}:
        return Found(body, body)
    told = body.get("error_message")
    if isinstance(told, str) and told and isinstance(status, str):
        rest = (value for name, value in body.items() if name not in {"status", "error_message"})
        # Beside anything else it would be the state of a resource.
        return None if any(rest) else Found({**body, "code": status}, body, weak=True)
    if set(body) == {"detail"} and isinstance(body["detail"], str):
        return Found(body, body, weak=True)
    return None


def is_graphql(error: dict[str, Any]) -> bool:
    """Whether an item of `errors` has the members that GraphQL gives to it."""
    return isinstance(error.get("extensions"), dict) or isinstance(error.get("locations"), list)


def has_data(value: Any) -> bool:
    """Whether a `data` member holds anything: where a field failed, GraphQL leaves null."""
    return any(leaf is not None for leaf in _leaves(value))


def _leaves(value: Any) -> Iterator[Any]:
    """What objects hold that is none itself; as deep as anybody nests them."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            waiting.extend(here.values())
        else:
            yield here


def _find_choice(body: dict[str, Any], failing: Mapping[str, str]) -> Found | None:
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    error = choices[0].get("error")
    if isinstance(error, dict) and is_truthy_error(error):
        return Found(error, body)
    reason = choices[0].get("finish_reason")
    code = failing.get(reason) if isinstance(reason, str) else None
    if code is None:
        return None
    return Found({"code": code, "message": f"the answer ended with the reason {reason}"}, body)


def _find_failed(body: dict[str, Any]) -> Found | None:
    """A response of OpenAI's that failed and does not say why."""
    if body.get("object") != "response" or body.get("status") != "failed":
        return None
    return Found({"message": "the response has the status failed"}, body)


def is_truthy_error(value: Any) -> bool:
    """Whether an `error` member says that there is one: null, empty and all-null are none."""
    return any(leaf.strip() if isinstance(leaf, str) else leaf for leaf in _leaves(value))
