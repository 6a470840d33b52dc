"""Content codings: every way to write them, bombs, cuts and damage."""

from __future__ import annotations

import contextlib
import gzip
import random
import resource
import sys
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.envelope.inflate import StreamInflater, inflate

brotli = pytest.importorskip("brotli")
zstandard = pytest.importorskip("zstandard", reason="Python 3.14 and later bring their own")

TEXT = b'{"error": {"code": "insufficient_quota", "message": "You ran out of credits."}}'
LONG = b"".join(b'{"line": %d, "square": %d}\n' % (n, n * n) for n in range(20_000))
LIMIT = 1 << 20


def raw_deflate(data):
    engine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return engine.compress(data) + engine.flush()


def zstd(data):
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


CODERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=4),
    "zstd": zstd,
}
WAYS = [*CODERS.items(), ("deflate", raw_deflate)]


@pytest.mark.parametrize(("name", "coder"), WAYS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, LONG])
def test_f070_codings_are_undone(name, coder, data):
    assert inflate(coder(data), name, LIMIT) == data
    assert inflate(coder(data), f" {name.upper()} , ", LIMIT) == data


@pytest.mark.parametrize("encodings", ["", "identity", "Identity", " , ", "identity, identity"])
def test_f070_no_coding(encodings):
    assert inflate(TEXT, encodings, LIMIT) == TEXT
    assert inflate(TEXT, encodings, 10) == TEXT[:10]


@pytest.mark.parametrize(
    "names", [["gzip", "gzip"], ["br", "gzip"], ["zstd", "identity", "deflate"], ["gzip"] * 8]
)
def test_f070_stacked_codings(names):
    body = TEXT
    for name in names:
        body = CODERS.get(name, bytes)(body)
    assert inflate(body, ", ".join(names), LIMIT) == TEXT


@pytest.mark.parametrize(
    "encodings", ["foo", "gzip, foo", "foo, gzip", "compress", "*", "gzip;q=1"]
)
def test_f070_unknown_codings(encodings):
    assert inflate(gzip.compress(TEXT), encodings, LIMIT) is None


def test_too_many_codings_are_not_tried():
    assert inflate(b"", ",".join(["gzip"] * 9), LIMIT) is None


@pytest.mark.parametrize(("name", "coder"), WAYS)
@pytest.mark.parametrize("limit", [0, 1, 7, 4096, len(LONG) - 1, len(LONG), len(LONG) + 1])
def test_output_stops_at_the_limit(name, coder, limit):
    assert inflate(coder(LONG), name, limit) == LONG[:limit]


def test_a_negative_limit_is_no_absent_limit():
    assert inflate(gzip.compress(TEXT), "gzip", -1) == b""
    assert inflate(TEXT, "", -1) == b""


@pytest.mark.parametrize(("name", "coder"), WAYS)
def test_a_cut_body_yields_what_could_be_read(name, coder):
    body = coder(TEXT)
    for end in range(len(body)):
        text = inflate(body[:end], name, LIMIT)
        assert text is not None, end
        assert TEXT.startswith(text), end
    body = coder(LONG)
    text = inflate(body[: len(body) * 9 // 10], name, LIMIT)
    assert text
    assert LONG.startswith(text)
    assert len(text) > len(LONG) // 4


@pytest.mark.parametrize("name", CODERS)
def test_f070_a_body_that_is_not_so_coded(name):
    assert inflate(b"<html>Bad gateway</html>", name, LIMIT) is None
    assert inflate(TEXT, f"{name}, gzip", LIMIT) is None


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("data", [TEXT, LONG])
def test_a_wrong_checksum_does_not_cost_the_text(name, data):
    body = bytearray(CODERS[name](data))
    body[-1 if name != "gzip" else -8] ^= 0xFF
    assert inflate(bytes(body), name, LIMIT) == data


@pytest.mark.parametrize(("name", "coder"), WAYS)
def test_f070_damage_in_the_middle_keeps_the_beginning(name, coder):
    chance = random.Random(70)
    noise = b"".join(b'{"n": %d}' % chance.getrandbits(64) for _ in range(20_000))
    body = coder(noise)
    middle = len(body) // 2
    text = inflate(body[:middle] + b"\xff" * 4096 + body[middle:], name, LIMIT)
    # Without a checksum on the way, damage may pass for other text for a while.
    assert text is not None
    assert text[: len(noise) // 5] == noise[: len(noise) // 5]


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_several_members(name):
    body = CODERS[name](TEXT) + CODERS[name](b"") + CODERS[name](LONG)
    assert inflate(body, name, LIMIT) == TEXT + LONG
    assert inflate(CODERS[name](TEXT) * 2, name, len(TEXT) + 1) == TEXT + TEXT[:1]


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_padding_behind_the_last_member_is_ignored(name):
    assert inflate(CODERS[name](TEXT) + b"\0" * 32, name, LIMIT) == TEXT


def test_a_train_of_empty_members_comes_to_an_end():
    body = gzip.compress(b"") * 50_000
    assert inflate(body, "gzip", LIMIT) == b""


def bomb(name):
    block = b"\0" * (1 << 20)
    if name == "zstd":
        engine = zstandard.ZstdCompressor().compressobj()
    elif name == "br":
        engine = brotli.Compressor(quality=1)
        return b"".join(engine.process(block) for _ in range(256)) + engine.finish()
    else:
        engine = zlib.compressobj(1, wbits=31 if name == "gzip" else 15)
    return b"".join(engine.compress(block) for _ in range(256)) + engine.flush()


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_f071_bombs_stop_at_the_limit_in_bounded_memory(name, layers):
    body = bomb(name)
    for _ in range(layers - 1):
        body = CODERS[name](body)
    limit = 1 << 18
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    text = inflate(body, ",".join([name] * layers), limit)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert text is not None
    assert text == b"\0" * len(text)
    assert 0 < len(text) <= limit
    assert peak < 6 * limit
    if sys.platform == "linux":  # elsewhere the unit is another
        assert grown < 32 << 10  # KiB, the library's own memory included


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_f071_a_small_limit_bounds_each_step(name):
    body = bomb(name)
    tracemalloc.start()
    assert inflate(body, name, 1000) == b"\0" * 1000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 17


def test_a_window_beyond_the_standard_is_not_allocated():
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    engine = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = engine.compress(LONG) + engine.flush()
    assert inflate(body, "zstd", LIMIT) is None


ANY_CODING = st.sampled_from(["gzip", "x-gzip", "deflate", "br", "zstd", "identity", "foo", "GZIP"])


@given(st.binary(max_size=200), st.lists(ANY_CODING, max_size=4), st.integers(-1, 100))
@settings(deadline=None)
def test_random_bytes_never_raise(body, names, limit):
    text = inflate(body, ",".join(names), limit)
    assert text is None or len(text) <= max(limit, 0)


@given(
    st.sampled_from(WAYS),
    st.sampled_from([TEXT, LONG[:5000]]),
    st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=5),
    st.integers(0, 6000),
)
@settings(max_examples=300, deadline=None)
def test_damaged_bodies_never_raise(way, data, damages, limit):
    name, coder = way
    body = bytearray(coder(data))
    for at, byte in damages:
        body[at % len(body)] = byte
    text = inflate(bytes(body), name, limit)
    assert text is None or len(text) <= limit


@given(st.text(max_size=40))
def test_any_header_value_never_raises(encodings):
    inflate(gzip.compress(TEXT), encodings, LIMIT)


def test_what_is_damaged_behind_its_head_is_not_the_bare_format():
    """Nor is it the bare format in a stream that comes in pieces: what follows would be noise."""
    whole = zlib.compress(b'{"error": {"code": "rate_limit_exceeded"}}' * 50)
    damaged = whole[:20] + b"event: error" + whole[20:]
    readable, engine = b"", zlib.decompressobj()
    with contextlib.suppress(zlib.error):
        for at in range(len(damaged)):
            readable += engine.decompress(damaged[at : at + 1])
    for cut in range(1, len(damaged)):
        inflater, told = StreamInflater("deflate"), b""
        for piece in (damaged[:cut], damaged[cut:]):
            found = inflater.feed(piece)
            if found is None:
                break
            told += found
        assert readable.startswith(told), cut


@pytest.mark.parametrize("code", [zlib.compress, raw_deflate])
def test_both_formats_of_deflate_are_told_apart_wherever_they_are_cut(code):
    text = b'{"error": {"code": "rate_limit_exceeded"}}' * 5
    coded = code(text)
    for cut in range(len(coded)):
        inflater = StreamInflater("deflate")
        assert (inflater.feed(coded[:cut]) or b"") + (inflater.feed(coded[cut:]) or b"") == text, (
            cut
        )
