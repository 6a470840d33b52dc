"""The numbers and names of MongoDB's error_codes.yml, and what each means.

The lists of the drivers' specifications (not primary, node is recovering, retryable reads and
writes) are the rows about the server; those that a transaction ends with are the ones it undid.
"""

from __future__ import annotations

from sidecar.envelope.databases.kinds import (
    broken,
    contended,
    denied,
    final,
    mistaken,
    renewable,
    throttled,
    undone,
    unwell,
)
from sidecar.envelope.meaning import Meaning

THROTTLED_BY_COSMOS = 16500
ATLAS = 8000


_ROWS: tuple[tuple[Meaning, str], ...] = (
    (mistaken("a command, a name, an index or a document that does not fit"),
     """
      2:BadValue 4:NoSuchKey 5:GraphContainsCycle 9:FailedToParse 10:CannotMutateObject
      11:UserNotFound 12:UnsupportedFormat 14:TypeMismatch 15:Overflow 16:InvalidLength
      19:CannotReuseObject 20:IllegalOperation 21:EmptyArrayOperation 22:InvalidBSON
      23:AlreadyInitialized 26:NamespaceNotFound 27:IndexNotFound 28:PathNotViable
      29:NonExistentPath 30:InvalidPath 31:RoleNotFound 33:PrivilegeNotFound
      34:CannotBackfillArray 40:ConflictingUpdateOperators 47:NoMatchingDocument 48:NamespaceExists
      49:InvalidRoleModification 52:DollarPrefixedFieldName 53:InvalidIdField
      54:NotSingleValueField 55:InvalidDBRef 56:EmptyFieldName 57:DottedFieldName
      59:CommandNotFound 61:ShardKeyNotFound 66:ImmutableField 67:CannotCreateIndex
      68:IndexAlreadyExists 72:InvalidOptions 73:InvalidNamespace 85:IndexOptionsConflict
      86:IndexKeySpecsConflict 97:NoProjectionFound 111:NotExactValueField
      115:CommandNotSupported 116:DocTooLargeForCapped 121:DocumentValidationFailure
      139:JSInterpreterFailure 146:ExceededMemoryLimit 161:ViewDepthLimitExceeded
      166:CommandNotSupportedOnView 167:OptionNotSupportedOnView 168:InvalidPipelineOperator
      170:TooManyMatchingDocuments 171:CannotIndexParallelArrays 181:AmbiguousIndexKeyPattern
      182:InvalidViewDefinition 197:InvalidIndexSpecificationOption 201:CannotBuildIndexKeys
      206:NoSuchSession 207:InvalidUUID 224:QueryFeatureNotAllowed 225:TransactionTooOld
      232:MaxSubPipelineDepthExceeded 238:NotImplemented 241:ConversionFailure
      242:CannotCreateCollection 256:TransactionCommitted 257:TransactionTooLarge
      260:InvalidResumeToken 263:OperationNotSupportedInTransaction
      271:JSInterpreterFailureWithStack 291:NoQueryExecutionPlans
      292:QueryExceededMemoryLimitNoDiskUseAllowed 322:APIVersionError 323:APIStrictError
      10003:CannotGrowDocumentInCappedNamespace 10334:BSONObjectTooLarge 11000:DuplicateKey 11001:
      12582: 13297:DatabaseDifferCase 17280:KeyTooLong 17419: 40323: 40324: 40414: 40415:
      """),
    (denied("not let in, or not allowed to"),
     "13:Unauthorized 18:AuthenticationFailed 214:AuthenticationRestrictionUnmet"),
    (renewable("the session's token ran out"), "391:ReauthenticationRequired"),
    (undone("lost against another transaction, which the server rolled back"),
     """
      24:LockTimeout 112:WriteConflict 239:SnapshotTooOld 246:SnapshotUnavailable
      250:StaleChunkHistory 251:NoSuchTransaction 282:TransactionCoordinatorReachedAbortDecision
      """),
    (contended("cancelled, or a limit of time"),
     """
      50:MaxTimeMSExpired 90:CallbackCanceled 11601:Interrupted 46841:ClientMarkedKilled
      175:QueryPlanKilled 290:TransactionExceededLifetimeLimitSeconds
      """),
    (contended("a cursor or a picture of the cluster is out of date: start again"),
     """
      43:CursorNotFound 63:StaleShardVersion 136:CappedPositionLost 144:CursorInUse 150:StaleEpoch
      234:RetryChangeStream 237:CursorKilled 249:StaleDbVersion 13388:StaleConfig
      """),
    (contended("something else runs that excludes this"),
     """
      46:LockBusy 107:LockFailed 109:ConfigurationInProgress 117:ConflictingOperationInProgress
      211:KeyNotFound 215:DatabaseDropPending 267:PreparedTransactionInProgress
      272:MigrationConflict 285:IndexBuildAlreadyInProgress 314:ObjectIsBusy
      12586:BackgroundOperationInProgressForDatabase 12587:BackgroundOperationInProgressForNamespace
     """),
    (unwell("not the primary, going down, electing or out of reach"),
     """
      6:HostUnreachable 7:HostNotFound 89:NetworkTimeout 91:ShutdownInProgress 94:NotYetInitialized
      133:FailedToSatisfyReadPreference 134:ReadConcernMajorityNotAvailableYet
      148:PooledConnectionsDropped 189:PrimarySteppedDown 202:NetworkInterfaceExceededTimeLimit
      216:ElectionInProgress 230:DNSHostNotFound 231:DNSProtocolError 262:ExceededTimeLimit
      281:TransactionCoordinatorSteppingDown 9001:SocketException 10058:LegacyNotPrimary
      10107:NotWritablePrimary 11600:InterruptedAtShutdown 11602:InterruptedDueToReplStateChange
      13435:NotPrimaryNoSecondaryOk 13436:NotPrimaryOrSecondary
      """),
    (unwell("out of sessions or files for now"), "261:TooManyLogicalSessions 264:TooManyFilesOpen"),
    (throttled("the server limits requests"), "462:IngressRequestRateLimitExceeded 16500:"),
    (broken("nobody knows how far it was replicated"), "64:WriteConcernFailed"),
    (broken("the server's own trouble"),
     """
      1:InternalError 8:UnknownError 39:FileStreamFailed 42:LogWriteFailed
      51:ManualInterventionRequired 127:UnrecoverableRollbackError 269:DataModifiedByRepair
      288:ChecksumMismatch 14031:OutOfDiskSpace
     """),
    (final("a write concern that cannot be met, or one that is not known"),
     "76:NoReplicationEnabled 79:UnknownReplWriteConcern 100:UnsatisfiableWriteConcern"),
    (final("the change stream cannot be resumed from there"),
     "280:ChangeStreamFatalError 286:ChangeStreamHistoryLost"),
    (final("an account or a plan at Atlas"), "8000:AtlasError"),
)  # fmt: skip

NUMBERS: dict[int, Meaning] = {}
NAMES: dict[str, int] = {
    "CannotSatisfyWriteConcern": 100,
    "NotMaster": 10107,
    "NotMasterNoSlaveOk": 13435,
}
for _meaning, _words in _ROWS:
    for _word in _words.split():
        _number, _, _name = _word.partition(":")
        NUMBERS[int(_number)] = _meaning
        if _name:
            NAMES[_name] = int(_number)
