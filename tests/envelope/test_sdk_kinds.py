"""Kinds of failures beyond the recorded ones: what each SDK documents, in full and in parts."""

import pytest

from sidecar.envelope.raised import recorded
from sidecar.envelope.sdk import classify
from sidecar.envelope.sdks import FAMILIES, family_of
from tests.cases import NOW

V, A, R, T, P = "validation", "authentication", "rate_limit", "transient", "permanent"
BOTO = {"type": "botocore.exceptions.ClientError"}
OPENAI = {"mro": ["openai.APIStatusError", "openai.APIError", "openai.OpenAIError"]}


def told(error, sdk=None, now=NOW):
    found = classify(recorded(error), sdk=sdk, now=now)
    envelope = found.envelope
    return envelope.class_, envelope.code, envelope.retryable, envelope.retry_after, found.verdict


def boto(code, status=400, **more):
    return {
        **BOTO,
        "code": code,
        "status": status,
        "body": {"Error": {"Code": code, "Message": "x"}},
        **more,
    }


def test_google_keeps_its_answer_in_attributes():
    """As the SDKs name them, where nobody recorded the answer's body."""
    reason = [{"message": "x", "domain": "usageLimits", "reason": "rateLimitExceeded"}]
    forbidden = {"type": "google.api_core.exceptions.Forbidden", "code": 403}
    expected = (R, "rateLimitExceeded", True, None, "throttle")
    assert told({**forbidden, "attrs": {"errors": reason}}) == expected
    details = [
        {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
        },
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "45s"},
    ]
    answer = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}}
    error = {"type": "google.genai.errors.ClientError", "code": 429, "attrs": {"details": answer}}
    assert told(error) == (P, "plan_window_exhausted", False, None, "alive")
    del details[0]
    assert told(error) == (R, "RESOURCE_EXHAUSTED", True, 45, "throttle")


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (
            {"type": "psycopg.errors.SerializationFailure", "sqlstate": "40001"},
            (T, "40001", True, 0, "alive"),
        ),
        (
            {"type": "pymysql.err.IntegrityError", "args": [1062, "Duplicate entry"]},
            (V, "1062", False, None, "alive"),
        ),
        (
            {"type": "psycopg.errors.AdminShutdown", "sqlstate": "57P01", "phase": "commit"},
            (T, "57P01", False, None, "failure"),
        ),
    ],
)
def test_a_driver_behind_an_sdk_tells(cause, expected):
    assert told({"type": "acme.RepositoryError", "message": "x", "cause": cause}) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            {
                "type": "httpx.HTTPStatusError",
                "message": "Server error '500 Internal Server Error' for url 'http://a'",
            },
            (T, "500", True, None, "failure"),
        ),
        (
            {
                "type": "httpx2.HTTPStatusError",
                "message": "Client error '401 Unauthorized' for url 'http://a'",
            },
            (A, "401", False, None, "alive"),
        ),
        (
            {
                "type": "github.GithubException.RateLimitExceededException",
                "body": {"message": "API rate limit exceeded for user ID 1."},
            },
            (R, "RateLimitExceededException", True, None, "throttle"),
        ),
        ({"type": "JSONDecodeError"}, (T, "invalid_upstream_response", True, None, "failure")),
        ({"type": "CancelledError"}, (T, "cancelled", True, None, "neutral")),
        ({"type": "IncompleteRead"}, (T, "stream_truncated", True, None, "failure")),
        ({"type": "SSLCertVerificationError"}, (T, "tls_failure", False, None, "failure")),
    ],
)
def test_a_report_that_knows_little(error, expected):
    assert told(error) == expected


@pytest.mark.parametrize("code", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_no_code(code):
    assert told({"type": "acme.Odd", "code": code}) == (P, "Odd", False, None, "alive")


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("SlowDown", 503, (R, "SlowDown", True, None, "throttle")),
        ("RequestLimitExceeded", 503, (R, "RequestLimitExceeded", True, None, "throttle")),
        ("EC2ThrottledException", 502, (R, "EC2ThrottledException", True, None, "throttle")),
        ("KmsThrottled", 400, (R, "KmsThrottled", True, None, "throttle")),
        ("OverLimit", 403, (R, "OverLimit", True, None, "throttle")),
        ("throttlingException", None, (R, "throttlingException", True, None, "throttle")),
        ("ConcurrentModification", 409, (T, "ConcurrentModification", True, None, "alive")),
        ("RetryableConflictException", 409, (T, "RetryableConflictException", True, None, "alive")),
        ("ResourceConflictException", 409, (P, "ResourceConflictException", False, None, "alive")),
        ("EntityAlreadyExists", 409, (P, "EntityAlreadyExists", False, None, "alive")),
        ("LimitExceeded", 409, (P, "LimitExceeded", False, None, "alive")),
        ("InternalError", 500, (T, "InternalError", True, None, "failure")),
        ("ModelStreamErrorException", 424, (T, "ModelStreamErrorException", True, None, "failure")),
        ("ModelNotReadyException", 429, (T, "model_loading", True, None, "alive")),
        ("ExpiredToken", 400, (A, "token_expired", True, None, "alive")),
        ("InvalidClientTokenId", 403, (A, "InvalidClientTokenId", False, None, "alive")),
        ("AccessDeniedException", 400, (A, "AccessDeniedException", False, None, "alive")),
        ("NotAuthorizedException", 400, (A, "NotAuthorizedException", False, None, "alive")),
        ("NoSuchKey", 404, (P, "NoSuchKey", False, None, "alive")),
        ("404", 404, (P, "404", False, None, "alive")),
        ("403", 403, (A, "403", False, None, "alive")),
        ("AWS.SimpleQueueService.NonExistentQueue", 400, (P, "AWS.SimpleQueueService.NonExistentQueue", False, None, "alive")),
        ("InvalidInstanceID.NotFound", 400, (P, "InvalidInstanceID.NotFound", False, None, "alive")),
        ("Client.RequestLimitExceeded", 503, (R, "RequestLimitExceeded", True, None, "throttle")),
        ("com.amazonaws.dynamodb.v20120810#ThrottlingException", 400, (R, "ThrottlingException", True, None, "throttle")),
        ("ValidationException", 400, (V, "ValidationException", False, None, "alive")),
        ("validationException", None, (V, "validationException", False, None, "alive")),
        ("SomethingNew", 400, (V, "SomethingNew", False, None, "alive")),
        ("BandwidthLimitExceeded", 509, (R, "BandwidthLimitExceeded", True, None, "throttle")),
    ],
)  # fmt: skip
def test_codes_of_aws(code, status, expected):
    assert told(boto(code, status)) == expected
    # With nothing but what a report is likely to give.
    partial = {"code": code} if status is None else {"code": code, "status": status}
    assert told(partial, "boto3") == expected


def test_a_model_behind_bedrock_that_failed():
    error = boto("ModelErrorException", 424)
    assert told(error)[0::4] == (T, "failure")
    error["body"]["originalStatusCode"] = 400
    assert told(error)[:3] == (V, "ModelErrorException", False)
    error["body"]["originalStatusCode"] = 503
    assert told(error)[0::4] == (T, "failure")


def test_a_cancelled_transaction_whose_reasons_stand_in_the_text():
    text = "An error occurred (TransactionCanceledException) when calling the TransactWriteItems operation: Transaction cancelled, please refer cancellation reasons for specific reasons [None, TransactionConflict]"
    assert told({"message": text, "type": "botocore.errorfactory.TransactionCanceledException"})[
        :2
    ] == (T, "TransactionConflict")
    assert told({"message": text, "code": "TransactionCanceledException"}, "boto3")[:2] == (
        T,
        "TransactionConflict",
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("ConnectTimeoutError", (T, "connect_timeout", True, None, "failure")),
        ("ReadTimeoutError", (T, "read_timeout", True, None, "failure")),
        ("ConnectionClosedError", (T, "connection_reset", True, None, "failure")),
        ("EndpointConnectionError", (T, "connection_error", True, None, "failure")),
        ("SSLError", (T, "tls_failure", False, None, "failure")),
        ("IncompleteReadError", (T, "connection_reset", True, None, "failure")),
        ("PartialCredentialsError", (A, "missing_credentials", False, None, "alive")),
        ("UnauthorizedSSOTokenError", (A, "missing_credentials", False, None, "alive")),
        ("NoRegionError", (V, "NoRegionError", False, None, "alive")),
    ],
)
def test_classes_of_botocore(kind, expected):
    error = {"type": f"botocore.exceptions.{kind}", "mro": ["botocore.exceptions.BotoCoreError"]}
    assert told(error) == expected
    assert told({"type": kind}, "boto3-s3") == expected


@pytest.mark.parametrize(
    ("error", "sdk", "expected"),
    [
        (boto("ThrottlingException", 429), "boto3-bedrock", (R, "ThrottlingException", True, None, "throttle")),
        ({**BOTO, "code": "ThrottlingException", "status": 429, "body": {"Error": {"Code": "ThrottlingException", "Message": "Too many tokens per day, please wait before trying again."}}}, "boto3-bedrock", (P, "plan_window_exhausted", False, None, "alive")),
        ({**BOTO, "code": "ValidationException", "status": 400, "body": {"Error": {"Code": "ValidationException", "Message": "Input is too long for requested model."}}}, None, (V, "context_length_exceeded", False, None, "alive")),
        # OpenAI and its kin.
        ({"type": "openai.RateLimitError", **OPENAI, "status": 429, "code": "insufficient_quota", "body": {"message": "You exceeded your current quota", "type": "insufficient_quota", "param": None, "code": "insufficient_quota"}}, "openai", (P, "quota_exhausted", False, None, "alive")),
        ({"type": "openai.NotFoundError", **OPENAI, "status": 404, "code": "model_not_found", "body": {"message": "The model `x` does not exist", "type": "invalid_request_error", "code": "model_not_found"}}, "openai", (P, "model_not_found", False, None, "alive")),
        ({"type": "openai.APIError", "mro": ["openai.OpenAIError"], "body": {"message": "x", "type": "server_error", "code": None}}, "openai", (T, "server_error", True, None, "failure")),
        ({"type": "openai.RateLimitError"}, None, (R, "429", True, None, "throttle")),
        ({"type": "RateLimitError"}, "openai", (R, "429", True, None, "throttle")),
        ({"type": "openai.ConflictError"}, None, (T, "409", True, None, "alive")),
        ({"type": "openai.APITimeoutError", "mro": ["openai.APIConnectionError"]}, None, (T, "timeout", True, None, "failure")),
        ({"type": "openai.APIConnectionError", "message": "Connection error."}, None, (T, "connection_error", True, None, "failure")),
        ({"type": "openai.InvalidWebhookSignatureError", "mro": ["ValueError"]}, None, (V, "signature_verification_failed", False, None, "alive")),
        ({"message": "Error code: 429 - {'error': {'message': 'slow', 'type': 'tokens', 'param': None, 'code': 'rate_limit_exceeded'}}"}, "openai", (R, "rate_limit_exceeded", True, None, "throttle")),
        ({"message": "Error code: 429 - {'error': {'message': 'x', 'type': 'insufficient_quota', 'param': None, 'code': 'insufficient_quota'}}"}, None, (P, "quota_exhausted", False, None, "alive")),
        ({"status": 429}, "anthropic", (R, "429", True, None, "throttle")),
        ({"status": "529", "body": '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'}, "anthropic", (T, "overloaded", True, None, "failure")),
        ({"type": "anthropic.OverloadedError"}, None, (T, "529", True, None, "failure")),
        ({"type": "anthropic.CredentialsError"}, None, (A, "missing_credentials", False, None, "alive")),
        ({"type": "groq.ConflictError", "status": 409}, None, (T, "409", True, None, "alive")),
        ({"type": "groq.GroqError", "message": "The api_key client option must be set either by passing api_key to the client or by setting the GROQ_API_KEY environment variable"}, None, (A, "missing_credentials", False, None, "alive")),
        ({"type": "litellm.exceptions.ContextWindowExceededError", "status": 400}, None, (V, "context_length_exceeded", False, None, "alive")),
        ({"type": "litellm.exceptions.ContentPolicyViolationError", "status": 400}, None, (V, "content_filtered", False, None, "alive")),
        ({"type": "litellm.exceptions.BudgetExceededError"}, None, (P, "spend_limit_reached", False, None, "alive")),
        ({"type": "litellm.types.router.RouterRateLimitError", "mro": ["ValueError"], "attrs": {"cooldown_time": 60}}, None, (R, "RouterRateLimitError", True, 60, "throttle")),
        ({"type": "litellm.exceptions.Timeout", "status": 408}, None, (T, "408", True, None, "failure")),
        # Mistral, Cohere, Hugging Face.
        ({"type": "mistralai.client.errors.responsevalidationerror.ResponseValidationError", "status": 200}, None, (T, "invalid_upstream_response", True, None, "failure")),
        ({"type": "mistralai.models.sdkerror.SDKError", "status": 404, "body": '{"message": "no Route matched"}'}, None, (P, "404", False, None, "alive")),
        ({"type": "cohere.errors.too_many_requests_error.TooManyRequestsError"}, None, (R, "429", True, None, "throttle")),
        ({"type": "cohere.errors.not_implemented_error.NotImplementedError", "status": 501}, None, (P, "501", False, None, "alive")),
        ({"type": "huggingface_hub.errors.RevisionNotFoundError", "status": 404}, None, (P, "RevisionNotFound", False, None, "alive")),
        ({"type": "huggingface_hub.errors.LocalTokenNotFoundError", "mro": ["OSError"]}, None, (A, "missing_credentials", False, None, "alive")),
        ({"type": "huggingface_hub.errors.LocalEntryNotFoundError", "mro": ["FileNotFoundError", "OSError", "huggingface_hub.errors.EntryNotFoundError"], "cause": {"type": "httpx2.ConnectTimeout"}}, None, (T, "connect_timeout", True, None, "failure")),
        ({"type": "huggingface_hub.errors.InferenceTimeoutError", "mro": ["httpx2.HTTPError", "TimeoutError", "OSError"]}, None, (T, "timeout", True, None, "failure")),
        # Google.
        ({"type": "google.api_core.exceptions.Unknown"}, None, (T, "UNKNOWN", True, None, "failure")),
        ({"type": "google.api_core.exceptions.AlreadyExists", "mro": ["google.api_core.exceptions.Conflict"], "status": 409}, None, (P, "ALREADY_EXISTS", False, None, "alive")),
        ({"type": "google.api_core.exceptions.DeadlineExceeded", "mro": ["google.api_core.exceptions.GatewayTimeout"], "status": 504}, None, (T, "DEADLINE_EXCEEDED", True, None, "failure")),
        ({"type": "google.api_core.exceptions.TooManyRequests", "status": 429, "headers": {"retry-after": "9"}}, None, (R, "429", True, 9, "throttle")),
        ({"type": "google.api_core.exceptions.Forbidden", "status": 403, "body": {"errors": [{"reason": "rateLimitExceeded"}]}}, None, (R, "rateLimitExceeded", True, None, "throttle")),
        ({"type": "google.api_core.exceptions.Forbidden", "status": 403, "body": {"error": {"code": 403, "message": "x", "errors": [{"reason": "dailyLimitExceeded"}]}}}, None, (P, "plan_window_exhausted", False, None, "alive")),
        ({"type": "google.api_core.exceptions.Unauthenticated", "mro": ["google.api_core.exceptions.Unauthorized"], "status": 401, "attrs": {"reason": "ACCESS_TOKEN_EXPIRED"}}, None, (A, "token_expired", True, None, "alive")),
        ({"type": "google.auth.exceptions.RefreshError", "args": ["x", {"error": "internal_failure"}], "attrs": {"retryable": True}}, None, (T, "internal_failure", True, None, "failure")),
        ({"type": "google.auth.exceptions.RefreshError", "args": ["invalid_grant: gone", {"error": "invalid_grant"}]}, None, (A, "invalid_grant", False, None, "alive")),
        ({"type": "google.genai.errors.ServerError", "mro": ["google.genai.errors.APIError"], "status": 503, "code": "UNAVAILABLE"}, None, (T, "UNAVAILABLE", True, None, "failure")),
        ({"message": "503 UNAVAILABLE. {'error': {'code': 503, 'message': 'The model is overloaded.', 'status': 'UNAVAILABLE'}}"}, "google-genai", (T, "UNAVAILABLE", True, None, "failure")),
        # gRPC.
        ({"code": 14}, "grpc", (T, "UNAVAILABLE", True, None, "failure")),
        ({"code": "StatusCode.ABORTED"}, "grpc", (T, "ABORTED", True, None, "alive")),
        ({"type": "grpc._channel._InactiveRpcError", "code": "RESOURCE_EXHAUSTED", "message": "Received message larger than max (5000000 vs. 4194304)"}, None, (V, "RESOURCE_EXHAUSTED", False, None, "alive")),
        ({"type": "grpc.aio._call.AioRpcError", "code": "RESOURCE_EXHAUSTED", "message": "Sent message larger than max (5000000 vs. 4194304)"}, None, (V, "RESOURCE_EXHAUSTED", False, None, "alive")),
        ({"type": "grpc._channel._InactiveRpcError", "code": "RESOURCE_EXHAUSTED", "message": "too many messages"}, None, (R, "RESOURCE_EXHAUSTED", True, None, "throttle")),
        ({"type": "google.api_core.exceptions.ResourceExhausted", "message": "Received message larger than max (5000000 vs. 4194304)"}, None, (V, "RESOURCE_EXHAUSTED", False, None, "alive")),
        ({"type": "grpc._channel._InactiveRpcError", "code": "UNAVAILABLE", "headers": {"grpc-retry-pushback-ms": "1500"}}, None, (T, "UNAVAILABLE", True, 1.5, "failure")),
        ({"type": "grpc._channel._InactiveRpcError", "code": "UNAVAILABLE", "headers": {"grpc-retry-pushback-ms": "-1"}}, None, (T, "UNAVAILABLE", False, None, "failure")),
        ({"type": "grpc.FutureTimeoutError"}, None, (T, "timeout", True, None, "failure")),
        ({"message": '<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.NOT_FOUND\n\tdetails = "gone"\n>'}, None, (P, "NOT_FOUND", False, None, "alive")),
        # Azure.
        ({"type": "azure.core.exceptions.ServiceRequestError", "message": "<urllib3.connection.HTTPConnection object>: Failed to establish a new connection: [Errno 111] Connection refused"}, None, (T, "connection_refused", True, None, "failure")),
        ({"type": "azure.core.exceptions.ServiceRequestTimeoutError"}, None, (T, "connect_timeout", True, None, "failure")),
        ({"type": "azure.core.exceptions.HttpResponseError", "status": 401, "code": "ExpiredAuthenticationToken"}, None, (A, "token_expired", True, None, "alive")),
        ({"type": "azure.core.exceptions.HttpResponseError", "status": 429, "headers": {"x-ms-retry-after-ms": "1500"}, "body": {"error": {"code": "SubscriptionRequestsThrottled", "message": "x"}}}, None, (R, "SubscriptionRequestsThrottled", True, 1.5, "throttle")),
        ({"type": "azure.identity._exceptions.CredentialUnavailableError", "mro": ["azure.core.exceptions.ClientAuthenticationError"]}, None, (A, "missing_credentials", False, None, "alive")),
        ({"type": "azure.core.exceptions.IncompleteReadError", "mro": ["azure.core.exceptions.DecodeError", "azure.core.exceptions.HttpResponseError"], "status": 200}, None, (T, "connection_reset", True, None, "failure")),
        ({"type": "azure.core.exceptions.DecodeError", "status": 200}, None, (T, "invalid_upstream_response", True, None, "failure")),
        ({"status": 449}, "azure-cosmos", (T, "449", True, None, "alive")),
        ({"status": 410}, "azure-storage", (P, "410", False, None, "alive")),
        ({"type": "azure.servicebus.exceptions.ServiceBusServerBusyError"}, None, (R, "ServiceBusServerBusyError", True, None, "throttle")),
        # The tools.
        ({"type": "stripe._error.APIError", "status": 409, "body": {"error": {"type": "idempotency_error", "code": "idempotency_key_in_use", "message": "x"}}}, None, (T, "idempotency_key_in_use", True, None, "alive")),
        ({"type": "stripe.error.RateLimitError"}, None, (R, "429", True, None, "throttle")),
        ({"type": "stripe._error.AuthenticationError", "message": "No API key provided. (HINT: set your API key)"}, None, (A, "missing_credentials", False, None, "alive")),
        ({"code": "ratelimited", "status": 429, "headers": {"Retry-After": "30"}}, "slack_sdk", (R, "ratelimited", True, 30, "throttle")),
        ({"code": "token_expired"}, "slack_sdk", (A, "token_expired", True, None, "alive")),
        ({"code": "invalid_auth", "status": 200}, "slack_sdk", (A, "invalid_auth", False, None, "alive")),
        ({"type": "slack_sdk.errors.SlackObjectFormationError"}, None, (V, "SlackObjectFormationError", False, None, "alive")),
        ({"type": "github.GithubException.RateLimitExceededException", "status": 403, "headers": {"x-ratelimit-remaining": "17", "x-ratelimit-reset": str(int(NOW) + 50)}}, None, (R, "403", True, None, "throttle")),
        ({"type": "github.GithubException.BadCredentialsException"}, None, (A, "401", False, None, "alive")),
        ({"code": 20429}, "twilio", (R, "20429", True, None, "throttle")),
        ({"code": "20003"}, "twilio", (A, "20003", False, None, "alive")),
        ({"type": "twilio.base.exceptions.TwilioException", "message": "Credentials are required to create a TwilioClient"}, None, (A, "missing_credentials", False, None, "alive")),
        # Services.
        ({"type": "kubernetes.client.exceptions.ApiException", "status": 0, "attrs": {"reason": "SSLError\n[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"}, "message": "(0)"}, None, (T, "tls_failure", False, None, "failure")),
        ({"type": "kubernetes.client.exceptions.ForbiddenException", "status": 403, "body": '{"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}'}, None, (A, "Forbidden", False, None, "alive")),
        ({"body": {"kind": "Status", "reason": "TooManyRequests", "code": 429, "details": {"retryAfterSeconds": 2}}, "status": 429}, "kubernetes", (R, "TooManyRequests", True, 2, "throttle")),
        ({"type": "opensearchpy.exceptions.ConnectionTimeout"}, None, (T, "timeout", True, None, "failure")),
        ({"type": "elasticsearch.ApiError", "status": 503, "body": {"error": {"type": "search_phase_execution_exception", "reason": "all shards failed", "root_cause": [{"type": "no_shard_available_action_exception"}]}}}, None, (T, "search_phase_execution_exception", True, None, "failure")),
        ({"message": "ApiError(429, 'es_rejected_execution_exception', 'r')"}, None, (R, "es_rejected_execution_exception", True, None, "throttle")),
        ({"type": "elasticsearch.helpers.BulkIndexError", "args": ["2 failed", [{"index": {"status": 400, "error": {"type": "mapper_parsing_exception"}}}, {"index": {"status": 503, "error": {"type": "unavailable_shards_exception"}}}]]}, None, (T, "unavailable_shards_exception", True, None, "failure")),
        ({"type": "qdrant_client.http.exceptions.UnexpectedResponse", "status": 503, "message": "Unexpected Response: 503 (Service Unavailable)"}, None, (T, "503", True, None, "failure")),
        ({"type": "pinecone.exceptions.exceptions.PineconeConfigurationError"}, None, (A, "missing_credentials", False, None, "alive")),
        ({"type": "pinecone.exceptions.exceptions.PineconeApiException", "status": 429, "body": '{"code": 8, "message": "You have reached your write unit limit for the current month (2000000).", "details": []}'}, None, (P, "plan_window_exhausted", False, None, "alive")),
        # Mail and queues.
        ({"type": "smtplib.SMTPResponseException", "mro": ["smtplib.SMTPException", "OSError"], "args": [535, "5.7.8 Username and Password not accepted"]}, None, (A, "535", False, None, "alive")),
        ({"type": "smtplib.SMTPResponseException", "attrs": {"smtp_code": 535, "smtp_error": "x"}}, None, (A, "535", False, None, "alive")),
        ({"type": "SMTPAuthenticationError", "code": 535}, "smtplib", (A, "535", False, None, "alive")),
        ({"type": "smtplib.SMTPResponseException", "message": "(421, b'4.7.0 try again later')"}, None, (T, "421", True, None, "failure")),
        ({"type": "smtplib.SMTPConnectError", "args": [421, "x"]}, None, (T, "421", True, None, "failure")),
        ({"type": "smtplib.SMTPDataError", "args": [450, "x"]}, None, (T, "450", True, None, "alive")),
        ({"type": "smtplib.SMTPDataError", "args": [451, "x"]}, None, (T, "451", True, None, "failure")),
        ({"type": "smtplib.SMTPSenderRefused", "args": [452, "x", "a@example.test"]}, None, (T, "452", True, None, "alive")),
        ({"type": "smtplib.SMTPDataError", "args": [552, "too large"]}, None, (V, "552", False, None, "alive")),
        ({"type": "smtplib.SMTPDataError", "args": [554, "spam"]}, None, (P, "554", False, None, "alive")),
        ({"type": "smtplib.SMTPRecipientsRefused", "args": [{"a@example.test": [450, "later"], "b@example.test": [451, "later"]}]}, None, (T, "451", True, None, "failure")),
        ({"type": "smtplib.SMTPServerDisconnected", "mro": ["smtplib.SMTPException", "OSError"], "message": "Connection unexpectedly closed"}, None, (T, "connection_reset", True, None, "failure")),
        ({"type": "kafka.errors.NoBrokersAvailable", "mro": ["kafka.errors.KafkaError", "RuntimeError"], "message": "NoBrokersAvailable"}, None, (T, "connection_error", True, None, "failure")),
        ({"type": "NoBrokersAvailable"}, "kafka", (T, "connection_error", True, None, "failure")),
        ({"type": "kafka.errors.KafkaTimeoutError"}, None, (T, "timeout", True, None, "failure")),
        ({"type": "aiokafka.errors.TopicAuthorizationFailedError"}, None, (A, "TopicAuthorizationFailedError", False, None, "alive")),
        ({"type": "pika.exceptions.ConnectionClosedByBroker", "mro": ["pika.exceptions.ConnectionClosed", "pika.exceptions.AMQPConnectionError"], "args": [403, "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."]}, None, (A, "ACCESS_REFUSED", False, None, "alive")),
        ({"type": "pika.exceptions.ProbableAuthenticationError", "mro": ["pika.exceptions.AMQPConnectionError"], "message": "ConnectionClosedByBroker: (403) 'ACCESS_REFUSED - Login was refused'"}, None, (A, "ACCESS_REFUSED", False, None, "alive")),
        ({"type": "pika.exceptions.ConnectionClosedByBroker", "args": [320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"]}, None, (T, "CONNECTION_FORCED", True, None, "failure")),
        ({"type": "pika.exceptions.ChannelClosedByBroker", "args": [404, "NOT_FOUND - no queue 'x' in vhost '/'"]}, None, (P, "NOT_FOUND", False, None, "alive")),
        ({"type": "pika.exceptions.AMQPConnectionError"}, None, (T, "connection_error", True, None, "failure")),
        ({"type": "amqp.exceptions.AccessRefused", "message": "(0, 0): (403) ACCESS_REFUSED - Login was refused"}, None, (A, "ACCESS_REFUSED", False, None, "alive")),
        # Plain clients.
        ({"type": "websockets.exceptions.ConnectionClosedError", "message": "received 1008 (policy violation) no; then sent 1008 (policy violation) no"}, None, (P, "1008", False, None, "alive")),
        ({"type": "websockets.exceptions.ConnectionClosedError", "code": 1009}, None, (V, "1009", False, None, "alive")),
        ({"type": "websockets.exceptions.ConnectionClosedError", "code": 1011}, None, (T, "1011", True, None, "failure")),
        ({"type": "websockets.exceptions.ConnectionClosedError", "code": 1013}, None, (T, "1013", True, None, "failure")),
        ({"type": "websockets.exceptions.ConnectionClosedError", "code": 1014}, None, (T, "1014", True, None, "alive")),
        ({"type": "websockets.exceptions.ConnectionClosedError", "code": 4001}, None, (P, "4001", False, None, "alive")),
        ({"type": "websockets.exceptions.ConnectionClosedError", "code": 1006}, None, (T, "connection_reset", True, None, "failure")),
        ({"type": "websockets.exceptions.ConnectionClosedError", "message": "sent 1011 (internal error) keepalive ping timeout; no close frame received"}, None, (T, "connection_reset", True, None, "failure")),
        ({"type": "websockets.exceptions.InvalidStatus", "status": 503}, None, (T, "503", True, None, "failure")),
        ({"type": "TimeoutError", "mro": ["OSError"], "message": "timed out"}, "urllib", (T, "read_timeout", True, None, "failure")),
        ({"type": "TimeoutError", "mro": ["OSError"]}, "aiohttp", (T, "timeout", True, None, "failure")),
        ({"type": "urllib.error.URLError", "mro": ["OSError"], "message": "<urlopen error unknown url type: foo>"}, None, (V, "invalid_url", False, None, "alive")),
        ({"type": "urllib.error.HTTPError", "mro": ["urllib.error.URLError", "OSError"], "code": 302, "message": "HTTP Error 302: infinite loop"}, "urllib", (P, "too_many_redirects", False, None, "alive")),
        ({"type": "urllib.error.HTTPError", "mro": ["urllib.error.URLError", "OSError"], "code": 429, "headers": {"Retry-After": "5"}}, None, (R, "429", True, 5, "throttle")),
        ({"type": "requests.exceptions.RetryError", "message": "HTTPConnectionPool(host='x', port=80): Max retries exceeded with url: / (Caused by ResponseError('too many 503 error responses'))"}, None, (T, "503", True, None, "failure")),
        ({"type": "aiohttp.client_exceptions.TooManyRedirects", "mro": ["aiohttp.client_exceptions.ClientResponseError"], "status": 302}, None, (P, "too_many_redirects", False, None, "alive")),
        ({"type": "aiohttp.client_exceptions.ContentTypeError", "mro": ["aiohttp.client_exceptions.ClientResponseError"], "status": 200}, None, (T, "invalid_upstream_response", True, None, "failure")),
        ({"message": "429 Client Error: Too Many Requests for url: http://x/"}, "requests", (R, "429", True, None, "throttle")),
        # Nobody's.
        ({"status": 503}, None, (T, "503", True, None, "failure")),
        ({"code": "429"}, None, (R, "429", True, None, "throttle")),
        ({"code": 503}, None, (T, "503", True, None, "failure")),
        ({"attrs": {"status_code": 401}}, None, (A, "401", False, None, "alive")),
        ({"code": "UNAVAILABLE"}, None, (T, "UNAVAILABLE", True, None, "failure")),
        ({"code": "ECONNREFUSED"}, None, (T, "connection_refused", True, None, "failure")),
        ({"type": "acme.Error", "status": 400, "code": "THROTTLED"}, None, (R, "THROTTLED", True, None, "throttle")),
        ({"type": "acme.Error", "status": 400, "code": "UNAVAILABLE", "body": {"code": "UNAVAILABLE", "message": "x"}}, None, (V, "UNAVAILABLE", False, None, "alive")),
        ({"type": "acme.Error", "code": "E_WEIRD"}, None, (P, "E_WEIRD", False, None, "alive")),
        ({"type": "acme.TimeoutError"}, None, (P, "TimeoutError", False, None, "alive")),
        ({"message": "request failed with status code 503"}, None, (T, "503", True, None, "failure")),
        ({"type": "acme.Error", "message": "found 404 items"}, None, (P, "Error", False, None, "alive")),
        ({"type": "acme.Error", "status": 429, "headers": {"retry-after": "12"}, "message": "slow"}, None, (R, "429", True, 12, "throttle")),
        ({"type": "acme.Error", "status": 204}, None, (T, "invalid_upstream_response", True, None, "failure")),
        ({"type": "acme.Wrapped", "cause": {"type": "acme.Again", "cause": {"type": "openai.RateLimitError", "status": 429, "headers": {"retry-after": "2"}}}}, None, (R, "429", True, 2, "throttle")),
        ({}, None, (P, "Exception", False, None, "alive")),
    ],
)  # fmt: skip
def test_kinds(error, sdk, expected):
    assert told(error, sdk) == expected


def test_a_member_that_failed_is_graver_than_one_that_is_throttled():
    members = [
        {"type": "openai.AuthenticationError", "status": 401},
        {"type": "openai.RateLimitError", "status": 429, "headers": {"retry-after": "3"}},
        {"type": "asyncio.exceptions.CancelledError"},
    ]
    group = {"type": "ExceptionGroup", "exceptions": members}
    assert told(group)[:2] == (R, "429")
    assert told({"type": "acme.Failed", "cause": group})[:2] == (R, "429")
    members.append({"type": "httpx.ReadTimeout"})
    assert told(group)[:2] == (T, "read_timeout")


def test_whether_it_was_sent():
    for error, sent in (
        ({"type": "azure.core.exceptions.ServiceRequestError"}, False),
        ({"type": "azure.core.exceptions.ServiceResponseError"}, True),
        ({"type": "ConnectionRefusedError"}, False),
        ({"type": "httpx.ReadTimeout"}, True),
        ({"type": "botocore.exceptions.NoCredentialsError"}, None),
        ({"type": "ConnectionResetError"}, None),
    ):
        assert classify(recorded(error)).envelope.raw.get("sent") is sent, error


@pytest.mark.parametrize(
    "error",
    [
        {"type": "openai.APIStatusError", "status": 500, "headers": {"x-request-id": "r-1"}},
        {"type": "openai.APIStatusError", "status": 500, "attrs": {"request_id": "r-1"}},
        {"type": "anthropic.APIStatusError", "status": 500, "body": {"type": "error", "error": {"type": "api_error", "message": "x"}, "request_id": "r-1"}},
        {**BOTO, "code": "InternalError", "status": 500, "attrs": {"request_id": "r-1"}},
        {**BOTO, "body": {"Error": {"Code": "InternalError"}, "ResponseMetadata": {"RequestId": "r-1", "HTTPStatusCode": 500}}},
        {**BOTO, "code": "InternalError", "status": 500, "headers": {"x-amzn-requestid": "r-1"}},
        {"type": "azure.core.exceptions.HttpResponseError", "status": 500, "headers": {"x-ms-request-id": "r-1"}},
        {"type": "stripe._error.APIError", "status": 500, "headers": {"request-id": "r-1"}},
        {"type": "github.GithubException.GithubException", "status": 500, "headers": {"x-github-request-id": "r-1"}},
        {"type": "slack_sdk.errors.SlackApiError", "status": 500, "headers": {"x-slack-req-id": "r-1"}},
        {"type": "twilio.base.exceptions.TwilioRestException", "status": 500, "headers": {"twilio-request-id": "r-1"}},
    ],
)  # fmt: skip
def test_the_id_of_the_provider_is_kept(error):
    assert classify(recorded(error)).envelope.raw["upstream_request_id"] == "r-1"


def test_what_came_through_a_sidecar_is_not_judged_twice():
    told_there = '{"class":"transient","source":"sidecar","code":"breaker_open","message":"open","retryable":true,"retry_after":9.5,"correlation_id":"c"}'
    error = {
        "type": "openai.InternalServerError",
        **OPENAI,
        "status": 503,
        "headers": {"x-error-envelope": told_there, "x-sidecar-decision": "breaker_open"},
    }
    found = classify(recorded(error))
    assert (found.envelope.code, found.envelope.retry_after, found.verdict) == (
        "breaker_open",
        9.5,
        "neutral",
    )
    assert found.envelope.source == "sidecar"

    told_there = '{"class":"permanent","source":"http","code":"model_not_found","message":"no such model","retryable":false,"retry_after":null,"correlation_id":"c"}'
    error["headers"] = {
        "x-error-envelope": told_there,
        "x-sidecar-verdict": "alive",
        "x-sidecar-decision": "forwarded",
    }
    found = classify(recorded(error))
    assert (found.envelope.code, found.envelope.source, found.verdict) == (
        "model_not_found",
        "sdk",
        "alive",
    )


def test_the_wish_not_to_repeat_is_heard_and_the_wish_to_repeat_is_not():
    error = {
        "type": "openai.InternalServerError",
        **OPENAI,
        "status": 500,
        "headers": {"x-should-retry": "false"},
    }
    assert told(error)[:3] == (T, "500", False)
    error = {
        "type": "openai.AuthenticationError",
        **OPENAI,
        "status": 401,
        "headers": {"x-should-retry": "true"},
    }
    assert told(error)[:3] == (A, "401", False)
    error = {"type": "acme.Error", "status": 409, "headers": {"x-should-retry": "true"}}
    assert told(error)[:3] == (T, "409", True)


def test_a_client_that_is_used_for_many_speaks_for_the_one_it_asked():
    error = {
        "type": "openai.APIStatusError",
        "status": 402,
        "body": {
            "message": "Insufficient Balance",
            "type": "unknown_error",
            "code": "invalid_request_error",
        },
    }
    assert told(error)[:2] == (P, "quota_exhausted")
    assert told(error, "deepseek")[:2] == (P, "credits_exhausted")
    assert told({**error, "attrs": {"host": "api.deepseek.com"}})[:2] == (P, "credits_exhausted")
    assert told({**error, "attrs": {"host": "127.0.0.1"}}, "openai")[:2] == (P, "quota_exhausted")
    abuse = {"status": 403, "body": {"message": "You have triggered an abuse detection mechanism."}}
    for more in ({"type": "httpx.HTTPStatusError"}, {"type": "requests.exceptions.HTTPError"}, {}):
        assert told({**abuse, **more}, "github")[0] == R
        assert told({**abuse, **more, "attrs": {"host": "api.github.com"}})[0] == R
        assert told({**abuse, **more})[0] == A


def test_families_do_not_claim_each_others_names():
    seen = {}
    for family in FAMILIES:
        for name in (*family.packages, *(f"sdk:{sdk}" for sdk in family.sdks)):
            assert name not in seen, (name, family.name, seen[name])
            seen[name] = family.name
    assert family_of(recorded({"type": "azure.cosmos.exceptions.X"})).name == "azure-cosmos"
    assert family_of(recorded({"type": "google.cloud.spanner.X"})).name == "google-api-core"
    assert family_of(recorded({"type": "ValueError"}), "boto3-s3").name == "botocore"
    assert family_of(recorded({"type": "ValueError"}), "nobody") is None


def test_three_failures_of_one_request_are_told_apart_by_retryable_and_class():
    """One branch on `retryable`, one on `class`, one id on all three, whatever raised them."""
    from sidecar.envelope import database

    model = {
        "type": "openai.RateLimitError",
        **OPENAI,
        "status": 429,
        "code": "rate_limit_exceeded",
        "headers": {"retry-after": "8"},
        "body": {
            "message": "Rate limit reached",
            "type": "requests",
            "param": None,
            "code": "rate_limit_exceeded",
        },
    }
    carrier = {
        "type": "httpx.HTTPStatusError",
        "mro": ["httpx.HTTPError"],
        "status": 422,
        "body": {
            "errors": [
                {
                    "field": "recipient.postcode",
                    "code": "invalid_format",
                    "message": "is not a postcode of DE",
                }
            ]
        },
        "message": "Client error '422 Unprocessable Entity' for url 'https://api.carrier.example/labels'",
    }
    serialization = {
        "type": "psycopg.errors.SerializationFailure",
        "mro": ["psycopg.OperationalError", "psycopg.DatabaseError", "psycopg.Error"],
        "sqlstate": "40001",
        "message": "could not serialize access due to concurrent update",
    }
    found = [
        classify(recorded(model), sdk="openai", correlation_id="order-7", now=NOW).envelope,
        database.classify(
            recorded(serialization),
            vendor="postgresql",
            driver="psycopg",
            correlation_id="order-7",
            now=NOW,
        ).envelope,
        classify(recorded(carrier), correlation_id="order-7", now=NOW).envelope,
    ]
    again = [envelope for envelope in found if envelope.retryable]
    assert [envelope.retry_after for envelope in again] == [8, 0]
    (bad,) = [envelope for envelope in found if envelope.class_ == "validation"]
    assert "postcode" in bad.message
    assert {envelope.correlation_id for envelope in found} == {"order-7"}
    assert [envelope.source for envelope in found] == ["sdk", "database", "sdk"]
