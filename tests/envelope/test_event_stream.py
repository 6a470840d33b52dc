"""Frames of AWS's binary streams: any cut, wrong checksums, lengths that nobody should believe."""

import base64
import json
from struct import pack
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.envelope.dialects import get
from sidecar.envelope.event_stream import FrameParser, frame, length_of
from sidecar.envelope.headers import Headers
from sidecar.envelope.model import Seen
from sidecar.envelope.stream import StreamReader, is_stream
from sidecar.proxy.events import LONGEST_TAIL, FrameTail
from tests.cases import NOW

KIND = "application/vnd.amazon.eventstream"
CONVERSE = "/model/vendor.model-v1/converse-stream"
INVOKE = "/model/vendor.model-v1/invoke-with-response-stream"


def event(name, payload=None):
    data = json.dumps(payload or {}).encode()
    return frame(
        {":event-type": name, ":content-type": "application/json", ":message-type": "event"}, data
    )


def failing(name, message="M", **more):
    data = json.dumps({"message": message, **more}).encode()
    return frame({":exception-type": name, ":message-type": "exception"}, data)


def chunk(payload):
    inner = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return event("chunk", {"bytes": base64.b64encode(inner).decode(), "p": "abc"})


DELTA = event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hi"}})
WHOLE = (
    event("messageStart", {"role": "assistant"}),
    DELTA,
    event("messageStop", {"stopReason": "end_turn"}),
    event("metadata", {"usage": {"inputTokens": 1}}),
)


def reader(path=CONVERSE):
    seen = Seen(status=200, headers=Headers([("content-type", KIND)]), path=path, now=NOW)
    return StreamReader(get("bedrock"), seen)


def judged(*frames, path=CONVERSE, clean=True):
    stream = reader(path)
    for one in frames:
        stream.feed(one)
    return stream.finish(clean=clean)


def told(classified):
    envelope = classified.envelope
    return envelope and (str(envelope.class_), envelope.code, str(classified.verdict))


def test_it_is_a_stream_by_its_type():
    assert is_stream(KIND, b"")
    assert is_stream(f"{KIND}; charset=utf-8", b"")


def test_a_whole_answer():
    stream = reader()
    stream.feed(WHOLE[0])
    assert not stream.content
    stream.feed(WHOLE[1])
    assert stream.content
    stream.feed(WHOLE[2])
    assert stream.done
    assert not stream.terminated
    stream.feed(WHOLE[3])
    assert stream.terminated
    assert stream.finish(clean=True).verdict == "success"


def test_its_word_is_enough_even_if_the_figures_never_come():
    assert judged(*WHOLE[:3], clean=False).verdict == "success"
    assert told(judged(*WHOLE[:2])) == ("transient", "stream_truncated", "failure")
    assert told(judged(*WHOLE[:2], clean=False)) == ("transient", "stream_truncated", "failure")
    assert told(judged()) == ("transient", "invalid_upstream_response", "failure")


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (failing("throttlingException"), ("rate_limit", "throttlingException", "throttle")),
        (
            failing("throttlingException", "Too many tokens per day, please wait"),
            ("permanent", "plan_window_exhausted", "alive"),
        ),
        (failing("validationException"), ("validation", "validationException", "alive")),
        (
            failing("validationException", "Input is too long for requested model."),
            ("validation", "context_length_exceeded", "alive"),
        ),
        (
            failing("internalServerException"),
            ("transient", "internalServerException", "failure"),
        ),
        (
            failing("serviceUnavailableException"),
            ("transient", "serviceUnavailableException", "failure"),
        ),
        (failing("modelTimeoutException"), ("transient", "modelTimeoutException", "failure")),
        (
            failing("modelStreamErrorException", originalStatusCode=500),
            ("transient", "modelStreamErrorException", "failure"),
        ),
        (
            failing("modelStreamErrorException", originalStatusCode=400),
            ("validation", "modelStreamErrorException", "alive"),
        ),
        (failing("accessDeniedException"), ("authentication", "accessDeniedException", "alive")),
        (
            failing("serviceQuotaExceededException"),
            ("permanent", "quota_exhausted", "alive"),
        ),
        (failing("modelNotReadyException"), ("transient", "model_loading", "alive")),
        (failing("somethingNewException"), ("transient", "somethingNewException", "failure")),
        (
            frame({":message-type": "error", ":error-code": "InternalFailure"}, b""),
            ("transient", "InternalFailure", "failure"),
        ),
        (
            frame({":message-type": "error", ":error-message": "M"}, b""),
            ("transient", "stream_error", "failure"),
        ),
        (
            frame({":message-type": "exception", ":exception-type": "x"}, b"not JSON"),
            ("transient", "x", "failure"),
        ),
    ],
)
def test_failures(one, expected):
    assert told(judged(DELTA, one)) == expected
    assert told(judged(one, *WHOLE)) == expected


def test_the_message_of_an_error_frame():
    one = frame(
        {":message-type": "error", ":error-code": "InternalError", ":error-message": "It broke."},
        b"",
    )
    assert judged(one).envelope.message == "It broke."


METRICS = {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 1}}


@pytest.mark.parametrize(
    ("payloads", "clean", "verdict"),
    [
        # Anthropic's words, with and without their end.
        ([{"type": "message_start"}, {"type": "message_stop", **METRICS}], False, "success"),
        ([{"type": "message_start"}, {"type": "content_block_delta"}], True, "failure"),
        # Models with words of their own.
        ([{"generation": "Hi", "stop_reason": None}, {"stop_reason": "stop", **METRICS}], False,
         "success"),
        ([{"outputText": "Hi", "completionReason": "FINISH"}], True, "success"),
        ([{"outputText": "Hi"}], False, "failure"),
        ([b"text"], True, "success"),
        ([], True, "failure"),
        # An error within a chunk.
        ([{"type": "error", "error": {"type": "overloaded_error", "message": "M"}}], True,
         "failure"),
    ],
)  # fmt: skip
def test_invoke_model_ends_by_the_words_of_its_model(payloads, clean, verdict):
    frames = [chunk(payload) for payload in payloads]
    assert judged(*frames, path=INVOKE, clean=clean).verdict == verdict


def test_half_a_frame_is_a_cut():
    good = chunk({"outputText": "Hi", "completionReason": "FINISH"})
    assert told(judged(good, good[:-1], path=INVOKE)) == (
        "transient", "stream_truncated", "failure",
    )  # fmt: skip
    assert told(judged(DELTA, DELTA[:7])) == ("transient", "stream_truncated", "failure")


def broken_checksum(one, at=-1):
    spoilt = bytearray(one)
    spoilt[at] ^= 1
    return bytes(spoilt)


@pytest.mark.parametrize("at", [-1, -5, 0, 3, 6, 9, 13, 30])
def test_a_wrong_byte_anywhere_ends_the_reading(at):
    """What follows cannot be trusted: not even the word that would end the answer."""
    classified = judged(DELTA, broken_checksum(DELTA, at), *WHOLE)
    assert told(classified) == ("transient", "stream_truncated", "failure")


def prelude(whole, headers):
    sizes = pack("!II", whole, headers)
    return sizes + pack("!I", crc32(sizes))


@pytest.mark.parametrize(
    ("whole", "headers"),
    [
        (0, 0), (15, 0), (16, 1), (2**32 - 1, 0), (2**32 - 1, 2**32 - 1), (1 << 30, 0),
        (200_000, 131_073), (20, 2**32 - 4),
    ],
)  # fmt: skip
def test_lengths_that_cannot_be(whole, headers):
    assert length_of(prelude(whole, headers)) is None
    parser = FrameParser()
    assert parser.feed(prelude(whole, headers) + b"\x00" * 64) == []
    assert parser.broken
    assert parser.feed(DELTA) == []
    assert parser.pending


def test_a_frame_larger_than_the_cap_is_left_out_and_nothing_of_it_is_kept():
    huge = frame({":message-type": "event", ":event-type": "contentBlockDelta"}, b"x" * 5000)
    parser = FrameParser(max_frame=1000)
    found = []
    for start in range(0, len(huge), 100):
        found += parser.feed(huge[start : start + 100])
        assert len(parser._tail) <= 100
    found += parser.feed(DELTA)
    assert [one.name for one in found] == ["contentBlockDelta"]
    assert parser.skipped == 1
    assert not parser.pending


def raw_frame(block, payload=b"{}"):
    sizes = pack("!II", 16 + len(block) + len(payload), len(block))
    start = sizes + pack("!I", crc32(sizes)) + block + payload
    return start + pack("!I", crc32(start))


def named(name, kind, value):
    return bytes((len(name),)) + name.encode() + bytes((kind,)) + value


def test_headers_of_every_type():
    block = b"".join(
        (
            named("a", 0, b""),
            named("b", 1, b""),
            named("c", 2, b"\x01"),
            named("d", 3, b"\x00\x01"),
            named("e", 4, bytes(4)),
            named("f", 5, bytes(8)),
            named("g", 6, b"\x00\x03abc"),
            named(":event-type", 7, b"\x00\x05chunk"),
            named("h", 8, bytes(8)),
            named("i", 9, bytes(16)),
        )
    )
    (found,) = FrameParser().feed(raw_frame(block))
    assert (found.name, found.data) == ("chunk", "{}")


@pytest.mark.parametrize(
    "block",
    [
        b"\xff",
        named("a", 10, b""),
        named("a", 7, b"\xff\xffx"),
        named("a", 7, b"\x00"),
        named("a", 9, b"x"),
        b"\x03ab",
        named("a", 4, bytes(4)) + b"\x05",
    ],
)
def test_headers_that_lie_about_their_lengths(block):
    parser = FrameParser()
    assert parser.feed(raw_frame(block)) == []
    assert parser.broken


BODY = b"".join([*WHOLE[:2], failing("throttlingException"), *WHOLE])


@given(st.lists(st.integers(1, 300), max_size=20))
def test_any_cut_gives_the_same_events(cuts):
    whole = FrameParser().feed(BODY)
    parser, found, at = FrameParser(), [], 0
    for cut in [*cuts, len(BODY)]:
        found += parser.feed(BODY[at : at + cut])
        at += cut
    assert found == whole
    assert not parser.pending


@given(st.binary(max_size=400), st.integers(0, 60))
def test_bytes_that_are_no_frames(noise, size):
    parser = FrameParser()
    for start in range(0, len(noise), size + 1):
        parser.feed(noise[start : start + size + 1])
    assert len(parser._tail) <= len(noise)
    stream = reader()
    stream.feed(noise)
    assert not stream.finish(clean=True).rule.startswith("fault")


def test_a_million_tiny_pieces_take_no_time_that_grows():
    one = frame({":message-type": "event", ":event-type": "x"}, b"y" * 60_000)
    parser = FrameParser()
    found = [event for byte in one for event in parser.feed(bytes((byte,)))]
    assert len(found) == 1


# -- on the way through ---------------------------------------------------------------------


@given(st.lists(st.integers(1, 300), max_size=20))
def test_only_whole_frames_pass(cuts):
    tail, passed, at = FrameTail(), b"", 0
    for cut in [*cuts, len(BODY)]:
        passed += tail.whole(BODY[at : at + cut], 0.0)
        at += cut
        assert BODY.startswith(passed)
        parser = FrameParser()
        parser.feed(passed)
        assert not parser.pending
    assert passed == BODY
    assert tail.last(b"event") == b"event"


def test_what_is_kept_gives_way_to_the_last_frame():
    tail = FrameTail()
    assert tail.whole(DELTA + DELTA[:30], 0.0) == DELTA
    assert tail.last(b"event") == b"event"
    assert tail.give_up() == b""
    tail = FrameTail()
    assert tail.whole(DELTA[:30], 0.0) == b""
    assert tail.give_up() == DELTA[:30]
    assert tail.last(b"event") == b""


def test_a_huge_frame_passes_as_it_comes():
    huge = frame({":message-type": "event", ":event-type": "x"}, b"y" * 2 * LONGEST_TAIL)
    tail = FrameTail()
    assert tail.whole(huge[:1000], 0.0) == huge[:1000]
    assert tail.last(b"event") == b""
    tail = FrameTail()
    passed = tail.whole(huge[:1000], 0.0) + tail.whole(huge[1000:] + DELTA[:5], 0.0)
    assert passed == huge
    assert tail.whole(DELTA[5:], 0.0) == DELTA
    assert tail.last(b"event") == b"event"


def test_bytes_that_are_no_frames_pass_as_they_come():
    tail = FrameTail()
    assert tail.whole(b"upstream connect error", 0.0) == b"upstream connect error"
    assert tail.whole(b" or", 0.0) == b" or"
    assert tail.last(b"event") == b""
