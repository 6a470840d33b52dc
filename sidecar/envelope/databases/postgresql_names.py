"""The conditions of PostgreSQL's appendix A by the names that drivers give their classes.

For an exception that lost its state on the way: through a pickle, a log, a plain report. psycopg
and psycopg2 name the classes after the conditions; asyncpg adds `Error` and renames some.
"""

from __future__ import annotations

from sidecar.envelope.raised import Raised

_CONDITIONS = """
    02000:NoData 02001:NoAdditionalDynamicResultSetsReturned
    03000:SqlStatementNotYetComplete
    08000:ConnectionException 08000:PostgresConnectionError 08001:ClientCannotConnectError
    08001:SqlclientUnableToEstablishSqlconnection 08003:ConnectionDoesNotExist
    08004:ConnectionRejectionError 08004:SqlserverRejectedEstablishmentOfSqlconnection
    08006:ConnectionFailure 08007:TransactionResolutionUnknown 08P01:ProtocolViolation
    09000:TriggeredActionError 09000:TriggeredActionException
    0A000:FeatureNotSupported 0A000:InvalidCachedStatementError
    0B000:InvalidTransactionInitiation
    0F000:LocatorError 0F000:LocatorException 0F001:InvalidLocatorSpecification
    0L000:InvalidGrantor 0LP01:InvalidGrantOperation
    0P000:InvalidRoleSpecification
    0Z000:DiagnosticsError 0Z000:DiagnosticsException
    0Z002:StackedDiagnosticsAccessedWithoutActiveHandler
    10608:InvalidArgumentForXquery
    20000:CaseNotFound
    21000:CardinalityViolation
    22000:DataException 22001:StringDataRightTruncation 22002:NullValueNoIndicatorParameter
    22003:NumericValueOutOfRange 22004:NullValueNotAllowed 22005:ErrorInAssignment
    22007:InvalidDatetimeFormat 22008:DatetimeFieldOverflow
    22009:InvalidTimeZoneDisplacementValue 2200B:EscapeCharacterConflict
    2200C:InvalidUseOfEscapeCharacter 2200D:InvalidEscapeOctet 2200F:ZeroLengthCharacterString
    2200G:MostSpecificTypeMismatch 2200H:SequenceGeneratorLimitExceeded 2200L:NotAnXmlDocument
    2200M:InvalidXmlDocument 2200N:InvalidXmlContent 2200S:InvalidXmlComment
    2200T:InvalidXmlProcessingInstruction 22010:InvalidIndicatorParameterValue
    22011:SubstringError 22012:DivisionByZero 22013:InvalidPrecedingOrFollowingSize
    22014:InvalidArgumentForNtileFunction 22015:IntervalFieldOverflow
    22016:InvalidArgumentForNthValueFunction 22018:InvalidCharacterValueForCast
    22019:InvalidEscapeCharacter 2201B:InvalidRegularExpression
    2201E:InvalidArgumentForLogarithm 2201F:InvalidArgumentForPowerFunction
    2201G:InvalidArgumentForWidthBucketFunction 2201W:InvalidRowCountInLimitClause
    2201X:InvalidRowCountInResultOffsetClause 22021:CharacterNotInRepertoire
    22022:IndicatorOverflow 22023:InvalidParameterValue 22024:UnterminatedCString
    22025:InvalidEscapeSequence 22026:StringDataLengthMismatch 22027:TrimError
    2202E:ArraySubscriptError 2202G:InvalidTablesampleRepeat 2202H:InvalidTablesampleArgument
    22030:DuplicateJsonObjectKeyValue 22031:InvalidArgumentForSqlJsonDatetimeFunction
    22032:InvalidJsonText 22033:InvalidSqlJsonSubscript 22034:MoreThanOneSqlJsonItem
    22035:NoSqlJsonItem 22036:NonNumericSqlJsonItem 22037:NonUniqueKeysInAJsonObject
    22038:SingletonSqlJsonItemRequired 22039:SqlJsonArrayNotFound 2203A:SqlJsonMemberNotFound
    2203B:SqlJsonNumberNotFound 2203C:SqlJsonObjectNotFound 2203D:TooManyJsonArrayElements
    2203E:TooManyJsonObjectMembers 2203F:SqlJsonScalarRequired
    2203G:SqlJsonItemCannotBeCastToTargetType 22P01:FloatingPointException
    22P01:PostgresFloatingPointError 22P02:InvalidTextRepresentation
    22P03:InvalidBinaryRepresentation 22P04:BadCopyFileFormat 22P05:UntranslatableCharacter
    22P06:NonstandardUseOfEscapeCharacter
    23000:IntegrityConstraintViolation 23001:RestrictViolation 23502:NotNullViolation
    23503:ForeignKeyViolation 23505:UniqueViolation 23514:CheckViolation
    23P01:ExclusionViolation
    24000:InvalidCursorState
    25000:InvalidTransactionState 25001:ActiveSqlTransaction
    25002:BranchTransactionAlreadyActive 25003:InappropriateAccessModeForBranchTransaction
    25004:InappropriateIsolationLevelForBranchTransaction
    25005:NoActiveSqlTransactionForBranchTransaction 25006:ReadOnlySqlTransaction
    25007:SchemaAndDataStatementMixingNotSupported 25008:HeldCursorRequiresSameIsolationLevel
    25P01:NoActiveSqlTransaction 25P02:InFailedSqlTransaction
    25P03:IdleInTransactionSessionTimeout 25P04:TransactionTimeout
    26000:InvalidSqlStatementName
    27000:TriggeredDataChangeViolation
    28000:InvalidAuthorizationSpecification 28P01:InvalidPassword
    2B000:DependentPrivilegeDescriptorsStillExist 2BP01:DependentObjectsStillExist
    2D000:InvalidTransactionTermination
    2F000:SQLRoutineError 2F000:SqlRoutineException 2F002:ModifyingSqlDataNotPermitted
    2F003:ProhibitedSqlStatementAttempted 2F004:ReadingSqlDataNotPermitted
    2F005:FunctionExecutedNoReturnStatement
    34000:InvalidCursorName
    38000:ExternalRoutineError 38000:ExternalRoutineException 38001:ContainingSqlNotPermitted
    38002:ModifyingExternalRoutineSQLDataNotPermittedError 38002:ModifyingSqlDataNotPermittedExt
    38003:ProhibitedExternalRoutineSQLStatementAttemptedError
    38003:ProhibitedSqlStatementAttemptedExt
    38004:ReadingExternalRoutineSQLDataNotPermittedError 38004:ReadingSqlDataNotPermittedExt
    39000:ExternalRoutineInvocationError 39000:ExternalRoutineInvocationException
    39001:InvalidSqlstateReturned 39004:NullValueInExternalRoutineNotAllowedError
    39004:NullValueNotAllowedExt 39P01:TriggerProtocolViolated 39P02:SrfProtocolViolated
    39P03:EventTriggerProtocolViolated
    3B000:SavepointError 3B000:SavepointException 3B001:InvalidSavepointSpecification
    3D000:InvalidCatalogName
    3F000:InvalidSchemaName
    40000:TransactionRollback 40001:SerializationError 40001:SerializationFailure
    40002:TransactionIntegrityConstraintViolation 40003:StatementCompletionUnknown
    40P01:DeadlockDetected
    42000:SyntaxErrorOrAccessRuleViolation 42000:SyntaxOrAccessError 42501:InsufficientPrivilege
    42601:PostgresSyntaxError 42601:SyntaxError 42602:InvalidName 42611:InvalidColumnDefinition
    42622:NameTooLong 42701:DuplicateColumn 42702:AmbiguousColumn 42703:UndefinedColumn
    42704:UndefinedObject 42710:DuplicateObject 42712:DuplicateAlias 42723:DuplicateFunction
    42725:AmbiguousFunction 42803:GroupingError 42804:DatatypeMismatch 42809:WrongObjectType
    42830:InvalidForeignKey 42846:CannotCoerce 42883:UndefinedFunction 428C9:GeneratedAlways
    42939:ReservedName 42P01:UndefinedTable 42P02:UndefinedParameter 42P03:DuplicateCursor
    42P04:DuplicateDatabase 42P05:DuplicatePreparedStatement 42P06:DuplicateSchema
    42P07:DuplicateTable 42P08:AmbiguousParameter 42P09:AmbiguousAlias
    42P10:InvalidColumnReference 42P11:InvalidCursorDefinition 42P12:InvalidDatabaseDefinition
    42P13:InvalidFunctionDefinition 42P14:InvalidPreparedStatementDefinition
    42P15:InvalidSchemaDefinition 42P16:InvalidTableDefinition 42P17:InvalidObjectDefinition
    42P18:IndeterminateDatatype 42P19:InvalidRecursion 42P20:WindowingError
    42P21:CollationMismatch 42P22:IndeterminateCollation
    44000:WithCheckOptionViolation
    53000:InsufficientResources 53100:DiskFull 53200:OutOfMemory 53300:TooManyConnections
    53400:ConfigurationLimitExceeded
    54000:ProgramLimitExceeded 54001:StatementTooComplex 54011:TooManyColumns
    54023:TooManyArguments
    55000:ObjectNotInPrerequisiteState 55006:ObjectInUse 55P02:CantChangeRuntimeParam
    55P03:LockNotAvailable 55P04:UnsafeNewEnumValueUsage
    57000:OperatorIntervention 57014:QueryCanceled 57P01:AdminShutdown 57P02:CrashShutdown
    57P03:CannotConnectNow 57P04:DatabaseDropped 57P05:IdleSessionTimeout
    58000:PostgresSystemError 58000:SystemError 58030:IoError 58030:PostgresIOError
    58P01:UndefinedFile 58P02:DuplicateFile 58P03:FileNameTooLong
    72000:SnapshotTooOld
    F0000:ConfigFileError F0001:LockFileExists
    HV000:FdwError HV001:FdwOutOfMemory HV002:FdwDynamicParameterValueNeeded
    HV004:FdwInvalidDataType HV005:FdwColumnNameNotFound HV006:FdwInvalidDataTypeDescriptors
    HV007:FdwInvalidColumnName HV008:FdwInvalidColumnNumber HV009:FdwInvalidUseOfNullPointer
    HV00A:FdwInvalidStringFormat HV00B:FdwInvalidHandle HV00C:FdwInvalidOptionIndex
    HV00D:FdwInvalidOptionName HV00J:FdwOptionNameNotFound HV00K:FdwReplyHandle
    HV00L:FdwUnableToCreateExecution HV00M:FdwUnableToCreateReply
    HV00N:FdwUnableToEstablishConnection HV00P:FdwNoSchemas HV00Q:FdwSchemaNotFound
    HV00R:FdwTableNotFound HV010:FdwFunctionSequenceError HV014:FdwTooManyHandles
    HV021:FdwInconsistentDescriptorInformation HV024:FdwInvalidAttributeValue
    HV090:FdwInvalidStringLengthOrBufferLength HV091:FdwInvalidDescriptorFieldIdentifier
    P0000:PlpgsqlError P0001:RaiseError P0001:RaiseException P0002:NoDataFound P0003:TooManyRows
    P0004:AssertError P0004:AssertFailure
    XX000:InternalError_ XX000:InternalServerError XX001:DataCorrupted XX002:IndexCorrupted
"""


def _plain(name: str) -> str:
    return name.rstrip("_").lower().removesuffix("error")


_STATES = {
    _plain(name): state for state, _, name in (word.partition(":") for word in _CONDITIONS.split())
}
_MODULES = ("psycopg.errors.", "psycopg2.errors.", "asyncpg.exceptions.")


def state_of(raised: Raised) -> str | None:
    """The SQLSTATE that a class of a driver stands for, or None."""
    for dotted in raised.names:
        if dotted.startswith(_MODULES):
            state = _STATES.get(_plain(dotted.rpartition(".")[2]))
            if state is not None:
                return state
    return None
