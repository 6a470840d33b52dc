"""Changes inputs as a hostile or a broken peer would: in their bytes, in their JSON, in their size.

Everything is drawn from one `Random`, so that a number names an input, and Hypothesis or a fuzzer
that is guided by coverage can hold the dice as well.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

LONGEST = 64 * 1024
"""Bytes of an input, unless it was blown up on purpose."""

BLOWN_UP = 256 * 1024

BYTES = [
    b"\0", b"\r", b"\n", b"\r\n", b"\n\n", b"\r\n\r\n", b" ", b"\t", b":", b";", b",", b"=", b'"', b"'",
    b"\\", b"\\u0000", b"\\ud800", b"\\udc00", b"\\", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\xc3",
    b"\x7f", b"\x85", b"\xa0", b"\xe2\x80\xa8", b"{", b"}", b"[", b"]", b"{}", b"[]", b"null", b"true",
    b"-1", b"0", b"1e999", b"NaN", b"Infinity", b"9" * 30, b"4" * 5000, b"data: ", b"event: error\n",
    b"data: [DONE]\n\n", b"id: ", b"retry: 1\n", b"0\r\n\r\n", b"HTTP/1.1 ", b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: gzip\r\n", b"Retry-After: ",
    b"x-error-envelope: {", b"x-sidecar-decision: forwarded\r\n", b"<html>", b"<!--", b"<?xml",
]  # fmt: skip
"""Pieces that mean something to somebody."""

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 429, 503, 2**31, 2**63, 2**70, -(2**70), 10**400, 1e308, -0.0, 1.5,
    float("inf"), float("nan"), "", " ", "\0", "\n", "\ud800", "\u2028", "null", "error", "429", "x" * 600,
    "ünïcode", "a sentence of prose, with a comma.", [], {}, [[]], [{}], {"": ""}, [None], {"error": None},
    {"code": {"code": []}}, "2026-11-30T12:00:33Z", "Mon, 30 Nov 2026 12:00:40 GMT", "1e999", "-5", "NaN",
]  # fmt: skip
"""Values that stand where another kind was expected."""

KEYS = [
    "error", "errors", "code", "type", "message", "status", "detail", "details", "metadata", "reason",
    "choices", "delta", "finish_reason", "response", "headers", "raw", "body", "attrs", "args", "cause",
    "exceptions", "mro", "sqlstate", "errno", "retry_after", "param", "ok", "success", "data", "extensions",
]  # fmt: skip


class Mutator:
    """Makes new inputs of old ones.

    Args:
        random: every choice is drawn from it.
        others: inputs that pieces are taken from.
        tokens: further pieces that mean something to whoever reads the input.
    """

    def __init__(
        self, random: Random, others: Sequence[bytes] = (b"",), tokens: Sequence[bytes] = ()
    ) -> None:
        self.random = random
        self._others = others
        self._tokens = [*BYTES, *tokens]
        self._changes: list[Callable[[bytes], bytes]] = [
            self._flip, self._insert, self._insert, self._delete, self._double, self._cut, self._splice,
            self._swap, self._number, self._overwrite, self._noise,
        ]  # fmt: skip

    def mutated(self, data: bytes) -> bytes:
        """One to six changes of an input, in its JSON first where it holds any."""
        random = self.random
        if random.random() < 0.6:
            data = self._in_json(data)
            if random.random() < 0.5:
                return data[:LONGEST]
        for _ in range(random.randint(1, 6)):
            data = random.choice(self._changes)(data)[:LONGEST]
        if random.random() < 0.02:
            data = self._blow_up(data)
        return data

    # -- bytes ------------------------------------------------------------------------------

    def _place(self, data: bytes) -> int:
        return self.random.randint(0, len(data))

    def _slice(self, data: bytes) -> tuple[int, int]:
        start = self._place(data)
        return start, min(len(data), start + self.random.choice((1, 2, 4, 16, 64, 512)))

    def _flip(self, data: bytes) -> bytes:
        if not data:
            return data
        at = self.random.randrange(len(data))
        return data[:at] + bytes((data[at] ^ (1 << self.random.randrange(8)),)) + data[at + 1 :]

    def _insert(self, data: bytes) -> bytes:
        at = self._place(data)
        return data[:at] + self.random.choice(self._tokens) + data[at:]

    def _overwrite(self, data: bytes) -> bytes:
        at, token = self._place(data), self.random.choice(self._tokens)
        return data[:at] + token + data[at + len(token) :]

    def _noise(self, data: bytes) -> bytes:
        at = self._place(data)
        return data[:at] + self.random.randbytes(self.random.choice((1, 3, 8, 40))) + data[at:]

    def _delete(self, data: bytes) -> bytes:
        start, end = self._slice(data)
        return data[:start] + data[end:]

    def _double(self, data: bytes) -> bytes:
        start, end = self._slice(data)
        return data[:end] + data[start:end] * self.random.choice((1, 1, 2, 9)) + data[end:]

    def _blow_up(self, data: bytes) -> bytes:
        """A piece so often that whoever looks at it more than a few times is found out."""
        start, end = self._slice(data)
        piece = data[start:end] or b"["
        return data[:end] + piece * (BLOWN_UP // len(piece)) + data[end:]

    def _cut(self, data: bytes) -> bytes:
        at = self._place(data)
        return data[:at] if self.random.random() < 0.7 else data[at:]

    def _splice(self, data: bytes) -> bytes:
        other = self.random.choice(self._others)
        start, end = self._slice(other)
        at = self._place(data)
        if self.random.random() < 0.3:
            return data[:at] + other[start:]
        return data[:at] + other[start:end] + data[at:]

    def _swap(self, data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        if len(lines) < 2:
            return data
        first, second = self.random.randrange(len(lines)), self.random.randrange(len(lines))
        lines[first], lines[second] = lines[second], lines[first]
        return b"".join(lines)

    def _number(self, data: bytes) -> bytes:
        digits = [at for at, byte in enumerate(data[:4096]) if 48 <= byte <= 57]
        if not digits:
            return data
        at = self.random.choice(digits)
        value = self.random.choice((b"0", b"-1", b"9" * 20, b"1e400", b"0.5", b"007", b"\xd9\xa1"))
        return data[:at] + value + data[at + 1 :]

    # -- JSON -------------------------------------------------------------------------------

    def _in_json(self, data: bytes) -> bytes:
        """Changes a value somewhere inside the JSON that the input is, or holds."""
        start = self._json_at(data)
        if start is None:
            return data
        try:
            value, size = json.JSONDecoder().raw_decode(data[start:].decode("latin-1"))
        except (ValueError, RecursionError):
            return data
        for _ in range(self.random.randint(1, 4)):
            value = self._changed(value, 0)
        try:
            text = json.dumps(value, ensure_ascii=self.random.random() < 0.5)
        except RecursionError:
            return data
        # What was read byte for byte is written so; what is new is UTF-8, lone surrogates and all.
        spelt = b"".join(
            character.encode("latin-1") if character < "\u0100" else character.encode("utf-8", "surrogatepass")
            for character in text
        )  # fmt: skip
        return data[:start] + spelt + data[start + size :]

    def _json_at(self, data: bytes) -> int | None:
        places = [at for at, byte in enumerate(data[:LONGEST]) if byte in b"{["]
        if not places:
            return None
        return places[0] if self.random.random() < 0.7 else self.random.choice(places)

    def _changed(self, value: Any, depth: int) -> Any:
        random = self.random
        held = value if isinstance(value, dict | list) else None
        if not held or depth > 20 or random.random() < 0.25:
            return self._other(value)
        keys: Sequence[Any] = list(held) if isinstance(held, dict) else range(len(held))
        key = random.choice(keys)
        dice = random.random()
        if dice < 0.12:
            del held[key]
        elif dice < 0.2 and isinstance(held, dict):
            held[random.choice(KEYS)] = held.pop(key)
        elif dice < 0.3 and isinstance(held, dict):
            held[random.choice(KEYS)] = self._other(held[key])
        elif dice < 0.36 and isinstance(held, list):
            held += held[:4]
        else:
            held[key] = self._changed(held[key], depth + 1)
        return held

    def _other(self, value: Any) -> Any:
        random = self.random
        dice = random.random()
        if dice < 0.5:
            return copy.deepcopy(random.choice(ODD))
        if dice < 0.6:
            return [value]
        if dice < 0.7:
            return {random.choice(KEYS): value}
        if dice < 0.8:
            return json.dumps(value, default=str)[:2000]
        if isinstance(value, str):
            return self.mutated(value.encode("utf-8", "surrogatepass")[:2000]).decode("latin-1")
        if isinstance(value, int | float) and not isinstance(value, bool):
            return random.choice((-value, str(value), value + 1 if value < 1e300 else 0, [value]))
        return copy.deepcopy(random.choice(ODD))
