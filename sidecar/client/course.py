"""One call of `retry` on its way through its attempts: what was tried, and what may still be."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from sidecar.client.attempt import Arguments, Attempt
from sidecar.client.errors import SidecarError, enveloped
from sidecar.client.marks import ENVELOPE, header_of, is_response
from sidecar.client.policy import Action, Asked, Progress, Step, next_step
from sidecar.envelope.peek import woken

if TYPE_CHECKING:
    from sidecar.client.judged import Judged
    from sidecar.client.retry import Retry

_log = logging.getLogger("sidecar.client")


class Course:
    """One call.

    Args:
        retry: how it is retried.
        arguments: of the function.
        correlation_id: of the call.
    """

    def __init__(self, retry: Retry, arguments: Arguments, correlation_id: str) -> None:
        self.arguments = arguments
        self._retry = retry
        self._correlation_id = correlation_id
        self._progress = Progress()
        self._began = retry.clock()
        self._judged: Judged | None = None
        self._gave_up = ""
        retry.budget.called()

    def begin(self) -> dict[str, Any]:
        """Count the next attempt; gives its arguments by name."""
        self._progress.attempts += 1
        attempt = Attempt(
            number=self._progress.attempts,
            idempotency_key=self.arguments.key,
            correlation_id=self._correlation_id,
            left=self._left(),
        )
        return self.arguments.for_attempt(attempt)

    def failed(self, error: Exception) -> Step:
        """What follows on an exception."""
        retry = self._retry
        try:
            # First now something has failed: until here nothing of a third party was needed.
            from sidecar.client.judged import Origin, judge  # noqa: PLC0415

            origin = Origin(retry.source, retry.vendor, retry.sdk)
            judged = judge(error, origin, correlation_id=self._correlation_id)
        except Exception:  # noqa: BLE001 - a fault of our own must not take the place of the caller's
            _log.exception("a failure could not be judged, and is not repeated")
            self._judged = None
            return Step(Action.STOP, why="not_judged")
        return self._follow(judged)

    def returned(self, result: object) -> Step | None:
        """What follows on a result; None if it is one, and no error that the daemon marked."""
        if not is_response(result) or header_of(woken(result, "headers"), ENVELOPE) is None:
            return None
        from sidecar.client.judged import judge_answer  # noqa: PLC0415 - as above

        judged = judge_answer(result)
        return None if judged is None else self._follow(judged)

    def _follow(self, judged: Judged) -> Step:
        retry, progress, envelope = self._retry, self._progress, judged.envelope
        self._judged = judged
        progress.rate_limits += envelope.class_ == "rate_limit"
        progress.transients += envelope.class_ == "transient"
        asked = Asked(
            safe=retry.idempotent or self.arguments.has_key,
            can_repair=retry.repair is not None,
            can_refresh=retry.refresh is not None,
            should_retry=judged.should_retry,
            gave_up=judged.gave_up,
            left=self._left(),
        )
        step = next_step(envelope, progress, asked, retry.policy, retry.random)
        if step.action is not Action.STOP and not retry.budget.take():
            step = Step(Action.STOP, why="budget")
        self._gave_up = step.why
        outcome = f"not again: {step.why}" if step.why else f"{step.action} in {step.wait:.3g} s"
        _log.info(
            "attempt %d: %s (%s): %s [%s]",
            progress.attempts, envelope.code, envelope.class_, outcome, envelope.correlation_id,
        )  # fmt: skip
        return step

    # -- repair and refresh -----------------------------------------------------------------

    def mend(self, step: Step) -> Any:
        """Call the caller's function; what it gives may have to be awaited."""
        assert self._judged is not None, "only a judged failure can be mended"
        envelope = self._judged.envelope
        if step.action is Action.REFRESH and self._retry.refresh is not None:
            self._progress.refreshed = True
            return self._retry.refresh(envelope)
        assert self._retry.repair is not None, "a repair follows only where there is one"
        self._progress.repaired = True
        return self._retry.repair(envelope, *self.arguments.args, **self.arguments.kwargs)

    def mended(self, step: Step, result: Any) -> bool:
        """Whether to go on with what the caller's function gave."""
        if step.action is Action.REFRESH:
            return True
        if not isinstance(result, Mapping):
            self._gave_up = "validation"
            return False
        try:
            self.arguments.change(result)
        except TypeError as error:
            return self.not_mended(step, error)
        return True

    def not_mended(self, step: Step, error: Exception) -> bool:
        """The caller's function failed itself: the failure that it should have mended goes up."""
        _log.warning("%s failed", step.action, exc_info=error)
        self._gave_up = f"{step.action}_failed"
        return False

    # -- its end ----------------------------------------------------------------------------

    def in_time(self) -> bool:
        """Whether another attempt may begin."""
        left = self._left()
        if left is None or left > 0:
            return True
        self._gave_up = "deadline"
        return False

    def end(self, error: Exception) -> NoReturn:
        """Raise the last failure with its envelope, and why it was the last.

        Raises:
            SidecarError: from the original; the original itself if nothing could be told of it.
        """
        if isinstance(error, SidecarError):
            error.gave_up = self._gave_up
            raise error
        if self._judged is None:
            raise error
        last = enveloped(error, self._judged.envelope)
        last.gave_up = self._gave_up
        raise last from error

    def _left(self) -> float | None:
        timeout = self._retry.timeout
        return None if timeout is None else timeout - (self._retry.clock() - self._began)
