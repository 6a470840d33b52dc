"""How a request is written down before it is signed: by AWS's example, and against botocore."""

from __future__ import annotations

import hashlib

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from sidecar.proxy import sigv4
from sidecar.proxy.sigv4 import Key, Scope

EMPTY = hashlib.sha256(b"").hexdigest()
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEY = Key("AKIDEXAMPLE", SECRET, None)
NOW = 1440938160.0
"""2015-08-30 12:36:00 UTC, the time of AWS's example."""

ARN = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-3-5-sonnet-20241022-v2:0"


def test_awss_own_example() -> None:
    """From "Create a signed AWS API request" of the IAM user guide."""
    signed = sigv4.signed_headers(
        [
            (b"Host", b"iam.amazonaws.com"),
            (b"Content-Type", b"application/x-www-form-urlencoded; charset=utf-8"),
            (b"X-Amz-Date", b"20150830T123600Z"),
        ]
    )
    query = "Action=ListUsers&Version=2010-05-08"
    request = sigv4.canonical_request("GET", "/", query, signed, EMPTY)
    assert (
        hashlib.sha256(request).hexdigest()
        == "f536975d06c0309214f805bb90ccff089219ecd68b2577efef23edd43b7e1a59"
    )
    key = sigv4.signing_key(SECRET, "20150830", Scope("us-east-1", "iam"))
    assert key.hex() == "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"


def of_botocore(method: str, target: str, headers: dict[str, str], key: Key, scope: Scope) -> str:
    """The signature that botocore comes to for a request that has all its headers."""
    request = AWSRequest(method, f"https://{headers['host']}{target}", headers=headers)
    request.context["timestamp"] = headers["x-amz-date"]
    auth = SigV4Auth(Credentials(key.name, key.secret, key.token), scope.service, scope.region)
    text = auth.string_to_sign(request, auth.canonical_request(request))
    found: str = auth.signature(text, request)
    return found


@pytest.mark.parametrize("token", [None, "IQoJb3JpZ2luX2VjEHoaCXVzLWVhc3QtMSJGMEQ="])
@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/model/anthropic.claude-3-5-sonnet-20241022-v2%3A0/converse",
        "/model/anthropic.claude-3-5-sonnet-20241022-v2:0/invoke-with-response-stream",
        f"/model/{ARN}/converse",
        f"/model/{ARN.replace(':', '%3A').replace('/', '%2F')}/converse-stream",
        f"/model/{ARN.replace('/', '%2f')}/invoke",
        "/a//b/./c/../d/",
        "/async-invoke?maxResults=5&nextToken=a%2Fb%3D%3D&sortBy=SubmissionTime",
        "/async-invoke?b=2&a=2&a=1&empty=&c",
        "/guardrail/x~y/version/1(1)!*'/apply;v=1,2",
    ],
)
def test_botocore_comes_to_the_same(target: str, token: str | None) -> None:
    key = Key("AKIDEXAMPLE", SECRET, token)
    scope = Scope("eu-central-1", "bedrock")
    payload = hashlib.sha256(b"{}").hexdigest()
    path, _, query = target.partition("?")
    host = "bedrock-runtime.eu-central-1.amazonaws.com"
    signature = sigv4.sign(
        key,
        scope,
        method="POST",
        path=path,
        query=query,
        headers=[
            (b"Host", host.encode()),
            (b"User-Agent", b"anything"),
            (b"X-Amz-Meta", b"  two   words "),
            (b"content-type", b"application/json"),
            (b"Authorization", b"Bearer other"),
        ],
        payload=payload,
        now=NOW,
    )
    lines = {name.decode().lower(): value.decode() for name, value in signature.lines}
    assert lines["x-amz-date"] == "20150830T123600Z"
    assert lines["x-amz-content-sha256"] == payload
    assert lines.get("x-amz-security-token") == token
    authorization = lines.pop("authorization")
    sent = {"host": host, "content-type": "application/json", "x-amz-meta": "two words", **lines}
    names = ";".join(sorted(sent))
    assert authorization == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/eu-central-1/bedrock/aws4_request, "
        f"SignedHeaders={names}, Signature={of_botocore('POST', target, sent, key, scope)}"
    )
    secrets = [value.decode() for _, value in signature.secrets]
    assert secrets == [*([token] if token else []), authorization[-64:]]


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("", "/"),
        ("/", "/"),
        ("//", "/"),
        ("/.", "/"),
        ("/..", "/"),
        ("/../../a", "/a"),
        ("/a/", "/a/"),
        ("/a/.", "/a/"),
        ("/a/b/..", "/a/"),
        ("/a//b/", "/a/b/"),
        ("/%2e%2e/a", "/%252e%252e/a"),
        ("/a%2Fb:c", "/a%252Fb%3Ac"),
        ("/a b", "/a%20b"),
        ("/-._~", "/-._~"),
    ],
)
def test_paths(path: str, written: str) -> None:
    assert sigv4.canonical_path(path) == written


@pytest.mark.parametrize(
    ("query", "written"),
    [
        ("", ""),
        ("a", "a="),
        ("a=1&&b", "a=1&b="),
        ("b=1&a=2&a=1", "a=1&a=2&b=1"),
        ("a=%7e%2f", "a=~%2F"),
        ("a=x:y/z", "a=x%3Ay%2Fz"),
        ("a=1+1", "a=1%2B1"),
        ("a=1=2", "a=1%3D2"),
        ("a=%zz", "a=%25zz"),
        ("a-b=1&a=2", "a=2&a-b=1"),
    ],
)
def test_queries(query: str, written: str) -> None:
    assert sigv4.canonical_query(query) == written
    assert sigv4.canonical_query(written) == written


def test_headers_that_come_twice_are_one() -> None:
    found = sigv4.signed_headers(
        [(b"X-Amz-B", b" 1  2 "), (b"x-amz-a", b"\tz\xff"), (b"x-amz-b", b"3"), (b"Accept", b"*/*")]
    )
    assert list(found.items()) == [(b"x-amz-a", b"z\xff"), (b"x-amz-b", b"1 2,3")]


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("", ""),
        ("?", "?"),
        ("?a=1&&b=%41", "?a=1&&b=%41"),
        ("?X-Amz-Signature=x", ""),
        (
            "?a=1&X-Amz-Algorithm=A&X-Amz-Credential=C%2FD&X-Amz-Date=D&b=X-Amz-Date",
            "?a=1&b=X-Amz-Date",
        ),
        ("?x-amz-expires=1&X%2DAmz-Security-Token=t&X-Amz-SignedHeaders=host&z", "?z"),
        ("?X-Amz-Other=1", "?X-Amz-Other=1"),
    ],
)
def test_what_presigns_a_query_goes(query: str, left: str) -> None:
    assert sigv4.without_presigning(query) == left


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60))
def test_anything_that_the_parser_lets_through_can_be_written(text: str) -> None:
    path, _, query = text.partition("?")
    assert sigv4.canonical_path("/" + path).startswith("/")
    written = sigv4.canonical_query(query)
    assert sigv4.canonical_query(written) == written
    assert sigv4.without_presigning("?" + query).count("&") <= query.count("&")


def test_a_key_does_not_show_itself() -> None:
    assert SECRET not in f"{KEY!r} {KEY} {[KEY]}"
