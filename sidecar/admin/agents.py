"""What an agent's own process asks of the admin plane: judge this, may I call, it went like this.

These calls steer nothing, so `admin.mutations: false` does not stop them; those that settle
something need the admin header all the same, since a web page must not be able to open a breaker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, Protocol
from urllib.parse import parse_qs

import msgspec
from aiohttp import web

from sidecar import clock, correlation
from sidecar.admin.answers import AdminError, answer, encode_json, json_answer
from sidecar.admin.failures import (
    failure_entries,
    group_document,
    latest_document,
    read_fields,
    read_number,
)
from sidecar.admin.requests import may_see_raw, read_body
from sidecar.admin.routes import LARGEST_ERROR, LARGEST_REPORT
from sidecar.admin.status import StatusSource, Times, dependency_entry
from sidecar.breaker.model import Snapshot
from sidecar.config.fault_rules import read_fault_header
from sidecar.config.problems import ConfigError
from sidecar.config.schema import FaultSection
from sidecar.dependencies.guard import (
    Dependencies,
    Refused,
    Reported,
    UnknownDependencyError,
)
from sidecar.dependencies.permits import Trouble
from sidecar.dependencies.reports import (
    ReportError,
    read_correlation_id,
    read_object,
    read_report,
)
from sidecar.envelope.model import Classified
from sidecar.envelope.policy import ENVELOPE_TYPE, header_envelope, retry_headers, wants_envelope
from sidecar.envelope.recorded import RecordedError, classify, read
from sidecar.faults.failures import has
from sidecar.faults.injector import Faults
from sidecar.telemetry.failures import Failures

_LONG = 64 * 1024
"""Bytes from which a classification may take longer than traffic should wait for it."""

_TROUBLES: Mapping[Trouble, tuple[int, str]] = {
    Trouble.UNKNOWN: (404, "no such permit: it was never given here, or long ago"),
    Trouble.EXPIRED: (409, "the permit is over: no report came within the dependency's lease"),
    Trouble.REPORTED: (409, "the permit was reported on before; the first report counts"),
    Trouble.FOREIGN: (409, "the permit is another dependency's; report it there"),
}


Route = Callable[[web.BaseRequest, Mapping[str, str]], Awaitable[web.StreamResponse]]
"""Answers one call; it gets the varying parts of the path, decoded."""


class AgentView(StatusSource, Protocol):
    """What these calls see of the daemon."""

    @property
    def dependencies(self) -> Dependencies:
        """What the agent calls by itself."""

    @property
    def failures(self) -> Failures:
        """What failed lately."""

    @property
    def faults(self) -> Faults:
        """What is done to calls on purpose."""


class AgentCalls:
    """The calls below `/v1/`.

    Args:
        daemon: which answers them.
    """

    def __init__(self, daemon: AgentView) -> None:
        self._daemon = daemon
        self._long = asyncio.Lock()

    @property
    def routes(self) -> Mapping[str, Route]:
        """What answers each call, by its id in the table of routes."""
        return {
            "classify": self._classify,
            "permit": self._permit,
            "report": self._report,
            "failures": self._groups,
            "failure": self._failure,
        }

    # -- judging ----------------------------------------------------------------------------

    async def _classify(self, request: web.BaseRequest, _parts: Mapping[str, str]) -> web.Response:
        id_ = _given_id(request) or correlation.made()
        body = await read_body(request, LARGEST_ERROR)
        try:
            if len(body) < _LONG:
                classified = _read_and_classify(body, id_)
            else:
                # One at a time: connections need threads too, to resolve their names.
                async with self._long:
                    classified = await asyncio.to_thread(_read_and_classify, body, id_)
        except RecordedError as error:
            _refuse(str(error), malformed=error.malformed)
        raw = may_see_raw(request, self._daemon.config.admin.token)
        return json_answer(_classification(classified, raw=raw), headers=_marks(id_))

    # -- permits and reports ----------------------------------------------------------------

    async def _permit(self, request: web.BaseRequest, parts: Mapping[str, str]) -> web.Response:
        name, body = parts["name"], await read_body(request)
        try:
            document = read_object(body)
        except ReportError as error:
            _refuse(str(error), malformed=error.malformed)
        id_ = read_correlation_id(document) or _given_id(request) or correlation.made()
        phase = document.get("phase")
        try:
            given = self._daemon.dependencies.permit(
                name,
                id_,
                clock.monotonic(),
                phase=phase if phase in ("commit", "connect") else None,
                asked=self._fault_asked_for(request, name),
            )
        except UnknownDependencyError:
            raise self._unknown(name) from None
        if isinstance(given, Refused):
            return _refusal(given, request)
        return json_answer({"permit": given.id}, headers=_marks(id_))

    def _fault_asked_for(self, request: web.BaseRequest, name: str) -> FaultSection | None:
        """The fault that a call asks for itself; None where that is not allowed.

        Raises:
            AdminError: it asks for nothing that there is.
        """
        asked = request.headers.getall("x-sidecar-fault", ())
        dependency = self._daemon.config.dependencies.get(name)
        if not asked or dependency is None or not self._daemon.faults.allowed:
            return None
        try:
            rule = read_fault_header("; ".join(asked), dependency=name)
        except ConfigError as error:
            told = "; ".join(f"{one.path}: {one.message}".strip(": ") for one in error.problems)
            raise AdminError(400, "bad_request", f"x-sidecar-fault: {told}") from None
        if rule.source != "sidecar" and not has(rule, dependency.source, dependency.system):
            known = dependency.system or f"a {dependency.source} whose vendor is not named"
            message = f"x-sidecar-fault: {known} has no error of this class"
            raise AdminError(400, "bad_request", message)
        return rule

    async def _report(self, request: web.BaseRequest, parts: Mapping[str, str]) -> web.Response:
        name, body = parts["name"], await read_body(request, LARGEST_REPORT)
        try:
            report = read_report(body)
        except ReportError as error:
            _refuse(str(error), malformed=error.malformed)
        now = clock.monotonic()
        try:
            reported = self._daemon.dependencies.report(name, report, _given_id(request), now)
        except UnknownDependencyError:
            raise self._unknown(name) from None
        document = _classification(reported.classified, raw=True)
        document["breaker"] = self._entry(reported.snapshot, now)
        marks = _marks(reported.correlation_id)
        refused = self._trouble(reported, name)
        if refused is None:
            return json_answer(document, headers=marks)
        refused.headers |= marks
        refused.details = document
        raise refused

    def _entry(self, snapshot: Snapshot | None, now: float) -> dict[str, Any] | None:
        if snapshot is None:
            return None
        return dependency_entry(self._daemon, snapshot, Times(now, clock.wall()))

    def _trouble(self, reported: Reported, name: str) -> AdminError | None:
        if reported.snapshot is None:
            return self._unknown(name)
        if reported.trouble is None:
            return None
        status, message = _TROUBLES[reported.trouble]
        return AdminError(status, reported.trouble.value, message)

    def _unknown(self, name: str) -> AdminError:
        config = self._daemon.config
        if name in config.providers:
            message = f"{name} is a provider: calls to it go through the daemon and need no permit"
        else:
            known = ", ".join(config.dependencies) or "none"
            message = f"no such dependency; configured: {known}"
        return AdminError(404, "unknown_dependency", message)

    # -- what failed ------------------------------------------------------------------------

    async def _groups(self, request: web.BaseRequest, _parts: Mapping[str, str]) -> web.Response:
        query = parse_qs(request.raw_path.partition("?")[2], keep_blank_values=True)
        failures, fields = self._daemon.failures, read_fields(query.get("by"))
        if "after" in query:
            after, refusals = read_number(query["after"]), "refusals" in query
            return json_answer(latest_document(failures, after, refusals=refusals))
        minutes = "minutes" in query
        return json_answer(group_document(failures, fields, clock.wall(), minutes=minutes))

    async def _failure(self, request: web.BaseRequest, parts: Mapping[str, str]) -> web.Response:
        correlation_id = parts["correlation_id"]
        found = self._daemon.failures.find(correlation_id)
        if not found:
            raise AdminError(
                404, "unknown_correlation_id", "none of the last failures has this correlation id"
            )
        raw = may_see_raw(request, self._daemon.config.admin.token)
        return json_answer(
            {"correlation_id": correlation_id, "failures": failure_entries(found, raw=raw)}
        )


def _read_and_classify(body: bytes, correlation_id: str) -> Classified:
    return classify(read(body, clock.wall()), correlation_id=correlation_id)


def _refuse(message: str, *, malformed: bool) -> NoReturn:
    if malformed:
        raise AdminError(400, "bad_request", message)
    raise AdminError(422, "invalid_error", message)


def _given_id(request: web.BaseRequest) -> str | None:
    """The id of the call, as the data plane reads it; None if it has none."""
    return correlation.given({name.lower(): value for name, value in reversed(request.raw_headers)})


def _marks(correlation_id: str) -> dict[str, str]:
    return {"x-correlation-id": correlation_id}


def _classification(classified: Classified, *, raw: bool) -> dict[str, Any]:
    envelope = classified.envelope
    if envelope is not None and not raw:
        envelope = msgspec.structs.replace(envelope, raw=None)
    return {
        "envelope": None if envelope is None else msgspec.to_builtins(envelope),
        "verdict": classified.verdict.value,
        "rule": classified.rule,
    }


def _refusal(refused: Refused, request: web.BaseRequest) -> web.Response:
    """No permit: the envelope, as the data plane would say it."""
    envelope, injection = refused.envelope, refused.injection
    headers = {
        **_marks(envelope.correlation_id),
        "x-sidecar-decision": "breaker_open" if injection is None else "injected",
        "x-error-envelope": header_envelope(envelope),
        **dict(retry_headers(envelope)),
    }
    if refused.fault is not None:
        headers |= dict([refused.fault.mark])
    if wants_envelope(request.headers.get("Accept")):
        body = encode_json(msgspec.to_builtins(envelope))
        return answer(body, ENVELOPE_TYPE, status=503, headers=headers)
    document: dict[str, Any] = {
        "error": {"code": envelope.code, "message": envelope.message},
        "envelope": msgspec.to_builtins(envelope),
    }
    if refused.fault is not None and injection is not None:
        document["fault"] = {
            "rule": refused.fault.name,
            "error": injection.error,
            "raises": injection.raises,
        }
    return json_answer(document, status=503, headers=headers)
