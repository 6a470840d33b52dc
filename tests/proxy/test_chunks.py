"""Whole chunks are cut out of a body, and the parser gets the rest: together they lose nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.proxy.chunks import Chunks

CONTENTS = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6)
CUTS = st.lists(st.integers(1, 30), max_size=20)


class Parser:
    """Reads the usual form alone, and as much of it as it has."""

    def __init__(self) -> None:
        self.kept = b""
        self.body = b""

    def feed(self, data: bytes) -> None:
        self.kept += data
        while (end := self.kept.find(b"\r\n")) >= 0:
            size = int(self.kept[:end], 16)
            if not size or len(self.kept) < end + 4 + size:
                return
            self.body += self.kept[end + 2 : end + 2 + size]
            self.kept = self.kept[end + 4 + size :]


@given(CONTENTS, CUTS, st.sampled_from(["%x", "%X", "%05x"]))
def test_any_cut_of_any_chunks(contents, cuts, form):
    size = [(form % len(part)).encode() for part in contents]
    wire = b"".join(b"%b\r\n%b\r\n" % pair for pair in zip(size, contents, strict=True))
    wire += b"0\r\n\r\n"
    chunks, parser = Chunks(), Parser()
    at = 0
    for length in [*cuts, len(wire)]:
        piece = wire[at : at + length]
        at += length
        cut = chunks.cut(piece)
        parser.feed(piece[: cut.first])
        assert not (cut.whole and parser.kept)
        parser.body += b"".join(cut.whole)
        parser.feed(piece[cut.rest :])
    assert parser.body == b"".join(contents)
    assert parser.kept == b"0\r\n\r\n"


@pytest.mark.parametrize(
    "odd",
    [
        b"1;name=value\r\na\r\n",
        b"1 \r\na\r\n",
        b"1\na\n",
        b"-1\r\na\r\n",
        b"0x1\r\na\r\n",
        b"\r\n",
        b"00000001\r\na\r\n",
        b"1\r\nab\r\n",
        b"0\r\nTrailer: x\r\n\r\n",
    ],
)
def test_what_is_in_no_usual_form_is_the_parsers_with_all_that_follows(odd):
    good = b"2\r\nok\r\n"
    chunks = Chunks()
    cut = chunks.cut(good + odd + good)
    assert cut.whole == [b"ok"]
    assert cut.rest == len(good)
    assert chunks.lost
    assert chunks.cut(good) == (len(good), [], len(good))
