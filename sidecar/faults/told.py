"""How a provider says one class of error: a line of the tables, and the shapes that many share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sidecar.envelope.model import ErrorClass

V: Final = ErrorClass.VALIDATION
A: Final = ErrorClass.AUTHENTICATION
R: Final = ErrorClass.RATE_LIMIT
T: Final = ErrorClass.TRANSIENT
P: Final = ErrorClass.PERMANENT

JSON: Final = "application/json"
HTML: Final = "text/html"
TEXT: Final = "text/plain"


class Wait(NamedTuple):
    """In a body, the wait as a number.

    Attributes:
        scale: units in a second.
    """

    scale: float = 1.0


SECONDS: Final = Wait()


class Told(NamedTuple):
    """One line.

    Attributes:
        status: of the answer.
        code: the word that stands for it in the body; empty where the body has none.
        message: the sentence that stands for it in the body.
        body: JSON, or text in another media type. In its strings, and in headers, `{wait}` is the
            wait in seconds, `{ms}` in milliseconds, `{reset}` and `{reset_ms}` its end since the
            epoch; a `Wait` is the wait as a number.
        headers: what it sends along.
        media_type: of the body.
        retry_after: it sends that header; else the wait stands elsewhere, or nowhere.
        event: the data of its event in a stream, where that is not the body.
    """

    status: int
    code: str
    message: str
    body: Any
    headers: tuple[tuple[str, str], ...] = ()
    media_type: str = JSON
    retry_after: bool = True
    event: Any = None


Table = Mapping[ErrorClass, Told]


def nested(status: int, error: Mapping[str, Any], *more: tuple[str, Any], **headers: str) -> Told:
    """A body whose `error` has members.

    Args:
        status: of the answer.
        error: its members.
        more: members beside it.
        headers: their names with underscores.
    """
    code = str(error.get("code") or error.get("type") or "")
    body = {"error": error, **dict(more)}
    return Told(status, code, str(error.get("message", "")), body, named(headers))


def openai(
    status: int,
    type_: str | None,
    code: str | int | None,
    message: str,
    param: str | None = None,
    **headers: str,
) -> Told:
    """A body in the shape that OpenAI began."""
    error = {"message": message, "type": type_, "param": param, "code": code}
    return nested(status, error, **headers)


def sentence(status: int, message: str, /, **more: Any) -> Told:
    """A body whose `error` is the message."""
    return Told(status, "", message, {"error": message, **more})


def flat(status: int, code: str, message: str, /, **body: Any) -> Told:
    """A body that is the error."""
    return Told(status, code, message, body)


def named(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Headers of which the names are identifiers."""
    return tuple((name.replace("_", "-"), value) for name, value in headers.items())


def google(status: int, code: str, message: str, *details: Mapping[str, Any], **more: Any) -> Told:
    """A body of Google's: the status in words, and details of several types."""
    error: dict[str, Any] = {"code": status, "message": message, "status": code, **more}
    if details:
        error["details"] = list(details)
    return Told(status, code, message, {"error": error}, retry_after=False)


def aws(status: int, name: str, message: str, *headers: tuple[str, str]) -> Told:
    """A body of AWS, which names the exception in a header."""
    sent = (("x-amzn-RequestId", "0"), ("x-amzn-ErrorType", name), *headers)
    return Told(status, name, message, {"message": message}, sent, retry_after=False)
