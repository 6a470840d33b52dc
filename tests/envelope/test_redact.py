"""No key, token, cookie or password leaves in anything that is shown."""

import json
import time

import pytest

from sidecar.envelope.credentials import Redactor
from sidecar.envelope.dialects import NAMES, get
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.key_shapes import HIDDEN
from sidecar.envelope.model import Seen
from sidecar.envelope.redact import (
    is_secret_header,
    is_secret_name,
    is_secret_parameter,
    looks_secret,
    path_segments,
    redact_headers,
    redact_target,
    redact_text,
    secrets_of_path,
    shown_name,
    shown_path,
)

SECRET = "hunter2hunter2hunter2"


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-proj-{}.",
        "Incorrect API key provided: sk-ant-api03-{}",
        "gsk_{} xai-{} pplx-{} hf_{}",
        "ghp_{} github_pat_{} xoxb-{}",
        "AIza{} ya29.{} AQ.{}",
        "SG.{}.{}",
        "npm_{}{} pypi-{}{} dop_v1_{}{}",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={}==;EndpointSuffix=x",
        "Ocp-Apim-Subscription-Key: {}",
        "passphrase={}",
        "refused token: {}",
        "near 'IDENTIFIED BY '{}'' at line 1",
        "ALTER ROLE app PASSWORD '{}' x",
        "cannot reach app/{}@//db.internal:1521/orders",
        "ABSK{} bedrock-api-key-{}",
        "Authorization: Bearer {}",
        "bad header 'Basic {}'",
        '{{"api_key": "{}"}}',
        '{{"message": "{{\\"api_key\\": \\"{}\\"}}"}}',
        '{{"client_secret":"{}","x":1}}',
        '{{"access_token":"{}"}}',
        '{{"token":"{}"}}',
        "password={}",
        "https://user:{}@host.example/x",
        "https://host.example/x?key={}&y=1",
        "https://host.example/x?a=1&X-Amz-Signature={}",
        "eyJhbGciOiJI.eyJzdWIi{}.sig",
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
        "Incorrect API key provided: {}.",
        "the access token '{}' is not valid",
        "Cookie: sid={}; theme=dark",
        "set-cookie: a=b; sid={}; HttpOnly",
        '{{"headers": {{"Cookie": "sid={}"}}}}',
        'password="{}',
        "GET /x?appid={}",
        "GET /x?a=1&k%65y={}",
        "jwt-eyJhbGciOiJI.eyJzdWIi{}.sig",
        "https://hooks.slack.com/services/T0AAAAAAA/B0BBBBBBB/{}",
        "https://discord.com/api/webhooks/123456789/{}",
        "https://api.telegram.org/bot123456789:{}/getMe",
        # As pages, queries, and JSON within JSON within JSON spell it.
        "<pre>{{&quot;password&quot;: &quot;{}&quot;}}</pre>",
        "<pre>{{&#34;clientSecret&#34;:&#34;{}&#34;, &#34;a&#34;: 1}}</pre>",
        "&#x27;api_token&#x27;: &#x27;{}&#x27;",
        '"{{\\u0022passphrase\\u0022: \\u0022{}\\u0022}}"',
        '"{{\\\\\\"secret\\\\\\": \\\\\\"{}\\\\\\"}}"',
        "%7B%22api_key%22%3A%22{}%22%7D",
        "grant_type%3Dx%26client_secret%3D{}",
        '{{"bot_token": "{}"}}',
        '{{"auth_key": "{}", "credentials": "{}"}}',
        '{{"signingKey": "{}"}}',
        '{{"jwt": "{}"}}',
        '{{\\"auth\\": \\"{}\\"}}',
        "client_assertion={}&code_verifier={}",
    ],
)
def test_secrets_are_hidden(text):
    shown = redact_text(text.replace("{{", "{").replace("}}", "}").replace("{}", SECRET))
    assert SECRET not in shown
    assert "[redacted]" in shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Rate limit reached for gpt-x on tokens per min (TPM): Limit 30000, Requested 45120.",
        '{"usage": {"prompt_tokens": 12, "max_tokens": 5}, "type": "tokens"}',
        '{"api_key": null, "password": false}',
        "The model `gpt-x` does not exist.",
        "https://platform.example/docs?page=2#errors",
        "You can find your API key at https://platform.example/account/api-keys.",
        "a cookie: what is that?",
        "no such file: file-abc123DEF456ghi789jkl0",
        "The model xai-grok-4-fast-reasoning-latest does not exist",
        "hf-internal-testing/tiny-random-LlamaForCausalLM is not served",
        "jina-embeddings-v2-base-en-2024 and fw-llama-v3-70b-instruct are gone",
        '{"auth": "required", "next_page_token": "abc"}',
        "&quot;model&quot;: &quot;gpt-x&quot; is &lt;unknown&gt;, key not read",
    ],
)
def test_everything_else_stays(text):
    assert redact_text(text) == text


def test_json_stays_json():
    body = json.dumps({"api_key": SECRET, "list": [{"password": 'a"b\\c'}], "n": 1})
    told = json.loads(redact_text(body))
    assert told["n"] == 1
    assert told["api_key"] == "[redacted]"


def test_headers():
    shown = redact_headers(
        [
            ("Set-Cookie", f"a={SECRET}"),
            ("X-Api-Key", SECRET),
            ("x-goog-api-key", SECRET),
            ("Ocp-Apim-Subscription-Key", SECRET),
            ("X-Amz-Security-Token", SECRET),
            ("Location", f"https://h.example/?token={SECRET}"),
            ("X-Request-Id", "req_1"),
            ("X-RateLimit-Remaining-Tokens", "0"),
            ("Via", "1.1 a"),
            ("via", "1.1 b"),
        ]
    )
    assert SECRET not in str(shown)
    assert shown["x-request-id"] == "req_1"
    assert shown["x-ratelimit-remaining-tokens"] == "0"
    assert shown["via"] == "1.1 a, 1.1 b"


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/m:x?key=abc&alt=sse", "/v1/m:x?key=[redacted]&alt=sse"),
        ("/x?api_key=abc&access_token=d", "/x?api_key=[redacted]&access_token=[redacted]"),
        ("/bot/sk-abcdef123456/send", "/bot/[redacted]/send"),
        ("/a\r\nb", "/a??b"),
        ("/bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/getMe", "/[redacted]/getMe"),
        ("/bot123456789%3AAAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/getMe", "/[redacted]/getMe"),
        ("/services/T0A/B0BBBBBBB/TW92ZWhpZGRl", "/services/T0A/[redacted]/[redacted]"),
        ("/hooks/TW92ZWhpZGRlbnRva2VuMTIz", "/hooks/[redacted]"),
        ("/Hooks/abcdefghijklmnopqrst", "/Hooks/[redacted]"),
        ("/v2/webhook/6a7b8c9d-1111-2222-3333-444455556666", "/v2/webhook/[redacted]"),
        ("/webhook-test/6a7b8c9d-1111-2222-3333-444455556666", "/webhook-test/[redacted]"),
        ("/incoming_webhooks/6a7b8c9d", "/incoming_webhooks/[redacted]"),
        ("/repos/o/r/hooks/12345678/deliveries", "/repos/o/r/hooks/12345678/deliveries"),
        ("/services/my-service-name/deploy", "/services/my-service-name/deploy"),
        ("/t/aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA/x", "/t/[redacted]/x"),
        ("/t/aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1z%41", "/t/[redacted]"),
        ("/a;jsessionid=1A2B/x?k%65y=abc&b=1", "/a;jsessionid=[redacted]/x?k%65y=[redacted]&b=1"),
        ("/x?appid=abc", "/x?appid=[redacted]"),
        ("/x?q=sk-abcdef123456", "/x?q=[redacted]"),
        ("/v1/token/abcdefgh1", "/v1/token/[redacted]"),
        ("/v1/api-key/abcdefgh1/x", "/v1/api-key/[redacted]/x"),
        ("/v1/token/exchange", "/v1/token/exchange"),
    ],
)
def test_targets(target, shown):
    assert redact_target(target) == shown
    assert shown_path(target) == shown


@pytest.mark.parametrize(
    ("name", "path", "shown"),
    [
        ("discord", "/api/webhooks/123/token", "/api/webhooks/123/[redacted]"),
        ("discord", "/webhooks/123/to.ken_-x/messages/@original",
         "/webhooks/123/[redacted]/messages/@original"),
        ("discord", "/api/v10/interactions/123/token/callback",
         "/api/v10/interactions/123/[redacted]/callback"),
        ("discord", "/api/v10/channels/123/messages", "/api/v10/channels/123/messages"),
        ("discord", "/api/webhooks/123", "/api/webhooks/123"),
        ("discord", "/api/webhooks/123/", "/api/webhooks/123/"),
        ("hubspot", "/oauth/v1/access-tokens/token", "/oauth/v1/access-tokens/[redacted]"),
        ("hubspot", "/oauth/v1/refresh-tokens/token", "/oauth/v1/refresh-tokens/[redacted]"),
        ("generic", "/api/webhooks/123/token", "/api/webhooks/123/token"),
        ("slack", "/commands/T0AAAA/1234/word", "/commands/T0AAAA/[redacted]/[redacted]"),
        ("slack", "/actions/E0AAAA/1234/word", "/actions/E0AAAA/[redacted]/[redacted]"),
        ("slack", "/api/chat.postMessage", "/api/chat.postMessage"),
        ("slack", "/app/settings/word", "/app/settings/word"),
        ("msgraph", "/webhook/a@b/IncomingWebhook/word/more",
         "/webhook/[redacted]/[redacted]/[redacted]/[redacted]"),
        ("msgraph", "/v1.0/me/messages/AAMk/attachments", "/v1.0/me/messages/AAMk/attachments"),
        ("jira", "/pro/hooks/word", "/pro/hooks/[redacted]"),
        ("jira", "/automation/webhooks/jira/a/cloud/word",
         "/automation/webhooks/jira/a/cloud/[redacted]"),
        ("jira", "/rest/api/3/webhook/10000", "/rest/api/3/webhook/10000"),
    ],
)  # fmt: skip
def test_what_a_dialect_knows_to_be_secret_in_a_path(name, path, shown):
    secret_paths = get(name).secret_paths
    assert redact_target(path, secret_paths) == shown
    assert redact_target(path + "?wait=true", secret_paths) == shown + "?wait=true"
    assert shown_path(path, secret_paths) == shown
    hidden = list(secrets_of_path(path, secret_paths))
    assert all(secret not in shown.split("/") for secret in hidden)
    assert bool(hidden) == (path != shown)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/files/file-abc123DEF456ghi789",
        "/v1/chat/completions/chatcmpl-9xYzAbC123DEFghiJKL456mnoPQRs",
        "/v1/messages/batches/msgbatch_01HkcTjaV5uDC8jWR4ZsDV8d",
        "/x/6a7b8c9d-1111-2222-3333-444455556666",
        "/x/507f1f77bcf86cd799439011",
        "/v1beta/models/gemini-2.0-flash:streamGenerateContent",
        "/models/Meta-Llama-3.1-405B-Instruct-Turbo",
        "/services/data/v58.0/query",
        "//",
        "",
    ],
)
def test_ids_and_models_in_a_path_stay(path):
    assert redact_target(path) == path


def test_a_long_target_is_cut_between_its_parts():
    secret = "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA"
    shown = redact_target("/ab" * 165 + f"/{secret}/x?" + "a=b&" * 125 + f"key={secret}")
    assert shown == "/ab" * 165 + "/...?" + "a=b&" * 125 + "..."
    assert redact_target("/ab" * 169 + f"/{secret}/x") == "/ab" * 169 + "/..."
    assert redact_target("/" + "x" * 65536) == "/..."


@pytest.mark.parametrize(
    "name",
    [
        "gpt-4o-mini",
        "claude-sonnet-4-20250514",
        "anthropic.claude-3-5-sonnet-20241022-v2:0",
        "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8",
        "ft:gpt-4o-mini-2024-07-18:my-org::AbCdEfGhIj12",
        "hf-internal-testing/tiny-random-LlamaForCausalLM",
        "xai-grok-4-fast-reasoning-latest",
        "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc123def456",
        "5c7d5dc6dd8bf75c1acaa8565735e7986bc5b66206b55cca93cb72c9bf15ccaa",
        "модель",
        "",
    ],
)
def test_names_of_models_stay(name):
    assert shown_name(name) == name
    assert shown_name(name, lambda: ("another-secret",)) == name


@pytest.mark.parametrize(
    "name",
    [
        "sk-proj-aB3dE5gH7jK9mN1pQ3rS",
        "openai/sk-ant-api03-aB3dE5gH7jK9mN1pQ3rS",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA",
        "AKIAIOSFODNN7EXAMPLE",
    ],
)
def test_a_name_that_is_a_key_is_hidden(name):
    shown = shown_name(name)
    assert shown.startswith("[redacted]-")
    assert len(shown) == len("[redacted]-") + 6
    assert shown == shown_name(name)
    assert shown != shown_name(name + "x")


def test_a_name_that_is_a_key_of_the_same_request_is_hidden():
    asked = []

    def secrets():
        asked.append(1)
        return (SECRET,)

    assert SECRET not in shown_name(SECRET, secrets)
    assert SECRET not in shown_name(f"openai/{SECRET}", secrets)
    assert len(asked) == 2
    shown_name("gpt-4o-mini", secrets)
    assert len(asked) == 2, "an ordinary name costs no look at the request"


def test_names_of_parameters_and_headers():
    for name in (
        "key", "api_key", "apiKey", "client_secret", "X-Amz-Signature", "k%65y", "appid", "api_token",
        "apiToken", "auth_key", "private_token", "licenseKey", "inviteToken", "sessionId", "hmac",
        "code_verifier",
    ):  # fmt: skip
        assert is_secret_parameter(name), name
    for name in (
        "page", "page_token_count", "monkey", "alt", "model", "pageToken", "next_page_token",
        "idempotency_key", "tokens", "max_tokens",
    ):  # fmt: skip
        assert not is_secret_parameter(name), name
    for name in ("users_email_key", "row_token", "sign"):
        assert is_secret_parameter(name) is (name != "row_token"), name
        assert not is_secret_name(name), f"a column of a database: {name}"
    for name in (
        "Authorization", "X-Auth", "x-api-key", "token", "Cookie", "X-Hub-Signature-256", "DPoP",
        "X-JWT-Assertion", "X-SecretKey",
    ):  # fmt: skip
        assert is_secret_header(name), name
    for name in ("x-ratelimit-remaining-tokens", "date", "x-request-id"):
        assert not is_secret_header(name), name


def test_an_envelope_holds_no_secret():
    seen = Seen(
        status=401,
        headers=Headers([("set-cookie", SECRET), ("x-echo", f"Bearer {SECRET}")]),
        body=json.dumps(
            {"error": {"message": f"bad key sk-{SECRET}", "code": f"sk-{SECRET}"}}
        ).encode(),
    )
    envelope = classify(seen, get("openai")).envelope
    assert SECRET not in str(envelope)


PIECES = [
    "sk-", "a.", "eyJ-", "-eyJa", "eyJaaaaaaaa.", '"', '\\"', "<", "api_", "://", 'password:"',
    "token=", "bearer ", "-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "-----END ", "AKIA",
    "&x-amz-", "signature = ", "&quot;", "password&quot;:&quot;", "\\u0022", "%22", "secret%3d%22",
    "\\\\\\", 'jwt":"', "MTk4NjIyNDgzNDcxOTI1MjQ4.", "pata", "gl", "tvly-", "A1a", "%6b", "bot1234:", "/hooks/", "services/TAAAAA/", ":AA",
    "SG.aaaaaaaaaaaaaaaa", "npm_", "token: a1", "password '", "a/b@//", "a/",
    "cookie: a=b; ", "api key provided ", "http://a:", "&key=aaaaaaaa", "pwd='", '"token":"', " ",
]  # fmt: skip

HANG = 10.0
"""Seconds; a pattern that is quadratic takes minutes, and what is asked for milliseconds."""


@pytest.mark.parametrize(
    "piece", [*PIECES, *map("".join, zip(PIECES, reversed(PIECES), strict=True))]
)
@pytest.mark.parametrize(
    "function",
    [
        redact_text,
        redact_target,
        shown_path,
        shown_name,
        looks_secret,
        is_secret_name,
        is_secret_parameter,
        is_secret_header,
        lambda text: redact_target(f"/?{text}"),
        lambda text: list(path_segments(f"/hooks/{text}")),
        lambda text: redact_headers([("x", text)]),
    ],
)
def test_hostile_text_takes_linear_time(piece, function):
    text = "/" + piece * (65536 // len(piece))
    began = time.perf_counter()
    function(text)
    assert time.perf_counter() - began < HANG
    if function is redact_text:
        assert len(redact_text(text)) <= 3 * len(text)


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN RSA PRIVATE KEY-----\nabcdef\n-----END RSA PRIVATE KEY-----",
        "the keys: sk-abcdef123",
        '{"token":"abcdefghijklmnop"}',
        'api tokens: "abc1234567890def"',
        "x-api-key : hunter2hunter2",
        '\\"password\\" : \\"hunter2\\"',
    ],
)
def test_what_the_sieves_let_through(text):
    assert HIDDEN in redact_text(f"a long report about {text} and more")


def test_what_stands_in_a_clean_body_is_not_searched_again():
    redactor = Redactor(["opensesame1"])
    assert redactor.whole("a plain body") == "a plain body"
    assert redactor.text("plain") == "plain"
    assert HIDDEN in redactor.text("sk-abcdef123456")
    assert HIDDEN in redactor.whole("it was opensesame1")
    assert HIDDEN in redactor.text("opensesame1")


A40 = "a1B2c3D4e5F6g7H8i9J0" * 2
HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    "key",
    [
        f"tvly-dev-{A40}", f"ntn_{A40}", f"secret_{A40}", f"lin_api_{A40}", f"pcsk_{A40}",
        f"jina_{A40}", f"figd_{A40}", f"sbp_{HEX}", f"glsa_{A40}_0123abcd", f"phx_{A40}",
        f"dckr_pat_{A40}", f"glptt-{HEX}", f"shpat_{HEX}", f"dapi{HEX}", f"lsv2_pt_{HEX}_0123abcd",
        f"hvs.{A40}", f"dp.pt.{A40}", f"ATATT3xFfGF0{A40}=0123ABCD", f"key-{HEX}", f"fc-{HEX}",
        f"SK{HEX}", f"GOCSPX-{A40}", f"pat{A40[:14]}.{HEX}", f"xkeysib-{HEX}-{A40}", f"EAA{A40}",
        f"MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.{A40[:27]}", f"IQoJb3JpZ2luX2Vj{A40}", f"re_{A40[:8]}_{A40}",
    ],
)  # fmt: skip
def test_keys_of_known_shapes_are_hidden_without_a_name(key):
    assert redact_text(f"with {key} it was refused") == f"with {HIDDEN} it was refused"


@pytest.mark.parametrize("name", sorted(name for name in NAMES if get(name).secret_paths))
@pytest.mark.parametrize(
    "piece",
    [
        "/webhooks/1/",
        "/webhooks/",
        "1",
        "/",
        "/oauth/v1/access-tokens/",
        "/services/T0A",
        "/webhook/",
        "/webhook/a/IncomingWebhook/",
        "/automation/webhooks/a/",
        "/workflows/0123",
        "/pro/hooks/",
    ],
)
def test_the_paths_of_a_dialect_take_linear_time(name, piece):
    path = "/" + piece * (65536 // len(piece))
    began = time.perf_counter()
    list(secrets_of_path(path, get(name).secret_paths))
    redact_target(path, get(name).secret_paths)
    assert time.perf_counter() - began < HANG
