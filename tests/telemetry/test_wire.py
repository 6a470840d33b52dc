"""Pieces that are put together are the message that the library would have made."""

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from sidecar.telemetry.otlp.wire import field, ids, varint

NUMBERS = st.integers(min_value=0, max_value=2**63)


@given(
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=8, max_size=8),
    st.one_of(st.just(b""), st.binary(min_size=8, max_size=8)),
    NUMBERS,
    NUMBERS,
    st.integers(min_value=0, max_value=2**32 - 1),
    st.text(max_size=300),
)
def test_a_span_of_pieces(trace, span, parent, start, end, flags, word) -> None:
    word = word.encode("utf-8", "replace").decode()
    constant = Span(name=word, kind=Span.SpanKind.SPAN_KIND_CLIENT)
    attribute = field(9, field(1, b"key") + field(2, field(1, word.encode())))
    data = constant.SerializeToString() + ids(trace, span, parent, start, end, flags) + attribute
    whole = Span(
        name=word,
        kind=Span.SpanKind.SPAN_KIND_CLIENT,
        trace_id=trace,
        span_id=span,
        parent_span_id=parent,
        start_time_unix_nano=start,
        end_time_unix_nano=end,
        flags=flags,
        attributes=[KeyValue(key="key", value=AnyValue(string_value=word))],
    )
    assert Span.FromString(data) == whole
    assert ScopeSpans.FromString(field(2, data) * 2) == ScopeSpans(spans=[whole, whole])


@given(NUMBERS)
def test_a_number(number: int) -> None:
    assert Span.FromString(b"\x50" + varint(number)).dropped_attributes_count == number % 2**32
