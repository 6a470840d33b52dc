"""The cases of an audit: requests whose outcome is known before they are sent.

Each is the caller's own mistake by construction, so its true class needs no reading of the answer.
That is what makes an upstream's answer checkable: whoever calls a typo an outage is caught.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from sidecar.envelope.model import ErrorClass


class Case(StrEnum):
    """A kind of request that cannot succeed."""

    UNKNOWN_MODEL = "unknown_model"
    UNKNOWN_RECORD = "unknown_record"
    NO_KEY = "no_key"
    WRONG_KEY = "wrong_key"
    MALFORMED = "malformed_json"
    MISSING = "missing_field"
    UNKNOWN_PATH = "unknown_path"
    WRONG_METHOD = "wrong_method"
    TOO_LONG = "context_too_long"


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a case before it is sent.

    Attributes:
        classes: the classes that are right for it, the usual one first.
        sent: in words, what is sent.
        denies: a success is a lie too: nothing in the request is a matter of taste.
    """

    classes: tuple[ErrorClass, ...]
    sent: str
    denies: bool = False


KINDS: Mapping[Case, Kind] = {
    Case.UNKNOWN_MODEL: Kind(classes=(ErrorClass.PERMANENT,), sent="a model that cannot exist"),
    Case.UNKNOWN_RECORD: Kind(
        classes=(ErrorClass.PERMANENT,), sent="a record that cannot exist", denies=True
    ),
    Case.NO_KEY: Kind(classes=(ErrorClass.AUTHENTICATION,), sent="no key"),
    Case.WRONG_KEY: Kind(classes=(ErrorClass.AUTHENTICATION,), sent="a wrong key"),
    Case.MALFORMED: Kind(
        classes=(ErrorClass.VALIDATION,), sent="JSON that breaks off", denies=True
    ),
    Case.MISSING: Kind(classes=(ErrorClass.VALIDATION,), sent="a body without a needed field"),
    Case.UNKNOWN_PATH: Kind(
        classes=(ErrorClass.PERMANENT,), sent="a path that does not exist", denies=True
    ),
    Case.WRONG_METHOD: Kind(
        classes=(ErrorClass.PERMANENT,), sent="a method that the path does not have"
    ),
    Case.TOO_LONG: Kind(
        classes=(ErrorClass.VALIDATION,), sent="a prompt beyond the context", denies=True
    ),
}

NAME = "breaker-sidecar-audit-no-such-model"
"""Stands where a model, a record or an account would. Nobody has one of this name."""
