"""Two transactions that deadlock, each in a thread of its own, and the victim's second attempt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from tests.servers.sessions import Beside, Session

_MEET = 20.0


class Duel:
    """Two sessions that take the same two rows in opposite order, so that the server must choose.

    `transaction` is one whole attempt: it raises what the driver raises, and rolls back in the
    thread that it ran in, as a driver with savepoints of its own would otherwise wait for ever. The
    first attempts meet after their first update; a later one runs alone.
    """

    _ORDER = ((1, 2), (2, 1))

    def __init__(self, first: Session, second: Session) -> None:
        self.sessions = (first, second)
        self._barrier = threading.Barrier(2)
        self._met = [False, False]

    def transaction(self, which: int) -> None:
        """One attempt of the first (0) or the second (1) transaction."""
        session = self.sessions[which]
        one, other = self._ORDER[which]
        try:
            session.run("begin")
            session.run(f"update p set v = v + 1 where id = {one}")
            if not self._met[which]:
                self._met[which] = True
                self._barrier.wait(_MEET)
            session.run(f"update p set v = v + 1 where id = {other}")
            session.run("commit")
        except BaseException:
            with suppress(Exception):
                session.run("rollback")
            raise

    def fight(
        self, attempt: Callable[[int], object] | None = None
    ) -> tuple[BaseException | None, BaseException | None]:
        """Runs both at once; what each of them raised, None for the one that went well.

        Args:
            attempt: runs in place of `transaction`; may call it again.
        """
        run = attempt or self.transaction
        beside = Beside(lambda: run(0))
        error: BaseException | None = None
        try:
            run(1)
        except BaseException as raised:
            error = raised
        return beside.wait(), error
