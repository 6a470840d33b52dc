"""What is read of a parsed head.

aiohttp has two parsers, and each makes heads of a class of its own that is no subclass of the
other's: whoever reads one names these, which hold for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aiohttp import HttpVersion, HttpVersion11
from aiohttp.http_parser import RawRequestMessage, RawResponseMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL


class Head(Protocol):
    """A request's or an answer's."""

    @property
    def version(self) -> HttpVersion:
        """Of HTTP, as it was told."""

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        """The lines, by names in any case."""

    @property
    def raw_headers(self) -> Sequence[tuple[bytes, bytes]]:
        """The lines as they came."""

    @property
    def should_close(self) -> bool:
        """Does the connection end with this message?"""

    @property
    def compression(self) -> str | None:
        """The coding that the parser would undo if it were told to."""

    @property
    def upgrade(self) -> bool:
        """Is another protocol asked for, or begun?"""

    @property
    def chunked(self) -> bool:
        """Does the body come in chunks?"""


class RequestHead(Head, Protocol):
    """A caller's."""

    @property
    def method(self) -> str:
        """As it came."""

    @property
    def path(self) -> str:
        """The target, as it came."""


class AnswerHead(Head, Protocol):
    """An upstream's."""

    @property
    def code(self) -> int:
        """The status."""

    @property
    def reason(self) -> str:
        """The words behind the status, which may be none."""


NO_REQUEST: RequestHead = RawRequestMessage(
    "GET",
    "/",
    HttpVersion11,
    CIMultiDictProxy(CIMultiDict[str]()),
    (),
    should_close=True,
    compression=None,
    upgrade=False,
    chunked=False,
    url=URL("/"),
)
"""Stands in where the parser found none."""


def in_chunks(head: AnswerHead) -> AnswerHead:
    """The same answer, of which nobody knows how long it will be."""
    headers = CIMultiDict(head.headers)
    del headers["Content-Length"]
    raw = tuple(pair for pair in head.raw_headers if pair[0].lower() != b"content-length")
    return RawResponseMessage(
        version=head.version,
        code=head.code,
        reason=head.reason,
        headers=CIMultiDictProxy(headers),
        raw_headers=raw,
        should_close=head.should_close,
        compression=head.compression,
        upgrade=head.upgrade,
        chunked=True,
    )
