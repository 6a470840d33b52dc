"""Notice that a file of the configuration was exchanged, where nobody can send a signal.

Kubernetes brings an edited ConfigMap or Secret into a running container by swapping a symbolic
link, and tells no process. A link is swapped as a whole, so what stands behind it is never half
written, and whoever swaps it means it: such files are watched by themselves. A plain file that a
person is still editing is not, unless that was asked for.

The files are looked at again and again: a watch of the kernel's is lost with the folder that the
swap deletes, and does not reach through network file systems.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from sidecar.config.resolved import Config

EVERY = 2.0
"""Seconds between two looks; the kubelet itself takes up to a minute to bring an edit."""

SETTLE = 0.5
"""Seconds for which a change must stand still: several files are rarely exchanged at one moment."""

Seen = tuple[str, int, int, int, int]
"""Where a path really leads, and what tells that file's contents from others: device, number,
time of change in nanoseconds, size."""


def watchable(config: Config) -> Iterator[str]:
    """The files that a reload reads: the configuration, the secrets and the certificates."""
    yield config.path
    if config.admin.token_file is not None:
        yield config.admin.token_file
    for provider in config.providers.values():
        for header in provider.set_headers.values():
            if header.file is not None:
                yield header.file
        tls = provider.tls
        yield from (file for file in (tls.ca, tls.cert, tls.key) if file is not None)


class Watch:
    """What the files looked like when they were last read.

    Args:
        plain: True watches files that are no links too.
    """

    def __init__(self, *, plain: bool = False) -> None:
        self._plain = plain
        self._read: dict[str, Seen | None] = {}

    def note(self, paths: Iterable[str]) -> None:
        """These are about to be read, or were read just now.

        Called before reading, so that what changes meanwhile is noticed at the next look.
        """
        for path in paths:
            self._read[path] = _seen(path)

    def note_new(self, paths: Iterable[str]) -> None:
        """Likewise for those that were not known before; others are forgotten."""
        self._read = {
            path: self._read[path] if path in self._read else _seen(path) for path in paths
        }

    def changes(self) -> dict[str, Seen | None]:
        """What looks different now from what was read, by path; a file that is gone is None."""
        found = {}
        for path, before in self._read.items():
            now = _seen(path)
            if now != before and (self._plain or _was_swapped(path, before)):
                found[path] = now
        return found


def _seen(path: str) -> Seen | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - the text of a path is the key
        where = os.path.realpath(path)
    except (OSError, ValueError):
        return None
    return (where, found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


def _was_swapped(path: str, before: Seen | None) -> bool:
    """A link stands there, or stood there when the file was read."""
    absolute = os.path.abspath(path)  # noqa: PTH100 - links stay as they are
    if os.path.islink(absolute):  # noqa: PTH114 - likewise
        return True
    parent = os.path.realpath(os.path.dirname(absolute))  # noqa: PTH120 - likewise
    return before is not None and before[0] != os.path.join(parent, os.path.basename(absolute))  # noqa: PTH118, PTH119
