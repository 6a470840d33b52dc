"""The codes that mean the same whoever sends them, as rules that dialects share.

Only machine codes stand here, and only those whose meaning nobody contradicts; where one provider
means something else by a word, its own dialect says so in a rule before these. No phrases: a word
list over the prose of all providers would be wrong for some of them.
"""

from __future__ import annotations

from sidecar.envelope.dialects.rule import FIVE, FOUR, TWO, Rule, statuses, words
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.model import ErrorClass, Verdict

VALIDATION = ErrorClass.VALIDATION
AUTHENTICATION = ErrorClass.AUTHENTICATION
RATE_LIMIT = ErrorClass.RATE_LIMIT
TRANSIENT = ErrorClass.TRANSIENT
PERMANENT = ErrorClass.PERMANENT

_THROTTLE_WORDS = words(
    "rate_limit_exceeded rate_limit_error rate_limit rate_limited ratelimited"
    " rate_limit_reached rate_limit_reached_error ratelimitreached ratelimitexceeded"
    " ratelimiterror slow_down slowdown too_many_requests toomanyrequests toomanyrequestsexception"
    " requests_limit_exceeded tokens_limit_exceeded request_rate_limit_exceeded"
    " throttling_error throttled throttlingexception quota_exceeded_per_minute over_query_limit"
)

BUDGETS = (
    Rule(
        name="credit is spent",
        why="only whoever pays can mend it",
        codes=words(
            "credit_balance_exhausted credits_exhausted insufficient_balance"
            " insufficient_credits insufficient_credit insufficient_balance_error"
            " out_of_credits out_of_credit no_credits insufficient_user_quota arrearage"
            " balance_not_enough insufficient_account_balance exhausted_balance no_more_credits"
            " accountoverdueerror serviceoverdue"
        ),
        class_=PERMANENT,
        code="credits_exhausted",
    ),
    Rule(
        name="a spend limit is reached",
        why="only whoever set the cap can mend it",
        codes=words(
            "organization_spend_limit_exceeded project_spend_limit_exceeded"
            " spend_limit_exceeded organization_usage_limit_exceeded spend_limit_reached"
            " spending_limit_exceeded spending_limit_reached billing_hard_limit_reached"
            " budget_exceeded budget_limit_exceeded enforced_spend_limit_reached"
            " contract_spend_limit_reached workspace_spend_limit_reached"
            " linked_organization_spend_limit_reached api_key_budget_exceeded"
            " team_budget_exceeded"
        ),
        class_=PERMANENT,
        code="spend_limit_reached",
    ),
    Rule(
        name="the window of a plan is spent",
        why="time or a larger plan mends it, no repetition does",
        codes=words(
            "usage_limit_reached plan_window_exhausted daily_limit_exceeded"
            " dailylimitexceeded monthly_limit_exceeded weekly_limit_exceeded"
            " free_quota_exceeded daily_quota_exceeded weekly_quota_exceeded"
            " monthly_quota_exceeded usage_capped"
        ),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="the request exceeds its budget",
        why="this one request costs too much; a smaller one may pass",
        codes=words("weight_exceeds_budget request_over_budget"),
        class_=PERMANENT,
        code="request_over_budget",
    ),
    Rule(
        name="the quota is spent",
        why="money or allowance is gone and the source does not say which",
        codes=words(
            "insufficient_quota quota_exhausted billing_not_active billing_error"
            " payment_required payment_required_error exceeded_current_quota_error"
            " token_quota_reached linked_organization_billing_unavailable"
        ),
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="a quota word beside a refusal or inside a success",
        why="there a quota is money or an allowance, neither a rate nor a permission",
        codes=words("quota_exceeded quotaexceeded over_daily_limit"),
        statuses=TWO | statuses(401, 402, 403),
        class_=PERMANENT,
        code="quota_exhausted",
    ),
)

CONTENT = (
    Rule(
        name="no such model",
        why="a typo, a retired model or one outside the plan: no repetition finds it",
        codes=words(
            "model_not_found model_not_available model_decommissioned model_deprecated"
            " invalid_model invalid_model_error deploymentnotfound deployment_not_found"
            " model_not_exist model_not_exists modelnotfound model_not_found_error"
            " modelnotfounderror unknown_model model_terminated model_does_not_exist"
            " unsupported_model model_unavailable_in_plan"
        ),
        class_=PERMANENT,
        code="model_not_found",
    ),
    Rule(
        name="the context is too long",
        why="the same prompt will never fit",
        codes=words(
            "context_length_exceeded exceed_context_size_error context_window_exceeded"
            " contextwindowexceedederror context_size_exceeded context_too_long"
            " prompt_too_long max_context_length_exceeded context_limit_exceeded"
            " model_max_prompt_tokens_exceeded"
        ),
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
    Rule(
        name="the content was blocked",
        why="a policy refused this content; it will refuse it again",
        codes=words(
            "content_filter content_filtered content_policy_violation"
            " responsibleaipolicyviolation contentpolicyviolationerror"
            " image_content_policy_violation moderation_blocked content_moderation_failed"
            " content_blocked data_inspection_failed contentfilter content_filter_blocked"
            " safety_violation content_policy"
        ),
        class_=VALIDATION,
        code="content_filtered",
        when=lambda evidence: evidence.status != 200 or "choices" not in evidence.error,
    ),
)

#: What names a credential or an account that no refresh mends; a sentence says nothing better.
REFUSED_CREDENTIALS = words(
    "invalid_api_key incorrect_api_key invalid_key api_key_invalid"
    " invalid_authentication invalid_authentication_error expired_key"
    " expired_api_key api_key_expired token_not_found_in_db"
    " key_model_access_denied account_deactivated account_suspended"
    " account_disabled organization_restricted organization_disabled"
    " organization_deactivated organization_on_hold cmek_key_disabled"
    " access_terminated deactivated_workspace invalid_organization"
    " mismatched_organization mismatched_project usage_not_included"
    " unsupported_country_region_territory ip_not_authorized insufficient_scope"
    " insufficient_permissions missing_scope api_key_scope_missing"
    " claude_code_key_creator_not_member no_api_key_provided missing_api_key"
    " invalid_apikey subscription_token_invalid subscription_token_missing"
)

CREDENTIALS = (
    Rule(
        name="the token has expired",
        why="a credential that can be renewed: one refresh mends it",
        codes=words(
            "token_expired access_token_expired expired_access_token jwt_expired"
            " id_token_expired expiredtoken expiredtokenexception access_token_has_expired"
            " authentication_token_expired keymanagement.service.access_token_expired"
        ),
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="a bearer token has expired",
        why="RFC 6750: invalid_token, and the description says expired",
        codes=words("invalid_token"),
        when=lambda evidence: "expired" in _told(evidence) and "revoked" not in _told(evidence),
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="the credential is refused",
        why="the source names the credential or the account, whatever the status says",
        codes=REFUSED_CREDENTIALS,
        class_=AUTHENTICATION,
    ),
    Rule(
        name="a class of credential errors under another status",
        why="the kind of error is stated, the status is a gateway's",
        codes=words(
            "authentication_error authenticationerror unauthorized unauthenticated"
            " permission_error permission_denied permissiondeniederror"
            " permission_denied_error access_denied forbidden invalid_token"
            " invalid_credentials request_denied"
        ),
        statuses=TWO | FIVE | statuses(400, 401, 403, 407),
        class_=AUTHENTICATION,
    ),
)


def _told(evidence: Evidence) -> str:
    return f"{evidence.text} {evidence.challenge.get('error_description', '').lower()}"


THROTTLES = (
    Rule(
        name="one request larger than the whole limit",
        why="waiting cannot help: it will never fit into the bucket",
        codes=_THROTTLE_WORDS,
        statuses=statuses(413),
        class_=PERMANENT,
    ),
    Rule(
        name="throttled",
        why="the source names a rate limit, whatever the status says",
        codes=_THROTTLE_WORDS,
        class_=RATE_LIMIT,
    ),
)

_OVERLOAD_WORDS = words(
    "overloaded overloaded_error server_is_overloaded server_overloaded engine_overloaded"
    " engine_overloaded_error provider_overloaded capacity_exceeded service_overload"
    " service_tier_capacity_exceeded model_overloaded resource_overloaded"
    " insufficient_system_resource"
)

OVERLOADS = (
    Rule(
        name="refused for lack of capacity",
        why="the source paces its callers: a throttle, not an outage",
        codes=_OVERLOAD_WORDS,
        statuses=statuses(429, 498),
        class_=RATE_LIMIT,
        code="overloaded",
    ),
    Rule(
        name="overloaded under a client's status",
        why="passing, whatever the status says; the status keeps it from being counted",
        codes=_OVERLOAD_WORDS,
        statuses=FOUR,
        class_=TRANSIENT,
        code="overloaded",
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="overloaded",
        why="the server is up and cannot serve",
        codes=_OVERLOAD_WORDS,
        class_=TRANSIENT,
        code="overloaded",
        verdict=Verdict.FAILURE,
    ),
    Rule(
        name="the model is still loading",
        why="a cold start is no outage",
        codes=words("model_loading model_is_loading modelnotreadyexception model_not_ready"),
        class_=TRANSIENT,
        code="model_loading",
        verdict=Verdict.ALIVE,
    ),
)

_SERVER_WORDS = words(
    "server_error api_error internal_error internal_server_error internalservererror"
    " internalserverexception internal_failure service_unavailable service_unavailable_error"
    " serviceunavailable serviceunavailableexception timeout timeout_error gateway_timeout"
    " request_timeout bad_gateway provider_unavailable upstream_error vector_store_timeout"
    " stream_error temporarily_unavailable backend_error backenderror apiconnectionerror"
)

_REQUEST_WORDS = words(
    "invalid_request_error invalid_request badrequesterror bad_request validation_error"
    " validationerror invalid_argument invalid_prompt bad_request_error unprocessable_entity"
    " unprocessableentityerror invalid_parameter missing_required_parameter invalid_value"
    " invalid_parameter_value"
    " tool_use_failed tool_call_invalid unsupported_parameter unsupported_value"
    " string_above_max_length invalid_image invalid_image_format invalid_base64_image"
    " invalid_image_url image_too_large image_too_small image_parse_error invalid_image_mode"
    " image_file_too_large unsupported_image_media_type empty_image_file"
    " failed_to_download_image image_file_not_found json_validate_failed"
    " request_body_encoding_invalid"
)

#: Words for the mere kind of an error, beside which a sentence may still say more.
KIND_WORDS = _SERVER_WORDS | words(
    "invalid_request_error invalid_request badrequesterror bad_request validation_error"
    " validationerror valueerror invalid_argument bad_request_error unprocessable_entity"
    " unprocessableentityerror not_found_error not_found notfounderror resource_not_found"
    " object error"
)

KINDS = (
    Rule(
        name="a bad request under a server's status",
        why="the body says that the request is at fault; a typo dressed as an outage",
        codes=_REQUEST_WORDS,
        statuses=FIVE,
        when=lambda evidence: not evidence.words.keys() & _SERVER_WORDS and evidence.status != 501,
        class_=VALIDATION,
    ),
    Rule(
        name="a bad request inside a success",
        why="the body says that the request is at fault",
        codes=_REQUEST_WORDS,
        statuses=TWO,
        when=lambda evidence: not evidence.words.keys() & _SERVER_WORDS,
        class_=VALIDATION,
    ),
    Rule(
        name="not found inside a success or under a server's status",
        why="the body says that nothing is there; no repetition finds it",
        codes=words("not_found_error not_found notfounderror resource_not_found"),
        statuses=TWO | FIVE,
        class_=PERMANENT,
    ),
    Rule(
        name="too large inside a success or under a server's status",
        why="the same request will never fit",
        codes=words("request_too_large payload_too_large"),
        statuses=TWO | FIVE,
        class_=PERMANENT,
    ),
    Rule(
        name="a server error inside a success",
        why="the call failed with a server's fault, whatever the status says",
        codes=_SERVER_WORDS,
        statuses=TWO,
        class_=TRANSIENT,
    ),
)

#: In this order: what nobody can repeat away first, the mere kind of an error last.
COMMON = BUDGETS + CONTENT + CREDENTIALS + THROTTLES + OVERLOADS + KINDS

#: For APIs that serve no models: what they call a model is a table, a product or a car.
TOOL_COMMON = BUDGETS + CREDENTIALS + THROTTLES + OVERLOADS + KINDS
