"""What a provider really answers for each class of error, so that a test meets the true thing.

Nothing of ours is left in an answer: the envelope beside an error is the daemon's own mark.
"""

from __future__ import annotations

from typing import NamedTuple

from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.model import ErrorClass
from sidecar.faults.filling import encoded, filling, mapped, number, restated, tells_wait
from sidecar.faults.native import WAIT, line_of


class Answer(NamedTuple):
    """One answer, ready to be sent."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def answer(
    dialect: Dialect,
    class_: ErrorClass,
    path: str,
    *,
    wait: float | None = None,
    status: int | None = None,
    code: str | None = None,
    message: str | None = None,
    now: float = 0.0,
) -> Answer:
    """The answer by which a provider says that a call failed like this.

    Args:
        dialect: the provider's.
        class_: what it says.
        path: the path of the request: some servers speak several dialects.
        wait: seconds that a rate limit asks for.
        status: in place of its own.
        code: in place of its own.
        message: in place of its own.
        now: seconds since the epoch, for the headers that name the end of a wait.
    """
    told = line_of(dialect, class_, path, code, message)
    worn = told.status if status is None else status
    if worn != told.status:
        told = told._replace(body=mapped(told.body, restated(told.status, worn)))
    seconds = WAIT if wait is None else wait
    fill = filling(seconds, now)
    headers = [("content-type", told.media_type)]
    headers += [(name, str(fill(value))) for name, value in told.headers]
    asked = class_ is ErrorClass.RATE_LIMIT or wait is not None
    if asked and (told.retry_after or (wait is not None and not tells_wait(told))):
        headers.append(("retry-after", number(seconds)))
    return Answer(worn, tuple(headers), encoded(mapped(told.body, fill)))
