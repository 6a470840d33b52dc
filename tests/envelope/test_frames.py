"""Frames of gRPC-Web and Connect, and the bytes in which Google's error model asks for a wait."""

import base64
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.envelope.dialects import get
from sidecar.envelope.frames import FramesParser
from sidecar.envelope.headers import Headers
from sidecar.envelope.model import Envelope, ErrorClass, Seen, Source
from sidecar.envelope.protobuf import from_base64, retry_delay, retry_delay_in_status
from sidecar.envelope.stream import StreamReader
from tests.cases import NOW


def frame(flag, payload):
    return bytes([flag]) + len(payload).to_bytes(4, "big") + payload


BODY = frame(0, b"grpc-status: 5\r\n" * 9) + frame(1, b"") + frame(0x80, b"grpc-status: 14\r\n")


def ends(parser, pieces):
    return [(end.payload, end.compressed) for piece in pieces for end in parser.feed(piece)]


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 64, 4096])
def test_every_cut_gives_the_same_end(step):
    pieces = [BODY[at : at + step] for at in range(0, len(BODY), step)]
    parser = FramesParser(0x80)
    assert ends(parser, pieces) == [(b"grpc-status: 14\r\n", False)]
    assert parser.begun
    assert parser.between_frames


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 64])
def test_base64_in_segments_with_padding_of_their_own(step):
    halves = BODY[:31], BODY[31:]
    text = b"\r\n".join(base64.b64encode(half) for half in halves)
    pieces = [text[at : at + step] for at in range(0, len(text), step)]
    assert ends(FramesParser(0x80, text=True), pieces) == [(b"grpc-status: 14\r\n", False)]


def test_what_is_no_frame_is_not_read_on():
    parser = FramesParser(0x80)
    assert ends(parser, [b"<html>", BODY]) == []
    assert parser.broken
    assert not parser.between_frames


def test_the_end_is_kept_up_to_its_cap_and_data_not_at_all():
    parser = FramesParser(0x02, longest=8)
    assert ends(parser, [frame(0, b"x" * 70000), frame(3, b"y" * 20)]) == [(b"y" * 8, True)]


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=200)
def test_any_bytes_are_survived(data, text):
    FramesParser(0x80, text=text).feed(data)
    retry_delay_in_status(data)
    retry_delay(data)


@given(st.lists(st.integers(0, 60), max_size=6))
def test_a_stream_reader_is_the_same_for_every_cut(cuts):
    kind = Headers([("content-type", "application/grpc-web+proto")])
    edges = [0, *sorted(cuts), len(BODY)]
    reader = StreamReader(get("grpc-web"), Seen(status=200, headers=kind, now=NOW))
    for start, end in pairwise(edges):
        reader.feed(BODY[start:end])
    found = reader.finish(clean=True)
    assert (found.envelope.code, found.verdict) == ("14", "failure")


STATUS = "CAgSBXF1b3RhGjYKKHR5cGUuZ29vZ2xlYXBpcy5jb20vZ29vZ2xlLnJwYy5SZXRyeUluZm8SCgoICAcQgMq17gE"


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        (STATUS, 7.5),
        (STATUS + "=", 7.5),
        (STATUS.replace("+", "-").replace("/", "_"), 7.5),
        (STATUS[:60], None),
        ("CAg", None),
        ("", None),
        ("!!!", None),
        ("A" * 100_000, None),
    ],
)
def test_the_wait_in_a_status(header, wait):
    assert retry_delay_in_status(from_base64(header)) == wait


@pytest.mark.parametrize(
    ("info", "wait"),
    [
        (b"\x0a\x02\x08\x07", 7),
        (b"\x0a\x00", 0),
        (b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", None),
        (b"\x12\x02\x08\x07", None),
        (b"\x11" + b"\x00" * 8 + b"\x15" + b"\x00" * 4 + b"\x0a\x02\x08\x03", 3),
        (b"\x0a\x7f\x08\x07", None),
        (b"\x0b", None),
        (b"\xff" * 30, None),
    ],
)
def test_the_wait_in_a_retry_info(info, wait):
    assert retry_delay(info) == wait


@pytest.mark.parametrize("kind", ["application/grpc-web+proto", "application/grpc-web-text",
                                  "application/connect+json"])  # fmt: skip
@pytest.mark.parametrize("class_", list(ErrorClass))
def test_our_last_frame_is_read_back(kind, class_):
    told = Envelope(
        class_=class_, source=Source.SIDECAR, code="draining", message="über\r\nx", retryable=True
    )
    frame_ = get("grpc-web").frame_error(told, kind)
    seen = Seen(status=200, headers=Headers([("content-type", kind)]), now=NOW)
    reader = StreamReader(get("grpc-web"), seen)
    reader.feed(frame_)
    found = reader.finish(clean=True)
    assert found.envelope.class_ == class_
    assert found.envelope.message == "über x"


def test_our_headers_are_ascii_and_one_line_each():
    told = Envelope(
        class_=ErrorClass.TRANSIENT, source=Source.SIDECAR, code="x", message="ü\r\n%", retryable=True
    )  # fmt: skip
    headers = dict(get("grpc-web").error_headers(told, ""))
    assert headers == {"grpc-status": "14", "grpc-message": "%C3%BC%0D%0A%25"}


def test_only_frames_are_answered_with_a_frame():
    told = Envelope(
        class_=ErrorClass.TRANSIENT, source=Source.SIDECAR, code="x", message="m", retryable=True
    )
    assert get("openai").frame_error(told, "application/grpc-web") == b""
    body = json.loads(get("grpc-web").error_body(told, 503, "/p.S/M"))
    assert (body["code"], body["message"]) == ("unavailable", "m")
