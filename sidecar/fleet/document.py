"""What the state file says: wall-clock times, because the monotonic clock ends with the machine.

A file is believed as a whole or not at all. It is not if it does not parse, has a value out of its
bounds, is of another version, or was written later than it is now: then the clock was set back, and
none of its times can be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from sidecar.breaker.saved import FAR, SavedProvider
from sidecar.envelope.redact import is_of_this_process

SCHEMA: Final = 1
"""Grows when an older reader would misunderstand a newer file; new members do not count."""

SLACK: Final = 10.0
"""Seconds by which a file may be from the future: clocks are corrected by as much."""

Providers = Mapping[str, SavedProvider]


class Unusable(Exception):
    """A state file that is not believed, and why, in words that quote nothing of it."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The file. Times are seconds since the epoch.

    Attributes:
        schema: of the file.
        saved_at: when it was written.
        secret: under which credentials are hashed, in hexadecimal digits: another one would
            recognise none of them.
        providers: what is kept, by provider.
    """

    schema: int
    saved_at: Annotated[float, Meta(ge=0, le=FAR)]
    secret: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
    providers: Annotated[dict[str, SavedProvider], Meta(max_length=4096)]


class Kept(NamedTuple):
    """What a state file keeps.

    Attributes:
        providers: in monotonic seconds.
        secret: under which their credentials are hashed.
        age: seconds since it was written.
    """

    providers: dict[str, SavedProvider]
    secret: bytes
    age: float


class _Version(msgspec.Struct, frozen=True):
    schema: int


_version = msgspec.json.Decoder(_Version)
_document = msgspec.json.Decoder(Document)


def encode(providers: Providers, secret: bytes, now: float, wall: float) -> bytes:
    """A state file.

    Args:
        providers: what is kept, in monotonic seconds.
        secret: 32 bytes, under which credentials are hashed.
        now: the monotonic clock.
        wall: the wall clock at the same moment, seconds since the epoch.
    """
    moved = {name: one.moved(wall - now) for name, one in providers.items()}
    document = Document(schema=SCHEMA, saved_at=wall, secret=secret.hex(), providers=moved)
    return msgspec.json.encode(document) + b"\n"


def decode(content: bytes, now: float, wall: float) -> Kept:
    """What a state file keeps.

    Args:
        content: the file.
        now: the monotonic clock.
        wall: the wall clock at the same moment, seconds since the epoch.

    Raises:
        Unusable: it is not believed.
    """
    try:
        schema = _version.decode(content).schema
        if schema != SCHEMA:
            raise Unusable(f"it is of version {schema}, and this daemon reads version {SCHEMA}")
        document = _document.decode(content)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise Unusable("it is broken, or no state file") from None
    age = wall - document.saved_at
    if age < -SLACK:
        raise Unusable(f"it was written {-age:.0f} s from now: the clock was set back")
    # Within the slack it counts as written just now, so that no time left grows.
    offset = now - wall + min(age, 0.0)
    moved = {name: one.moved(offset) for name, one in document.providers.items()}
    return Kept(moved, bytes.fromhex(document.secret), max(age, 0.0))


def lasting(providers: Providers) -> dict[str, SavedProvider]:
    """What can be kept of what there is.

    A model's name that was a credential stands there under a name that only this process gives it,
    and one that is no text cannot be written.
    """
    kept: dict[str, SavedProvider] = {}
    for name, provider in providers.items():
        breakers = tuple(one for one in provider.breakers if _lasts(one.subject))
        limits = tuple(one for one in provider.limits if _lasts(one.subject))
        if breakers or limits:
            kept[name] = SavedProvider(identity=provider.identity, breakers=breakers, limits=limits)
    return kept


def _lasts(subject: str | None) -> bool:
    if subject is None:
        return True
    try:
        subject.encode()
    except UnicodeEncodeError:
        return False
    return not is_of_this_process(subject)
