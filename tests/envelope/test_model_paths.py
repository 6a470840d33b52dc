"""The model that a path names, and the routes that ask one."""

import pytest

from sidecar.envelope.dialects import get, guess

ARN = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.vendor.model-v1:0"

MODELS = [
    ("gemini", "/v1beta/models/gemini-x:generateContent", "gemini-x"),
    ("gemini", "/v1beta/models/gemini-x:streamGenerateContent?alt=sse", "gemini-x"),
    ("gemini", "/v1beta/models/gemini-x%3AgenerateContent", "gemini-x"),
    ("gemini", "/v1beta/models/gemini%2Dx:countTokens", "gemini-x"),
    ("gemini", "/v1beta/tunedModels/mine-1:generateContent", "tunedModels/mine-1"),
    ("gemini", "/v1beta/models/gemini-x", "gemini-x"),
    ("gemini", "/v1beta/models", None),
    ("gemini", "/v1beta/interactions", None),
    ("gemini", "/v1beta/openai/chat/completions", None),
    ("gemini", "/v1beta/models/%0A:generateContent", None),
    ("gemini", f"/v1beta/models/{'x' * 201}:generateContent", None),
    ("vertex", "/v1/projects/p/locations/l/publishers/google/models/gemini-x:generateContent",
     "gemini-x"),
    ("vertex", "/v1/projects/p/locations/l/publishers/anthropic/models/claude-x@20260101:rawPredict",
     "claude-x@20260101"),
    ("vertex", "/v1/projects/p/locations/l/endpoints/123:predict", "endpoints/123"),
    ("vertex", "/v1/projects/p/locations/l/endpoints/openapi/chat/completions", None),
    ("vertex", "/v1internal:streamGenerateContent?alt=sse", None),
    ("bedrock", "/model/vendor.model-v1:0/converse", "vendor.model-v1:0"),
    ("bedrock", "/model/vendor.model-v1%3A0/converse-stream", "vendor.model-v1:0"),
    ("bedrock", "/model/vendor.model-v1/invoke-with-response-stream?x=1", "vendor.model-v1"),
    ("bedrock", f"/model/{ARN.replace(':', '%3A').replace('/', '%2F')}/invoke", ARN),
    ("bedrock", f"/model/{ARN}/converse", ARN),
    ("bedrock", "/model/vendor.model-v1/count-tokens", "vendor.model-v1"),
    ("bedrock", "/foundation-models/vendor.model-v1", None),
    ("bedrock", "/openai/v1/chat/completions", None),
    ("bedrock", "/model//converse", None),
    ("cohere", "/v2/chat", None),
    ("huggingface", "/models/org/model", "org/model"),
    ("huggingface", "/models/gpt2", "gpt2"),
    ("huggingface", "/hf-inference/models/org/model/v1/chat/completions", "org/model"),
    ("huggingface", "/hf-inference/models/gpt2/v1/chat/completions", "gpt2"),
    ("huggingface", "/hf-inference/models/org/model/pipeline/feature-extraction", "org/model"),
    ("huggingface", "/pipeline/feature-extraction/org/model", "org/model"),
    ("huggingface", "/api/models/org/model", None),
    ("huggingface", "/generate", None),
    ("huggingface", "/v1/chat/completions", None),
    ("auto", "/v1beta/models/gemini-x:generateContent", "gemini-x"),
    ("auto", "/model/vendor.model-v1/converse", "vendor.model-v1"),
    ("auto", "/v1/models/gpt-x", None),
    ("auto", "/v1/things:search", None),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "path", "model"), MODELS)
def test_the_model_of_a_path(dialect, path, model):
    assert get(dialect).model_of(path) == model


@pytest.mark.parametrize(
    ("dialect", "path", "asks"),
    [
        ("gemini", "/v1beta/models/x:generateContent", True),
        ("gemini", "/v1beta/models/x:embedContent", True),
        ("gemini", "/v1beta/models/x:batchGenerateContent", False),
        ("gemini", "/v1beta/models/x:predictLongRunning", False),
        ("gemini", "/v1beta/interactions", True),
        ("gemini", "/v1beta/interactions/i/cancel", False),
        ("gemini", "/v1beta/openai/chat/completions", True),
        ("gemini", "/v1beta/cachedContents", False),
        ("gemini", "/upload/v1beta/files", False),
        ("vertex", "/v1internal:generateContent", True),
        ("vertex", "/v1/projects/p/locations/l/publishers/anthropic/models/c:streamRawPredict", True),
        ("bedrock", "/model/x/converse", True),
        ("bedrock", "/model/x/invoke-with-response-stream", True),
        ("bedrock", "/v1/messages", True),
        ("bedrock", "/async-invoke", False),
        ("bedrock", "/model-invocation-job", False),
        ("bedrock", "/guardrail-checks/invoke", False),
        ("cohere", "/v2/chat", True),
        ("cohere", "/v1/rerank", True),
        ("cohere", "/v1/embed", True),
        ("cohere", "/v1/embed-jobs", False),
        ("cohere", "/v1/datasets", False),
        ("cohere", "/compatibility/v1/chat/completions", True),
        ("huggingface", "/models/org/model", True),
        ("huggingface", "/generate_stream", True),
        ("huggingface", "/", True),
        ("huggingface", "/api/repos/create", False),
    ],
)  # fmt: skip
def test_the_routes_that_may_be_asked_twice(dialect, path, asks):
    """Asking a model costs and changes nothing else; a job, a file or a repository does."""
    assert get(dialect).is_model_route("POST", path) is asks
    assert get(dialect).repeatable("POST", path) is asks
    assert not get(dialect).is_model_route("GET", path)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("generativelanguage.googleapis.com", "gemini"),
        ("aiplatform.googleapis.com", "vertex"),
        ("us-central1-aiplatform.googleapis.com", "vertex"),
        ("cloudcode-pa.googleapis.com", "vertex"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "bedrock"),
        ("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", "bedrock"),
        ("bedrock.eu-central-1.amazonaws.com", "bedrock"),
        ("bedrock-mantle.us-east-1.api.aws", "bedrock"),
        ("vpce-1-a.bedrock-runtime.us-east-1.vpce.amazonaws.com", "bedrock"),
        ("s3.us-east-1.amazonaws.com", "auto"),
        ("evil-aiplatform.googleapis.com.example", "auto"),
        ("api.cohere.com", "cohere"),
        ("router.huggingface.co", "huggingface"),
        ("x.us-east-1.aws.endpoints.huggingface.cloud", "huggingface"),
    ],
)
def test_hosts(host, name):
    assert guess(host).name == name
