"""Answers out of bytes, however they are cut; and what is no answer."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.client.wire import Answer, AnswerReader, WireError, request_bytes

TWO = (
    b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\nServer: x\r\n\r\n{"permit": "a"}'
    b"HTTP/1.1 503 Unavailable\r\nCONTENT-LENGTH:2\r\nConnection: close\r\n\r\n{}"
)


@given(st.lists(st.integers(0, len(TWO)), max_size=20))
def test_answers_are_whole_however_they_are_cut(cuts: list[int]) -> None:
    reader, found, start = AnswerReader(), [], 0
    for end in [*sorted(cuts), len(TWO)]:
        reader.feed(TWO[start:end])
        start = end
        while (answer := reader.next()) is not None:
            found.append(answer)
    assert found == [Answer(200, b'{"permit": "a"}', False), Answer(503, b"{}", True)]


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 abc OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"x" * 20000,
    ],
)
def test_what_is_no_answer(data: bytes) -> None:
    reader = AnswerReader()
    reader.feed(data)
    with pytest.raises(WireError):
        reader.next()


@given(st.binary(max_size=400))
def test_bytes_of_any_kind_are_an_answer_or_none(data: bytes) -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 200 OK\r\n" + data)
    with contextlib.suppress(WireError):
        reader.next()


def test_a_request() -> None:
    assert request_bytes("/v1/x", "localhost", {"a": "b"}, b"{}") == (
        b"POST /v1/x HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: 2\r\na: b\r\n\r\n{}"
    )
