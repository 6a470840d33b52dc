"""Azure's SDKs: core and identity, Storage, Cosmos, Service Bus, Event Hubs, management.

They alone tell a request that was never sent (`ServiceRequestError`) from one that got no answer
(`ServiceResponseError`). A conflict may be final or passing in the very same class: the code tells.
Codes are those of the Storage and Resource Manager references.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sidecar.envelope.fields import as_word
from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks.family import (
    CONFLICT,
    EXPIRED,
    FINAL,
    INVALID,
    NO_ANSWER,
    NO_CREDENTIALS,
    OUTAGE,
    REFUSED,
    SPENT,
    THROTTLE,
    Facts,
    Family,
    because,
    changed,
    classes,
    member,
    named,
    statuses,
    words,
)

_CODES = named(
    (
        "the account or the service paces its callers, under 503 and 409 too",
        THROTTLE,
        """
        ServerBusy TooManyRequests Throttled RequestRateTooLarge
        SubscriptionRequestsThrottled ResourceRequestsThrottled OperationRateExceeded
        SnapshotOperationRateExceeded TooManyIoRequests ResourceCollectionRequestsThrottled
        TenantRequestsThrottled RateLimitExceeded
        """,
    ),
    (
        "another operation is still running: the same request passes later",
        CONFLICT,
        """
        ContainerBeingDeleted ContainerBeingDisabled ShareBeingDeleted QueueBeingDeleted
        TableBeingDeleted QueueDisabled ShareDisabled ResourceBeingDeleted
        AccountBeingCreated DeletePending SharingViolation FileLockConflict
        ClientCacheFlushDelay AnotherOperationInProgress OperationInProgress RetryableError
        ConflictingUserOperation PendingCopyOperation PreviousOperationInProgress
        ReferencedResourceNotProvisioned ResourceOperationInProgress
        StorageAccountOperationInProgress ConcurrentRequest
        """,
    ),
    (
        "no room for the moment; the API works",
        CONFLICT,
        """
        AllocationFailed OverconstrainedAllocationRequest ZonalAllocationFailed
        OverconstrainedZonalAllocationRequest
        """,
    ),
    (
        "the service failed",
        OUTAGE,
        """
        InternalError InternalServerError OperationTimedOut ServerTimeout ServiceUnavailable
        ServerUnavailable GatewayTimeout
        """,
    ),
    ("an access token that can be renewed", EXPIRED, "ExpiredAuthenticationToken"),
    (
        "the caller is not who he says, or may not",
        REFUSED,
        """
        AuthenticationFailed AuthorizationFailed AuthorizationFailure
        InvalidAuthenticationToken InvalidAuthenticationTokenTenant
        InvalidAuthenticationInfo NoAuthenticationInformation InsufficientAccountPermissions
        AccountIsDisabled AuthorizationPermissionMismatch AuthorizationProtocolMismatch
        AuthorizationResourceTypeMismatch AuthorizationServiceMismatch
        AuthorizationSourceIPMismatch SubscriptionNotRegistered DisallowedOperation
        LinkedAuthorizationFailed PublicAccessNotPermitted
        """,
    ),
    (
        "a quota of the subscription: waiting does not raise it",
        SPENT,
        "QuotaExceeded SubscriptionQuotaExceeded ResourceQuotaExceeded",
    ),
    (
        "a condition that the same request will not meet",
        FINAL,
        """
        ConditionNotMet ResourceNotFound ResourceGroupNotFound SubscriptionNotFound
        BlobNotFound ContainerNotFound QueueNotFound TableNotFound EntityAlreadyExists
        BlobAlreadyExists ContainerAlreadyExists SkuNotAvailable
        """,
    ),
)


def _read(raised: Raised, facts: Facts) -> Facts:
    """The code of Storage stands on the exception or in a header, that of ARM in the body."""
    code = facts.code or as_word(raised.attrs.get("error_code"))
    code = code or facts.headers.get("x-ms-error-code")
    code = code or as_word(raised.attrs.get("error.code"))
    body = _error(facts.body)
    if code is None:
        code = as_word(member(body, "error", "code"))
    return changed(
        facts,
        code=code,
        codes=(code.rpartition(".")[2],) if code else (),
        body=body,
        message=facts.message,
        sent=_sent(raised),
    )


def _error(body: Any) -> Any:
    """OData's older form `{"odata.error": {"code", "message": {"value"}}}` in the newer one."""
    older = body.get("odata.error") if isinstance(body, Mapping) else None
    if not isinstance(older, Mapping):
        return body
    told = member(older, "message", "value") or older.get("message")
    return {"error": {"code": older.get("code"), "message": told}}


def _sent(raised: Raised) -> bool | None:
    if raised.is_a(f"{_CORE}.ServiceRequestError"):
        return False
    return True if raised.is_a(f"{_CORE}.ServiceResponseError") else None


_CORE = "azure.core.exceptions"
_BUS = "azure.servicebus.exceptions"
_HUBS = "azure.eventhub.exceptions"

CORE = Family(
    name="azure",
    packages=("azure",),
    sdks=("azure", "azure-core", "azure-storage", "azure-identity", "azure-servicebus"),
    dialect="generic",
    codes=_CODES,
    statuses=statuses(
        _CORE,
        ResourceExistsError=409,
        ResourceNotFoundError=404,
        ClientAuthenticationError=401,
        ResourceModifiedError=412,
        ResourceNotModifiedError=304,
    ),
    classes={
        **classes(
            _CORE,
            ("what came back cannot be read", NO_ANSWER, "DecodeError DeserializationError"),
            ("refused before sending", INVALID, "SerializationError"),
        ),
        f"{_CORE}.IncompleteReadError": None,
        **classes(
            "azure.identity._exceptions",
            (
                "no credential of this machine can be used",
                NO_CREDENTIALS,
                "CredentialUnavailableError AuthenticationRequiredError",
            ),
        ),
        **classes(
            _BUS,
            ("the namespace paces its callers", THROTTLE, "ServiceBusServerBusyError"),
            (
                "the library calls it retryable",
                OUTAGE,
                "OperationTimeoutError ServiceBusCommunicationError ServiceBusConnectionError",
            ),
            ("locked by another receiver for the moment", CONFLICT, "SessionCannotBeLockedError"),
            ("the entity is full", SPENT, "ServiceBusQuotaExceededError"),
            (
                "the caller is not who he says, or may not",
                REFUSED,
                "ServiceBusAuthenticationError ServiceBusAuthorizationError",
            ),
            ("the message is at fault", INVALID, "MessageSizeExceededError"),
            (
                "the lock is lost, or the entity is not there",
                FINAL,
                """
                MessageLockLostError SessionLockLostError MessagingEntityNotFoundError
                MessagingEntityDisabledError MessagingEntityAlreadyExistsError
                MessageNotFoundError MessageAlreadySettled AutoLockRenewFailed
                AutoLockRenewTimeout
                """,
            ),
        ),
        **classes(
            _HUBS,
            (
                "the library calls it retryable",
                OUTAGE,
                "ConnectError ConnectionLostError OperationTimeoutError EventDataSendError",
            ),
            ("the caller is not who he says, or may not", REFUSED, "AuthenticationError"),
            ("the event is at fault", INVALID, "EventDataError"),
            ("another consumer has taken over", FINAL, "OwnershipLostError"),
        ),
    },
    words={
        **words(
            _CORE,
            connection_error="ServiceRequestError",
            connect_timeout="ServiceRequestTimeoutError",
            connection_reset="ServiceResponseError IncompleteReadError",
            read_timeout="ServiceResponseTimeoutError",
            too_many_redirects="TooManyRedirectsError",
            connection_closed="StreamClosedError",
        ),
        **words(_HUBS, connection_closed="ClientClosedError"),
    },
    read=_read,
)


_COSMOS = "azure.cosmos.exceptions"
COSMOS = Family(
    name="azure-cosmos",
    packages=("azure.cosmos",),
    sdks=("azure-cosmos", "cosmos"),
    dialect="generic",
    statuses={
        **statuses(
            _COSMOS,
            CosmosResourceNotFoundError=404,
            CosmosResourceExistsError=409,
            CosmosAccessConditionFailedError=412,
        ),
        **dict(CORE.statuses),
    },
    classes={
        **classes(
            _COSMOS,
            ("a batch holds another operation that failed", FINAL, "CosmosBatchOperationError"),
        ),
        **dict(CORE.classes),
    },
    words={
        **words(_COSMOS, timeout="CosmosClientTimeoutError"),
        **dict(CORE.words),
    },
    by_status={
        449: because(CONFLICT, "two writes met: retry with"),
        410: because(OUTAGE, "the partition has moved; EF Core repeats it, too"),
    },
    read=_read,
)

AZURE = (CORE, COSMOS)
