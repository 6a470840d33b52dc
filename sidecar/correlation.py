"""The id that joins a call's answer, its log line, its span and what else failed with it.

A caller that works through several tools sends one id to all of them; a call that has none gets
one here. Both planes ask this file, so that three failures of one workflow carry one id.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Mapping

from sidecar.envelope.redact import shown_name

LIMIT = 128

_FORBIDDEN = re.compile(r"[^A-Za-z0-9._:/-]+")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_ids = random.Random(os.urandom(16))  # noqa: S311 - ids tell calls apart, they guard nothing


def sanitised(value: str) -> str:
    """A correlation id of at most 128 characters of `[A-Za-z0-9._:/-]`.

    It goes to every place that people look at, so that one that is a credential by its looks, sent
    by mistake, is replaced: by the same word for the same one, until the process ends.
    """
    return _FORBIDDEN.sub("_", shown_name(_FORBIDDEN.sub("_", value.strip())[:LIMIT]))


def given(found: Mapping[bytes, bytes]) -> str | None:
    """The caller's own id: `x-correlation-id`, `x-request-id`, or the trace id; None if absent.

    Args:
        found: the headers of the request by their lower-case names.
    """
    for name in (b"x-correlation-id", b"x-request-id"):
        if name in found:
            own = sanitised(found[name].decode("latin-1"))
            if own:
                return own
    if b"traceparent" in found:
        trace = _TRACEPARENT.fullmatch(found[b"traceparent"].decode("latin-1").strip())
        # The specification of trace contexts calls an id of zeros invalid.
        return trace[1] if trace and trace[1].strip("0") else None
    return None


def made() -> str:
    """A new id."""
    return _ids.getrandbits(128).to_bytes(16, "big").hex()
