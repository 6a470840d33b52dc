"""Polling a failed job opens nothing: what is merely told of is a good answer.

And its counterpart: whoever asks for an answer and gets one that failed has met a failure.
"""

import json

import pytest

from sidecar.envelope.dialects import get
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.model import Seen
from sidecar.envelope.stream import StreamReader
from tests.cases import NOW

FAILED = {"code": "server_error", "message": "The model failed."}
GOOGLE = {"code": 13, "message": "The job failed.", "status": "INTERNAL"}
RESPONSE = {"id": "resp_1", "object": "response", "status": "failed", "error": FAILED, "output": []}

RETRIEVALS = [
    ("openai", "GET", "/v1/responses/resp_1", RESPONSE),
    ("openai", "POST", "/v1/responses/resp_1/cancel", RESPONSE),
    ("azure-openai", "GET", "/openai/v1/responses/resp_1", RESPONSE),
    ("openai-compatible", "GET", "/v1/responses/resp_1", RESPONSE),
    ("auto", "GET", "/v1/responses/resp_1", RESPONSE),
    ("openai", "GET", "/v1/batches/batch_1",
     {"id": "batch_1", "object": "batch", "status": "failed",
      "errors": {"object": "list", "data": [{"code": "invalid_json_line", "message": "M"}]}}),
    ("openai", "GET", "/v1/fine_tuning/jobs/ftjob-1",
     {"id": "ftjob-1", "object": "fine_tuning.job", "status": "failed",
      "error": {"code": "invalid_training_file", "message": "M", "param": "training_file"}}),
    ("openai", "GET", "/v1/fine_tuning/jobs",
     {"object": "list", "data": [{"id": "ftjob-1", "status": "failed", "error": FAILED}]}),
    ("openai", "GET", "/v1/threads/t/runs/run_1",
     {"id": "run_1", "object": "thread.run", "status": "failed", "last_error": FAILED}),
    ("openai", "GET", "/v1/vector_stores/vs/files/file_1",
     {"id": "file_1", "object": "vector_store.file", "status": "failed", "last_error": FAILED}),
    ("openai", "GET", "/v1/evals/e/runs/r",
     {"id": "r", "object": "eval.run", "status": "failed", "error": FAILED}),
    ("openai", "GET", "/v1/videos/video_1",
     {"id": "video_1", "object": "video", "status": "failed", "error": FAILED}),
    ("anthropic", "GET", "/v1/messages/batches/msgbatch_1",
     {"id": "msgbatch_1", "type": "message_batch", "processing_status": "ended",
      "request_counts": {"errored": 3, "succeeded": 0}}),
    ("gemini", "GET", "/v1beta/models/veo-x/operations/op1",
     {"name": "models/veo-x/operations/op1", "done": True, "error": GOOGLE}),
    ("gemini", "GET", "/v1beta/batches/b1",
     {"name": "batches/b1", "metadata": {"state": "BATCH_STATE_FAILED"}, "done": True,
      "error": GOOGLE}),
    ("gemini", "GET", "/v1beta/interactions/i1",
     {"id": "i1", "status": "failed", "errors": [{"code": "server_error", "message": "M"}]}),
    ("gemini", "GET", "/v1beta/files/f1",
     {"name": "files/f1", "state": "FAILED", "error": GOOGLE}),
    ("gemini", "GET", "/v1beta/tunedModels/t1",
     {"name": "tunedModels/t1", "state": "FAILED", "error": GOOGLE}),
    ("vertex", "GET", "/v1/projects/p/locations/l/batchPredictionJobs/1",
     {"name": "projects/p/locations/l/batchPredictionJobs/1", "state": "JOB_STATE_FAILED",
      "error": GOOGLE}),
    ("vertex", "POST", "/v1/projects/p/locations/l/publishers/google/models/veo-x:fetchPredictOperation",
     {"name": "projects/p/locations/l/operations/1", "done": True, "error": GOOGLE}),
    ("bedrock", "GET", "/model-invocation-job/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ajob%2Fx",
     {"jobArn": "arn:aws:bedrock:us-east-1:1:job/x", "status": "Failed", "message": "It failed."}),
    ("bedrock", "GET", "/model-customization-jobs/j",
     {"jobArn": "arn:aws:bedrock:us-east-1:1:job/x", "status": "Failed", "failureMessage": "M"}),
    ("bedrock", "GET", "/async-invoke/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Aasync-invoke%2Fx",
     {"invocationArn": "a", "status": "Failed", "failureMessage": "M"}),
    ("cohere", "GET", "/v1/embed-jobs/j", {"job_id": "j", "status": "failed", "error": "M"}),
    ("cohere", "GET", "/v1/finetuning/finetuned-models/m",
     {"finetuned_model": {"id": "m", "status": "STATUS_FAILED"}, "error": None}),
    ("mistral", "GET", "/v1/batch/jobs/j",
     {"id": "j", "object": "batch", "status": "FAILED", "errors": [{"message": "M", "count": 1}]}),
    ("huggingface", "GET", "/api/jobs/me/j", {"id": "j", "status": {"stage": "ERROR", "message": "M"}}),
]  # fmt: skip


def seen(method, path, body, kind="application/json"):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Seen(
        status=200,
        headers=Headers([("content-type", kind)]),
        body=raw,
        method=method,
        path=path,
        now=NOW,
    )


@pytest.mark.parametrize(("dialect", "method", "path", "body"), RETRIEVALS)
def test_a_stored_failure_is_a_good_answer(dialect, method, path, body):
    classified = classify(seen(method, path, body), get(dialect))
    assert (classified.envelope, str(classified.verdict)) == (None, "success"), classified.rule


@pytest.mark.parametrize(
    ("dialect", "path", "body", "class_", "code"),
    [
        ("openai", "/v1/responses", RESPONSE, "transient", "server_error"),
        ("azure-openai", "/openai/v1/responses", RESPONSE, "transient", "server_error"),
        ("openai-compatible", "/v1/responses", RESPONSE, "transient", "server_error"),
        ("auto", "/v1/responses", RESPONSE, "transient", "server_error"),
        ("openai", "/v1/responses",
         {**RESPONSE, "error": {"code": "rate_limit_exceeded", "message": "M"}},
         "rate_limit", "rate_limit_exceeded"),
        ("openai", "/v1/responses",
         {**RESPONSE, "error": {"code": "invalid_prompt", "message": "M"}},
         "validation", "invalid_prompt"),
        # It failed and does not say why.
        ("openai", "/v1/responses", {**RESPONSE, "error": None}, "transient", "200"),
        ("gemini", "/v1beta/interactions",
         {"id": "i", "status": "failed", "errors": [{"code": "quota_exceeded", "message": "M"}]},
         "permanent", "quota_exhausted"),
        ("gemini", "/v1beta/interactions", {"id": "i", "status": "failed"}, "transient", "200"),
        ("cohere", "/v2/chat", {"id": "c", "finish_reason": "ERROR", "message": {"content": []}},
         "transient", "stream_error"),
        ("cohere", "/v2/chat", {"id": "c", "finish_reason": "TIMEOUT", "message": {}},
         "transient", "TIMEOUT"),
    ],
)  # fmt: skip
def test_an_answer_that_failed_is_a_failure(dialect, path, body, class_, code):
    classified = classify(seen("POST", path, body), get(dialect))
    assert classified.envelope is not None, classified.rule
    assert (str(classified.envelope.class_), classified.envelope.code) == (class_, code)


@pytest.mark.parametrize(
    ("dialect", "path", "body"),
    [
        ("openai", "/v1/responses", {**RESPONSE, "status": "incomplete", "error": None}),
        ("openai", "/v1/responses", {**RESPONSE, "status": "queued", "error": None}),
        ("openai", "/v1/responses",
         {**RESPONSE, "status": "completed", "error": None, "output": [{"text": '"failed"'}]}),
        ("gemini", "/v1beta/interactions", {"id": "i", "status": "completed", "outputs": [
            {"text": 'it is "failed"'}]}),
        ("cohere", "/v2/chat", {"finish_reason": "COMPLETE", "message": {"content": [
            {"type": "text", "text": 'the word "ERROR" and "error"'}]}}),
        ("cohere", "/v2/chat", {"finish_reason": "MAX_TOKENS", "message": {}}),
        ("cohere", "/v1/chat", {"finish_reason": "ERROR_LIMIT", "text": "Hi"}),
    ],
)  # fmt: skip
def test_an_answer_that_merely_says_so_is_good(dialect, path, body):
    classified = classify(seen("POST", path, body), get(dialect))
    assert (classified.envelope, str(classified.verdict)) == (None, "success"), classified.rule


def stream(method, path, body, kind="text/event-stream", dialect="openai"):
    reader = StreamReader(get(dialect), seen(method, path, b"", kind))
    reader.feed(body)
    return reader.finish(clean=True)


def test_a_failed_response_is_read_again_as_a_stream():
    """Its events come once more with `?stream=true`; the failure was counted when it happened."""
    event = {"type": "response.failed", "response": RESPONSE, "sequence_number": 7}
    body = b"event: response.failed\ndata: " + json.dumps(event).encode() + b"\n\n"
    again = stream("GET", "/v1/responses/resp_1", body)
    assert (again.envelope, str(again.verdict)) == (None, "success")
    assert stream("POST", "/v1/responses", body).envelope.code == "server_error"
    broken = b'event: error\ndata: {"type":"error","code":"server_error","message":"M"}\n\n'
    assert stream("GET", "/v1/responses/resp_1", broken).envelope.code == "server_error"


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/jsonl", "application/json"])
@pytest.mark.parametrize(
    "line",
    [
        {"id": "batch_req_1", "custom_id": "a", "response": None, "error": FAILED},
        {"custom_id": "a", "result": {"type": "errored", "error": {"type": "error"}}},
        {"key": "a", "error": GOOGLE},
    ],
)
def test_the_results_of_a_batch_are_data(kind, line):
    body = (json.dumps(line) + "\n").encode() * 2
    told = stream("GET", "/v1/files/f/content", body, kind)
    assert (told.envelope, str(told.verdict)) == (None, "success")
    alone = stream("GET", "/v1/files/f/content", b'{"error":{"code":"server_error"}}\n', kind)
    assert alone.envelope.code == "server_error"
