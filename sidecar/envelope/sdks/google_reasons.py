"""What the reasons of Google's APIs mean: the word that is more special than a status.

The older APIs give one in camel case for each error (`errors[].reason`: BigQuery, Storage, Compute,
Workspace), the newer ones one in capitals in an `ErrorInfo` (google/api/error_reason.proto). One
403 is a rate, a spent day, a missing permission or a result that is too large: the reason tells.
"""

from __future__ import annotations

from sidecar.envelope.sdks.family import (
    CONFLICT,
    EXPIRED,
    FINAL,
    INVALID,
    OUTAGE,
    REFUSED,
    SPENT,
    THROTTLE,
    named,
    worded,
)

REASONS = named(
    (
        "a rate, which the clients of these APIs repeat",
        THROTTLE,
        """
        rateLimitExceeded userRateLimitExceeded jobRateLimitExceeded RATE_LIMIT_EXCEEDED
        concurrentLimitExceeded tooManyRequests userRateLimitExceededUnreg
        sharingRateLimitExceeded uploadRateLimitExceeded serviceRateLimitExceeded
        rateLimitExceededUnreg tableDataWriteRateLimitExceeded resourceOperationRateExceeded
        """,
    ),
    ("a quota, and nothing says when it refills", SPENT, "quotaExceeded RESOURCE_QUOTA_EXCEEDED"),
    (
        "the quota of a day",
        worded(FINAL, "plan_window_exhausted"),
        "dailyLimitExceeded dailyLimitExceededUnreg dailyQuotaExceeded",
    ),
    (
        "the server failed: the clients of these APIs repeat it",
        OUTAGE,
        """
        backendError internalError badGateway backendNotConnected
        internalServerError serverError transientError
        """,
    ),
    (
        "not ready, or in use by another call, for the moment",
        CONFLICT,
        """
        resourceNotReady operationInProgress tableUnavailable ZONE_RESOURCE_POOL_EXHAUSTED
        ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS
        """,
    ),
    ("an access token that can be renewed", EXPIRED, "ACCESS_TOKEN_EXPIRED"),
    (
        "the credential, the project or the account is refused",
        REFUSED,
        """
        accessDenied forbidden insufficientPermissions insufficientFilePermissions
        accessNotConfigured accountDisabled accountDeleted accountDisabledForPolicy
        billingNotEnabled blocked domainPolicy ipRefererBlocked keyExpired keyInvalid
        unauthorized proxyAuthenticationRequired accountSuspended API_KEY_INVALID
        API_KEY_EXPIRED API_KEY_NOT_FOUND API_KEY_SERVICE_BLOCKED
        API_KEY_HTTP_REFERRER_BLOCKED API_KEY_IP_ADDRESS_BLOCKED SERVICE_DISABLED
        BILLING_DISABLED USER_PROJECT_DENIED CONSUMER_SUSPENDED CONSUMER_INVALID
        ACCESS_TOKEN_SCOPE_INSUFFICIENT ACCESS_TOKEN_TYPE_UNSUPPORTED CREDENTIALS_MISSING
        ACCOUNT_STATE_INVALID IAM_PERMISSION_DENIED SECURITY_POLICY_VIOLATED
        LOCATION_POLICY_VIOLATED USER_BLOCKED_BY_ADMIN
        """,
    ),
    (
        "the request is at fault",
        INVALID,
        """
        invalid invalidQuery invalidParameter invalidArgument responseTooLarge
        resourcesExceeded required badRequest parseError billingTierLimitExceeded
        resourceInUse resourceInUseByAnotherResource invalidUser invalidValue
        failedPrecondition
        """,
    ),
    (
        "no repetition mends it",
        FINAL,
        """
        notFound duplicate alreadyExists stopped deleted notImplemented conditionNotMet gone
        methodNotAllowed uploadTooLarge
        """,
    ),
)
