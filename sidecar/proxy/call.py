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
from sidecar.breaker.model import Kind, Outcome, Refusal, State
from sidecar.envelope.headers import Headers
from sidecar.envelope.model import Classified, Envelope, Verdict
from sidecar.envelope.model_name import model_in_query
from sidecar.envelope.redact import shown_name, shown_path
from sidecar.faults.injector import Fault as InjectedFault
from sidecar.faults.injector import Target, injection
from sidecar.proxy import headers, own_answers, replies, target
from sidecar.proxy.connection import Connection
from sidecar.proxy.entry import Entry
from sidecar.proxy.exchange import Answer, Exchange
from sidecar.proxy.failures import CallerGone, Refused, UpstreamFailed
from sidecar.proxy.forward import Forwarding
from sidecar.proxy.incoming import Incoming
from sidecar.proxy.outgoing import Outgoing
from sidecar.proxy.relay import Relay
from sidecar.proxy.repeats import Repeats, repeats_of
from sidecar.proxy.signing import Signing
from sidecar.proxy.sigv4 import without_presigning
from sidecar.proxy.websocket import WebSocketRelay
from sidecar.telemetry.observer import CallFinished, Ending

if TYPE_CHECKING:
    from sidecar.config.schema import FaultSection
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
        entry: who lets it in; None until the provider was found.
        out: the answer on its way.
        classified: what the answer means, once that is known.
        decision: `forwarded`, or why the daemon answers itself.
        ending: how it ended, where that is known; None before.
        first_content_at: when a stream said its first word, monotonic seconds; None before.
        trace: its place in a trace; None while tracing is off.
        heard_at: when the upstream last sent a byte, monotonic seconds.
        repeats: what sends the request again; None where nothing does.
        settled: those who let it in have been told.
    """

    __slots__ = (
        "_asked",
        "_attempts",
        "_fault",
        "_finished",
        "_first_byte_at",
        "_forwarding",
        "_model",
        "_overhead",
        "_relay",
        "_signing",
        "_started",
        "_unreadable",
        "_uploading",
        "_upstream_status",
        "_verdict",
        "classified",
        "connection",
        "decision",
        "ending",
        "entry",
        "first_content_at",
        "heard_at",
        "incoming",
        "out",
        "path",
        "plane",
        "reclassified",
        "repeats",
        "runtime",
        "settled",
        "trace",
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
        self._unreadable = unreadable
        self.ending: Ending | None = None
        self._asked: FaultSection | None = None
        self._fault: InjectedFault | None = None
        self._finished = False
        self._first_byte_at: float | None = None
        self._forwarding: Forwarding | None = None
        self._model: str | None = None
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
        self.entry: Entry | None = None
        self.out = Outgoing(connection, http10=incoming.http10, keep=not incoming.ends_connection)
        self.classified: Classified | None = None
        self.decision = "forwarded"
        self.first_content_at: float | None = None
        self.heard_at: float | None = None
        self.reclassified = False
        self.repeats: Repeats | None = None
        self.settled = False
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
            own_answers.answer_fault(self, error)
        finally:
            self._close()
        if self._forwarding is not None:
            await self._forwarding.closed()
        return self.out.keep

    async def _attempt(self) -> None:
        try:
            await self._forward()
        except Refused as refused:
            own_answers.answer_refusal(self, refused)
        except UpstreamFailed as failure:
            own_answers.answer_failure(self, failure)

    # -- the way through --------------------------------------------------------------------

    async def _forward(self) -> None:
        if self._unreadable is not None:
            raise self._unreadable
        incoming, plane = self.incoming, self.plane
        named = incoming.absolute_form()
        own = None if named is None else plane.is_own(named, self.connection)
        found = incoming.check(plane.config, is_own=own)
        entry = self._enter(found)
        runtime = entry.runtime
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
        entry.subject = target.route(self._shown_path()) if model is None else target.model(model)
        if plane.draining:
            raise Refused("draining", "the daemon is stopping", close=True)
        self._asked = plane.fault_asked_for(incoming.headers_of(FAULT_HEADER))
        await entry.enter()
        self.repeats = repeats_of(self, entry)
        if self.repeats is None:
            await self._send(entry, rest)
        else:
            await self.repeats.run(partial(self._send, entry, rest))

    async def _send(self, entry: Entry, rest: str) -> None:
        incoming, plane, runtime = self.incoming, self.plane, entry.runtime
        self._fault = fault = self._chosen_fault(runtime)
        if entry.aside and (fault is None or fault.counts or not fault.is_played):
            # What stood aside for a fault is a call like any other again.
            await entry.enter()
        if self.repeats is not None:
            self.repeats.begins(counts=self.is_evidence)
        if fault is not None:
            await self._meet(fault, entry)
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
        if entry.admission is not None and self.is_evidence:
            entry.admission.first_byte(self._first_byte_at)
        network = plane.watch.network
        if network.uneasy and runtime.upstream.host is not None and self.is_evidence:
            network.reached(runtime.upstream.host, self._first_byte_at)
        assert forwarding.exchange is not None
        self._relay = self._relay_of(runtime, forwarding.exchange, answer)
        await self._relay.run()
        if self.classified is None or self.classified.brief is None:
            self.ending = Ending.ANSWERED

    @property
    def upstream_status(self) -> int | None:
        """What the upstream answered; None if nothing came."""
        return self._upstream_status

    @property
    def is_sent(self) -> bool:
        """Has the request left, so that it may have been executed?"""
        return self._forwarding is not None and self._forwarding.sent_at is not None

    @property
    def time_left(self) -> float:
        """Seconds until `timeouts.total` ends the call; infinite without one."""
        total = None if self.runtime is None else self.runtime.config.timeouts.total
        return inf if total is None else total - (machine.monotonic() - self._started)

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
        if self.entry is not None:
            self.entry.used()
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

    def _enter(self, found: target.Target) -> Entry:
        runtime = self.plane.runtimes.get(found.provider)
        if runtime is None:
            raise Refused("unknown_provider", self.plane.known())
        self.runtime = runtime
        self.path = found.path
        runtime.entered()
        self.connection.patience = runtime.config.timeouts.client
        entry = self.entry = Entry(self.plane, runtime, self.incoming, self._started, self.trace)
        return entry

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

    async def _meet(self, fault: InjectedFault, entry: Entry) -> None:
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
            entry.step_aside()
        if fault.rule.source != "sidecar":
            return
        if fault.rule.after is not None:
            await asyncio.sleep(fault.rule.after)
        if fault.decision == "breaker_open" and entry.admission is not None:
            entry.refusal = Refusal(
                key=entry.admission.key,
                state=State.OPEN,
                mode=entry.admission.mode,
                retry_after=fault.wait,
                reason="an injected fault",
            )
        raise_own(fault)

    def _shown_path(self) -> str:
        """The path without its secrets, for people, logs and keys; all of it if nobody's it is."""
        if self.runtime is None:
            return shown_path(self.incoming.asked_path) if self._unreadable is None else ""
        return shown_path(self.path, self.runtime.dialect.secret_paths)

    def heard(self) -> None:
        """The upstream has sent something."""
        now = self.heard_at = machine.monotonic()
        entry = self.entry
        if entry is not None and entry.key is not None and self.is_evidence:
            entry.runtime.heard[entry.key] = now

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
        if self.entry is not None and self.is_evidence:
            self.entry.accepted(found)

    def foresee(self, found: Headers) -> None:
        """An answer that is no throttle may say that the next one would be: its headers."""
        if self.entry is not None and self.is_evidence:
            self.entry.foresee(found)

    def settle(self, outcome: Outcome) -> Verdict:
        """Tells those who let the call in how it ended; the first time counts.

        Returns:
            The verdict that the breaker heard.
        """
        if self.settled:
            return self._verdict or outcome.verdict
        self.settled = True
        if self.entry is not None:
            outcome = self.entry.settle(outcome, counts=self.is_evidence)
        self._verdict = outcome.verdict
        if self._signing is not None and outcome.code == "token_expired" and self.is_evidence:
            self._signing.expired()
        return outcome.verdict

    def _left(self) -> None:
        """The caller is gone: nobody's fault, unless the upstream had been silent for long."""
        if self.repeats is not None:
            self.repeats.over = True
        if self._relay is not None:
            self._relay.left()
        if self.settled:
            # Everything that counts had been said.
            return
        self.ending = Ending.SHUTDOWN if self.plane.stopping else Ending.CLIENT_LEFT
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
        key = self.entry.key if self.entry else None
        alive = runtime.heard.get(key or "", 0.0) > since
        return None if alive or silence < runtime.config.timeouts.abandoned else silence

    def _heard_by_breaker(self) -> Verdict | None:
        if self.decision in replies.LOCAL:
            return None
        return self._verdict if self.is_evidence else Verdict.NEUTRAL

    # -- answers of the daemon's own --------------------------------------------------------

    def mark_lines(self) -> bytes:
        """`marks` of an answer that was forwarded without an error, written."""
        assert self.runtime is not None
        return b"%b%b%bx-correlation-id: %b\r\n" % (
            b"" if self._fault is None else headers.lines([self._fault.mark]),
            self.runtime.mark_lines,
            self.plane.breaker_line(
                self.runtime.name, self.entry.admission if self.entry else None
            ),
            self.incoming.correlation_id.encode("latin-1"),
        )

    def marks(self) -> list[tuple[str, str]]:
        """The headers that every answer carries."""
        marks = []
        if self.runtime is not None:
            marks.append(("x-sidecar-provider", self.runtime.name))
        marks.append(("x-sidecar-decision", self.decision))
        entry = self.entry
        if entry is not None:
            held_by = entry.refusal or entry.admission
            mark = self.plane.breaker_mark(entry.runtime.name, held_by, entry.subject)
            marks.append(("x-sidecar-breaker", mark))
        marks.append(("x-correlation-id", self.correlation_id))
        if self._fault is not None:
            marks.append(self._fault.mark)
        return marks

    def _cut_for_shutdown(self) -> None:
        """The daemon stops before the call is done: says so if nothing was said yet."""
        if self.connection.transport is None:
            return
        if self.out.started and self._relay is not None:
            self._relay.stop(own_answers.stopped_envelope(self))
        elif not self.out.started:
            own_answers.answer_stopped(self)
        self.ending = Ending.SHUTDOWN
        self.connection.finish()

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
        entry = self.entry
        if entry is not None:
            entry.leave(sent=self._forwarding is not None)
            entry.runtime.left()
        self.settle(Outcome(Verdict.NEUTRAL))
        now = machine.monotonic()
        classified, started = self.classified, self._started
        if self.repeats is not None:
            self.repeats.ended()
            self.repeats = None
        overhead, waited = self._overhead, entry.waited if entry else None
        if overhead is not None:
            overhead = max(overhead - self._uploading - (waited or 0.0), 0.0)
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
                key=entry.key if entry else None,
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
                would_refuse=entry is not None and entry.would_refuse,
                ending=self.ending,
                upstream_request_id=classified.request_id if classified else None,
                look=classified.look if classified else None,
                fault=self._fault.name if self._fault else None,
                attempts=self._attempts,
                first_content=self.first_content_at - started if self.first_content_at else None,
                overhead=overhead,
                waited=waited,
                trace=self.trace,
            )
        )
