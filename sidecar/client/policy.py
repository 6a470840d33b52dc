"""One classification, five policies: what may follow on a failure, as pure decisions.

| class | what follows |
|---|---|
| `validation` | one repair by a function of the caller's, then one more attempt; never as it was |
| `authentication` | `token_expired`: one refresh and one replay; anything else is for a person |
| `rate_limit` | the wait that was asked for, else backoff; few attempts |
| `transient` | exponential backoff with full jitter; a hint is never shortened |
| `permanent` | nothing |

What is not retryable is not repeated, nor what the answer said not to repeat, nor what may have
been done already (`repeatable.py`). No wait begins that ends beyond the deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sidecar.client.repeatable import undone

if TYPE_CHECKING:
    from sidecar.envelope.model import Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How often and after how long.

    Attributes:
        attempts: attempts of one call at most, the first, a repair's and a replay included. Five is
            the most that gRPC takes for `maxAttempts` (gRFC A6).
        rate_limit_attempts: attempts at most once a rate limit was met. Three is what the AWS SDKs
            make and what the SRE book allows a request ("Handling Overload").
        backoff: seconds; the n-th wait after `transient` is drawn between 0 and this times 2 to the
            power of n - 1 (full jitter, as in "Exponential Backoff and Jitter" of the AWS blog).
            Half a second is what OpenAI's and Anthropic's SDKs begin with.
        rate_limit_backoff: the same after a `rate_limit` without a hint: one second, as in the AWS
            SDKs and in the daemon.
        backoff_max: seconds that no drawn wait exceeds: 20, as in the AWS SDKs.
        wait_max: seconds; a longer hint is not waited for. A minute, as the daemon tells SDKs
            (`shedding.sdk_wait_max`).
        jitter: a hint is met with up to this share more, so that those who were turned away
            together do not come back together: 20 %, as the daemon's breakers.
        wait_for_breaker: whether an open breaker is waited for, within `wait_max` and the deadline.
            It is there to fail fast, so it is not.
    """

    attempts: int = 5
    rate_limit_attempts: int = 3
    backoff: float = 0.5
    rate_limit_backoff: float = 1.0
    backoff_max: float = 20.0
    wait_max: float = 60.0
    jitter: float = 0.2
    wait_for_breaker: bool = False

    def __post_init__(self) -> None:
        """Refuse what can mean nothing.

        Raises:
            ValueError: if a number is out of its bounds.
        """
        if self.attempts < 1 or self.rate_limit_attempts < 1:
            raise ValueError("attempts are counted with the first one: at least 1")
        for name in ("backoff", "rate_limit_backoff", "backoff_max", "wait_max", "jitter"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is a finite number that is not negative")


class Action(StrEnum):
    """What follows on a failure."""

    REPEAT = "repeat"
    REPAIR = "repair"
    REFRESH = "refresh"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Step:
    """What follows on a failure, and why.

    Attributes:
        action: what to do.
        wait: seconds before the next attempt.
        why: for `stop` the word that `gave_up` shows, else empty.
    """

    action: Action
    wait: float = 0.0
    why: str = ""


@dataclass(slots=True)
class Progress:
    """What became of one call so far.

    Attributes:
        attempts: that were made.
        rate_limits: of these, those that met a rate limit.
        transients: of these, those that met a transient failure.
        repaired: whether the one repair was made.
        refreshed: whether the one refresh was made.
    """

    attempts: int = 0
    rate_limits: int = 0
    transients: int = 0
    repaired: bool = False
    refreshed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the caller said, and what the answer said beside its envelope.

    Attributes:
        safe: the call may be repeated whatever became of it: it is idempotent, or has a key.
        can_repair: there is a function for it.
        can_refresh: there is a function for it.
        should_retry: `x-should-retry` of the answer, where it had one.
        gave_up: why a retry inside gave up, where there was one.
        left: seconds to the deadline; None without one.
    """

    safe: bool = False
    can_repair: bool = False
    can_refresh: bool = False
    should_retry: bool | None = None
    gave_up: str | None = None
    left: float | None = None


EXHAUSTED = frozenset({"attempts", "budget", "deadline"})
"""Ends of a retry inside another; the outer one repeating all of it would multiply the attempts."""


def next_step(
    envelope: Envelope,
    progress: Progress,
    asked: Asked,
    policy: Policy,
    random: Callable[[], float],
) -> Step:
    """What follows on a failure; whether the budget allows it is asked elsewhere.

    Args:
        envelope: of the failure.
        progress: the failed attempt and its class included.
        asked: what the caller and the answer said.
        policy: how often and after how long.
        random: draws from 0 to 1.
    """
    step = _by_class(envelope, progress, asked, policy, random)
    if step.action is Action.STOP:
        return step
    if progress.attempts >= policy.attempts:
        return _stop("attempts")
    if asked.left is not None and step.wait >= asked.left:
        return _stop("deadline")
    return step


def _by_class(
    envelope: Envelope,
    progress: Progress,
    asked: Asked,
    policy: Policy,
    random: Callable[[], float],
) -> Step:
    if asked.gave_up in EXHAUSTED:
        return _stop(str(asked.gave_up))
    match str(envelope.class_):
        case "validation":
            possible = asked.can_repair and not progress.repaired
            return Step(Action.REPAIR) if possible else _stop("validation")
        case "authentication":
            # The code alone says that a refresh can help: a revoked key is retryable nowhere.
            possible = envelope.code == "token_expired" and asked.can_refresh
            renew = possible and not progress.refreshed
            return Step(Action.REFRESH) if renew else _stop("authentication")
        case "rate_limit" | "transient" as class_:
            return _repeated(envelope, class_ == "rate_limit", progress, asked, policy, random)
        case _:
            return _stop("permanent")


def _repeated(
    envelope: Envelope,
    limited: bool,  # noqa: FBT001 - which of two classes
    progress: Progress,
    asked: Asked,
    policy: Policy,
    random: Callable[[], float],
) -> Step:
    if not envelope.retryable:
        return _stop("not_retryable")
    if asked.should_retry is False:
        return _stop("told_not_to")
    if envelope.code == "breaker_open" and not policy.wait_for_breaker:
        return _stop("breaker_open")
    if not asked.safe and undone(envelope) is None:
        return _stop("not_safe")
    if limited and progress.attempts >= policy.rate_limit_attempts:
        return _stop("attempts")
    hint = envelope.retry_after
    if hint is not None and hint > policy.wait_max:
        return _stop("wait")
    count = progress.rate_limits if limited else progress.transients
    base = policy.rate_limit_backoff if limited else policy.backoff
    return Step(Action.REPEAT, wait_of(hint, count, base, policy, random))


def wait_of(
    hint: float | None, count: int, base: float, policy: Policy, random: Callable[[], float]
) -> float:
    """Seconds to wait after the count-th failure of a kind: never less than the hint.

    "At once" is taken at its word the first time; after that, two who undo each other draw lots.

    Args:
        hint: seconds that were asked for; None where nothing was.
        count: failures of this kind so far, this one included.
        base: seconds that the backoff begins with.
        policy: bounds.
        random: draws from 0 to 1.
    """
    if hint == 0 and count <= 1:
        return 0.0
    if hint is not None and hint > 0:
        return hint * (1 + policy.jitter * random())
    # 2 ** 64 half seconds are beyond every bound; a larger power is no float.
    power = min(count - 1 if hint is None else count - 2, 64)
    return float(random() * min(policy.backoff_max, base * 2**power))


def _stop(why: str) -> Step:
    return Step(Action.STOP, why=why)
