"""Mail and queues: protocols of replies with a number, whose clients are no clients of HTTP.

Their numbers have three digits and are no statuses: 535 of SMTP's is a wrong password, 403 of
AMQP's closes a channel. SMTP's first digit says whether to come again (RFC 5321, 4.2.1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sidecar.envelope.fields import as_word
from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks.family import (
    CONFLICT,
    FINAL,
    INVALID,
    OUTAGE,
    REFUSED,
    THROTTLE,
    Facts,
    Family,
    because,
    changed,
    classes,
    named,
    words,
)

_MOST_RECIPIENTS = 64

_REPLIES = named(
    ("the server goes down, or has an error of its own", OUTAGE, "421 451 454"),
    ("not now: a mailbox, a greylist or a share", CONFLICT, "4yz"),
    ("the caller is not who he says, or has not said it", REFUSED, "530 534 535 538"),
    (
        "the command, an address or the size of the message is at fault",
        INVALID,
        "500 501 502 503 504 552 553 555",
    ),
    ("refused, and it will be again", FINAL, "5yz"),
)


# `(535, b'5.7.8 …')`: how its text is printed.
_PRINTED = re.compile(r"\(([45]\d\d), b?['\"]")


def _smtp_number(raised: Raised, facts: Facts) -> int | None:
    first = raised.args[0] if raised.args else None
    printed = _PRINTED.match(raised.message)
    written = printed[1] if printed else None
    for value in (raised.attrs.get("smtp_code"), first, raised.code, facts.status, written):
        word = as_word(value) or ""
        if len(word) == 3 and word.isdecimal() and word[0] in "45":
            return int(word)
    return None


def _smtp(raised: Raised, facts: Facts) -> Facts:
    number = _smtp_number(raised, facts)
    if number is None:
        return facts
    told = raised.args[1] if len(raised.args) > 1 else raised.attrs.get("smtp_error")
    return changed(
        facts,
        status=None,
        code=str(number),
        codes=(str(number), f"{number // 100}yz"),
        message=told if isinstance(told, str) and told else facts.message,
    )


def _recipients(raised: Raised) -> tuple[Raised, ...]:
    """Of a message that nobody got, the reply for each recipient."""
    if raised.name != "SMTPRecipientsRefused":
        return ()
    held = raised.args[0] if raised.args else raised.attrs.get("recipients")
    replies = list(held.values())[:_MOST_RECIPIENTS] if isinstance(held, Mapping) else []
    return tuple(map(_reply, replies))


def _reply(reply: Any) -> Raised:
    args = tuple(reply) if isinstance(reply, list | tuple) else ()
    return Raised(type="smtplib.SMTPResponseException", args=args)


SMTP = Family(
    name="smtplib",
    packages=("smtplib", "aiosmtplib"),
    sdks=("smtplib", "aiosmtplib", "smtp"),
    dialect="generic",
    codes=_REPLIES,
    classes={
        f"{module}.{name}": meaning
        for module in ("smtplib", "aiosmtplib.errors")
        for name, meaning in (
            ("SMTPAuthenticationError", because(REFUSED, "a login that was refused")),
            ("SMTPNotSupportedError", because(INVALID, "the server does not offer it")),
            ("SMTPNotSupported", because(INVALID, "the server does not offer it")),
        )
    },
    words={
        **words(
            "smtplib",
            connection_reset="SMTPServerDisconnected",
            connection_error="SMTPConnectError",
        ),
        **words(
            "aiosmtplib.errors",
            connection_reset="SMTPServerDisconnected",
            connection_error="SMTPConnectError",
            connect_timeout="SMTPConnectTimeoutError",
            read_timeout="SMTPReadTimeoutError",
            timeout="SMTPTimeoutError",
        ),
    },
    read=_smtp,
    members=_recipients,
)


def _of_kafka(module: str) -> dict[str, Any]:
    return classes(
        module,
        (
            "the broker does not know the caller, or he may not",
            REFUSED,
            """
            AuthenticationFailedError SaslAuthenticationFailedError AuthenticationMethodNotSupported
            UnsupportedSaslMechanismError IllegalSaslStateError TopicAuthorizationFailedError
            GroupAuthorizationFailedError ClusterAuthorizationFailedError
            TransactionalIdAuthorizationFailedError
            """,
        ),
        (
            "a broker, a leader or enough replicas are missing for the moment",
            OUTAGE,
            """
            BrokerNotAvailableError LeaderNotAvailableError NotLeaderForPartitionError
            NotEnoughReplicasError NotEnoughReplicasAfterAppendError ReplicaNotAvailableError
            GroupCoordinatorNotAvailableError NotCoordinatorForGroupError StaleMetadata
            """,
        ),
        ("the broker paces its callers", THROTTLE, "ThrottlingQuotaExceededError"),
        (
            "the message or the topic is at fault",
            INVALID,
            "MessageSizeTooLargeError RecordListTooLargeError InvalidTopicError",
        ),
        ("no such topic, or not this version", FINAL, """
            UnknownTopicOrPartitionError UnsupportedVersionError UnrecognizedBrokerVersion
            """),
    )  # fmt: skip


def _kafka_words(module: str) -> dict[str, str]:
    return words(
        module,
        connection_error="NoBrokersAvailable KafkaConnectionError NodeNotReadyError",
        timeout="KafkaTimeoutError RequestTimedOutError",
    )


KAFKA = Family(
    name="kafka",
    packages=("kafka", "aiokafka"),
    sdks=("kafka", "kafka-python", "aiokafka"),
    dialect="generic",
    classes={**_of_kafka("kafka.errors"), **_of_kafka("aiokafka.errors")},
    words={**_kafka_words("kafka.errors"), **_kafka_words("aiokafka.errors")},
)

# `ACCESS_REFUSED - Login was refused …`, as brokers begin the text of every reply.
_AMQP_REPLY = re.compile(r"\b([A-Z]{2,20}(?:_[A-Z]{2,20}){1,3}) - ")

_AMQP = named(
    ("the caller is not who he says, or may not", REFUSED, "ACCESS_REFUSED NOT_ALLOWED"),
    (
        "the broker goes down, or has trouble of its own",
        OUTAGE,
        "CONNECTION_FORCED INTERNAL_ERROR RESOURCE_ERROR",
    ),
    ("another connection has it for itself", CONFLICT, "RESOURCE_LOCKED"),
    ("nothing is there, or nobody listens", FINAL, "NOT_FOUND NO_ROUTE NO_CONSUMERS"),
    ("the broker cannot do that", FINAL, "NOT_IMPLEMENTED"),
    (
        "the request is at fault",
        INVALID,
        """
        PRECONDITION_FAILED CONTENT_TOO_LARGE INVALID_PATH FRAME_ERROR SYNTAX_ERROR
        COMMAND_INVALID CHANNEL_ERROR UNEXPECTED_FRAME
        """,
    ),
)


def _amqp(raised: Raised, facts: Facts) -> Facts:
    """The name of the reply in front of its text; its number is no status."""
    told = raised.args[1] if len(raised.args) > 1 else raised.attrs.get("reply_text")
    told = told if isinstance(told, str) and told else facts.message
    found = _AMQP_REPLY.search(told[:1024])
    name = None if found is None else found[1]
    return changed(
        facts,
        status=None,
        code=name or facts.code,
        codes=(name,) if name else (),
        message=told,
    )


def _amqp_words(module: str) -> dict[str, str]:
    return words(
        module,
        connection_error="AMQPConnectionError ConnectionOpenAborted",
        connection_reset="StreamLostError ConnectionClosedByBroker AMQPHeartbeatTimeout",
        connection_closed="""
        ConnectionWrongStateError ChannelWrongStateError ConnectionClosedByClient
        ChannelClosedByClient ChannelInvalidStateError
        """,
    )


AMQP = Family(
    name="amqp",
    packages=("pika", "aio_pika", "aiormq", "amqp"),
    sdks=("pika", "aio-pika", "aiormq", "amqp"),
    dialect="generic",
    codes=_AMQP,
    classes={
        f"{module}.{name}": because(REFUSED, "closed in the middle of the login")
        for module in ("pika.exceptions", "aiormq.exceptions")
        for name in ("ProbableAuthenticationError", "ProbableAccessDeniedError",
                     "AuthenticationError")
    },
    words={**_amqp_words("pika.exceptions"), **_amqp_words("aiormq.exceptions")},
    read=_amqp,
)  # fmt: skip

BROKERS = (SMTP, KAFKA, AMQP)
