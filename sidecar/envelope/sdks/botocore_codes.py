"""What the error codes of Amazon's services mean.

The lists are those of botocore's retry modes (`retries/standard.py`, `data/_retry.json`), of the
errors that its service models call retryable, and of the services' common errors. We differ where a
"throttle" of theirs is a conflict of two calls, and where a limit is no rate.
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

#: Codes whose meaning nobody contradicts, whatever the status.
CODES = named(
    (
        "a throttle, on botocore's lists or a service's own",
        THROTTLE,
        """
        ThrottledException Throttled ThrottlingError RequestThrottledException RequestThrottled
        ThrottledRequestException ThrottledClientException TooManyRequestException
        TooManyRequests TooManyRequestsError SlowDown SlowDownException LimitExceededException
        ProvisionedThroughputExceededException ProvisionedThroughputExceeded
        RequestLimitExceeded RequestLimitExceededException BandwidthLimitExceeded
        EC2ThrottledException EKSRequestThrottledException LambdaThrottledException
        KMSThrottlingException KMSThrottling KMSThrottlingFault KmsThrottled
        DependencyThrottle DependentServiceRequestThrottlingFault ClientLimitExceededException
        CallRateLimitExceededException RateLimitExceededException RateLimitError RateExceeded
        VolumeModificationRateExceededException OverLimit
        ReservedFunctionConcurrentInvocationLimitExceeded ConcurrentInvocationLimitExceeded
        FunctionInvocationRateLimitExceeded ReservedFunctionInvocationRateLimitExceeded
        CallerRateLimitExceeded
        """,
    ),
    (
        "two calls met, or one is still running: AWS says to try again",
        CONFLICT,
        """
        TransactionInProgressException TransactionInProgress PriorRequestNotComplete
        TransactionConflictException TransactionConflict ReplicatedWriteConflictException
        RetryableConflictException OperationAborted ConditionalRequestConflict
        ConcurrentModification ConcurrentModificationException ConcurrentUpdateException
        ConcurrentUpdatingException ConcurrentOperationException ConcurrentAccess
        ConcurrentAccessException ResourceConcurrentModificationException
        ConflictingOperationException OperationInProgressException OperationInProgressFailure
        RequestInProgressException UpdateInProgressException IdempotentCallInProgress
        SessionBusyException CancelledByMaintenanceException
        """,
    ),
    (
        "not ready for the moment",
        CONFLICT,
        """
        ResourceNotReadyException SnapStartNotReadyException ENINotReadyException
        NotReadyException StreamSessionAccessNotReadyException StatisticsNotReadyYetException
        WorkUnitsNotReadyYetException
        """,
    ),
    (
        "botocore repeats it as transient; the connection was at fault, not the server",
        CONFLICT,
        "RequestTimeout RequestTimeoutException BadDigest XAmzContentSHA256Mismatch",
    ),
    (
        "no room in this zone for the moment; the API works",
        CONFLICT,
        """
        InsufficientInstanceCapacity InsufficientHostCapacity InsufficientCapacity
        InsufficientCapacityException InsufficientVolumeCapacity InsufficientAddressCapacity
        InsufficientReservedInstanceCapacity InsufficientDBInstanceCapacity
        InsufficientDBInstanceCapacityFault InsufficientDBClusterCapacityFault
        InsufficientStorageClusterCapacity InsufficientStorageClusterCapacityFault
        InsufficientCacheClusterCapacity InsufficientCacheClusterCapacityFault
        InsufficientClusterCapacity InsufficientClusterCapacityFault
        InsufficientThroughputCapacity OutOfCapacityException
        """,
    ),
    ("the model is still loading", worded(CONFLICT, "model_loading"), "ModelNotReadyException"),
    (
        "a fault of the service, whatever status it wore",
        OUTAGE,
        """
        InternalFailure InternalError InternalErrorException InternalException
        InternalServerError InternalServerErrorException InternalServerException
        InternalServiceError InternalServiceErrorException InternalServiceException
        ServiceException ServiceFailure ServiceFailureException ServiceUnavailable
        ServiceUnavailableException ServerException Unavailable IDPCommunicationError
        IDPCommunicationErrorException
        DependencyException DependencyTimeoutException DependencyFailedException
        GatewayTimedOutException DirectoryUnavailableException
        SchemaRegistryUnavailableException KMSInternalException KeyUnavailableException
        """,
    ),
    (
        "a session token that can be renewed",
        EXPIRED,
        "ExpiredToken ExpiredTokenException TokenRefreshRequired",
    ),
    (
        "the caller is not who he says, or may not",
        REFUSED,
        """
        AccessDenied AccessDeniedException AccessDeniedFault AllAccessDisabled AuthFailure
        AuthorizationError AuthorizationErrorException AuthorizationException
        AuthorizationHeaderMalformed ForbiddenException IncompleteSignature
        IncompleteSignatureException InvalidAccessKeyId InvalidClientTokenId
        InvalidIdentityToken InvalidIdentityTokenException InvalidSignatureException
        InvalidSecurity InvalidToken InvalidPayer KMSAccessDeniedException
        MissingAuthenticationToken MissingAuthenticationTokenException MissingSecurityHeader
        NotAuthorized NotAuthorizedException NotSignedUp OptInRequired PendingVerification
        RequestExpired RequestTimeTooSkewed SignatureDoesNotMatch SubscriptionRequiredException
        UnauthenticatedException UnauthorizedException UnauthorizedOperation
        UnauthorizedOperationException UnrecognizedClientException UnauthorizedClientException
        AccountProblem AccountSuspendedException Blocked PasswordResetRequiredException
        UserNotConfirmedException IDPRejectedClaim IDPRejectedClaimException
        RegionDisabledException InsufficientPermissionsException
        """,
    ),
    (
        "a quota of the account: waiting does not raise it",
        SPENT,
        """
        ServiceQuotaExceededException ServiceQuotaExceeded ServiceQuotaExceededFault
        QuotaExceededException QuotaExceeded
        """,
    ),
    (
        "a number of things that the account may have: waiting does not raise it",
        FINAL,
        """
        InstanceLimitExceeded VcpuLimitExceeded AddressLimitExceeded VolumeLimitExceeded
        SnapshotLimitExceeded SecurityGroupLimitExceeded TooManyBuckets ResourceLimitExceeded
        ResourceLimitExceededException LimitExceeded ServiceLimitExceededException
        CodeStorageExceededException
        """,
    ),
    (
        "nothing of that name; some services say so under 400",
        FINAL,
        """
        ResourceNotFound NotFoundException NoSuchEntity NoSuchEntityException
        TableNotFoundException IndexNotFoundException BackupNotFoundException
        GlobalTableNotFoundException ReplicaNotFoundException QueueDoesNotExist
        NonExistentQueue AWS.SimpleQueueService.NonExistentQueue UserNotFoundException
        ClusterNotFoundException ServiceNotFoundException RepositoryNotFoundException
        ImageNotFoundException ParameterNotFound EntityNotFoundException
        LoadBalancerNotFound TargetGroupNotFound StateMachineDoesNotExist
        ExecutionDoesNotExist InvalidInstanceID.NotFound InvalidAMIID.NotFound
        InvalidGroup.NotFound InvalidVpcID.NotFound InvalidSubnetID.NotFound
        InvalidVolume.NotFound InvalidSnapshot.NotFound InvalidKeyPair.NotFound
        InvalidAllocationID.NotFound InvalidNetworkInterfaceID.NotFound
        InvalidSecurityGroupID.NotFound InvalidRouteTableID.NotFound
        InvalidInternetGatewayID.NotFound
        """,
    ),
    ("the object is archived: restore it first", FINAL, "InvalidObjectState"),
    (
        "the state that the request assumes is another",
        INVALID,
        """
        ConditionalCheckFailed ConditionalCheckFailedException
        ItemCollectionSizeLimitExceeded ItemCollectionSizeLimitExceededException
        IdempotentParameterMismatch IdempotentParameterMismatchException
        ResourceInUseException DuplicateItem DuplicateItemException DecryptionFailure
        TransactionCanceledException
        """,
    ),
)

#: Mere kinds: a model provider among the services says more in its sentence.
KINDS = named(
    (
        "a throttle, unless the sentence names a window that nobody sits out",
        THROTTLE,
        "Throttling ThrottlingException TooManyRequestsException",
    ),
    ("nothing of that name; some services say so under 400", FINAL, "ResourceNotFoundException"),
    (
        "the request is at fault",
        INVALID,
        """
        ValidationException ValidationError SerializationException InvalidParameterException
        InvalidParameterValue InvalidParameterValueException InvalidParameterCombination
        InvalidRequestException InvalidRequest InvalidArgument MissingParameter
        MalformedQueryString EntityTooLarge EntityTooSmall KeyTooLongError
        MalformedXML InvalidPart InvalidPartOrder InvalidBucketName
        InvalidCiphertextException
        """,
    ),
)
