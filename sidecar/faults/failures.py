"""A failure of a call that the agent makes by itself: what is raised, and what it means.

Nothing can be done to the bytes of such a call; what can be done is to raise what the driver or the
SDK would have raised. It is plain data here (`databases.py`, `sdks.py`), judged by the code that
judges reports; the agent's guard makes an exception of it. No driver is ever imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from sidecar.config.resolved import Dependency
from sidecar.config.schema import FaultSection
from sidecar.envelope import database, dialects, sdk
from sidecar.envelope.databases.vendors import vendor_named
from sidecar.envelope.decode import decode
from sidecar.envelope.model import Classified, ErrorClass
from sidecar.envelope.raised import Raised, recorded
from sidecar.envelope.sdks import FAMILIES
from sidecar.faults import answers
from sidecar.faults.databases import BASES, DATABASES, Failure
from sidecar.faults.native import WAIT
from sidecar.faults.sdks import CODED, SDKS, Coded

_SQLSTATE: Final = re.compile(r"[0-9A-Z]{5}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,9}")


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """A failure as a guard is told to raise it.

    Attributes:
        error: as a report would hold it.
        raises: classes, by their dotted names; the one whose module the agent has loaded is meant.
        raised: the same, as it is judged.
        classified: what it means.
    """

    error: dict[str, Any]
    raises: tuple[str, ...]
    raised: Raised
    classified: Classified


def system_of(source: str, system: str | None) -> str | None:
    """The name under which the tables hold a vendor or an SDK; None if they do not."""
    if system is None:
        return None
    if source == "database":
        return vendor_named(system)
    name = system.lower()
    for known in (name, name.partition("-")[0]):
        for family in FAMILIES:
            if known in family.sdks:
                return next((one for one in family.sdks if one in SDKS or one in CODED), None)
    return None


def same_system(named: str, system: str | None) -> bool:
    """Does a rule's `vendor` name the system of a dependency?"""
    if system is None:
        return False
    if named.lower() == system.lower():
        return True
    vendor = vendor_named(named)
    if vendor is not None:
        return vendor == vendor_named(system)
    known = system_of("sdk", named)
    return known is not None and known == system_of("sdk", system)


def has(rule: FaultSection, source: str, system: str | None) -> bool:
    """Has a system an error of the rule's class?"""
    if rule.class_ is None:
        return rule.kind is not None or source == "sdk" or system_of(source, system) is not None
    return ErrorClass(rule.class_) in classes_of(source, system)


def misses(rule: FaultSection, dependencies: Iterable[Dependency]) -> str:
    """Why a rule about dependencies can name none of their calls; empty if it can.

    Args:
        rule: that concerns dependencies.
        dependencies: all there are.
    """
    named = [one for one in dependencies if rule.dependency in (None, one.name)]
    if not named:
        return "no dependency of this name" if rule.dependency else "there is no dependency"
    if rule.vendor is not None:
        named = [one for one in named if same_system(rule.vendor, one.system)]
        if not named:
            return "no dependency of this vendor"
    if rule.source in ("database", "sdk"):
        named = [one for one in named if one.source == rule.source]
        if not named:
            return f"no dependency of this source: {rule.source}"
    if rule.source == "sidecar" or any(has(rule, one.source, one.system) for one in named):
        return ""
    systems = sorted({one.system or "a dependency without a vendor" for one in named})
    return f"{' and '.join(systems)} {'have' if systems[1:] else 'has'} no error of this class"


def classes_of(source: str, system: str | None) -> frozenset[ErrorClass]:
    """The classes of which a system has an error."""
    name = system_of(source, system) or ""
    if source == "database":
        return frozenset(DATABASES.get(name, ()))
    return frozenset(ErrorClass) if name in SDKS or name in CODED else frozenset()


def injection(
    rule: FaultSection,
    source: str,
    system: str | None,
    driver: str | None,
    *,
    phase: str | None = None,
    correlation_id: str = "",
    now: float = 0.0,
) -> Injection:
    """What a rule makes of a call of a dependency.

    Args:
        rule: which `has` of it.
        source: `database` or `sdk`.
        system: its vendor or SDK.
        driver: which driver it is called with, where that is known.
        phase: `commit` or `connect`, where the call is one.
        correlation_id: of the call.
        now: seconds since the epoch.
    """
    name = system_of(source, system) or ""
    if rule.kind is not None:
        error, raises = _lost(rule)
    elif source == "database":
        error, raises = _of_database(rule, name, driver)
    else:
        error, raises = _of_sdk(rule, name, now)
    if phase is not None:
        error["phase"] = phase
    raised = recorded(error)
    if source == "database":
        classified = database.classify(
            raised, vendor=system, driver=driver, correlation_id=correlation_id, now=now
        )
    else:
        classified = sdk.classify(raised, sdk=system, correlation_id=correlation_id, now=now)
    return Injection(error=error, raises=raises, raised=raised, classified=classified)


def _lost(rule: FaultSection) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A connection that could not be made, or that was lost."""
    if rule.kind == "refuse":
        name, number, text, phase = "ConnectionRefusedError", 111, "Connection refused", "connect"
    else:
        name, number, text, phase = "ConnectionResetError", 104, "Connection reset by peer", None
    error: dict[str, Any] = {
        "type": name,
        "mro": ["ConnectionError", "OSError"],
        "errno": number,
        "message": rule.message or f"[Errno {number}] {text}",
    }
    if phase is not None:
        error["phase"] = phase
    return error, (f"builtins.{name}",)


def _of_database(
    rule: FaultSection, vendor: str, driver: str | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    if rule.class_ is not None:
        failure = DATABASES[vendor][ErrorClass(rule.class_)]
    else:
        failure = _coded(vendor, rule.code or "")
    classes = _ordered(tuple(failure.classes.split()), driver)
    error: dict[str, Any] = {
        "type": classes[0],
        "code": failure.code,
        "sqlstate": failure.sqlstate,
        "message": rule.message or failure.message,
        "attrs": dict(failure.attrs),
    }
    if vendor in ("mysql", "sqlserver"):
        error["args"] = [failure.code, error["message"]]
    else:
        error["args"] = [error["message"]]
    return {key: value for key, value in error.items() if value not in (None, {})}, classes


def _coded(vendor: str, code: str) -> Failure:
    """The error that has a code: one of the table's, else one of which no more is known."""
    for known in DATABASES[vendor].values():
        if code in (str(known.code), known.sqlstate):
            return known
    message = f"{code} (an injected fault)"
    if vendor in ("postgresql", "snowflake") and _SQLSTATE.fullmatch(code):
        return Failure(BASES[vendor], None, message, code)
    if vendor == "oracle" and code.upper().startswith("ORA-"):
        return Failure(BASES[vendor], None, f"{code.upper()}: an injected fault")
    if vendor == "sqlite":
        return Failure(BASES[vendor], None, message, attrs={"sqlite_errorname": code})
    if vendor == "redis":
        return Failure(BASES[vendor], None, message)
    return Failure(BASES[vendor], int(code) if _NUMBER.fullmatch(code) else code, message)


def _of_sdk(rule: FaultSection, name: str, now: float) -> tuple[dict[str, Any], tuple[str, ...]]:
    if rule.class_ is None:
        return {"code": rule.code, "message": rule.message or rule.code or ""}, ()
    class_ = ErrorClass(rule.class_)
    wait = f"{WAIT if rule.retry_after is None else rule.retry_after:g}"
    if name in CODED:
        return _of_coded(name, class_, CODED[name][class_], rule.message, wait)
    family = SDKS[name]
    told = answers.answer(
        dialects.get(family.dialect), class_, family.path,
        wait=rule.retry_after, message=rule.message, now=now,
    )  # fmt: skip
    body = decode(told.body) or told.body.decode()
    if family.inner and isinstance(body, dict):
        body = body.get("error", body)
    classes = family.classes[class_]
    said = body.get("message") if isinstance(body, dict) else None
    error: dict[str, Any] = {
        "type": classes,
        "status": told.status,
        "headers": [list(pair) for pair in told.headers],
        "body": body,
        "message": said if isinstance(said, str) else f"HTTP {told.status}",
    }
    return error, (classes,)


def _of_coded(
    name: str, class_: ErrorClass, told: Coded, message: str | None, wait: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    classes, code, status = tuple(told.classes.split()), told.code, told.status
    message = text = message or told.message
    body: Any = None
    if name == "boto3":
        body = {"Error": {"Code": code, "Message": message}}
        text = f"An error occurred ({code}) when calling the operation: {message}"
    elif name == "kubernetes":
        body = {
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status,
            "reason": told.message, "message": message,
        }  # fmt: skip
        text = f"({status})"
    elif name == "elasticsearch":
        body = {"error": {"type": code, "reason": message}, "status": status}
    elif name == "pinecone":
        body = {"error": {"code": code, "message": message}, "status": status}
    error: dict[str, Any] = {
        "type": classes[0],
        "code": code,
        "status": status,
        "body": body,
        "message": text,
        "headers": [["retry-after", wait]] if class_ is ErrorClass.RATE_LIMIT and status else None,
    }
    return {key: value for key, value in error.items() if value is not None}, classes


def _ordered(classes: tuple[str, ...], driver: str | None) -> tuple[str, ...]:
    """The classes, those of a driver first."""
    parts = re.split(r"[^a-z0-9]+", (driver or "").lower())
    own = [name for name in classes if name.partition(".")[0].lower() in parts]
    return (*own, *(name for name in classes if name not in own))
