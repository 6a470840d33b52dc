"""Attributes as OTLP writes them: cleaned like a line of the log, and made once for each value.

Most attributes hold the same few words in every span, and to make their messages is most of a
span's cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from sidecar import __version__
from sidecar.telemetry.instruments import NAMESPACE

SCOPE = InstrumentationScope(name=NAMESPACE, version=__version__)


def fresh(name: str, value: Any) -> KeyValue:
    """An attribute whose value is hardly ever the same."""
    return KeyValue(key=name, value=any_value(value))


kept = lru_cache(maxsize=4096, typed=True)(fresh)
"""The same for values that come again."""


def any_value(value: Any) -> AnyValue:
    """A value of JSON's types as a message; what is none becomes its text."""
    if isinstance(value, str):
        return AnyValue(string_value=text(value))
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, Mapping):
        return AnyValue(kvlist_value=KeyValueList(values=pairs(value)))
    if isinstance(value, list | tuple):
        return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in value]))
    return AnyValue() if value is None else AnyValue(string_value=text(str(value)))


def pairs(values: Mapping[str, Any]) -> list[KeyValue]:
    """Attributes; what is None is left out."""
    return [
        KeyValue(key=text(str(name)), value=any_value(value))
        for name, value in values.items()
        if value is not None
    ]


def text(value: str) -> str:
    """Text that can be UTF-8: halves of surrogate pairs, which a name may hold, are escaped."""
    return value.encode("utf-8", "backslashreplace").decode()


def resource(values: Mapping[str, str]) -> Resource:
    """Who speaks."""
    return Resource(attributes=pairs(values))
