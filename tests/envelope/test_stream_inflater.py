"""The coding of a stream undone as it passes: any pieces, several members, nothing unbounded."""

from __future__ import annotations

import gzip
import zlib

import brotli
import pytest
import zstandard

from sidecar.envelope.inflate import StreamInflater

EVENTS = [b'data: {"n":%d}\n\n' % n for n in range(5)]
TEXT = b"".join(EVENTS)
LIMIT = 1 << 20


def flushed(engine, mark: int) -> bytes:
    """One stream whose writer flushes after each event."""
    return b"".join(engine.compress(event) + engine.flush(mark) for event in EVENTS) + (
        engine.flush()
    )


def brotli_flushed() -> bytes:
    engine = brotli.Compressor()
    return b"".join(engine.process(e) + engine.flush() for e in EVENTS) + engine.finish()


FRAMES = zstandard.ZstdCompressor()
BODIES = {
    "gzip": ("gzip", flushed(zlib.compressobj(wbits=31), zlib.Z_SYNC_FLUSH)),
    "gzip, a member an event": ("x-gzip", b"".join(map(gzip.compress, EVENTS))),
    "gzip, padded": ("gzip", gzip.compress(TEXT) + bytes(9)),
    "gzip, padded with another": ("gzip", gzip.compress(TEXT) + b"\0" + gzip.compress(TEXT)),
    "deflate": ("deflate", flushed(zlib.compressobj(), zlib.Z_SYNC_FLUSH)),
    "deflate, bare": ("deflate", flushed(zlib.compressobj(wbits=-15), zlib.Z_SYNC_FLUSH)),
    "br": ("br", brotli_flushed()),
    "zstd": ("zstd", flushed(FRAMES.compressobj(), zstandard.COMPRESSOBJ_FLUSH_BLOCK)),
    "zstd, a frame an event": ("zstd", b"".join(map(FRAMES.compress, EVENTS))),
}


@pytest.mark.parametrize("size", [1, 2, 7, 1 << 20])
@pytest.mark.parametrize("name", BODIES)
def test_any_pieces(name, size):
    coding, body = BODIES[name]
    inflater = StreamInflater(coding)
    pieces = [inflater.feed(body[at : at + size]) for at in range(0, len(body), size)]
    assert None not in pieces
    assert b"".join(pieces) == TEXT


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_is_unreadable(coding):
    data = bytes(64 << 20)
    body = {
        "gzip": lambda: gzip.compress(data),
        "deflate": lambda: zlib.compress(data),
        "br": lambda: brotli.compress(data, quality=1),
        "zstd": lambda: FRAMES.compress(data),
    }[coding]()
    inflater = StreamInflater(coding)
    assert inflater.feed(body, LIMIT) is None
    assert inflater.feed(b"more", LIMIT) is None


def test_empty_members_do_not_keep_the_loop_busy():
    assert StreamInflater("gzip").feed(gzip.compress(b"") * 5000) is None
