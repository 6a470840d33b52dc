"""All breakers of the daemon, by provider: the one door through which the proxy and people come in.

A fault in any of this must never cost a call: it is caught here and where a call ends, counted, and
the call goes on as if there were no breakers.
"""

from __future__ import annotations

import random as random_numbers
from collections.abc import Callable, Iterable, Mapping

from sidecar.breaker.admission import Admission, Faults
from sidecar.breaker.gates import Gates
from sidecar.breaker.model import (
    Mode,
    ProviderSettings,
    Reconfigured,
    Refusal,
    Snapshot,
    State,
    Transition,
    UnknownKeyError,
    UpstreamVerdict,
    Verb,
)
from sidecar.breaker.provider import Provider
from sidecar.breaker.saved import SavedProvider


class Registry:
    """Breakers by provider and subject. Times are monotonic seconds."""

    def __init__(
        self,
        on_transition: Callable[[Transition], None],
        *,
        on_fault: Callable[[Exception], None] | None = None,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        """Start without providers.

        Args:
            on_transition: hears of each change of state; a fault in it is counted as one of ours.
            on_fault: hears of the first fault of each type.
            random: yields numbers in [0, 1) for the jitter.
        """
        self._on_transition = on_transition
        self._faults = Faults(on_fault)
        self._random = random
        self._providers: dict[str, Provider] = {}

    @property
    def faults(self) -> int:
        """How often a fault in here let a call pass unjudged."""
        return self._faults.total

    def admit(self, provider: str, subject: str | None, now: float) -> Admission | Refusal:
        """Let a call through, or say why not.

        Args:
            provider: its name.
            subject: the model, or `~` and the route of a call without one; None judges the call
                by the provider's own breaker alone.
            now: monotonic seconds.
        """
        try:
            return self._providers[provider].admit(subject, now)
        except Exception as error:  # noqa: BLE001  # the boundary: no fault costs a call
            self._faults.count(error)
            return Admission(self._faults, f"{provider}/{subject}" if subject else provider)

    def peek(self, provider: str, subject: str | None, now: float) -> tuple[str, State, Mode]:
        """The key, state and mode that a call would meet; makes nothing.

        Raises:
            KeyError: if there is no such provider.
        """
        return self._providers[provider].peek(subject, now)

    def gates(self, provider: str) -> Gates:
        """The rate limits and spent budgets of a provider; they outlive every reload that it does.

        Raises:
            KeyError: if there is no such provider.
        """
        return self._providers[provider].gates

    def tick(self, now: float) -> None:
        """Let everything happen that time brings about, so that listeners hear of it in time."""
        for provider in tuple(self._providers.values()):
            provider.tick(now)

    def snapshots(self, provider: str, now: float) -> list[Snapshot]:
        """What is shown of a provider's breakers: its own first, then by key.

        Raises:
            KeyError: if there is no such provider.
        """
        own, *others = self._providers[provider].breakers()
        others.sort(key=lambda breaker: breaker.key)
        return [breaker.snapshot(now) for breaker in (own, *others)]

    def provider_verdict(self, provider: str, now: float) -> UpstreamVerdict:
        """How a provider is, for people; refuses nothing.

        Raises:
            KeyError: if there is no such provider.
        """
        return self._providers[provider].verdict(now)

    def control(
        self,
        key: str,
        verb: Verb,
        now: float,
        for_: float | None = None,
        reason: str | None = None,
    ) -> Snapshot:
        """Do to the breaker of one key, and to no other, what an operator asks for.

        A key of a known provider needs no call before: its breaker is made, and stays for as long
        as it is held. `for_` is in seconds; without it a hold or a mode lasts until reset, and
        `close` holds nothing.

        Raises:
            UnknownKeyError: if there is no such provider, or it has no breakers for its subjects.
            NoRoomError: if that provider cannot have another breaker now.
            ValueError: for `reset` with a time, since it holds nothing.
        """
        if verb is Verb.RESET and for_ is not None:
            raise ValueError("reset takes no time: it holds nothing, so there is nothing to end")
        name, _, subject = key.partition("/")
        provider = self._providers.get(name)
        if provider is None:
            raise UnknownKeyError("no provider of that key")
        breaker = provider.obtain(subject, now)
        until = None if for_ is None else now + for_
        if verb is Verb.OPEN:
            breaker.force(State.OPEN, now, until, reason)
        elif verb is Verb.CLOSE:
            breaker.force(State.CLOSED, now, until, reason)
        elif verb is Verb.RESET:
            breaker.reset(now, reason)
            provider.gates.reset(subject or None, now)
        else:
            breaker.set_mode(Mode(verb.value), now, until, reason)
        return breaker.snapshot(now)

    def saved(self, now: float) -> dict[str, SavedProvider]:
        """What must outlive the process, by provider; those with nothing to keep are left out."""
        found = {name: provider.saved(now) for name, provider in self._providers.items()}
        return {name: one for name, one in found.items() if one is not None}

    def restore(self, saved: Mapping[str, SavedProvider], now: float) -> int:
        """Take up what an earlier process knew of the providers that there still are.

        Returns:
            How many breakers and keys took up something.
        """
        return sum(
            self._providers[name].restore(one, now)
            for name, one in saved.items()
            if name in self._providers
        )

    def pardon(self, providers: Iterable[str], since: float, now: float, reason: str) -> None:
        """Take back what failed connections of these providers did since a time (seconds)."""
        for name in providers:
            provider = self._providers.get(name)
            try:
                if provider is not None:
                    provider.own.pardon(since, now, reason)
            except Exception as error:  # noqa: BLE001  # the boundary: no fault costs a call
                self._faults.count(error)

    def configure(self, providers: Mapping[str, ProviderSettings], now: float) -> Reconfigured:
        """Take another set of providers; state is kept where upstream and scope stayed the same.

        Calls that still run on breakers that went away end without a trace.
        """
        old, new = self._providers, dict[str, Provider]()
        kept, changed, replaced, added = list[str](), list[str](), list[str](), list[str]()
        for name, settings in providers.items():
            provider = old.get(name)
            if provider is None or not provider.is_still(settings):
                (added if provider is None else replaced).append(name)
                new[name] = Provider(
                    name, settings, self._on_transition, self._faults, now=now, random=self._random
                )
            else:
                (kept if provider.settings == settings else changed).append(name)
                provider.configure(settings, now)
                new[name] = provider
        for name, provider in old.items():
            if new.get(name) is not provider:
                provider.live = False
        self._providers = new
        return Reconfigured(
            kept=tuple(kept),
            changed=tuple(changed),
            replaced=tuple(replaced),
            added=tuple(added),
            removed=tuple(name for name in old if name not in new),
        )
