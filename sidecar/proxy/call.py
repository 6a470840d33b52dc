"""The way of one call: route, read the subject, ask for admission, forward, relay, settle.

Whatever happens on the way, `run` settles the permit exactly once, frees the upstream connection
and states one fact. That is why every exit goes through it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from sidecar import clock as machine
from sidecar.breaker.bulkhead import Bulkhead
from sidecar.breaker.model import Kind, Mode, Outcome, Refusal, State
from sidecar.envelope.model import Classified, Envelope, Headers, Verdict
from sidecar.envelope.model_name import model_in_query
from sidecar.envelope.policy import should_retry
from sidecar.envelope.redact import shown_name, shown_path
from sidecar.faults.injector import Fault as InjectedFault
from sidecar.faults.injector import Target, injection
from sidecar.proxy import headers, replies, target
from sidecar.proxy.connection import Connection
from sidecar.proxy.exchange import Answer, Exchange
from sidecar.proxy.failures import CallerGone, Refused, UpstreamFailed
from sidecar.proxy.forward import Forwarding
from sidecar.proxy.hints import nothing_left
from sidecar.proxy.incoming import Incoming
from sidecar.proxy.outgoing import Framing, Outgoing
from sidecar.proxy.passage import Passage, concerns_gates
from sidecar.proxy.places import wait_for_place
from sidecar.proxy.relay import Relay
from sidecar.proxy.repeats import Repeats, repeats_of
from sidecar.proxy.signing import Signing
from sidecar.proxy.sigv4 import REPLACED, without_presigning
from sidecar.proxy.websocket import WebSocketRelay
from sidecar.telemetry.observer import CallFinished, Ending, Fault

if TYPE_CHECKING:
    from sidecar.breaker.admission import Admission
    from sidecar.config.schema import FaultSection
    from sidecar.envelope.dialects.base import Dialect
    from sidecar.proxy.plane import DataPlane
    from sidecar.proxy.runtime import Runtime


FAULT_HEADER = b"x-sidecar-fault"
"""By which a call asks for a fault, where that is allowed, and by which its answer is marked."""


class Call:
    """One request of a caller and all that becomes of it.

    Args:
        plane: what all calls share.
        connection: the caller's.
        incoming: the request.
        unreadable: set where the parser found no request: only this is left to answer.

    Attributes:
        runtime: the provider; None until it was found.
        path: the path at the provider, as it came, without the query.
        admission: the leave to go on; None until it was given.
        admitted_at: when it was given, monotonic seconds.
        key: the breaker's key that gave or refused it.
        out: the answer on its way.
        classified: what the answer means, once that is known.
        decision: `forwarded`, or why the daemon answers itself.
        first_content_at: when a stream said its first word, monotonic seconds; None before.
        waited: seconds for which the call was held for its slot; None if it was not.
        trace: its place in a trace; None while tracing is off.
        heard_at: when the upstream last sent a byte, monotonic seconds.
        repeats: what sends the request again; None where nothing does.
        settled: the breaker has been told.
    """

    __slots__ = (
        "_aside",
        "_asked",
        "_attempts",
        "_bulkhead",
        "_ending",
        "_fault",
        "_finished",
        "_first_byte_at",
        "_forwarding",
        "_model",
        "_overhead",
        "_passage",
        "_place_would_refuse",
        "_refusal",
        "_relay",
        "_signing",
        "_started",
        "_subject",
        "_unreadable",
        "_uploading",
        "_upstream_status",
        "_verdict",
        "admission",
        "admitted_at",
        "classified",
        "connection",
        "decision",
        "first_content_at",
        "heard_at",
        "incoming",
        "key",
        "out",
        "path",
        "plane",
        "reclassified",
        "repeats",
        "runtime",
        "settled",
        "trace",
        "waited",
    )

    def __init__(
        self,
        plane: DataPlane,
        connection: Connection,
        incoming: Incoming,
        unreadable: Refused | None = None,
    ) -> None:
        self._started = machine.monotonic()
        self._attempts = 0
        self._overhead: float | None = None
        self._bulkhead: Bulkhead | None = None
        self._place_would_refuse = False
        self._unreadable = unreadable
        self._ending: Ending | None = None
        self._aside = False
        self._asked: FaultSection | None = None
        self._fault: InjectedFault | None = None
        self._finished = False
        self._first_byte_at: float | None = None
        self._forwarding: Forwarding | None = None
        self._model: str | None = None
        self._passage: Passage | None = None
        self._subject: str | None = None
        self._refusal: Refusal | None = None
        self._relay: Relay | WebSocketRelay | None = None
        self._signing: Signing | None = None
        self._uploading = 0.0
        self._upstream_status: int | None = None
        self._verdict: Verdict | None = None
        self.plane = plane
        self.connection = connection
        self.incoming = incoming
        self.runtime: Runtime | None = None
        self.path = ""
        self.admission: Admission | None = None
        self.admitted_at = 0.0
        self.key: str | None = None
        self.out = Outgoing(connection, http10=incoming.http10, keep=not incoming.ends_connection)
        self.classified: Classified | None = None
        self.decision = "forwarded"
        self.first_content_at: float | None = None
        self.heard_at: float | None = None
        self.reclassified = False
        self.repeats: Repeats | None = None
        self.settled = False
        self.waited: float | None = None
        self.trace = plane.tracing.begin(incoming.raw, incoming.named, incoming.correlation_id)

    @property
    def only_listens(self) -> bool:
        """Was nothing asked, so that the upstream owes no answer and its silence means nothing?"""
        incoming, runtime = self.incoming, self.runtime
        if runtime is None or incoming.method != "GET":
            return False
        # MCP's own header, since its servers are also reached under dialects that know no MCP.
        named = incoming.header(b"mcp-session-id") is not None
        return named or runtime.dialect.only_listens(incoming.method, self.path)

    @property
    def correlation_id(self) -> str:
        """On the answer, the log line and in the envelope."""
        return self.incoming.correlation_id

    async def run(self) -> bool:
        """Answers the call.

        Returns:
            True if the connection can carry another request.
        """
        try:
            await self._attempt()
        except CallerGone:
            self._left()
            self.connection.abort()
            return False
        except asyncio.CancelledError:
            self._left()
            if self.plane.stopping:
                self._cut_for_shutdown()
            raise
        except Exception as error:  # noqa: BLE001 - the last boundary: a fault of our own
            self._answer_fault(error)
        finally:
            self._close()
        if self._forwarding is not None:
            await self._forwarding.closed()
        return self.out.keep

    async def _attempt(self) -> None:
        try:
            await self._forward()
        except Refused as refused:
            self._answer_refusal(refused)
        except UpstreamFailed as failure:
            self._answer_failure(failure)

    # -- the way through --------------------------------------------------------------------

    async def _forward(self) -> None:
        if self._unreadable is not None:
            raise self._unreadable
        incoming, plane = self.incoming, self.plane
        named = incoming.absolute_form()
        own = None if named is None else plane.is_own(named, self.connection)
        found = incoming.check(plane.config, is_own=own)
        runtime = self._enter(found)
        signer = runtime.signer
        incoming.check_for(
            runtime.config,
            found,
            has_prefix=bool(runtime.upstream.prefix),
            is_signed=signer is not None,
        )
        incoming.begin_body()
        self._model = runtime.dialect.model_of(self.path)
        if self._model is None and incoming.upgrades:
            # A conversation names its model where it is opened: it has no body.
            self._model = model_in_query(found.query)
        if self._model is None:
            begun = None if incoming.whole else machine.monotonic()
            self._model = await incoming.read_model(runtime.config.limits.model_scan)
            if begun is not None:
                self._uploading = machine.monotonic() - begun
        if self._model is not None:
            self._model = shown_name(self._model, incoming.secrets)
        rest = found.rest
        if signer is not None:
            rest = found.path + without_presigning(found.query)
            self._signing = await signer.ready()
        model = self._model
        self._subject = target.route(self._shown_path()) if model is None else target.model(model)
        if plane.draining:
            raise Refused("draining", "the daemon is stopping", close=True)
        self._asked = plane.fault_asked_for(incoming.headers_of(FAULT_HEADER))
        if runtime.gates.limits:
            await self._pass_gates(runtime)
        else:
            self._admit(runtime)
        await self._take_place(runtime)
        self.repeats = repeats_of(self, runtime)
        if self.repeats is None:
            await self._send(runtime, rest)
        else:
            await self.repeats.run(partial(self._send, runtime, rest))

    async def _send(self, runtime: Runtime, rest: str) -> None:
        incoming, plane = self.incoming, self.plane
        self._fault = fault = self._chosen_fault(runtime)
        if self._aside and (fault is None or fault.counts or not fault.is_played):
            # What stood aside for a fault is a call like any other again.
            self._aside = False
            self._admit(runtime)
            await self._take_place(runtime)
        if self.repeats is not None:
            self.repeats.begins(counts=self.is_evidence)
        if fault is not None:
            await self._meet(fault)
        self._forwarding = forwarding = Forwarding(
            runtime,
            incoming,
            rest,
            self.connection.clock,
            plane.loop,
            self._started,
            self._signing,
            self.trace,
            self._fault,
        )
        answer = await forwarding.answer()
        self._first_byte_at = self.heard_at = machine.monotonic()
        self._upstream_status = answer.message.code
        if self.trace is not None:
            self.trace.attempts[-1].status = self._upstream_status
        if self.admission is not None and self.is_evidence:
            self.admission.first_byte(self._first_byte_at)
        network = plane.watch.network
        if network.uneasy and runtime.upstream.host is not None and self.is_evidence:
            network.reached(runtime.upstream.host, self._first_byte_at)
        assert forwarding.exchange is not None
        self._relay = self._relay_of(runtime, forwarding.exchange, answer)
        await self._relay.run()
        if self.classified is None or self.classified.brief is None:
            self._ending = Ending.ANSWERED

    @property
    def upstream_status(self) -> int | None:
        """What the upstream answered; None if nothing came."""
        return self._upstream_status

    @property
    def time_left(self) -> float:
        """Seconds until `timeouts.total` ends the call; infinite without one."""
        total = None if self.runtime is None else self.runtime.config.timeouts.total
        return inf if total is None else total - (machine.monotonic() - self._started)

    @property
    def patience(self) -> float:
        """Seconds that the call may still be held here: its waits share one `max_wait`."""
        most = 0.0 if self.runtime is None else self.runtime.config.shedding.max_wait
        return max(most - (self.waited or 0.0), 0.0)

    @property
    def is_throttled(self) -> bool:
        """Does the upstream throttle the call's key?"""
        passage = self._passage_if_any()
        return passage is not None and passage.is_throttled

    def check_again(self) -> None:
        """What was said while the call waited concerns it too.

        Raises:
            Refused: `local_network`, `quota` or `shed`.
        """
        runtime, admission = self.runtime, self.admission
        if runtime is not None and self.plane.watch.network.down:
            self.plane.watch.check(runtime)
        passage = self._passage_if_any()
        if passage is not None and admission is not None:
            passage.check_again(admission.mode, self._started)

    def _passage_if_any(self) -> Passage | None:
        runtime, admission = self.runtime, self.admission
        if runtime is None or not runtime.gates.limits or admission is None:
            return None
        self._passage = self._passage or self._passage_of(runtime)
        return self._passage

    async def forget_attempt(self, envelope: Envelope) -> None:
        """Drops what an attempt came to, frees its connection, and begins the request anew.

        Args:
            envelope: what it came to.
        """
        if self._fault is not None:
            self._fault.finished(
                machine.monotonic(), status=0, decision="repeated", verdict=None, envelope=envelope
            )
        forwarding, self._forwarding = self._forwarding, None
        if self._passage is not None:
            self._passage.used()
        if forwarding is not None:
            self._count(forwarding)
            forwarding.close()
            await forwarding.closed()
        self._relay = self.classified = None
        self._first_byte_at = self.heard_at = self._upstream_status = None
        self.incoming.rewind()

    def _count(self, forwarding: Forwarding) -> None:
        """Adds what an attempt cost; what the daemon took before the first one is its own share."""
        self._attempts += forwarding.attempts
        if self._overhead is None:
            self._overhead = forwarding.overhead

    def _relay_of(
        self, runtime: Runtime, exchange: Exchange, answer: Answer
    ) -> Relay | WebSocketRelay:
        if answer.message.code == 101:
            self.connection.clock.stop()
            return WebSocketRelay(self, runtime, exchange, answer)
        return Relay(self, runtime, exchange, self.connection.clock, answer)

    def _enter(self, found: target.Target) -> Runtime:
        runtime = self.plane.runtimes.get(found.provider)
        if runtime is None:
            raise Refused("unknown_provider", self.plane.known())
        self.runtime = runtime
        self.path = found.path
        runtime.entered()
        self.connection.patience = runtime.config.timeouts.client
        return runtime

    async def _pass_gates(self, runtime: Runtime) -> None:
        """As `_admit`, past the gates of the call's key: budget, breaker, slot, in this order."""
        if runtime.retired:
            self._admit(runtime)
            return
        plane, now = self.plane, machine.monotonic()
        if plane.watch.network.down:
            plane.watch.check(runtime)
        passage = self._passage = self._passage_of(runtime)
        self.key, _, mode = plane.registry.peek(runtime.name, self._subject, now)
        passage.check_budget(mode)
        self._admit(runtime)
        assert self.admission is not None
        try:
            held = passage.enter(self.admission.mode)
        except Refused:
            self.admission.release(machine.monotonic())
            raise
        if held is not None:
            # What waits holds no permit: it may be a probe's, and what it is worth may change.
            self.admission.release(machine.monotonic())
            try:
                await passage.turn(held, plane.loop, plane.gate_fault)
            finally:
                self.waited = machine.monotonic() - now
            self._admit(runtime)
            self.check_again()
        passage.admitted()

    def _passage_of(self, runtime: Runtime) -> Passage:
        set_headers = {name.lower() for name, _ in runtime.set_headers}
        if runtime.signer is not None:
            # A caller's signature differs with each request; the limit is the daemon's own key's.
            set_headers |= REPLACED
        key = self.incoming.limit_key(
            self._subject or "", set_headers, runtime.dialect.secret_paths
        )
        return Passage(runtime.gates, key, self.admitted_at)

    def _admit(self, runtime: Runtime) -> None:
        """Asks everybody who may refuse the call, in the contract's order."""
        if self.plane.watch.network.down:
            self.plane.watch.check(runtime)
        now = self.admitted_at = machine.monotonic()
        if runtime.retired:
            # Taken away by a reload while this call was being read: no breaker is its own any more.
            self.key = f"{runtime.name}/{self._subject}"
            return
        tracing = self.plane.tracing
        tracing.current = self.trace
        admitted = self.plane.registry.admit(runtime.name, self._subject, now)
        tracing.current = None
        self.key = admitted.key
        if isinstance(admitted, Refusal):
            self._refusal = admitted
            raise Refused("breaker_open", admitted.reason, retry_after=admitted.retry_after)
        self.admission = admitted

    def _chosen_fault(self, runtime: Runtime) -> InjectedFault | None:
        asked, faults = self._asked, self.plane.faults
        if asked is None and not faults.active:
            return None
        target = Target(
            name=runtime.name,
            source="http",
            correlation_id=self.correlation_id,
            model=self._model,
            method=self.incoming.method,
            path=self.path,
            shown_path=self._shown_path,
        )
        return faults.choose(target, asked, machine.monotonic(), machine.wall())

    @property
    def is_evidence(self) -> bool:
        """Does the call say something about the provider? An injected fault does only if asked."""
        return self._fault is None or self._fault.counts

    async def _meet(self, fault: InjectedFault) -> None:
        """A fault is the call's from here on.

        Raises:
            Refused: it is a refusal of the daemon's own.
            UpstreamFailed: it is a failure that the daemon tells of.
        """
        from sidecar.faults.own import raise_own  # noqa: PLC0415 - only tests need it
        from sidecar.faults.watched import Watched  # noqa: PLC0415 - likewise

        self.plane.observer.emit(injection(fault))
        self.out = Watched(
            self.connection, http10=self.incoming.http10, keep=self.out.keep, fault=fault
        )
        if fault.is_played and not fault.counts:
            self._step_aside()
        if fault.rule.source != "sidecar":
            return
        if fault.rule.after is not None:
            await asyncio.sleep(fault.rule.after)
        if fault.decision == "breaker_open" and self.admission is not None:
            self._refusal = Refusal(
                key=self.admission.key,
                state=State.OPEN,
                mode=self.admission.mode,
                retry_after=fault.wait,
                reason="an injected fault",
            )
        raise_own(fault)

    def _step_aside(self) -> None:
        """Gives back at once what a real call could want: probe, place, question to a budget."""
        self._aside = True
        nothing = Outcome(Verdict.NEUTRAL)
        if self._passage is not None:
            self._passage.settle(nothing)
        if self.admission is not None:
            self.admission.settle(nothing, machine.monotonic())
        if self._bulkhead is not None:
            self._bulkhead.leave()
            self._bulkhead = None

    async def _take_place(self, runtime: Runtime) -> None:
        if runtime.bulkhead.enter():
            self._bulkhead = runtime.bulkhead
        else:
            await self._wait_for_place(runtime)

    async def _wait_for_place(self, runtime: Runtime) -> None:
        """Waits until one of the provider's calls has ended; not for long, and not with all.

        The breaker's permit is given back meanwhile: a call that only waits must not keep a probe.

        Raises:
            Refused: `bulkhead`, or whatever else the call meets after its wait.
        """
        bulkhead, admission, since = runtime.bulkhead, self.admission, machine.monotonic()
        if admission is None or admission.mode is not Mode.ENFORCE:
            bulkhead.force()
            self._bulkhead = bulkhead
            self._place_would_refuse = admission is not None and admission.mode is Mode.OBSERVE
            return
        admission.release(since)
        try:
            await wait_for_place(bulkhead, self.patience)
        finally:
            self.waited = (self.waited or 0.0) + machine.monotonic() - since
        self._bulkhead = bulkhead
        self._admit(runtime)
        self.check_again()

    def _shown_path(self) -> str:
        """The path without its secrets, for people, logs and keys; all of it if nobody's it is."""
        if self.runtime is None:
            return shown_path(self.incoming.asked_path) if self._unreadable is None else ""
        return shown_path(self.path, self.runtime.dialect.secret_paths)

    def heard(self) -> None:
        """The upstream has sent something."""
        now = self.heard_at = machine.monotonic()
        if self.key is not None and self.runtime is not None and self.is_evidence:
            self.runtime.heard[self.key] = now

    def secrets(self) -> tuple[str, ...]:
        """What the upstream was sent and must not be quoted with."""
        assert self.runtime is not None
        configured = self.runtime.set_headers
        if self._signing is not None:
            configured = (*configured, *self._signing.secrets)
        return self.incoming.secrets(configured, self.runtime.dialect.secret_paths)

    # -- settling ---------------------------------------------------------------------------

    def accepted(self, found: Headers) -> None:
        """A good answer has begun, or one that nobody judges: its headers."""
        runtime = self.runtime
        if runtime is None or not (runtime.gates.limits or runtime.config.shedding.preempt):
            return
        if self.admission is None or self.admission.mode is Mode.OFF or not self.is_evidence:
            return
        passage = self._passage = self._passage or self._passage_of(runtime)
        passage.accepted()
        self.foresee(found)

    def foresee(self, found: Headers) -> None:
        """An answer that is no throttle may say that the next one would be: its headers."""
        runtime = self.runtime
        if runtime is None or not runtime.config.shedding.preempt or not self.is_evidence:
            return
        if self.admission is None or self.admission.mode is Mode.OFF:
            return
        hint = nothing_left(found, machine.wall())
        if hint is not None:
            self._passage = self._passage or self._passage_of(runtime)
            self._passage.exhausted(hint)

    def settle(self, outcome: Outcome) -> Verdict:
        """Tells the breaker and the gates how the call ended; the first time counts.

        Returns:
            The verdict that the breaker heard.
        """
        if self.settled:
            return self._verdict or outcome.verdict
        self.settled = True
        runtime, admission = self.runtime, self.admission
        if not self.is_evidence:
            told = Outcome(Verdict.NEUTRAL)
            if self._passage is not None and not self._aside:
                self._passage.settle(told)
        else:
            network = self.plane.watch.network
            if network.down and runtime is not None and runtime.upstream.host is not None:
                outcome = network.judged(outcome, runtime.upstream.host)
            if runtime is not None and (
                runtime.gates.limits
                or (outcome.verdict is not Verdict.SUCCESS and concerns_gates(outcome))
            ):
                outcome = self._tell_gates(runtime, outcome)
            told = outcome
        self._verdict = outcome.verdict
        if self._signing is not None and outcome.code == "token_expired" and self.is_evidence:
            self._signing.expired()
        if admission is not None:
            tracing = self.plane.tracing
            tracing.current = self.trace
            admission.settle(told, machine.monotonic())
            tracing.current = None
        return outcome.verdict

    def _tell_gates(self, runtime: Runtime, outcome: Outcome) -> Outcome:
        if self._passage is None:
            # A refusal before the gates says nothing to them, and a provider that is off has none.
            if self.admission is None or self.admission.mode is Mode.OFF:
                return outcome
            self._passage = self._passage_of(runtime)
        return self._passage.settle(outcome)

    def _left(self) -> None:
        """The caller is gone: nobody's fault, unless the upstream had been silent for long."""
        if self.repeats is not None:
            self.repeats.over = True
        if self._relay is not None:
            self._relay.left()
        if self.settled:
            # Everything that counts had been said.
            return
        self._ending = Ending.SHUTDOWN if self.plane.stopping else Ending.CLIENT_LEFT
        silence = self._silence()
        if silence is None:
            self.settle(Outcome(Verdict.NEUTRAL))
            return
        self.settle(Outcome(Verdict.FAILURE, kind=Kind.TIMEOUT, code="hang_abandoned"))
        self.classified = Classified(
            envelope=replies.envelope_of(
                "timeout",
                f"the caller left after {silence:.0f} s without a byte from the upstream",
                self.correlation_id,
                code="hang_abandoned",
                sent=True,
            ),
            verdict=Verdict.FAILURE,
            rule="transport: hang_abandoned",
        )

    def _silence(self) -> float | None:
        """Seconds of silence that the upstream has to answer for; None if it has not."""
        forwarding, runtime = self._forwarding, self.runtime
        if forwarding is None or runtime is None or self.plane.stopping:
            return None
        since = self.heard_at or forwarding.sent_at
        if isinstance(self._relay, WebSocketRelay):
            since = self._relay.asked_at
        elif self._relay is not None and self._relay.only_listens:
            return None
        if since is None or not self.incoming.whole or self.connection.paused:
            return None
        silence = machine.monotonic() - since
        alive = runtime.heard.get(self.key or "", 0.0) > since
        return None if alive or silence < runtime.config.timeouts.abandoned else silence

    def _heard_by_breaker(self) -> Verdict | None:
        if self.decision in replies.LOCAL:
            return None
        return self._verdict if self.is_evidence else Verdict.NEUTRAL

    def _would_refuse(self) -> bool:
        admission, passage = self.admission, self._passage
        breaker = admission is not None and admission.would_refuse is not None
        if breaker or self._place_would_refuse:
            return True
        return passage is not None and passage.would_refuse

    # -- answers of the daemon's own --------------------------------------------------------

    def mark_lines(self) -> bytes:
        """`marks` of an answer that was forwarded without an error, written."""
        assert self.runtime is not None
        return b"%b%b%bx-correlation-id: %b\r\n" % (
            b"" if self._fault is None else headers.lines([self._fault.mark]),
            self.runtime.mark_lines,
            self.plane.breaker_line(self.runtime.name, self.admission),
            self.incoming.correlation_id.encode("latin-1"),
        )

    def marks(self) -> list[tuple[str, str]]:
        """The headers that every answer carries."""
        marks = []
        if self.runtime is not None:
            marks.append(("x-sidecar-provider", self.runtime.name))
        marks.append(("x-sidecar-decision", self.decision))
        if self.runtime is not None:
            held_by = self._refusal or self.admission
            mark = self.plane.breaker_mark(self.runtime.name, held_by, self._subject)
            marks.append(("x-sidecar-breaker", mark))
        marks.append(("x-correlation-id", self.correlation_id))
        if self._fault is not None:
            marks.append(self._fault.mark)
        return marks

    def _answer_refusal(self, refused: Refused) -> None:
        self.decision = refused.decision
        self._ending = Ending.REFUSED
        if refused.close:
            self.out.keep = False
        self.settle(Outcome(Verdict.NEUTRAL))
        envelope = replies.envelope_of(
            refused.decision,
            refused.detail,
            self.correlation_id,
            code=refused.code,
            retry_after=refused.retry_after,
        )
        if self.repeats is not None:
            envelope = self.repeats.told(envelope)
        self._answer(envelope, None, f"local: {refused.decision}", sent=False)

    def _answer_failure(self, failure: UpstreamFailed) -> None:
        """No usable answer came: says so, in the caller's dialect."""
        if self.runtime is not None and self.is_evidence:
            failure = self.plane.watch.judge(self.runtime, failure)
        self.decision = failure.decision
        self.settle(
            Outcome(
                failure.verdict, kind=failure.kind, code=failure.code, status=self._upstream_status
            )
        )
        here = failure.decision == "local_network"
        envelope = self.envelope_of(failure)
        if self.repeats is not None:
            envelope = self.repeats.told(envelope)
        self._answer(
            envelope,
            None if here else failure.verdict,
            f"transport: {failure.code}",
            sent=failure.sent,
        )

    def envelope_of(self, failure: UpstreamFailed) -> Envelope:
        """What is told of a failure to get an answer."""
        return replies.envelope_of(
            failure.decision,
            f"{self.runtime.name if self.runtime else 'upstream'}: {failure.detail}",
            self.correlation_id,
            code=failure.code,
            retry_after=self.plane.watch.wait() if failure.decision == "local_network" else None,
            sent=failure.sent,
        )

    def _answer_fault(self, error: Exception) -> None:
        self.decision = "internal_error"
        self.plane.observer.emit(
            Fault(at=machine.wall(), where="proxy", error=error, correlation_id=self.correlation_id)
        )
        self.settle(Outcome(Verdict.NEUTRAL))
        self.out.keep = False
        envelope = replies.envelope_of(
            "internal_error", "a fault in the daemon; its log has more", self.correlation_id
        )
        # The fault may lie in a dialect: this answer asks none.
        generic = self.plane.generic
        self._answer(envelope, Verdict.NEUTRAL, "local: internal_error", sent=False, spoken=generic)

    def _answer(
        self,
        envelope: Envelope,
        verdict: Verdict | None,
        rule: str,
        *,
        sent: bool,
        spoken: Dialect | None = None,
    ) -> None:
        """Writes an answer of the daemon's own; one that comes too late only ends badly."""
        self.classified = Classified(
            envelope=envelope, verdict=verdict or Verdict.NEUTRAL, rule=rule
        )
        incoming = self.incoming
        if self.out.started:
            self.out.keep = False
            self.connection.abort()
            return
        status = replies.DECISIONS[self.decision].status
        dialect = spoken or (self.runtime.dialect if self.runtime else self.plane.generic)
        media_type, body = replies.body_of(
            envelope, status, dialect, self.path, plain=incoming.wants_envelope()
        )
        own = [
            *self.marks(),
            *replies.error_headers(
                envelope,
                verdict,
                self._advice(envelope, sent=sent),
                dialect.should_retry_headers,
            ),
            *dialect.error_headers(envelope, self.path),
            ("cache-control", "no-store"),
            ("content-type", media_type),
            ("content-length", str(len(body))),
        ]
        if incoming.awaits_permission:
            # The caller was never told to go on: whether a body follows is not known.
            self.out.keep = False
            self.connection.finish_after_answer = True
        framing = Framing.NONE if incoming.method == "HEAD" else Framing.LENGTH
        reason = replies.REASONS.get(status, "")
        self.out.start(status, reason, [headers.lines(own)], framing, body)

    def _advice(self, envelope: Envelope, *, sent: bool) -> str | None:
        runtime, incoming = self.runtime, self.incoming
        return should_retry(
            envelope,
            terminal=False,
            # A request that had left when the daemon stopped is like one whose answer broke off.
            decision="upstream_error" if sent and self.decision == "draining" else self.decision,
            fail_fast=runtime is not None and runtime.config.breaker.fail_fast,
            sdk_wait_max=runtime.config.sdk_wait_max if runtime else replies.SDK_WAIT_MAX,
            method=incoming.method,
            idempotency_key=incoming.header(b"idempotency-key") is not None,
            repeatable=runtime is not None
            and runtime.dialect.repeatable(incoming.method, self.path),
            sent=sent,
        )

    def _cut_for_shutdown(self) -> None:
        """The daemon stops before the call is done: says so if nothing was said yet."""
        if self.connection.transport is None:
            return
        if self.out.started and self._relay is not None:
            self._relay.stop(self._stopped_envelope())
        elif not self.out.started:
            self.decision = "draining"
            self.out.keep = False
            sent = self._forwarding is not None and self._forwarding.sent_at is not None
            self._answer(self._stopped_envelope(), None, "local: draining", sent=sent)
        self._ending = Ending.SHUTDOWN
        self.connection.finish()

    def _stopped_envelope(self) -> Envelope:
        sent = self._forwarding is not None and self._forwarding.sent_at is not None
        return replies.envelope_of(
            "draining",
            "the daemon stopped before the answer was whole"
            + ("; the request may have been executed" if sent else ""),
            self.correlation_id,
            sent=sent,
        )

    # -- the end ----------------------------------------------------------------------------

    def _close(self) -> None:
        """Frees everything and states the fact; the call is over."""
        if self._finished:
            return
        self._finished = True
        # The relay knows its call: left in place, the two would wait for the garbage collector.
        self._relay = None
        if self._forwarding is not None:
            self._count(self._forwarding)
            self._forwarding.close()
        elif self._passage is not None:
            self._passage.unused()
        if self.runtime is not None:
            self.runtime.left()
        if self._bulkhead is not None:
            self._bulkhead.leave()
        self.settle(Outcome(Verdict.NEUTRAL))
        now = machine.monotonic()
        classified, started = self.classified, self._started
        if self.repeats is not None:
            self.repeats.ended()
            self.repeats = None
        overhead = self._overhead
        if overhead is not None:
            overhead = max(overhead - self._uploading - (self.waited or 0.0), 0.0)
        if self._fault is not None:
            self._fault.finished(
                now,
                status=self.out.status,
                decision=self.decision,
                verdict=self._verdict.value if self._verdict else None,
                envelope=classified.brief if classified else None,
            )
        self.plane.observer.emit(
            CallFinished(
                at=machine.wall(),
                provider=self.runtime.name if self.runtime else None,
                key=self.key,
                model=self._model,
                method=self.incoming.method,
                path=self._shown_path(),
                decision=self.decision,
                status=self.out.status,
                upstream_status=self._upstream_status,
                envelope=classified.brief if classified else None,
                verdict=self._heard_by_breaker(),
                rule=classified.rule if classified else "",
                correlation_id=self.correlation_id,
                duration=now - started,
                first_byte=self._first_byte_at - started if self._first_byte_at else None,
                reclassified=self.reclassified,
                would_refuse=self._would_refuse(),
                ending=self._ending,
                upstream_request_id=classified.request_id if classified else None,
                look=classified.look if classified else None,
                fault=self._fault.name if self._fault else None,
                attempts=self._attempts,
                first_content=self.first_content_at - started if self.first_content_at else None,
                overhead=overhead,
                waited=self.waited,
                trace=self.trace,
            )
        )
