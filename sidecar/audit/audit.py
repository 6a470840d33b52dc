"""One audit from the first request to the last finding.

Routes come first: an upstream need not have all that its dialect has, and one that is not there is
left out. What a moment's trouble may have answered is asked once more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from sidecar.audit.asking import Answered, Asker
from sidecar.audit.cases import KINDS, Case
from sidecar.audit.findings import (
    MODEL_NOT_FOUND,
    PASSING,
    Finding,
    Result,
    finding,
    in_context,
)
from sidecar.audit.plans import Plan, Route
from sidecar.audit.questions import Allowance, Identity, Question, Questions
from sidecar.config.addresses import without_user_info
from sidecar.config.resolved import Provider
from sidecar.envelope.model import ErrorClass
from sidecar.proxy.runtime import dialect_of

LONGEST_WAIT = 5.0
"""Seconds of an upstream's own wait that an audit sits out before it asks again."""
SHORT_WAIT = 0.2
"""Seconds before it asks again where the upstream names no wait."""

_ABSENT = frozenset({404, 405, 410, 501})


class AuditFailed(Exception):
    """An audit could find nothing out.

    Attributes:
        exit_code: what the command ends with.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit found.

    Attributes:
        provider: its name in the configuration.
        upstream: what was asked.
        dialect: how its answers were read.
        key: where the key came from, in words.
        findings: one for each case, in the order in which they were asked.
        absent: routes of the dialect that the upstream does not have.
    """

    provider: str
    upstream: str
    dialect: str
    key: str
    findings: tuple[Finding, ...]
    absent: tuple[str, ...] = ()

    @property
    def misleads(self) -> bool:
        """Whether any answer says something else than what is the matter."""
        return any(one.result is Result.MISLEADS for one in self.findings)

    @property
    def counts(self) -> dict[str, int]:
        """How many cases came to each result."""
        found = Counter(one.result.value for one in self.findings)
        return {result.value: found[result.value] for result in Result}


class Audit:
    """The audit of one provider.

    Args:
        provider: its resolved configuration.
        plan: of its dialect.
        base: the path that routes stand behind, in place of the plan's; None for the plan's.
        own: a key for those cases that need one; None where the configuration sets it, or nobody.
        key: where it came from, in words.
        timeout: seconds for each request.
        allowed: what may be billed; None for nothing.
        sleep: waits.
    """

    def __init__(
        self,
        provider: Provider,
        plan: Plan,
        *,
        base: str | None = None,
        own: str | None = None,
        key: str = "none",
        timeout: float = 30.0,
        allowed: Allowance | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._provider = provider
        self._plan = plan
        self._questions = Questions(plan, base)
        self._own = own
        self._key = key
        self._timeout = timeout
        self._allowed = allowed
        self._sleep = sleep
        self._in_2xx = dialect_of(provider).reads_errors_in_2xx
        self._identities: dict[str, Identity] = {}

    async def run(self) -> Report:
        """Asks everything.

        Raises:
            AuditFailed: nothing could be found out.
            Refused: `missing_credentials`, where requests are signed.
        """
        asker = Asker(self._provider, self._plan.key, self._own, self._timeout)
        try:
            findings, absent = await self._ask_all(asker)
        finally:
            await asker.close()
        keyed = self._key != "none"
        findings = in_context(findings, self._identities, key=keyed)
        _check_alive(findings)
        return Report(
            provider=self._provider.name,
            upstream=without_user_info(self._provider.upstream),
            dialect=dialect_of(self._provider).name,
            key=self._key,
            findings=tuple(findings),
            absent=tuple(route.name for route in absent),
        )

    async def _ask_all(self, asker: Asker) -> tuple[list[Finding], list[Route]]:
        nowhere = await self._ask(asker, self._questions.of_paths())
        if nowhere.status is None:
            raise AuditFailed(nowhere.message or "no answer")
        findings = [nowhere]
        present: list[Route] = []
        absent: list[Route] = []
        for route in self._plan.routes:
            if present and nowhere.code == MODEL_NOT_FOUND:
                # It answers any path as the first one: nothing can be told of another.
                absent.append(route)
                continue
            of_route = []
            for question in self._questions.of_route(route):
                found = await self._ask(asker, question)
                of_route.append(found)
                if found.case is Case.UNKNOWN_MODEL and found.result is Result.ACCEPTED:
                    self._questions.nameless = True
            if _is_absent(of_route, nowhere):
                absent.append(route)
                continue
            present.append(route)
            findings += of_route
        if self._plan.routes and self._plan.models and not present:
            names = ", ".join(route.path for route in absent)
            raise AuditFailed(
                f"{self._provider.name}: no route of its dialect is there ({names}:"
                f" {nowhere.status}); say where they are with --base",
                2,
            )
        first = present[0] if present else None
        for question in self._questions.of_upstream(first):
            findings.append(await self._ask(asker, question))
        if self._allowed is not None and self._plan.models:
            for route in present:
                question = self._questions.of_context(route, self._allowed)
                findings.append(await self._ask(asker, question))
        return findings, absent

    async def _ask(self, asker: Asker, question: Question) -> Finding:
        answered = await asker.ask(question)
        if answered.refused:
            envelope = answered.classified.brief
            raise AuditFailed(envelope.message if envelope else "no connection")
        repeated = _may_pass(question, answered)
        if repeated:
            await self._sleep(_wait(answered))
            answered = await asker.ask(question)
        self._identities[question.id] = question.identity
        return finding(question, answered, in_2xx=self._in_2xx, repeated=repeated)


def _may_pass(question: Question, answered: Answered) -> bool:
    envelope = answered.classified.brief
    if envelope is None or envelope.class_ not in PASSING:
        return False
    return envelope.class_ not in KINDS[question.case].classes


def _wait(answered: Answered) -> float:
    envelope = answered.classified.brief
    told = envelope.retry_after if envelope is not None else None
    return SHORT_WAIT if told is None else min(max(told, SHORT_WAIT), LONGEST_WAIT)


def _is_absent(of_route: Sequence[Finding], nowhere: Finding) -> bool:
    """Whether a route answers as a path that does not exist, whatever it is sent."""
    first = of_route[0]
    if any(one.signature != first.signature for one in of_route):
        return False
    if first.status not in _ABSENT or first.code == MODEL_NOT_FOUND:
        return False
    if first.status == nowhere.status and first.message and first.message == nowhere.message:
        # In the same words: how the dialect of the route reads them makes no difference.
        return True
    if first.class_ is not ErrorClass.PERMANENT:
        return False
    return first.signature == nowhere.signature or first.status == 405


def _check_alive(findings: Iterable[Finding]) -> None:
    """Refuses to judge an upstream that is down, or that limits whoever asks."""
    found = list(findings)
    # Of what is not there, a server whose routes are all down can tell.
    asked = [one for one in found if one.case not in {Case.UNKNOWN_PATH, Case.WRONG_METHOD}]
    alike = len({(one.status, one.code, one.message) for one in asked}) == 1
    if found and (
        all(one.class_ in PASSING for one in found)
        or (alike and all(one.class_ in PASSING for one in asked))
    ):
        worst = asked[0] if asked else found[0]
        told = f"{worst.status}" if worst.status is not None else "no answer"
        raise AuditFailed(
            f"the upstream answers everything with a failure that may pass ({told}"
            f" {worst.code}): nothing can be told from that; try again later"
        )
