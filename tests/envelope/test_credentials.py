"""What a request carried as a secret comes back in no envelope, however the upstream spells it."""

import base64
import html
import json
import time
from urllib.parse import quote

import pytest

from sidecar.envelope.credentials import Redactor, request_secrets
from sidecar.envelope.dialects import get
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.model import Seen
from sidecar.envelope.stream import StreamReader, classify_stream

SECRET = "hush0Secret77Key99"


def secrets_of(*pairs, target="/up/v1/x"):
    return request_secrets([(name.encode(), value.encode()) for name, value in pairs], target)


@pytest.mark.parametrize(
    "pair",
    [
        ("Authorization", f"Bearer {SECRET}"),
        ("authorization", SECRET),
        ("Authorization", f'Token token="{SECRET}"'),
        ("Proxy-Authorization", f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}"),
        ("Authorization", f"Basic {base64.b64encode(f'{SECRET}:'.encode()).decode()}"),
        ("Cookie", f"a=b; sid={SECRET}; c"),
        ("Cookie", f'sid="{SECRET}"'),
        ("X-Api-Key", SECRET),
        ("api-key", SECRET),
        ("X-Goog-Api-Key", SECRET),
        ("DD-Application-Key", SECRET),
        ("X-Figma-Token", SECRET),
        ("X-Auth", SECRET),
        ("X-Hub-Signature-256", f"sha256={SECRET}"),
        ("X-JWT-Assertion", SECRET),
        ("Authorization", f"key={SECRET}"),
        ("Authorization", f"Bearer:{SECRET}"),
        ("Authorization", f"SharedKey account:{SECRET}"),
        ("Authorization", f"SharedAccessSignature sr=x&sig={SECRET}&se=1"),
        ("Sec-WebSocket-Protocol", f"token, {SECRET}"),
    ],
)
def test_headers(pair):
    assert SECRET in secrets_of(pair)


@pytest.mark.parametrize(
    "target",
    [
        f"/up/x?key={SECRET}",
        f"/up/x?a=1&k%65y={SECRET}",
        f"/up/x?appid={SECRET}&b=2",
        f"/up/x?apiKey={SECRET.replace('h', '%68')}",
        f"/up/hooks/{SECRET}",
        f"/up/bot123456789:{SECRET}/getMe",
        f"/up/hooks/{SECRET.replace('h', '%68')}",
    ],
)
def test_targets(target):
    assert any(SECRET in secret for secret in secrets_of(target=target))


def test_what_the_dialect_knows_to_be_secret_in_a_path():
    target = "/up/webhooks/1/pl%61inword?x=/webhooks/2/otherword"
    found = request_secrets([], target, secret_paths=get("discord").secret_paths)
    assert set(found) == {"pl%61inword", "plainword"}
    assert not request_secrets([], target)


@pytest.mark.parametrize(
    "body",
    [
        f'{{"user": "me", "password": "{SECRET}"}}',
        f'{{"a": {{"apiToken" : "{SECRET}"}}}}',
        f'[{{"client_secret":"{SECRET}"}}]',
        f"grant_type=client_credentials&client_secret={SECRET}",
        f"password={SECRET.replace('h', '%68')}&x=1",
    ],
)
def test_what_the_body_names_as_a_secret(body):
    assert SECRET in request_secrets([], "/", body=body.encode())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"=",
        b'{"model": "gpt-4o-mini", "key": "PROJ-12345678", "code": "print(12345678)"}',
        b'{"messages": [{"content": "{\\"password\\": \\"hunter2hunter2\\"}"}]}',
        b"page_token=abcdefgh&model=gpt-4o-mini",
        b'{"password": "\xff\xff\xff\xff\xff\xff\xff\xff"}',
        b'{"password": "unfinished',
    ],
)
def test_what_a_body_does_not_name_as_one(body):
    assert request_secrets([], "/", body=body) == ()


def test_what_is_no_secret_is_not_taken_for_one():
    assert not secrets_of(
        ("Host", "api.example.com"),
        ("User-Agent", "a-client/1.2.3456"),
        ("Idempotency-Key", "0123456789abcdef"),
        ("Content-Type", "application/json"),
        ("Authorization", "Bearer short"),
        ("Cookie", "theme=dark"),
        ("Sec-WebSocket-Protocol", "graphql-transport-ws, openai-beta"),
        target="/up/v1/files/file-abc123DEF456ghi789?model=gpt-4o-mini&page=12345678",
    )


def test_what_the_configuration_sets_is_a_secret_whatever_its_name():
    assert request_secrets([], "/", [(b"x-gate", f"Bearer {SECRET}".encode())]) == (SECRET,)
    assert not request_secrets([(b"x-gate", SECRET.encode())], "/")


def test_the_longest_comes_first_and_there_is_an_end_to_it():
    found = secrets_of(
        ("cookie", "; ".join(f"c{n}=value-{n:08}" for n in range(100))),
        ("x-api-key", SECRET),
        ("authorization", f"Bearer {SECRET}.more"),
        target="/up/x?key=a-parameter-of-the-query",
    )
    assert found[:3] == ("a-parameter-of-the-query", f"{SECRET}.more", SECRET)
    assert len(found) == 32


@pytest.mark.parametrize(
    "secret", ["ab/cd+ef==gh", 'with"quote\\back', "grün-geheim-1", "<a&b>'c`d"]
)
@pytest.mark.parametrize(
    "spell",
    [
        str,
        json.dumps,
        lambda s: json.dumps(s).replace("/", "\\/"),
        lambda s: json.dumps(s).replace("+", "\\u002B").replace("<", "\\u003C").replace("&", "\\u0026")
        .replace(">", "\\u003E").replace("'", "\\u0027").replace("`", "\\u0060"),
        lambda s: quote(s, safe=""),
        html.escape,
    ],
)  # fmt: skip
def test_every_spelling_is_hidden(secret, spell):
    text = f"you sent {spell(secret)} to us"
    shown = Redactor([secret]).literally(text)
    assert shown.replace('"', "") == "you sent [redacted] to us"


@pytest.mark.parametrize("kept", range(8, len(SECRET) + 1))
def test_a_secret_that_was_cut_at_the_end_is_hidden(kept):
    assert Redactor([SECRET]).cut_text(f"key {SECRET[:kept]}") == "key [redacted]"
    assert Redactor([SECRET]).cut_text("key hush") == "key hush"


def echo(**more):
    body = json.dumps({"error": {"message": f"bad: {SECRET}", "code": f"no_{SECRET}"}}).encode()
    return Seen(
        **{
            "status": 401,
            "headers": Headers([("content-type", "application/json"), ("x-echo", SECRET)]),
            "body": body,
            **more,
        }
    )


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "generic", "sidecar", "auto"])
@pytest.mark.parametrize("status", [200, 401, 429, 503])
def test_an_envelope_echoes_nothing(dialect, status):
    seen = echo(status=status, path="/v1/chat/completions")
    envelope = classify(seen, get(dialect), secrets=lambda: (SECRET,)).envelope
    assert envelope is not None
    assert SECRET not in str(envelope)
    assert "[redacted]" in envelope.message


def test_an_envelope_of_another_sidecar_echoes_nothing():
    told = classify(echo(), get("openai")).envelope
    assert SECRET in told.message
    line = json.dumps({**told.for_model(), "code": f"no_{SECRET}"})
    seen = echo(headers=Headers([("x-error-envelope", line)]))
    envelope = classify(seen, get("sidecar"), secrets=lambda: (SECRET,)).envelope
    assert SECRET not in str(envelope)
    assert envelope.class_ is told.class_


def test_a_long_message_and_a_long_body_echo_nothing():
    for filler in range(0, 40, 3):
        message = "x " * 4990 + "y" * filler + SECRET + " z" * 40_000
        seen = echo(body=json.dumps({"error": {"message": message}}).encode(), truncated=True)
        envelope = classify(seen, get("openai"), secrets=lambda: (SECRET,)).envelope
        assert SECRET[:8] not in str(envelope)
        body = b"x" * (65536 + 1024 - filler) + SECRET.encode() * 2
        seen = echo(body=(SECRET + " ").encode() * 200 + body[3000:])
        envelope = classify(seen, get("openai"), secrets=lambda: (SECRET,)).envelope
        assert SECRET[:8] not in str(envelope)


def test_a_stream_echoes_nothing():
    data = json.dumps({"error": {"message": f"bad: {SECRET}"}})
    seen = echo(
        status=200,
        headers=Headers([("content-type", "text/event-stream")]),
        body=f"data: {data}\n\n".encode(),
        path="/v1/chat/completions",
    )
    envelope = classify_stream(seen, get("openai"), secrets=lambda: (SECRET,)).envelope
    assert "[redacted]" in envelope.message
    assert SECRET not in str(envelope)


def test_a_good_answer_asks_for_no_secrets():
    def secrets():
        raise AssertionError("asked")

    body = b'{"choices": [{"message": {"content": "hello"}}]}'
    seen = echo(status=200, body=body, path="/v1/chat/completions")
    assert classify(seen, get("openai"), secrets=secrets).envelope is None
    reader = StreamReader(get("openai"), seen, secrets=secrets)
    reader.feed(b'data: {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}\n\n')
    assert reader.finish(clean=True).envelope is None


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a=",
        ";",
        "&",
        "/",
        "%41",
        "&a=bbbbbbbb",
        "/hooks/",
        "A1",
        "key=aaaaaaaa;",
        "é",
        '"a":"',
        '"token":"\\"',
    ],
)
def test_a_hostile_request_takes_linear_time(piece):
    """The limit only tells a hang: quadratic work takes minutes here."""
    text = piece * (65536 // len(piece))
    raw = text.encode()
    began = time.perf_counter()
    found = request_secrets([(b"authorization", raw), (b"cookie", raw)], f"/{text}?{text}")
    for start in (b"{", b"a=", b'{"password":"', b"[\\"):
        request_secrets([], "/", body=start + raw)
    redactor = Redactor(found)
    redactor.text(text)
    redactor.cut_text(text[1:] + "b" + text[:4096])
    redactor.headers([("x", text)])
    assert time.perf_counter() - began < 10
    assert len(found) <= 32
