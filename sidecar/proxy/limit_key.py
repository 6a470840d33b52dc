"""Whose limit a call counts against: the credential that it carries, as a keyed hash.

Upstreams limit keys, organisations and projects, so two callers with two keys must not hold each
other up, and one that runs into its limit must not slow the other. What is kept of a credential is
a hash under a secret: it can be compared, and tells nothing. The secret is this process's own, or
that of the state file, so that a budget which is known to be spent finds its key again. It is
computed only for calls of a provider that has a gate, and for the answer that makes one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection
from functools import lru_cache

from sidecar.breaker.gating import LimitKey
from sidecar.envelope.redact import SecretPaths, secrets_of_path
from sidecar.proxy.headers import RawHeaders

SUBJECT_LENGTH = 256
"""Characters of a model's name that count, as for breakers."""

_secret = os.urandom(32)

_CREDENTIAL = re.compile(
    rb"(?:^|[-_])(?:authorization|auth|api-?key|access-?key|subscription-key|token|key|secret)$"
)
_ACCOUNT = re.compile(
    rb"(?:^|[-_])(?:organi[sz]ation|org|project|account|workspace|tenant|team)(?:[-_]id)?$"
)
_OF_ONE_CALL = re.compile(rb"idempotency|csrf|xsrf|session|websocket|surrogate|^proxy-|cache")
"""Names that look alike and differ from call to call, or from one session to the next."""

_PARAMETER = re.compile(
    r"(?i)(?:^|[&;])((?:x-)?(?:goog-)?(?:api[-_]?key|key|access[-_]?token|token|auth))=([^&;]+)"
)


def use_secret(secret: bytes) -> None:
    """Hash under this secret from now on; keys that were made before are not recognised any more.

    Args:
        secret: 32 bytes.
    """
    global _secret  # noqa: PLW0603 - the process has one, set once before it listens
    _secret = secret


@lru_cache(maxsize=1024)
def tells_whose(name: bytes) -> bool:
    """Does a header of this name (any case) say whose limit a call counts against?"""
    name = name.lower()
    if len(name) > 64 or _OF_ONE_CALL.search(name) is not None:
        return False
    return _CREDENTIAL.search(name) is not None or _ACCOUNT.search(name) is not None


def limit_key(
    subject: str,
    raw: RawHeaders,
    target: str,
    configured: Collection[bytes] = (),
    secret_paths: SecretPaths = (),
) -> LimitKey:
    """The key under which a call's limits are kept.

    Args:
        subject: its model or route.
        raw: its header lines.
        target: its target, path and query, as it came.
        configured: lower-case names that the configuration sets: the same for every caller.
        secret_paths: routes of the provider whose path is the credential.
    """
    parts = sorted(
        (name.lower(), value.strip())
        for name, value in raw
        if tells_whose(name) and name.lower() not in configured
    )
    path, _, query = target.partition("?")
    if query:
        parts += [
            (found[1].lower().encode("utf-8", "replace"), found[2].encode("utf-8", "replace"))
            for found in _PARAMETER.finditer(query)
        ]
    if secret_paths:
        parts += [
            (b"path", secret.encode("utf-8", "replace"))
            for secret in secrets_of_path(path, secret_paths)
        ]
    mark = hashlib.blake2b(digest_size=16, key=_secret)
    for name, value in parts:
        mark.update(b"%d:%b%d:%b" % (len(name), name, len(value), value))
    return LimitKey(mark.digest(), subject[:SUBJECT_LENGTH])
