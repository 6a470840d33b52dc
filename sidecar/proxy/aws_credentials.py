"""AWS credentials of one provider: found by botocore's chain, kept, and renewed before they end.

botocore blocks: a metadata service that is not there, a token service far away, a command that
asks a person. So it runs in a thread of its own, one at a time for each provider, and a call waits
for it only where there is nothing to sign with. The thread is a daemon thread: a command that never
comes back must not keep the process alive.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sidecar import clock as machine
from sidecar.config.aws import INSTALL
from sidecar.envelope.redact import redact_text
from sidecar.proxy.failures import Refused
from sidecar.proxy.sigv4 import Key
from sidecar.telemetry import logs

WAIT = 20.0
"""Seconds a call waits for credentials; a search may take longer and serves the next one."""

AGAIN = 10.0
"""Seconds between two attempts to find or renew: a failing chain is not asked for every call."""

LOOK = 5.0
"""Seconds between two looks at the shared files: people and tools rewrite them."""

MARGIN = 60.0
"""Seconds before their end from which credentials are no longer used while others are awaited."""

_VISIBLE = re.compile(r"[\x21-\x7e]+")

NOT_FOUND = (
    "there are no AWS credentials: not in the environment, not in the shared files, and no role; "
    "give the daemon some, or name a profile in sign.aws.profile"
)


class NoCredentials(Exception):
    """There is nothing to sign with; the text is a sentence for the caller."""


class Chain(Protocol):
    """What botocore's credentials can do; those that end know when."""

    def get_frozen_credentials(self) -> Any:
        """The present ones, renewed if it is time. Blocks."""


class Found(NamedTuple):
    """What a search came to.

    Attributes:
        key: to sign with.
        chain: where it came from, and is renewed from.
        files: the shared files that may have told of it.
        stamps: when they were changed last, as of before they were read.
    """

    key: Key
    chain: Chain
    files: tuple[Path, ...]
    stamps: tuple[int, ...]

    def ends_within(self, seconds: float | None = None) -> bool:
        """Is it time for other ones? By default, as early as botocore thinks it wise."""
        needed = getattr(self.chain, "refresh_needed", None)
        return needed is not None and bool(needed(seconds))


class CredentialSource:
    """Gives the credentials that hold now.

    Args:
        provider: whose they are, for the log.
        profile: of the shared files; None leaves the choice to the environment.
        region: for token services where neither environment nor files name one.
        loop: the running loop.
    """

    def __init__(
        self, provider: str, profile: str | None, region: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._provider = provider
        self._profile = profile
        self._region = region
        self._loop = loop
        self._found: Found | None = None
        self._stale = False
        self._failure: str | None = None
        self._search: asyncio.Future[None] | None = None
        self._began = self._ended = self._looked = float("-inf")

    async def key(self) -> Key:
        """The credentials to sign with; waits only where there are none, or their end is near.

        Raises:
            Refused: `missing_credentials`.
        """
        found = self._found
        if found is not None and not self._stale:
            self._look(found)
        if found is None or self._stale or found.ends_within(MARGIN):
            await self._wait()
            found = self._found
        elif found.ends_within():
            self.begin()
        if found is None or found.ends_within(0):
            reason = self._failure or f"no AWS credentials came within {WAIT:g} s"
            raise Refused("missing_credentials", reason)
        return found.key

    def distrust(self, key: Key) -> None:
        """The upstream says that these have ended: the next call waits for other ones."""
        if self._found is not None and self._found.key == key:
            self._stale = True

    def begin(self) -> None:
        """Begins to find or renew, unless that is under way or was tried just now."""
        now = machine.monotonic()
        if self._search is not None or now - self._ended < AGAIN:
            return
        found = self._found
        work: Callable[[], Found]
        if found is None or self._stale:
            work = partial(find, self._profile, self._region)
        else:
            work = partial(renew, found)
        self._began = now
        self._search = self._loop.create_future()
        name = f"aws-credentials-{self._provider}"
        threading.Thread(target=self._run, args=(work,), name=name, daemon=True).start()

    async def _wait(self) -> None:
        self.begin()
        if self._search is not None:
            left = self._began + WAIT - machine.monotonic()
            await asyncio.wait({self._search}, timeout=max(left, 0))

    def _look(self, found: Found) -> None:
        now = machine.monotonic()
        if now - self._looked >= LOOK:
            self._looked = now
            self._stale = stamps_of(found.files) != found.stamps

    # -- in the thread ----------------------------------------------------------------------

    def _run(self, work: Callable[[], Found]) -> None:
        result: Found | str
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - whatever the chain runs into, calls get words
            result = reason_of(error)
        # A loop that has gone needs no answer.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._done, result)

    # -- in the loop again ------------------------------------------------------------------

    def _done(self, result: Found | str) -> None:
        self._ended = machine.monotonic()
        search, self._search = self._search, None
        if isinstance(result, str):
            if result != self._failure:
                logs.event(
                    "credentials.failed",
                    level=logging.WARNING,
                    provider=self._provider,
                    reason=result,
                )
            self._failure = result
        else:
            if self._found is None or self._failure is not None:
                method = getattr(result.chain, "method", None)
                logs.event("credentials.found", provider=self._provider, found_by=method)
            self._found, self._stale, self._failure = result, False, None
            self._looked = self._ended
        if search is not None and not search.done():
            search.set_result(None)


def find(profile: str | None, region: str) -> Found:
    """Asks botocore's chain from its beginning. Blocks, for seconds where nothing answers.

    Raises:
        Exception: whatever the chain ran into.
    """
    import botocore.session  # noqa: PLC0415 - an extra, and slow to load

    session = botocore.session.Session(profile=profile)
    if session.get_config_variable("region") is None:
        session.set_config_variable("region", region)
    files = tuple(
        Path(session.get_config_variable(name)).expanduser()
        for name in ("config_file", "credentials_file")
    )
    stamps = stamps_of(files)
    chain = session.get_credentials()
    if chain is None:
        raise NoCredentials(NOT_FOUND)
    return Found(key_of(chain), chain, files, stamps)


def renew(found: Found) -> Found:
    """The same, with the credentials that its chain gives now. Blocks.

    Raises:
        Exception: whatever the chain ran into.
    """
    return found._replace(key=key_of(found.chain))


def key_of(chain: Chain) -> Key:
    """The present credentials of a chain, renewed if it is time. Blocks.

    Raises:
        Exception: whatever the chain ran into.
    """
    frozen = chain.get_frozen_credentials()
    key = Key(frozen.access_key, frozen.secret_key, frozen.token or None)
    if not key.name or not key.secret:
        raise NoCredentials(NOT_FOUND)
    if not all(_VISIBLE.fullmatch(part) for part in (key.name, key.token or "-")):
        raise NoCredentials(
            "the AWS access key or session token has spaces, line breaks or other characters that "
            "no header can carry"
        )
    return key


def stamps_of(files: tuple[Path, ...]) -> tuple[int, ...]:
    """When each file was changed last, in nanoseconds; 0 for one that is not there."""
    stamps = []
    for file in files:
        try:
            stamps.append(file.stat().st_mtime_ns)
        except OSError:
            stamps.append(0)
    return tuple(stamps)


def reason_of(error: Exception) -> str:
    """What an exception of the chain means, as one sentence for a person."""
    if isinstance(error, ImportError):
        return f"signing for AWS needs botocore, which is not installed; {INSTALL}"
    if isinstance(error, NoCredentials):
        return str(error)
    text = " ".join(redact_text(str(error)).split())
    return f"AWS credentials cannot be had: {text or type(error).__name__}"
