"""What an agent's process asks, over real sockets: classify, permits and reports, failures."""

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sidecar import clock
from sidecar.breaker.model import State, Transition, Verb
from sidecar.envelope.model import Classified, Envelope, ErrorClass, Source, Verdict
from sidecar.envelope.raised import Raised
from sidecar.telemetry.observer import Fault

from .daemon import Daemon, started
from .raw import ADMIN, Answer, call, post

PERMIT, REPORT = "/v1/dependencies/orders-db/permit", "/v1/dependencies/orders-db/report"
TEXT = """
providers:
  openai: {upstream: "https://api.openai.com", dialect: openai}
dependencies:
  orders-db:
    source: database
    vendor: postgresql
    breaker: {consecutive_failures: 2, open_for: 30s, jitter: 0}
  pay: {source: sdk, sdk: stripe}
"""
ERROR = {
    "type": "psycopg.errors.SerializationFailure",
    "sqlstate": "40001",
    "message": "could not serialize access; password=hunter2secret",
    "attrs": {"diag.severity": "ERROR"},
}
FIELDS = {
    "class", "source", "code", "message", "retryable", "retry_after", "correlation_id", "raw",
}  # fmt: skip


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path, TEXT)


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[tuple[Daemon, str]]:
    """A daemon with a token."""
    daemon = Daemon(tmp_path, "admin: {token_file: token}\n" + TEXT, token="s3cret")
    plane, address = await started(daemon)
    yield daemon, address
    await plane.stop()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reported error is an outage; what is one is not tested here."""

    def judged(_raised: Raised, **more: Any) -> Classified:
        envelope = Envelope(
            class_=ErrorClass.TRANSIENT,
            source=Source.DATABASE,
            code="connection_refused",
            message="it failed",
            retryable=True,
            correlation_id=more["correlation_id"],
            raw={"type": "x.Y"},
        )
        return Classified(envelope=envelope, verdict=Verdict.FAILURE, rule="told")

    monkeypatch.setattr("sidecar.dependencies.guard.database.classify", judged)


async def say(address: str, target: str, document: Any, *headers: str) -> Answer:
    return await post(address, target, *headers, body=json.dumps(document))


async def permit(address: str, target: str = PERMIT, *headers: str) -> str:
    answer = await post(address, target, *headers)
    assert answer.status == 200, answer.body
    assert set(answer.json()) == {"permit"}
    id_: str = answer.json()["permit"]
    return id_


async def trip(address: str) -> None:
    for _ in range(2):
        await say(address, REPORT, {"permit": await permit(address), "error": ERROR})


class TestClassify:
    async def test_an_answer(self, address: str) -> None:
        record = {
            "source": "http",
            "dialect": "openai",
            "method": "POST",
            "path": "/v1/chat/completions",
            "status": 503,
            "headers": {"content-type": "application/json"},
            "body": '{"error": {"message": "no such model", "code": "model_not_found"}}',
        }
        answer = await say(address, "/v1/classify", record, "x-correlation-id: w-1")
        assert answer.status == 200
        assert set(answer.json()) == {"envelope", "verdict", "rule"}
        envelope = answer.json()["envelope"]
        assert set(envelope) == FIELDS
        assert (envelope["class"], envelope["code"]) == ("permanent", "model_not_found")
        assert envelope["raw"]["status"] == 503
        assert envelope["correlation_id"] == "w-1" == answer.headers["x-correlation-id"]
        assert answer.json()["verdict"] == "alive"
        assert answer.json()["rule"]

    async def test_no_error_has_no_envelope(self, address: str) -> None:
        answer = await say(address, "/v1/classify", {"status": 204})
        assert (answer.json()["envelope"], answer.json()["verdict"]) == (None, "success")
        assert len(answer.headers["x-correlation-id"]) == 32

    async def test_a_database_and_an_sdk(self, address: str) -> None:
        for source in ("database", "sdk"):
            answer = await say(address, "/v1/classify", {"source": source, **ERROR})
            assert answer.status == 200
            assert answer.json()["envelope"]["source"] == source
            assert answer.json()["envelope"]["raw"]["type"] == ERROR["type"]
            assert "hunter2secret" not in answer.body.decode()

    async def test_a_recorded_case_as_it_stands(self, address: str) -> None:
        case = {"id": "x", "vendor": "mysql", "source": "observed, in prose", "error": ERROR}
        answer = await say(address, "/v1/classify", {**case, "expect": {}, "tags": []})
        assert answer.json()["envelope"]["source"] == "database"

    async def test_base64_and_codings(self, address: str) -> None:
        body = base64.b64encode(gzip.compress(b'{"error": {"code": "model_not_found"}}')).decode()
        record = {
            "status": 503,
            "dialect": "openai",
            "headers": {"content-encoding": "gzip", "content-type": "application/json"},
            "body": body,
            "body_encoding": "base64",
        }
        answer = await say(address, "/v1/classify", record)
        assert answer.json()["envelope"]["code"] == "model_not_found"

    async def test_a_stream(self, address: str) -> None:
        record = {
            "status": 200,
            "dialect": "anthropic",
            "stream": True,
            "body": 'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n',
        }
        answer = await say(address, "/v1/classify", record)
        assert answer.json()["envelope"]["code"] == "overloaded"

    async def test_raw_needs_the_header(self, address: str) -> None:
        body = json.dumps({"source": "sdk", **ERROR})
        answer = await call(address, "/v1/classify", "POST", body=body)
        assert answer.status == 200
        assert set(answer.json()["envelope"]) == FIELDS
        assert answer.json()["envelope"]["raw"] is None

    async def test_raw_needs_the_token_where_there_is_one(
        self, guarded: tuple[Daemon, str]
    ) -> None:
        _, address = guarded
        body = json.dumps({"source": "sdk", **ERROR})
        for headers, shown in (
            ((ADMIN,), False),
            ((ADMIN, "Authorization: Bearer wrong"), False),
            (("Authorization: Bearer s3cret",), False),
            ((ADMIN, "Authorization: Bearer s3cret"), True),
        ):
            answer = await call(address, "/v1/classify", "POST", *headers, body=body)
            assert answer.status == 200
            assert (answer.json()["envelope"]["raw"] is not None) is shown, headers

    @pytest.mark.parametrize(
        ("body", "status", "says"),
        [
            ("", 400, "no JSON"),
            ("{", 400, "no JSON"),
            ("[]", 400, "JSON object"),
            ("[" * 50_000, 400, "nested too deep"),
            ("{}", 422, "status is missing"),
            ('{"status": 500, "dialect": "opnai"}', 422, "did you mean openai?"),
            ('{"source": "database", "mro": 3}', 422, "mro is a list of dotted names, not 3"),
            ('{"status": 500, "body": "?", "body_encoding": "base64"}', 422, "no base64"),
        ],
    )
    async def test_what_is_wrong_says_what_to_change(
        self, address: str, body: str, status: int, says: str
    ) -> None:
        answer = await call(address, "/v1/classify", "POST", body=body)
        assert answer.status == status
        assert says in answer.json()["error"]["message"]

    async def test_a_body_is_bounded(self, address: str) -> None:
        body = json.dumps({"status": 500, "body": "x" * 1024 * 1024})
        answer = await call(address, "/v1/classify", "POST", body=body)
        assert (answer.status, answer.code) == (413, "too_large")
        answer = await call(address, "/v1/classify", "POST", body=body[:200_000] + '"}')
        assert answer.status == 200

    async def test_it_changes_nothing(self, daemon: Daemon, address: str) -> None:
        await say(address, "/v1/classify", {"status": 500})
        assert daemon.facts == []
        assert (await call(address, "/v1/failures")).json()["groups"] == []

    async def test_half_of_a_character(self, address: str) -> None:
        body = '{"source": "sdk", "type": "x.Y", "message": "cut \\ud83d"}'
        answer = await post(address, "/v1/classify", body=body)
        assert answer.status == 200
        assert answer.json()["envelope"]["message"].startswith("cut")


class TestPermits:
    async def test_a_call_that_went_well(self, daemon: Daemon, address: str) -> None:
        given = await permit(address)
        shown = (await call(address, "/status")).json()["dependencies"]["orders-db"]
        assert shown["in_flight"] == 1
        answer = await say(address, REPORT, {"permit": given, "ok": True})
        assert answer.status == 200
        assert set(answer.json()) == {"envelope", "verdict", "rule", "breaker"}
        assert (answer.json()["envelope"], answer.json()["verdict"]) == (None, "success")
        shown = (await call(address, "/status")).json()["dependencies"]["orders-db"]
        breaker = answer.json()["breaker"]
        # The two readings of both clocks are apart by a rounding.
        assert breaker | {"since": None} == shown | {"since": None}
        assert (shown["in_flight"], shown["window"]["success"]) == (0, 1)

    async def test_a_failure_is_answered_as_classify_does(self, address: str) -> None:
        given = await permit(address)
        answer = await say(address, REPORT, {"permit": given, "error": ERROR}, "x-request-id: w-2")
        record = {"source": "database", "vendor": "postgresql", **ERROR}
        classified = await say(address, "/v1/classify", record, "x-request-id: w-2")
        reported = answer.json()
        assert reported.pop("breaker")["state"] == "closed"
        assert reported == classified.json()
        assert answer.headers["x-correlation-id"] == "w-2"

    async def test_an_open_breaker_gives_none(self, failing: None, address: str) -> None:
        await trip(address)
        answer = await post(address, PERMIT, "x-correlation-id: w-3")
        assert answer.status == 503
        envelope = answer.json()["envelope"]
        assert set(envelope) == FIELDS
        assert (envelope["class"], envelope["code"], envelope["source"]) == (
            "transient",
            "breaker_open",
            "sidecar",
        )
        assert envelope["retryable"] is True
        assert 29 < envelope["retry_after"] <= 30
        assert envelope["correlation_id"] == "w-3" == answer.headers["x-correlation-id"]
        assert answer.code == "breaker_open"
        assert answer.headers["x-sidecar-decision"] == "breaker_open"
        assert answer.headers["retry-after"] == "30"
        header = json.loads(answer.headers["x-error-envelope"])
        assert header == {name: envelope[name] for name in FIELDS - {"raw"}}
        bare = await post(address, PERMIT, "Accept: application/vnd.error-envelope+json")
        assert bare.status == 503
        assert bare.headers["content-type"] == "application/vnd.error-envelope+json"
        assert (set(bare.json()), bare.json()["code"]) == (FIELDS, "breaker_open")

    async def test_transitions_are_events_and_status(
        self, failing: None, daemon: Daemon, address: str
    ) -> None:
        await trip(address)
        (opened,) = [fact for fact in daemon.facts if isinstance(fact, Transition)]
        assert (opened.key, opened.provider, opened.new) == ("orders-db", "orders-db", State.OPEN)
        document = (await call(address, "/status")).json()
        shown = document["dependencies"]["orders-db"]
        assert (shown["state"], shown["opens"]) == ("open", 1)
        assert shown["last_error"]["code"] == "connection_refused"
        assert shown["last_error"]["kind"] == "connection"
        assert shown["errors"]["by_code"] == {"connection_refused": 2}
        assert shown["errors"]["by_class"]["transient"] == 2
        assert document["dependencies"]["pay"]["state"] == "closed"

    async def test_a_dependency_is_shaped_like_a_breaker(
        self, daemon: Daemon, address: str
    ) -> None:
        daemon.fail(times=1)
        document = (await call(address, "/status")).json()
        breaker = document["providers"]["openai"]["breakers"]["openai"]
        entry = document["dependencies"]["orders-db"]
        assert set(entry) == set(breaker) | {"source", "system", "in_flight", "errors"}
        assert (entry["source"], entry["system"]) == ("database", "postgresql")

    async def test_control(self, daemon: Daemon, address: str) -> None:
        body = '{"for": "10m", "reason": "maintenance"}'
        answer = await post(address, "/breakers/orders-db/open", body=body)
        assert answer.status == 200
        assert (answer.json()["state"], answer.json()["source"]) == ("open", "database")
        refused = await post(address, PERMIT)
        assert refused.status == 503
        assert 599 < refused.json()["envelope"]["retry_after"] <= 600
        assert "maintenance" in refused.json()["envelope"]["message"]
        for verb in Verb:
            answer = await post(address, f"/breakers/orders-db/{verb}")
            assert answer.status == 200, verb
        await post(address, "/breakers/orders-db/reset")
        await permit(address)
        answer = await post(address, "/breakers/orders-db%2Fx/open")
        assert answer.status == 404
        answer = await post(address, "/breakers/nothing/open")
        assert "orders-db" in answer.json()["known"]

    async def test_what_a_report_settles_it_settles_once(self, failing: None, address: str) -> None:
        document = {"permit": await permit(address), "error": ERROR}
        assert (await say(address, REPORT, document)).status == 200
        answer = await say(address, REPORT, document)
        assert (answer.status, answer.code) == (409, "already_reported")
        assert answer.json()["envelope"]["code"] == "connection_refused"
        assert answer.json()["breaker"]["window"]["failure"] == 1

    async def test_permits_that_settle_nothing(
        self, failing: None, daemon: Daemon, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expired, foreign = (
            await permit(address),
            await permit(address, PERMIT.replace("orders-db", "pay")),
        )
        ahead = clock.monotonic
        monkeypatch.setattr(clock, "monotonic", lambda: ahead() + 601.0)
        for given, status, code in (
            (expired, 409, "expired_permit"),
            ("orders-db.0123", 404, "unknown_permit"),
            ("whatever", 404, "unknown_permit"),
        ):
            answer = await say(address, REPORT, {"permit": given, "error": ERROR})
            assert (answer.status, answer.code) == (status, code)
            assert answer.json()["envelope"]["code"] == "connection_refused"
            assert answer.json()["breaker"]["window"]["failure"] == 0
            assert answer.headers["x-correlation-id"]
        monkeypatch.setattr(clock, "monotonic", ahead)
        given = await permit(address, PERMIT.replace("orders-db", "pay"))
        answer = await say(address, REPORT, {"permit": given, "error": ERROR})
        assert (answer.status, answer.code) == (409, "foreign_permit")
        assert foreign != given
        assert (
            await say(address, REPORT.replace("orders-db", "pay"), {"permit": given, "ok": True})
        ).status == 200

    @pytest.mark.parametrize("target", [PERMIT, REPORT])
    async def test_what_does_not_exist(self, address: str, target: str) -> None:
        body = {"permit": "x", "ok": True}
        answer = await say(address, target.replace("orders-db", "order-db"), body)
        assert (answer.status, answer.code) == (404, "unknown_dependency")
        assert "orders-db, pay" in answer.json()["error"]["message"]
        answer = await say(address, target.replace("orders-db", "openai"), body)
        assert (answer.status, answer.code) == (404, "unknown_dependency")
        assert "openai is a provider" in answer.json()["error"]["message"]

    @pytest.mark.parametrize(
        ("body", "status", "says"),
        [
            ("{", 400, "not JSON"),
            ("[]", 400, "JSON object"),
            ("", 422, "permit is missing"),
            ('{"permit": "x"}', 422, "exactly one is needed"),
            ('{"permit": "x", "error": "boom"}', 422, "error is an object"),
        ],
    )
    async def test_a_report_that_is_none(
        self, address: str, body: str, status: int, says: str
    ) -> None:
        answer = await post(address, REPORT, body=body)
        assert answer.status == status
        assert says in answer.json()["error"]["message"]

    async def test_a_report_is_bounded(self, address: str) -> None:
        given = await permit(address)
        error = {**ERROR, "body": "x" * 200_000}
        answer = await say(
            address, REPORT, {"permit": given, "error": {**error, "args": ["y" * 100_000]}}
        )
        assert (answer.status, answer.code) == (413, "too_large")
        assert (await say(address, REPORT, {"permit": given, "error": error})).status == 200

    async def test_a_bad_body_asks_for_no_permit(self, daemon: Daemon, address: str) -> None:
        for body, status in (("{", 400), ("[]", 400), ("x" * 70_000, 413)):
            assert (await post(address, PERMIT, body=body)).status == status
        assert daemon.dependencies.in_flight("orders-db") == 0
        answer = await post(address, PERMIT, body='{"correlation_id": "w 4", "more": 1}')
        assert (answer.status, answer.headers["x-correlation-id"]) == (200, "w_4")

    @pytest.mark.parametrize("target", [PERMIT, REPORT])
    async def test_the_guards(self, guarded: tuple[Daemon, str], target: str) -> None:
        _, address = guarded
        body = '{"permit": "x", "ok": true}'
        token = "Authorization: Bearer s3cret"
        answer = await call(address, target, "GET", ADMIN, token)
        assert (answer.status, answer.code) == (405, "method_not_allowed")
        answer = await call(address, target, "POST", token, body=body)
        assert (answer.status, answer.code) == (403, "admin_header_required")
        answer = await call(address, target, "POST", ADMIN, body=body)
        assert (answer.status, answer.code) == (401, "token_required")
        for header in ("Origin: https://evil.test", "Sec-Fetch-Site: cross-site"):
            answer = await call(address, target, "POST", ADMIN, token, header, body=body)
            assert (answer.status, answer.code) == (403, "forbidden_origin")
        answer = await call(address, target, "POST", ADMIN, token, body=body)
        assert answer.status == (200 if target == PERMIT else 404)

    async def test_a_plane_that_steers_nothing_still_guards(self, tmp_path: Path) -> None:
        daemon = Daemon(tmp_path, "admin: {mutations: false}\n" + TEXT)
        plane, address = await started(daemon)
        try:
            assert (await post(address, "/breakers/orders-db/open")).status == 403
            given = await permit(address)
            assert (await say(address, REPORT, {"permit": given, "ok": True})).status == 200
        finally:
            await plane.stop()

    async def test_many_at_once(self, daemon: Daemon, address: str) -> None:
        given = await asyncio.gather(*(permit(address) for _ in range(100)))
        assert len(set(given)) == 100
        answers = await asyncio.gather(
            *(say(address, REPORT, {"permit": one, "ok": True}) for one in given)
        )
        assert {answer.status for answer in answers} == {200}
        assert daemon.dependencies.in_flight("orders-db") == 0
        assert answers[-1].json()["breaker"]["window"]["success"] <= 100


class TestFailures:
    async def report(self, address: str, correlation_id: str, name: str = "orders-db") -> None:
        given = await permit(address, PERMIT.replace("orders-db", name))
        target = REPORT.replace("orders-db", name)
        header = f"x-correlation-id: {correlation_id}"
        await say(address, target, {"permit": given, "error": ERROR}, header)

    async def test_the_last_hour_in_groups(self, failing: None, address: str) -> None:
        for id_ in ("w-1", "w-2"):
            await self.report(address, id_)
        await self.report(address, "w-3", "pay")
        await post(address, PERMIT, "x-correlation-id: w-4")
        answer = await call(address, "/v1/failures?by=class,source,code")
        document = answer.json()
        assert (document["total"], document["seconds"]) == (4, 3600)
        assert document["by"] == ["class", "source", "code"]
        group = document["groups"][0]
        assert (group["class"], group["source"], group["code"], group["count"]) == (
            "transient",
            "database",
            "connection_refused",
            2,
        )
        assert group["first"]["correlation_id"] == "w-1"
        assert group["last"]["correlation_id"] == "w-2"
        assert group["first"]["at"] <= group["last"]["at"]
        assert group["first"]["at"].endswith("Z")
        assert {one["source"] for one in document["groups"]} == {"database", "sdk", "sidecar"}
        assert (await call(address, "/v1/failures")).json()["groups"] == document["groups"]
        by = (await call(address, "/v1/failures?by=provider,class&by=class")).json()
        assert by["by"] == ["provider", "class"]
        assert {(one["provider"], one["count"]) for one in by["groups"]} == {
            ("orders-db", 3),
            ("pay", 1),
        }

    async def test_the_last_hour_by_the_minute(self, failing: None, address: str) -> None:
        for id_ in ("w-1", "w-2"):
            await self.report(address, id_)
        document = (await call(address, "/v1/failures?by=class&minutes")).json()
        (group,) = document["groups"]
        assert group["minutes"] == [0] * 59 + [2]
        assert "minutes" not in (await call(address, "/v1/failures?by=class")).json()["groups"][0]

    async def test_the_last_ones_and_those_after_them(self, failing: None, address: str) -> None:
        for id_ in ("w-1", "w-2"):
            await self.report(address, id_)
        document = (await call(address, "/v1/failures?after=0", "GET", ADMIN)).json()
        ids = [one["envelope"]["correlation_id"] for one in document["failures"]]
        assert ids == ["w-2", "w-1"]
        assert all(one["envelope"]["raw"] is None for one in document["failures"])
        assert document["after"] == document["failures"][0]["number"]
        later = f"/v1/failures?after={document['after']}"
        assert (await call(address, later)).json() == {"after": document["after"], "failures": []}
        await self.report(address, "w-3", "pay")
        await post(address, PERMIT, "x-correlation-id: w-4")
        for target, expected in ((later, ["w-3"]), (f"{later}&refusals", ["w-4", "w-3"])):
            found = (await call(address, target)).json()["failures"]
            assert [one["envelope"]["correlation_id"] for one in found] == expected

    @pytest.mark.parametrize("after", ["", "x", "-1", "1e3", "9" * 19])
    async def test_what_is_no_number(self, address: str, after: str) -> None:
        assert (await call(address, f"/v1/failures?after={after}")).status == 400

    @pytest.mark.parametrize("by", ["", "klass", "class,", "class;code", "%00"])
    async def test_what_it_cannot_be_grouped_by(self, address: str, by: str) -> None:
        answer = await call(address, f"/v1/failures?by={by}")
        assert answer.status == 400
        assert "class, source, code, provider" in answer.json()["error"]["message"]

    async def test_one_workflow(self, failing: None, address: str) -> None:
        await self.report(address, "a/b:c")
        await self.report(address, "other")
        await self.report(address, "a/b:c", "pay")
        for target in ("/v1/failures/a%2Fb%3Ac", "/v1/failures/a/b:c"):
            document = (await call(address, target)).json()
            assert document["correlation_id"] == "a/b:c"
            first, second = document["failures"]
            assert (first["dependency"], first["provider"]) == ("orders-db", None)
            assert (first["key"], first["decision"]) == ("orders-db", "reported")
            assert (first["verdict"], first["rule"]) == ("failure", "told")
            assert second["dependency"] == "pay"
            assert set(first["envelope"]) == FIELDS
            assert first["envelope"]["raw"] is None
        answer = await call(address, "/v1/failures/a%2Fb%3Ac", "GET", ADMIN)
        assert answer.json()["failures"][0]["envelope"]["raw"] == {"type": "x.Y"}

    async def test_raw_is_for_who_has_the_token(self, guarded: tuple[Daemon, str]) -> None:
        _, address = guarded
        token = "Authorization: Bearer s3cret"
        given = await permit(address, PERMIT, token)
        await say(address, REPORT, {"permit": given, "error": ERROR}, token, "x-request-id: w")
        for headers, shown in (((), False), ((ADMIN,), False), ((ADMIN, token), True)):
            answer = await call(address, "/v1/failures/w", "GET", *headers)
            raw = answer.json()["failures"][0]["envelope"]["raw"]
            assert (raw is not None) is shown
            assert "hunter2secret" not in answer.body.decode()

    async def test_nobodys_id(self, address: str) -> None:
        answer = await call(address, "/v1/failures/nobody")
        assert (answer.status, answer.code) == (404, "unknown_correlation_id")
        for target in ("/v1/failures", "/v1/failures/x"):
            answer = await post(address, target)
            assert (answer.status, answer.code) == (405, "method_not_allowed")
            assert answer.headers["allow"] == "GET, HEAD"


async def test_a_fault_in_here_is_one_answer_and_one_fact(
    daemon: Daemon, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon.failures, "groups", None)
    assert (await call(address, "/v1/failures")).status == 500
    (fault,) = [fact for fact in daemon.facts if isinstance(fact, Fault)]
    assert fault.where == "admin"
