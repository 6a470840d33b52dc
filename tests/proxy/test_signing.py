"""Calls that the daemon signs: accepted by a receiver that checks, whoever sent them and however."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from sidecar.proxy import aws_credentials, signing

from .aws import Account, Aws, forget_this_machine, sends
from .callers import Caller, call, request
from .upstreams import Upstream, Visit, answer

GOOD, SECRET = "AKIDGOOD", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
MODEL = "/up/model/anthropic.claude-3-5-sonnet-20241022-v2:0/converse"
ARN = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc123xyz"
BODY = json.dumps({"messages": [{"role": "user", "content": [{"text": "x"}]}]}).encode()
JSON = ("Content-Type", "application/json")
DUMMY = (
    "AWS4-HMAC-SHA256 Credential=dummy/20200101/eu-west-1/bedrock/aws4_request, "
    "SignedHeaders=content-type;host;x-amz-date, Signature=" + "0" * 64
)

EXPIRED = {
    "name": "the session has ended",
    "when": {"header.x-amzn-errortype": "ExpiredTokenException"},
    "class": "authentication",
    "code": "token_expired",
    "retryable": True,
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's AWS settings, and one good key."""
    forget_this_machine(monkeypatch, tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", GOOD)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture
def aws(upstream: Upstream) -> Aws:
    upstream.script = script = Aws({GOOD: Account(SECRET)}, sends(answer()))
    return script


def section(upstream: Upstream, **more: Any) -> dict[str, Any]:
    own = {"service": "bedrock", "region": "us-east-1"}
    return {"upstream": upstream.url, "dialect": "bedrock", "sign": {"aws": own}, **more}


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        (MODEL, [JSON]),
        (MODEL.replace(":", "%3A"), [JSON]),
        (f"/up/model/{ARN.replace(':', '%3A').replace('/', '%2F')}/invoke", [JSON]),
        (f"/up/model/{ARN.replace('/', '%2f')}/invoke", [JSON]),
        (f"/up/model/{ARN}/invoke", [JSON]),
        ("/up/a//b/../c/", [JSON]),
        ("/up/async-invoke?sortBy=x:y&maxResults=5&b=%2f&a", []),
        (MODEL, [JSON, ("Authorization", DUMMY), ("X-Amz-Date", "20200101T000000Z")]),
        (MODEL, [JSON, ("authorization", "Bearer bedrock-api-key"), ("authorization", "Basic eDp5")]),
        (
            MODEL,
            [
                ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
                ("X-AMZ-SECURITY-TOKEN", "theirs"),
                ("X-Amz-Region-Set", "*"),
                ("X-Amz-Meta", "  two   words "),
                ("x-amz-meta", "again"),
                ("x-amzn-trace-id", "Root=1"),
                ("Content-Type", "application/json;  charset=utf-8"),
            ],
        ),
        (MODEL, [("Connection", "x-amz-mine"), ("X-Amz-Mine", "1"), JSON]),
        (MODEL + "?X-Amz-Algorithm=A&X-Amz-Credential=C&X-Amz-Signature=S&keep=1", [JSON]),
    ],
)  # fmt: skip
async def test_whatever_comes_is_signed(start, upstream, aws, target, headers) -> None:
    running = await start({"up": section(upstream)})
    found = await call(running.port, target, "POST", BODY, *headers)
    assert (found.status, aws.refused, aws.signed_by) == (200, [], [GOOD])
    (seen,) = upstream.requests
    assert seen.body == BODY
    path, _, query = target.removeprefix("/up").partition("?")
    kept = [part for part in query.split("&") if not part.startswith("X-Amz-")]
    assert seen.target == "?".join([path, *filter(None, ["&".join(kept)])]).encode()


async def test_nothing_else_is_touched(start, upstream, aws) -> None:
    """Order, case, repeats and bytes of what is no part of a signature."""
    running = await start({"up": section(upstream)})
    sent = [
        ("X-First", "1"),
        ("accept", "a"),
        ("Authorization", DUMMY),
        ("ACCEPT", "b"),
        ("X-Amz-Date", "20200101T000000Z"),
        ("X-Bytes", "\xe4\xff"),
        ("amz-sdk-request", "attempt=1; max=1"),
        JSON,
    ]
    await call(running.port, MODEL, "POST", BODY, *sent)
    (seen,) = upstream.requests
    kept = [
        (name.encode(), value.encode("latin-1"))
        for name, value in sent
        if name not in ("Authorization", "X-Amz-Date")
    ]
    host = upstream.url.removeprefix("http://").encode()
    assert seen.headers[:-3] == [
        (b"Host", host),
        *kept,
        (b"Content-Length", b"%d" % len(BODY)),
    ]
    assert [name for name, _ in seen.headers[-3:]] == [
        b"X-Amz-Date",
        b"X-Amz-Content-Sha256",
        b"Authorization",
    ]


async def test_what_the_configuration_sets_is_signed_too(start, upstream, aws) -> None:
    own = {"x-amz-own": {"value": "mine"}, "content-type": {"value": "application/x"}}
    running = await start({"up": section(upstream, set_headers=own)})
    headers = [("X-Amz-Own", "theirs"), JSON]
    assert (await call(running.port, MODEL, "POST", BODY, *headers)).status == 200
    assert upstream.requests[0].get(b"x-amz-own") == b"mine"
    assert aws.signed_by == [GOOD]


async def test_a_prefix_is_part_of_the_path(start, upstream, aws) -> None:
    provider = {**section(upstream), "upstream": f"{upstream.url}/pre%2Ffix"}
    running = await start({"up": provider})
    assert (await call(running.port, "/up/a:b?c", "GET")).status == 200
    assert upstream.requests[0].target == b"/pre%2Ffix/a:b?c"
    assert aws.signed_by == [GOOD]


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PUT"])
async def test_methods_without_a_body(start, upstream, aws, method) -> None:
    upstream_answers = answer().partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    aws.good = sends(upstream_answers if method == "HEAD" else answer())
    running = await start({"up": section(upstream)})
    assert (await call(running.port, "/up/x", method)).status == 200
    assert aws.signed_by == [GOOD]


async def test_bodies_in_chunks_and_large_ones(start, upstream, aws) -> None:
    """Held, hashed and passed on in the framing in which they came."""
    running = await start({"up": section(upstream)})
    large = os.urandom(3 * 1024 * 1024)
    caller = await Caller.connect(running.port)
    for body in (b"", b"x", large):
        for coding in (None, "chunked"):
            upstream.requests.clear()
            if coding is None:
                await caller.send(request(MODEL, "POST", body, JSON))
            else:
                head = request(MODEL, "POST", None, JSON, ("Transfer-Encoding", "chunked"))
                pieces = [body[at : at + 100_000] for at in range(0, len(body), 100_000)]
                await caller.send(head, chunked(*pieces))
            found = await caller.answer()
            assert (found.status, aws.refused) == (200, [])
            (seen,) = upstream.requests
            assert hashlib.sha256(seen.body).digest() == hashlib.sha256(body).digest()
            assert (seen.get(b"transfer-encoding") is None) == (coding is None)
    assert upstream.connections == 1


async def test_a_caller_that_waits_for_leave_to_send(start, upstream, aws) -> None:
    running = await start({"up": section(upstream)})
    caller = await Caller.connect(running.port)
    head = request(MODEL, "POST", None, JSON, ("Expect", "100-continue"), ("Content-Length", "3"))
    await caller.send(head)
    assert (await caller.head())[0] == b"HTTP/1.1 100 Continue"
    assert upstream.hits == 0
    await caller.send(b"abc")
    assert (await caller.answer()).status == 200
    assert (upstream.requests[0].body, aws.signed_by) == (b"abc", [GOOD])


async def test_a_caller_that_leaves_in_the_middle(start, upstream, aws) -> None:
    running = await start({"up": section(upstream)})
    caller = await Caller.connect(running.port)
    await caller.send(request(MODEL, "POST", None, JSON, ("Content-Length", "300000")), b"x" * 1000)
    await caller.closed()
    assert (await call(running.port, MODEL, "POST", BODY, JSON)).status == 200
    assert (upstream.hits, aws.signed_by) == (1, [GOOD])
    assert [(one.verdict, one.status) for one in running.calls] == [
        ("neutral", 0),
        ("success", 200),
    ]


@pytest.mark.parametrize("coding", ["sized", "chunked"])
@pytest.mark.parametrize("limit", ["configured", "default"])
async def test_what_is_held_is_bounded(start, upstream, aws, monkeypatch, coding, limit) -> None:
    monkeypatch.setattr("sidecar.proxy.incoming.MOST_BODY", 1000)
    limits = {"request_body": 1000} if limit == "configured" else {}
    running = await start({"up": section(upstream, limits=limits)})
    caller = await Caller.connect(running.port)
    if coding == "sized":
        await caller.send(request(MODEL, "POST", b"x" * 1001, JSON))
    else:
        head = request(MODEL, "POST", None, JSON, ("Transfer-Encoding", "chunked"))
        await caller.send(head, chunked(b"x" * 600, b"x" * 401))
    found = await caller.answer()
    assert (found.status, found.envelope["code"], upstream.hits) == (413, "too_large", 0)
    words = "limits.request_body" if limit == "configured" else "unless limits.request_body is set"
    assert f"{words} (1000 bytes)" in found.envelope["message"]
    await caller.closed()
    assert (await call(running.port, MODEL, "POST", b"x" * 1000, JSON)).status == 200


def test_the_default_is_above_what_bedrock_takes() -> None:
    assert signing.MOST_BODY > 25_000_000


@pytest.mark.parametrize(
    "digest", ["STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-EVENTS"]
)
async def test_signatures_inside_a_body_cannot_be_made_anew(start, upstream, aws, digest) -> None:
    running = await start({"up": section(upstream)})
    found = await call(running.port, MODEL, "POST", BODY, ("X-Amz-Content-Sha256", digest))
    assert (found.status, upstream.hits) == (400, 0)
    assert found.envelope["code"] == "sigv4_unsupported"
    assert "STREAMING" in found.envelope["message"]


async def test_a_wrong_key_is_the_upstreams_answer(start, upstream, aws, monkeypatch) -> None:
    """Its 403 passes; what it quotes of the request is not in the envelope."""
    token = "IQoJb3JpZ2luX2VjEHoaCXVzLWVhc3QtMSJGMEQ"
    aws.accounts = {GOOD: Account("another secret", token)}
    monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    running = await start({"up": section(upstream)})
    found = await call(running.port, MODEL, "POST", BODY, JSON)
    assert (found.status, aws.refused) == (403, ["InvalidSignatureException"])
    assert token in found.body.decode()
    envelope = found.envelope
    assert (envelope["class"], envelope["source"]) == ("authentication", "http")
    assert envelope["retryable"] is False
    signature = upstream.requests[0].get(b"authorization")[-64:].decode()
    shown = str(running.calls[0].envelope)
    assert token not in shown
    assert signature not in shown
    assert SECRET not in shown
    assert running.calls[0].verdict == "alive"


async def test_what_it_is_signed_with_is_never_quoted(start, upstream, aws, monkeypatch) -> None:
    """A token like any other word, and the signature by itself, echoed without their names."""
    token = "plain-looking-words"
    monkeypatch.setenv("AWS_SESSION_TOKEN", token)

    async def echoes(visit: Visit) -> None:
        await visit.read_body()
        signature = visit.request.get(b"authorization")[-64:].decode()
        message = f"nobody takes {token} or {signature} here"
        await visit.send(answer(403, json.dumps({"message": message}).encode()))

    upstream.script = echoes
    running = await start({"up": section(upstream)})
    found = await call(running.port, MODEL, "POST", BODY, JSON)
    assert found.envelope["message"] == "nobody takes [redacted] or [redacted] here"
    shown = str(running.calls[0].envelope)
    assert token not in shown
    assert upstream.requests[0].get(b"authorization")[-64:].decode() not in shown


async def test_an_unknown_key(start, upstream, aws) -> None:
    aws.accounts = {}
    running = await start({"up": section(upstream)})
    found = await call(running.port, MODEL, "POST", BODY, JSON)
    assert (found.status, found.envelope["class"]) == (403, "authentication")
    assert aws.refused == ["UnrecognizedClientException"]


async def test_a_dead_connection_is_signed_for_again(start, upstream, aws) -> None:
    """A GET is sent twice where a kept connection was dead; both times it is signed."""
    running = await start({"up": section(upstream)})
    assert (await call(running.port, "/up/x", "GET")).status == 200
    good, aws.good = aws.good, None
    heard = []

    async def dies(visit: Any) -> None:
        heard.append(visit.number)
        aws.good = good
        visit.reset()

    aws.good = dies
    assert (await call(running.port, "/up/x", "GET")).status == 200
    assert (len(heard), aws.signed_by) == (1, [GOOD] * 3)


async def test_without_credentials_the_answer_is_a_local_one(
    start, upstream, aws, monkeypatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    running = await start({"up": section(upstream)})
    found = await call(running.port, MODEL, "POST", BODY, JSON)
    assert (found.status, upstream.hits) == (401, 0)
    assert found.get("x-sidecar-decision") == "missing_credentials"
    assert found.get("x-should-retry") == "false"
    assert found.get("retry-after") is None
    assert found.get("x-sidecar-verdict") is None
    envelope = found.envelope
    assert (envelope["class"], envelope["source"]) == ("authentication", "sidecar")
    assert (envelope["code"], envelope["retryable"]) == ("missing_credentials", False)
    assert "sign.aws.profile" in envelope["message"]
    (seen,) = running.calls
    assert (seen.decision, seen.verdict, seen.ending) == ("missing_credentials", None, "refused")
    assert running.breaker("up") is None or running.breaker("up").window.neutral == 0


async def test_a_session_that_ended_is_looked_up_anew(
    start, upstream, aws, monkeypatch, tmp_path
) -> None:
    """What the upstream calls expired is not used again, if there is other."""
    monkeypatch.setattr(aws_credentials, "AGAIN", 0.0)
    monkeypatch.setattr(aws_credentials, "LOOK", 1e9)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    file = tmp_path / "credentials"
    lines = (
        "[default]\naws_access_key_id = {0}\naws_secret_access_key = {1}\naws_session_token = {2}\n"
    )
    file.write_text(lines.format("ASIAONE", "one", "token-one"))
    aws.accounts = {"ASIAONE": Account("one", "token-one"), "ASIATWO": Account("two", "token-two")}
    running = await start({"up": section(upstream, rules=[EXPIRED])})
    assert (await call(running.port, MODEL, "POST", BODY, JSON)).status == 200
    file.write_text(lines.format("ASIATWO", "two", "token-two"))
    aws.accounts["ASIAONE"].ended = True
    found = await call(running.port, MODEL, "POST", BODY, JSON)
    assert (found.status, found.envelope["code"]) == (403, "token_expired")
    assert (found.envelope["retryable"], aws.refused) == (True, ["ExpiredTokenException"])
    assert (await call(running.port, MODEL, "POST", BODY, JSON)).status == 200
    assert aws.signed_by == ["ASIAONE", "ASIATWO"]


async def test_a_provider_without_sign_refuses_as_before(start, upstream, aws) -> None:
    running = await start({"up": upstream.url, "signed": section(upstream)})
    found = await call(running.port, "/up/x", "POST", BODY, ("Authorization", DUMMY))
    assert (found.status, found.envelope["code"]) == (400, "sigv4_unsupported")
    assert "sign.aws" in found.envelope["message"]
    assert upstream.hits == 0


async def test_a_reload_turns_it_on_and_off(start, upstream, aws) -> None:
    running = await start({"up": {"upstream": upstream.url, "dialect": "bedrock"}})
    daemon = running.daemon
    file = daemon._options.config
    plain = file.read_text()
    assert (await call(running.port, "/up/x", "GET")).status == 403
    text = plain.replace(
        "dialect: bedrock",
        "dialect: bedrock\n    sign: {aws: {service: bedrock, region: us-east-1}}",
    )
    file.write_text(text)
    assert (await daemon.reload()).changed == ("up",)
    assert (await call(running.port, "/up/x", "GET")).status == 200
    kept = daemon.plane.runtimes["up"].signer
    file.write_text(text.replace("    upstream", "    mode: observe\n    upstream"))
    assert (await daemon.reload()).changed == ("up",)
    assert daemon.plane.runtimes["up"].signer is kept
    file.write_text(plain)
    assert (await daemon.reload()).changed == ("up",)
    assert (await call(running.port, "/up/x", "GET")).status == 403
    assert aws.refused == ["IncompleteSignatureException"] * 2
