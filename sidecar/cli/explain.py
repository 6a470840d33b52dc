"""`check --explain`: in plain words, what a configuration will do to one provider's calls.

Every number is the one that is in force, whether it was written or is a default, so that nobody has
to put it together from a file, a reference page and a memory of how breakers work.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from sidecar.breaker.shedding import FIRST_WAIT, LONGEST_WAIT
from sidecar.config.addresses import without_user_info
from sidecar.config.resolved import Config, Dependency, Provider
from sidecar.config.schema import BreakerConfig, BreakerRules, Quota, Shedding
from sidecar.config.units import format_duration as time
from sidecar.proxy.repeats import KEPT

WIDTH = 100

Paragraphs = Iterator[tuple[str, str]]
"""A word for the margin, and what is to be said."""


def explain(config: Config, name: str) -> str | None:
    """What will happen to the calls of one provider or dependency; None if there is none.

    Args:
        config: the effective configuration.
        name: of the provider or dependency.
    """
    if name in config.providers:
        provider = config.providers[name]
        upstream = without_user_info(provider.upstream)
        head = f"{name}: {upstream}, dialect {provider.dialect}, mode {provider.mode}"
        return _laid_out(head, _of_provider(provider))
    if name in config.dependencies:
        dependency = config.dependencies[name]
        system = f" ({dependency.system})" if dependency.system else ""
        head = f"{name}: a dependency, {dependency.source}{system}, mode {dependency.mode}"
        return _laid_out(head, _of_dependency(dependency))
    if name in config.disabled:
        return f"{name}: disabled, so every call is answered 404 here: {config.disabled[name]}\n"
    return None


def _laid_out(head: str, paragraphs: Paragraphs) -> str:
    lines = [head]
    for word, text in paragraphs:
        lines += ["", word]
        lines += textwrap.wrap(
            text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
    return "\n".join(lines) + "\n"


def _of_provider(provider: Provider) -> Paragraphs:
    breaker = provider.breaker
    yield from _mode(provider.mode)
    if provider.mode == "off":
        yield from _switched_off()
        return
    yield "What has a breaker", _keys(provider)
    yield "What counts as a failure", _failures(provider)
    yield "When it opens", _opens(breaker) + _repeats_of_one_request(breaker)
    yield "What happens then", _open(provider)
    yield "How it recovers", _recovers(breaker, "call")
    yield "What a 429 does", _throttle(provider)
    yield "How many at a time", _places(provider)
    yield "What is repeated here", _repeats(provider)
    yield "What SDKs do with it", _sdks(provider)


def _switched_off() -> Paragraphs:
    yield "What a 429 does", "It is passed on as it came, and holds no further call back."
    yield "How many at a time", "As many as come: they are counted, and none waits."
    yield "What is repeated here", "Nothing."
    yield (
        "What SDKs do with it",
        (
            "What they do without a daemon between: they go by the status and the headers that the "
            "upstream sent, right or wrong."
        ),
    )


def _failures(provider: Provider) -> str:
    timeouts = provider.timeouts
    return (
        f"No connection within {time(timeouts.connect)} or a refused one, no byte within "
        f"{time(timeouts.first_byte)}, no word of a stream within {time(timeouts.first_content)}, "
        f"silence of {time(timeouts.idle)} in an answer, a genuine server error, a stream that "
        "breaks off, an error of the server's inside a 2xx, a caller that leaves after "
        f"{time(timeouts.abandoned)} in which nobody heard a word. A typo, a bad key, a spent "
        "budget, a rate limit and a caller that leaves sooner do not, whatever status they wear; "
        "nor does trouble of this machine's own network."
    )


def _of_dependency(dependency: Dependency) -> Paragraphs:
    yield from _mode(dependency.mode)
    yield (
        "Who calls",
        (
            "The agent itself, after it has asked for a permit, and it reports how the call went. "
            f"A permit without a report is over after {time(dependency.lease)} and counts for "
            "nothing."
        ),
    )
    if dependency.mode == "off":
        return
    yield (
        "What counts as a failure",
        (
            "No connection, a timeout, and what the system says of itself: shutting down, out of "
            "room, overloaded. A wrong statement, a violated constraint and a refused login do not."
        ),
    )
    yield "When it opens", _opens(dependency.breaker)
    yield (
        "What happens then",
        (
            f"A permit is refused with 503 and the envelope breaker_open, for "
            f"{_open_time(dependency)}. {_doubling(dependency.breaker)}"
        ),
    )
    yield "How it recovers", _recovers(dependency.breaker, "permit")


def _mode(mode: str) -> Paragraphs:
    if mode == "observe":
        yield (
            "Only watched",
            (
                "What is said below of breakers, limits and budgets is computed, shown and logged "
                "as what would have happened; no call is refused or held back. The answers are "
                "marked, and corrected where it says so, all the same."
            ),
        )
    elif mode == "off":
        yield (
            "Switched off",
            ("Calls are forwarded as they are: no breaker counts them, and no answer is changed."),
        )


def _keys(provider: Provider) -> str:
    if provider.scope == "provider":
        return f"The provider as a whole, under the key {provider.name}."
    return (
        f"Each model, under {provider.name}/MODEL; calls without a model by the first two segments "
        f"of their path, under {provider.name}/~ROUTE. Beside these the provider itself, under "
        f"{provider.name}: it alone hears of failed connections, and opens for all models at once."
    )


def _opens(breaker: BreakerRules) -> str:
    rules = []
    if breaker.consecutive_failures:
        rules.append(f"after {_count(breaker.consecutive_failures, 'failure')} in a row")
    if breaker.failure_ratio:
        rules.append(
            f"when {breaker.failure_ratio:.0%} of at least "
            f"{_count(breaker.minimum_calls, 'decided call')} within {time(breaker.window)} failed"
        )
    return f"{' or '.join(rules).capitalize()}." if rules else "Never: both rules are off."


def _repeats_of_one_request(breaker: BreakerConfig) -> str:
    if not (breaker.consecutive_failures and breaker.repeat_window):
        return ""
    return (
        " The same request answered with a server error again counts once in "
        f"{time(breaker.repeat_window)} for the run, so that one poisonous request darkens nobody."
    )


def _open(provider: Provider) -> str:
    breaker = provider.breaker
    return (
        "Calls of that key are answered here, at once, with 503 and the code breaker_open, for "
        f"{_open_time(provider)}. {_doubling(breaker)} A Retry-After of the upstream is a floor "
        f"for it, up to {time(provider.retry_after_max)}."
    )


def _open_time(owner: Provider | Dependency) -> str:
    breaker = owner.breaker
    if not breaker.jitter:
        return time(breaker.open_for)
    longest = breaker.open_for * (1 + breaker.jitter)
    return f"{time(breaker.open_for)} to {time(round(longest, 3))}, drawn at random"


def _doubling(breaker: BreakerRules) -> str:
    if breaker.open_max <= breaker.open_for:
        return "A probe that fails opens it for as long again."
    drawn = f", plus up to {breaker.jitter:.0%} at random" if breaker.jitter else ""
    return f"Each probe that fails doubles that, up to {time(breaker.open_max)}{drawn}."


def _recovers(breaker: BreakerRules, what: str) -> str:
    good = "one must succeed"
    if breaker.successes > 1:
        good = (
            f"{breaker.successes} must succeed, or one if failed connections or timeouts had "
            "opened it"
        )
    return (
        f"By time alone: then {_count(breaker.probes, what)} at a time {_is(breaker.probes)} let "
        f"through to probe it, and {good}, to close it. An operator's `close` or `reset` does so "
        "too."
    )


def _throttle(provider: Provider) -> str:
    shedding = provider.shedding
    said = [
        "It is passed on with the upstream's own wait, and never opens a breaker by itself.",
        _waits(provider),
        _paced(shedding),
    ]
    if shedding.preempt:
        said.append("When another answer says that nothing remains, they wait for the reset too.")
    if shedding.open_after:
        said.append(
            f"After {time(shedding.open_after)} at that floor, without one success and without a "
            "hint, throttles count as failures."
        )
    said.append(_quota(shedding.quota))
    return " ".join(said)


def _waits(provider: Provider) -> str:
    """What is done with calls that come while the upstream wants none."""
    shedding, longest = provider.shedding, provider.retry_after_max
    if shedding.max_queue and shedding.max_wait:
        waits = (
            "Further calls of that credential and model wait until the wait is over: at most "
            f"{_count(shedding.max_queue, 'call')} for at most {time(shedding.max_wait)}; the "
            "others are shed, as 429 with what is left."
        )
    else:
        waits = (
            "Further calls of that credential and model are shed until the wait is over, as 429 "
            "with what is left."
        )
    return (
        f"{waits} A hint is followed for {time(longest)} at most. Without a hint the wait is "
        f"{time(min(FIRST_WAIT, longest))}, doubling up to {time(min(LONGEST_WAIT, longest))}."
    )


def _paced(shedding: Shedding) -> str:
    sustained = shedding.sustained
    share = f", and {sustained.ratio:.0%} of the calls" if sustained.ratio else ""
    return (
        f"With {_count(sustained.count, 'throttle')} in {time(sustained.window)}{share}, they are "
        "paced at a rate that follows what the upstream accepts, never below "
        f"{shedding.min_rate:g} a second."
    )


def _quota(quota: Quota) -> str:
    if quota.mode == "gate":
        return (
            "A 429 that says the budget is spent is no rate limit: calls of that key are then "
            f"answered 402 here, and one each {time(quota.recheck)} asks again."
        )
    return "A spent budget holds no further call back."


def _places(provider: Provider) -> str:
    shedding = provider.shedding
    waits = "Further ones are answered at once"
    if shedding.max_queue and shedding.max_wait:
        waits = (
            f"Further ones wait, at most {shedding.max_queue} of them and at most "
            f"{time(shedding.max_wait)}, a wait for the upstream's limit included; the others are "
            "answered"
        )
    calls = _count(provider.limits.in_flight, "call")
    return f"{calls}. {waits} with 503 and the code bulkhead_full."


def _repeats(provider: Provider) -> str:
    retry = provider.retry
    if not retry.attempts or not retry.budget:
        why = "budget" if retry.attempts else "attempts"
        return f"Nothing: whether to repeat a call is the caller's to decide (retry.{why}: 0)."
    others = (
        "others with an Idempotency-Key of the caller's own"
        if retry.require_idempotency_key
        else "all others too, since require_idempotency_key is false"
    )
    return (
        f"A call that failed as transient before its first byte, up to "
        f"{_count(retry.attempts, 'time')}: {', '.join(retry.methods) or 'no method'} as they are, "
        f"{others}. At most {retry.budget:.0%} of the calls of a minute (or {retry.attempts}, "
        "however few they are), never before the upstream's own wait is over, never if that is "
        f"longer than {time(provider.shedding.max_wait)} in all, never while the key is throttled "
        "or the breaker not closed, and never a body above "
        f"{KEPT // 1024} KiB. The breaker hears of the last attempt alone. Clients that repeat too "
        "multiply it."
    )


def _sdks(provider: Provider) -> str:
    said = [
        "Those that read x-should-retry raise at once where it is false: for what no repetition",
        "mends (a typo, a bad key, a missing model, a spent budget), whatever status it wore,",
        f"for a wait above {time(provider.sdk_wait_max)}, and for a call without an",
        "Idempotency-Key that may have been carried out although no answer came.",
    ]
    if provider.breaker.fail_fast:
        said.append("An open breaker says so too (fail_fast), so a call fails in milliseconds.")
    else:
        said.append("An open breaker leaves it to them, and they sleep (fail_fast is false).")
    said.append("Else they sleep for Retry-After, or for a time of their own, and ask again.")
    if provider.on_reclassified == "annotate":
        said.append("All others go by the status that the upstream sent, right or wrong.")
    else:
        said.append("All others go by the status, which is corrected to the error's own kind.")
    return " ".join(said)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"
