"""Content codings undone on a copy of a body, so that an error inside can be read.

The bytes that a caller gets are never touched; this is for classification alone. So a body that
was cut yields what can be read of it, a damaged one what came before the damage, and whatever a
body claims to hold, no coding yields more than the limit: sixteen kilobytes of zstd can stand for
half a gigabyte.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

if sys.version_info >= (3, 14):
    from compression import zstd
    from compression.zstd import ZstdError
else:
    import zstandard
    from zstandard import ZstdError

try:
    import brotli
except ImportError:  # declared for CPython only
    brotli = None

# What a call to a library fails on loses the output of that call: small pieces lose little.
_PIECE = 1024
# Checksums stand in the last bytes, and a wrong one must not cost the text before it.
_TRAILER = 8
# An answer has one member; a body of nothing but empty ones would keep the loop busy.
_MEMBERS = 1000
# More than one or two is an attack.
_LAYERS = 8
# RFC 9659: a content coding uses at most 8 MiB of window; it bounds the decoder's memory.
_ZSTD_WINDOW_LOG = 23
# Its method and window, and a check of both (RFC 1950).
_ZLIB_HEAD = 2
# A block of zstd is four bytes at least and stands for 128 KiB at most.
_ZSTD_PIECE = 16
_GZIP, _ZLIB, _RAW = zlib.MAX_WBITS | 16, zlib.MAX_WBITS, -zlib.MAX_WBITS

_Decoder = Callable[[bytes, int, bytearray], None]


def inflate(body: bytes, encodings: str, limit: int) -> bytes | None:
    """Undo the content codings of a body, as far as it can be read.

    Args:
        body: what was received, possibly cut.
        encodings: the value of Content-Encoding: codings in the order in which they were applied,
            in any case; several header lines joined by commas.
        limit: bytes of output at most, of every layer; further output is left out.

    Returns:
        The readable beginning of the content, empty if the body was cut before any of it; None if
        a coding is unknown or nothing at all could be read of a damaged body.
    """
    names = [name.strip().lower() for name in encodings.split(",")]
    codings = [name for name in names if name not in ("", "identity")]
    if len(codings) > _LAYERS or any(name not in _DECODERS for name in codings):
        return None
    for name in reversed(codings):
        output = bytearray()
        try:
            if limit > 0:
                _DECODERS[name](body, limit, output)
        except _ERRORS:
            if not output:
                return None
        del output[max(limit, 0) :]
        body = bytes(output)
    return body[: max(limit, 0)]


class StreamInflater:
    """Undoes the coding of a stream as it passes, for whoever reads its copy.

    One coding; several on top of each other are unreadable.
    """

    def __init__(self, encoding: str) -> None:
        """Prepare for one stream.

        Args:
            encoding: the value of Content-Encoding.
        """
        self._coding = encoding.strip().lower()
        self._engine: Any = None
        self._is_padding = False
        self._unread = b""
        if self._coding in ("gzip", "x-gzip"):
            self._engine = zlib.decompressobj(_GZIP)
        elif self._coding == "deflate":
            self._engine = zlib.decompressobj(_ZLIB)
        elif self._coding == "br" and "br" in _DECODERS:
            self._engine = brotli.Decompressor()
        elif self._coding == "zstd":
            self._engine = _ZstdFrames()

    def feed(self, chunk: bytes, limit: int = 1 << 20) -> bytes | None:
        """The text of the next bytes.

        Args:
            chunk: as it came.
            limit: bytes of text that one chunk may stand for.

        Returns:
            None if they cannot be read: neither can what follows.
        """
        if self._engine is None:
            return None
        if self._coding == "deflate":
            return self._deflated(chunk, limit)
        try:
            if self._coding == "br":
                text = bytes(self._engine.process(chunk, output_buffer_limit=limit))
                full = not self._engine.can_accept_more_data()
            elif self._coding == "zstd":
                text, full = self._engine.read(chunk, limit)
            else:
                text, full = self._members(chunk, limit)
        except _ERRORS:
            text, full = b"", True
        if full:
            self._engine = None
            return None
        return text

    def _members(self, chunk: bytes, limit: int) -> tuple[bytes, bool]:
        """What zlib makes of the next bytes, and whether there is more than may be."""
        text = b""
        for _ in range(_MEMBERS):
            if self._engine.eof:
                own = chunk.startswith(b"\x1f") and self._coding.endswith("gzip")
                if self._is_padding or not own:
                    # Behind the last member some servers leave padding, in which anything may be.
                    self._is_padding = True
                    return text, False
                self._engine = zlib.decompressobj(_GZIP)
            text += self._engine.decompress(chunk, limit - len(text))
            if self._engine.unconsumed_tail or len(text) >= limit:
                break
            chunk = self._engine.unused_data
            if not chunk:
                return text, False
        return text, True

    def _deflated(self, chunk: bytes, limit: int) -> bytes | None:
        """`feed` while the head of the body is awaited, which tells what the name stands for.

        Only the head: what is damaged behind it is not the bare format.
        """
        self._unread += chunk
        if len(self._unread) < _ZLIB_HEAD:
            return b""
        first, second = self._unread[:_ZLIB_HEAD]
        if first & 0xF == zlib.DEFLATED and (first << 8 | second) % 31 == 0:
            self._coding = "zlib"
        else:
            self._coding, self._engine = "raw", zlib.decompressobj(_RAW)
        chunk, self._unread = self._unread, b""
        return self.feed(chunk, limit)


def _pieces(body: bytes, start: int = 0) -> Iterator[bytes]:
    trailer = max(start, len(body) - _TRAILER)
    for at in range(start, trailer, _PIECE):
        yield body[at : min(at + _PIECE, trailer)]
    for at in range(trailer, len(body)):
        yield body[at : at + 1]


def _member(engine: Any, body: bytes, start: int, limit: int, output: bytearray) -> int:
    """Feed an engine until its member ends, the limit is reached or the body is used up.

    Returns:
        Where the next member begins; the length of the body if there can be none.
    """
    at = start
    for piece in _pieces(body, start):
        output += engine.decompress(piece, limit - len(output))
        at += len(piece)
        if engine.eof:
            return at - len(engine.unused_data)
        if len(output) >= limit:
            break
    return len(body)


def _gzip(body: bytes, limit: int, output: bytearray) -> None:
    at = 0
    for _ in range(_MEMBERS):
        at = _member(zlib.decompressobj(_GZIP), body, at, limit, output)
        # Behind the last member some servers leave padding.
        if len(output) >= limit or not body.startswith(b"\x1f\x8b", at):
            return


def _deflate(body: bytes, limit: int, output: bytearray) -> None:
    """The name means zlib, but many servers send the bare format inside it."""
    try:
        _member(zlib.decompressobj(_ZLIB), body, 0, limit, output)
    except zlib.error:
        if output:
            raise
        _member(zlib.decompressobj(_RAW), body, 0, limit, output)


def _brotli(body: bytes, limit: int, output: bytearray) -> None:
    engine = brotli.Decompressor()
    for piece in _pieces(body):
        output += engine.process(piece, output_buffer_limit=limit - len(output))
        while len(output) < limit and not engine.can_accept_more_data():
            output += engine.process(b"", output_buffer_limit=limit - len(output))
        if len(output) >= limit or engine.is_finished():
            return


if sys.version_info >= (3, 14):

    def _zstd(body: bytes, limit: int, output: bytearray) -> None:
        options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
        at = 0
        for _ in range(_MEMBERS):
            at = _member(zstd.ZstdDecompressor(options=options), body, at, limit, output)
            if len(output) >= limit or at >= len(body):
                return

    class _ZstdFrames:
        """Frames one after the other, in any pieces."""

        def __init__(self) -> None:
            self._engine = self._new()

        def _new(self) -> Any:
            options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
            return zstd.ZstdDecompressor(options=options)

        def read(self, chunk: bytes, limit: int) -> tuple[bytes, bool]:
            """The text of the next bytes, and whether there is more than may be."""
            text = b""
            for _ in range(_MEMBERS):
                if self._engine.eof:
                    self._engine = self._new()
                text += self._engine.decompress(chunk, limit - len(text))
                if len(text) >= limit or not (self._engine.eof or self._engine.needs_input):
                    break
                chunk = self._engine.unused_data if self._engine.eof else b""
                if not chunk:
                    return text, False
            return text, True

else:

    class _Source:
        """A file of small pieces, the shape that the library's bounded reader asks for."""

        def __init__(self, body: bytes) -> None:
            self._pieces = _pieces(body)

        def read(self, _size: int) -> bytes:
            return next(self._pieces, b"")

    def _zstd(body: bytes, limit: int, output: bytearray) -> None:
        engine = zstandard.ZstdDecompressor(max_window_size=1 << _ZSTD_WINDOW_LOG)
        source: Any = _Source(body)
        reader = engine.stream_reader(source, read_size=_PIECE, read_across_frames=True)
        while len(output) < limit:
            # The reader sets aside as much as is asked for, whether or not it comes.
            piece = reader.read1(min(limit - len(output), 1 << 16))
            if not piece:
                return
            output += piece

    class _ZstdFrames:
        """Frames one after the other, in any pieces.

        This decoder knows no limit, but little of a body stands for a bounded amount of text.
        """

        def __init__(self) -> None:
            engine = zstandard.ZstdDecompressor(max_window_size=1 << _ZSTD_WINDOW_LOG)
            self._engine = engine.decompressobj(read_across_frames=True)

        def read(self, chunk: bytes, limit: int) -> tuple[bytes, bool]:
            """The text of the next bytes, and whether there is more than may be."""
            text = bytearray()
            for at in range(0, len(chunk), _ZSTD_PIECE):
                text += self._engine.decompress(chunk[at : at + _ZSTD_PIECE])
                if len(text) >= limit:
                    return bytes(text), True
            return bytes(text), False


_DECODERS: dict[str, _Decoder] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
}
_ERRORS: tuple[type[Exception], ...] = (zlib.error, ZstdError)
# Releases before 1.2 cannot stop at a limit; a body of theirs counts as unreadable.
if brotli is not None and hasattr(brotli.Decompressor, "can_accept_more_data"):
    _DECODERS["br"] = _brotli
    _ERRORS += (brotli.error,)
