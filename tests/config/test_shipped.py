"""The shipped file: legal without any variable, complete, and honest about its variables."""

import pytest

from sidecar.config import default_path, load
from sidecar.config.schema import Root
from sidecar.config.suggest import struct_fields

PROVIDERS = {
    "openai": ("https://api.openai.com", {"OPENAI_BASE_URL": "/v1", "OPENAI_API_BASE": "/v1"}),
    "anthropic": ("https://api.anthropic.com", {"ANTHROPIC_BASE_URL": ""}),
    "azure-openai": (
        "https://res.openai.azure.com",
        {"AZURE_OPENAI_ENDPOINT": "", "AZURE_API_BASE": ""},
    ),
    "gemini": ("https://generativelanguage.googleapis.com", {"GOOGLE_GEMINI_BASE_URL": ""}),
    "bedrock": ("https://bedrock-runtime.us-east-1.amazonaws.com", {}),
    "mistral": ("https://api.mistral.ai", {"MISTRAL_BASE_URL": "/v1", "MISTRAL_API_BASE": "/v1"}),
    "cohere": ("https://api.cohere.com", {"CO_API_URL": ""}),
    "groq": ("https://api.groq.com", {"GROQ_BASE_URL": "", "GROQ_API_BASE": "/openai/v1"}),
    "openrouter": ("https://openrouter.ai", {"OPENROUTER_API_BASE": "/api/v1"}),
    "deepseek": ("https://api.deepseek.com", {"DEEPSEEK_API_BASE": "/v1"}),
    "xai": ("https://api.x.ai", {"XAI_API_BASE": "/v1"}),
    "together": (
        "https://api.together.ai",
        {"TOGETHER_BASE_URL": "", "TOGETHER_AI_API_BASE": "/v1"},
    ),
    "fireworks": (
        "https://api.fireworks.ai",
        {"FIREWORKS_BASE_URL": "/inference", "FIREWORKS_API_BASE": "/inference/v1"},
    ),
    "ollama": ("http://localhost:11434", {"OLLAMA_HOST": "", "OLLAMA_API_BASE": ""}),
    "vllm": ("http://localhost:8000", {"HOSTED_VLLM_API_BASE": "/v1"}),
    "github": ("https://api.github.com", {"GITHUB_API_URL": ""}),
    "slack": ("https://slack.com", {}),
    "stripe": ("https://api.stripe.com", {}),
}


@pytest.fixture
def shipped():
    return load(default_path(), environ={"AZURE_OPENAI_RESOURCE": "res"})


def test_all_providers_in_order(shipped):
    found = {name: (one.upstream, dict(one.env)) for name, one in shipped.providers.items()}
    assert found == PROVIDERS
    assert list(found) == list(PROVIDERS)
    assert shipped.warnings == ()


def test_each_speaks_its_own_dialect(shipped):
    assert {name: one.dialect for name, one in shipped.providers.items()} == {
        name: name for name in PROVIDERS
    }


def test_it_is_legal_without_any_variable():
    config = load(default_path(), environ={})
    assert config.disabled == {"azure-openai": "AZURE_OPENAI_RESOURCE is not set"}
    assert len(config.warnings) == 1


def test_it_changes_no_default(shipped, load_text):
    bare = load_text("providers: {openai: {upstream: https://api.openai.com}}").redacted()
    ours = shipped.redacted()
    for key in struct_fields(Root).keys() - {"providers", "defaults"}:
        assert ours[key] == bare[key], key
    for provider in ours["providers"].values():
        for key in bare["providers"]["openai"].keys() - {"upstream", "dialect", "env"}:
            assert provider[key] == bare["providers"]["openai"][key], key


def test_region():
    config = load(default_path(), environ={"AWS_REGION": "eu-central-1"})
    assert (
        config.providers["bedrock"].upstream == "https://bedrock-runtime.eu-central-1.amazonaws.com"
    )


def test_its_comments_are_legal_too(load_text, tmp_path):
    """Taking the `#` away from an example leaves a file that loads."""
    text = default_path().read_text()
    (tmp_path / "key").write_text("k")
    head, private = text.split("  # private:")
    private = private.replace("\n  # ", "\n  ").replace(
        "{ca: /etc/ssl/private-ca.pem,", "{ca: null,"
    )
    private = private.replace("/run/secrets/key", str(tmp_path / "key"))
    for line in ("timeouts: {", "breaker: {"):
        head = head.replace(f"  # {line}", f"  {line}")
    signing = head.index("\n    # sign: {aws")
    end = head.index("\n\n", signing)
    head = head[:signing] + head[signing:end].replace("\n    # ", "\n    ") + head[end:]
    before, rules = head.split("  # rules:")
    rules = rules.replace("\n  #  ", "\n   ")
    config = load_text(f"{before}  rules:{rules}  private:{private}", {})
    assert config.providers["private"].header_values == {"authorization": "Bearer k"}
    assert config.providers["private"].scope == "provider"
    assert config.providers["openai"].rules[0].code == "burst"
    bedrock = config.providers["bedrock"]
    assert (bedrock.sign.aws.service, bedrock.sign.aws.region) == ("bedrock", "us-east-1")
    assert set(bedrock.env) == {"AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "ANTHROPIC_BEDROCK_BASE_URL"}


def test_the_clients_do_read_these_variables(monkeypatch):
    """For the clients that the tests have anyway."""
    import anthropic
    import openai

    base = "http://localhost:7600"
    for name, (_, env) in PROVIDERS.items():
        for variable, path in env.items():
            monkeypatch.setenv(variable, f"{base}/{name}{path}")
    assert str(openai.OpenAI(api_key="k").base_url) == f"{base}/openai/v1/"
    assert str(anthropic.Anthropic(api_key="k").base_url).rstrip("/") == f"{base}/anthropic"
    azure = openai.AzureOpenAI(api_key="k", api_version="1")
    assert str(azure.base_url) == f"{base}/azure-openai/openai/"
