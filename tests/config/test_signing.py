"""`sign.aws`: what the host tells, what has to be said, and what cannot stand beside it."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from sidecar.config import aws
from sidecar.config.aws import Endpoint, endpoint_of

ROOT = Path(__file__).parents[2]
HEAD = "providers:\n  a:\n    upstream: {}\n"
RUNTIME = "https://bedrock-runtime.us-east-1.amazonaws.com"


@pytest.fixture(autouse=True)
def shared_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The shared files of AWS are empty, and not this machine's."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("host", "service", "region"),
    [
        ("bedrock-runtime.us-east-1.amazonaws.com", "bedrock", "us-east-1"),
        ("bedrock-runtime.us-gov-west-1.amazonaws.com", "bedrock", "us-gov-west-1"),
        ("bedrock-runtime-fips.us-east-2.amazonaws.com:8443", "bedrock", "us-east-2"),
        ("bedrock-runtime.ap-southeast-2.amazonaws.com.", "bedrock", "ap-southeast-2"),
        ("bedrock-runtime.cn-north-1.amazonaws.com.cn", "bedrock", "cn-north-1"),
        ("bedrock-runtime.eusc-de-east-1.amazonaws.eu", "bedrock", "eusc-de-east-1"),
        ("bedrock-agent-runtime.eu-west-1.amazonaws.com", "bedrock", "eu-west-1"),
        ("bedrock.eu-west-1.amazonaws.com", "bedrock", "eu-west-1"),
        ("bedrock-mantle.us-west-2.api.aws", "bedrock-mantle", "us-west-2"),
        ("bedrock-agentcore.us-west-2.amazonaws.com", "bedrock-agentcore", "us-west-2"),
        ("runtime.sagemaker.us-east-1.amazonaws.com", "sagemaker", "us-east-1"),
        (
            "vpce-0a1b2c-3d4e.bedrock-runtime.us-east-1.vpce.amazonaws.com",
            "bedrock",
            "us-east-1",
        ),
        (
            "vpce-0a1b2c-3d4e-us-east-1a.bedrock-runtime.us-east-1.vpce.amazonaws.com",
            "bedrock",
            "us-east-1",
        ),
        ("abc123.execute-api.us-east-1.amazonaws.com", None, "us-east-1"),
        ("sts.amazonaws.com", None, None),
        ("amazonaws.com", None, None),
        ("bedrock-runtime.us-east-1.amazonaws.com.example", None, None),
        ("bedrock-runtime.us-east-1.evilamazonaws.com", None, None),
        ("bedrock-runtime.internal.example", None, None),
        ("127.0.0.1:9", None, None),
        ("[::1]:9", None, None),
    ],
)
def test_what_a_host_tells(host, service, region) -> None:
    assert endpoint_of(f"https://{host}/x") == Endpoint(service, region)


def test_a_socket_tells_nothing() -> None:
    assert endpoint_of("unix:/run/x") == Endpoint(None, None)


def test_the_signing_names_are_botocores() -> None:
    import botocore.loaders

    loader = botocore.loaders.Loader()
    known = {}
    for service in loader.list_available_services("service-2"):
        if service.startswith(("bedrock", "sagemaker-runtime")):
            metadata = loader.load_service_model(service, "service-2")["metadata"]
            name = metadata.get("signingName", metadata["endpointPrefix"])
            known[metadata["endpointPrefix"]] = name
    ours = {host: name for host, name in aws._SERVICES.items() if host in known}
    assert ours == {host: known[host] for host in ours}
    assert {"bedrock-runtime", "bedrock-agent-runtime", "runtime.sagemaker"} <= set(ours)


def test_the_host_is_enough(load_text) -> None:
    sign = load_text(HEAD.format(RUNTIME) + "    sign: {aws: {}}\n").providers["a"].sign
    assert (sign.aws.service, sign.aws.region, sign.aws.profile) == ("bedrock", "us-east-1", None)


@pytest.mark.parametrize("text", ["", "    sign:\n", "    sign: {}\n", "    sign: {aws: null}\n"])
def test_nothing_is_signed_unless_asked(load_text, text) -> None:
    assert load_text(HEAD.format(RUNTIME) + text).providers["a"].sign.aws is None


def test_what_is_said_goes_before_the_host(load_text) -> None:
    text = "    sign: {aws: {service: execute-api, region: eu-west-1}}\n"
    config = load_text(HEAD.format(RUNTIME) + text)
    sign = config.providers["a"].sign.aws
    assert (sign.service, sign.region) == ("execute-api", "eu-west-1")
    (warning,) = config.warnings
    assert "providers.a.sign.aws.region: the upstream's host says us-east-1" in warning


def test_elsewhere_it_has_to_be_said(load_text, problems_of) -> None:
    head = HEAD.format("https://proxy.example")
    where = "breakers.yaml:4: providers.a.sign.aws"
    what = "is needed: the upstream's host does not tell it"
    assert problems_of(head + "    sign: {aws: {}}\n") == [
        f'{where}: "service" {what}; such as bedrock',
        f'{where}: "region" {what}; such as us-east-1',
    ]
    load_text(head + "    sign: {aws: {service: bedrock, region: us-east-1}}\n")


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("sign: {aws: {servise: bedrock}}", "sign.aws.servise", 'did you mean "service"?'),
        ("sign: {gcp: {}}", "sign.gcp", "unknown key"),
        ("sign: aws", "sign", "a mapping is needed"),
        ("sign: {aws: true}", "sign.aws", "a mapping is needed"),
        ("sign: {aws: {region: US East}}", "sign.aws.region", "must match"),
        ("sign: {aws: {region: us-east-1/x}}", "sign.aws.region", "must match"),
        ("sign: {aws: {service: s3}}", "sign.aws.service", "a way of its own"),
        ("sign: {aws: {service: s3express}}", "sign.aws.service", "a way of its own"),
        ("sign: {aws: {profile: none-such}}", "sign.aws.profile", "no such profile"),
        (
            "sign: {aws: {}}\nset_headers: {Authorization: {value: x}}",
            "set_headers.Authorization",
            "the signature (sign.aws) sets this header",
        ),
        (
            "sign: {aws: {}}\nset_headers: {x-amz-date: {value: x}}",
            "set_headers.x-amz-date",
            "the signature (sign.aws) sets this header",
        ),
        ("sign: {aws: {}}\nupstream2: x", "upstream2", 'did you mean "upstream"?'),
    ],
)
def test_problems(problems_of, text, path, said) -> None:
    indented = text.replace("\n", "\n    ")
    (line,) = problems_of(f"{HEAD.format(RUNTIME)}    {indented}\n")
    assert f": providers.a.{path}: " in line
    assert said in line
    assert line.startswith("breakers.yaml:")


def test_only_under_a_provider(problems_of) -> None:
    (line,) = problems_of(HEAD.format(RUNTIME) + "defaults: {sign: {aws: {}}}\n")
    assert 'defaults.sign: unknown key; it belongs under "providers.NAME"' in line


def test_without_the_extra(problems_of, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (line,) = problems_of(HEAD.format(RUNTIME) + "    sign: {aws: {profile: x}}\n")
    assert line.startswith("breakers.yaml:4: providers.a.sign.aws: ")
    assert line.endswith("botocore, which is not installed; pip install 'breaker-sidecar[aws]'")


def test_a_profile_that_is_there(load_text, problems_of, shared_files) -> None:
    text = HEAD.format(RUNTIME) + "    sign: {aws: {profile: work}}\n"
    (shared_files / "config").write_text("[profile work]\nregion = eu-west-1\n")
    assert load_text(text).providers["a"].sign.aws.profile == "work"
    (shared_files / "config").write_text("[profile work\n")
    (line,) = problems_of(text)
    assert "providers.a.sign.aws.profile: the shared files of AWS cannot be read" in line


def test_a_variable_that_is_not_set_disables_the_provider(load_text) -> None:
    text = HEAD.format("https://proxy.example")
    other = "  b: {upstream: https://b.example}\n"
    config = load_text(text + "    sign: {aws: {service: bedrock, region: '${REGION}'}}\n" + other)
    assert config.disabled == {"a": "REGION is not set"}


def test_the_effective_configuration_shows_what_is_signed(load_text) -> None:
    config = load_text(HEAD.format(RUNTIME) + "    sign: {aws: {}}\n")
    shown = config.redacted()
    assert shown["providers"]["a"]["sign"] == {
        "aws": {"service": "bedrock", "region": "us-east-1", "profile": None}
    }
    again = load_text(msgspec.yaml.encode(shown).decode())
    assert (again.redacted(), again.hash) == (shown, config.hash)
    assert config.hash != load_text(HEAD.format(RUNTIME)).hash


def test_who_signs_nothing_loads_nothing() -> None:
    code = "import sys, sidecar.daemon; assert not {'boto3', 'botocore'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
