"""The headers of a message, as those who judge it look at them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Headers:
    """The headers of one message: ordered, repeatable, names matched without case.

    Values are text (latin-1 of the wire bytes), so that every byte survives.
    """

    __slots__ = ("_first", "pairs")

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self.pairs = tuple(pairs)
        self._first = {name.lower(): value for name, value in reversed(self.pairs)}

    @classmethod
    def from_raw(cls, raw: Iterable[tuple[bytes, bytes]]) -> Headers:
        """From the byte pairs of a parsed message."""
        return cls([(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw])

    def get(self, name: str) -> str | None:
        """The first value of a header (name in lower case), or None."""
        return self._first.get(name)

    def get_all(self, name: str) -> list[str]:
        """Every value of a header (name in lower case), in order."""
        return [value for key, value in self.pairs if key.lower() == name]

    def __contains__(self, name: str) -> bool:
        return name in self._first

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def __repr__(self) -> str:
        return f"Headers({list(self._first)})"
