"""One small file that is read once and replaced whole, and that no crash leaves half written.

What is new is written beside it, brought to the disk, and only then given its name: a reader sees
the old file or the new one. Only one process writes: a lock that the kernel frees with its holder
keeps a second daemon, or a successor that has already started, from replacing what is newer.

Everything here may block for as long as a disk does; the callers are threads.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

LARGEST = 16 * 1024**2
"""Bytes: many times what there can be to keep; what is larger is another file."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_OWNER_ONLY = 0o600


class NotOurs(Exception):
    """What stands there cannot be a file that was written here."""


class StateFile:
    """A file and its two companions, `.lock` and `.new`.

    Args:
        path: the file; where it is a link, what the link leads to.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(os.path.realpath(path))
        self._new = self.path.with_name(self.path.name + ".new")
        self._lock: int | None = None

    def read(self) -> bytes | None:
        """What it holds; None if there is none.

        Raises:
            NotOurs: it is no regular file, or too large.
            OSError: it cannot be read.
        """
        try:
            # A pipe that nobody writes to must not hold up the start: hence without blocking.
            descriptor = os.open(self.path, _READ)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise NotOurs("it is no regular file")
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise NotOurs("it is too large")
        return content

    def set_aside(self) -> None:
        """Keep what stands there under another name, for somebody to look at.

        Raises:
            OSError: it cannot be renamed.
        """
        with suppress(FileNotFoundError):
            self.path.replace(self.path.with_name(self.path.name + ".ignored"))

    def write(self, content: bytes) -> None:
        """Replace it.

        Raises:
            OSError: it could not be; what stood there still stands.
        """
        if len(content) > LARGEST:
            raise OSError(errno.EFBIG, "there is too much to keep")
        self._hold()
        try:
            self._write_new(content)
            self._new.replace(self.path)
        except OSError:
            with suppress(OSError):
                self._new.unlink()
            raise
        # The new name is safe only once the folder is; some file systems cannot tell.
        with suppress(OSError):
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _write_new(self, content: bytes) -> None:
        descriptor = os.open(self._new, _NEW | os.O_TRUNC, _OWNER_ONLY)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
            os.fsync(descriptor)

    def _hold(self) -> None:
        if self._lock is not None:
            return
        lock = os.open(self.path.with_name(self.path.name + ".lock"), _NEW, _OWNER_ONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise OSError(errno.EBUSY, "another daemon keeps its state there") from None
            raise
        self._lock = lock

    def close(self) -> None:
        """Let others write."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
