"""Exceptions with an envelope on them: still what they were, whatever their classes do."""

from __future__ import annotations

import concurrent.futures
import copy
import gc
import json
import multiprocessing
import pickle
import socket
import sqlite3
import traceback
import urllib.error
import weakref
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from sidecar.client.errors import BreakerOpen, SidecarError, enveloped, original_of
from sidecar.envelope.model import Envelope, ErrorClass, Source

from .failures import no_such_table

ENVELOPE = Envelope(
    class_=ErrorClass.TRANSIENT,
    source=Source.DATABASE,
    code="40P01",
    message="deadlock detected",
    retryable=True,
    retry_after=0.0,
    correlation_id="w-1",
)


class Odd(Exception):
    """A constructor with side effects that asks for much and tells little."""

    made = 0

    def __init__(self, *, code: int, session: object) -> None:
        type(self).made += 1
        super().__init__("odd")
        self.code = code
        self.session = session

    @property
    def doubled(self) -> int:
        return self.code * 2

    def asked(self, more: int) -> int:
        return self.code + more


class Slotted(Exception):
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code


class Registering(Exception):
    known: ClassVar[list[type]] = []

    def __init_subclass__(cls, *, code: int, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.known.append(cls)


class Registered(Registering, code=3):
    pass


class Meta(type):
    made: ClassVar[list[str]] = []

    def __new__(mcls, name: str, bases: Any, namespace: Any) -> Any:
        mcls.made.append(name)
        return super().__new__(mcls, name, bases, namespace)

    def __call__(cls, *args: Any) -> Any:
        raise AssertionError("nobody makes one this way")


class OfAMeta(Exception, metaclass=Meta):
    pass


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Both(OSError, ValueError):
    pass


class Named(Exception):
    @property
    def envelope(self) -> str:
        return "its own"


class Sealed(Exception):
    def __init_subclass__(cls, **more: Any) -> None:
        raise TypeError("no subclasses")


class Asking(Exception):
    def __getattr__(self, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"asked for {name}"


class Falsy(Exception):
    def __len__(self) -> int:
        return 0


def refused() -> OSError:
    return ConnectionRefusedError(111, "Connection refused", "/file")


def a_sqlite_error() -> sqlite3.Error:
    try:
        no_such_table()
    except sqlite3.Error as error:
        return error
    raise AssertionError


def a_json_error() -> ValueError:
    try:
        json.loads("{")
    except ValueError as error:
        return error
    raise AssertionError


def a_codec_error() -> UnicodeDecodeError:
    try:
        b"\xff".decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


def a_meta_error() -> Exception:
    return OfAMeta.__new__(OfAMeta, "x")


EXCEPTIONS = [
    ValueError("x"),
    KeyError("x"),
    refused(),
    socket.gaierror(-2, "Name or service not known"),
    a_sqlite_error(),
    a_json_error(),
    a_codec_error(),
    urllib.error.HTTPError("http://x", 503, "no", {}, None),  # type: ignore[arg-type]
    ClientError({"Error": {"Code": "Throttling", "Message": "slow"}}, "PutObject"),
    Odd(code=21, session=object()),
    Slotted(7),
    Registered("x"),
    a_meta_error(),
    Frozen(4),
    Both(5, "both"),
    Named("x"),
    Asking("x"),
    Falsy("x"),
    ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
    TimeoutError(),
    SyntaxError("bad", ("file.py", 3, 1, "x = ", 3, 5)),
    ImportError("x", name="y"),
    AttributeError("x", name="y", obj=3),
]


def raised(original: Exception) -> SidecarError:
    """As a guard raises it."""
    with pytest.raises(SidecarError) as caught:
        raise enveloped(original, ENVELOPE) from original
    return caught.value


@pytest.mark.parametrize("original", EXCEPTIONS, ids=lambda one: type(one).__name__)
class TestTwins:
    def test_it_is_of_both_classes(self, original: Exception) -> None:
        error = raised(original)
        assert isinstance(error, type(original))
        assert isinstance(error, SidecarError)
        assert error.envelope is ENVELOPE
        assert error.__cause__ is original
        assert original_of(error) is original
        assert type(error).__name__ == type(original).__name__
        assert type(error).__module__ == type(original).__module__

    def test_it_reads_as_the_original(self, original: Exception) -> None:
        error = raised(original)
        assert (str(error), repr(error)) == (str(original), repr(original))
        assert error.args is original.args
        for name in dir(original):
            if not name.startswith("__") and name not in {"envelope", "add_note", "with_traceback"}:
                told, known = getattr(error, name, None), getattr(original, name, None)
                assert told == known or callable(known), name

    def test_it_is_written_through_to_the_original(self, original: Exception) -> None:
        if isinstance(original, Frozen):
            return
        error, args = raised(original), original.args
        error.args = ("changed",)
        assert original.args == ("changed",) == error.args
        error.args = args
        assert original.args == args

    def test_it_is_raised_as_any(self, original: Exception) -> None:
        error = raised(original)
        error.add_note("a note")
        text = "".join(traceback.format_exception(error))
        assert type(original).__name__ in text
        # The standard library takes an exception without a length for none.
        assert "direct cause" in text or isinstance(original, Falsy)
        assert "a note" in text
        assert getattr(original, "__notes__", []) == []
        assert error.__traceback__ is not None
        again = error.with_traceback(None)
        assert again is error
        assert error.__traceback__ is None

    def test_it_survives_a_pickle(self, original: Exception) -> None:
        error = raised(original)
        error.gave_up = "attempts"
        back = pickle.loads(pickle.dumps(error))
        assert isinstance(back, SidecarError)
        assert (back.envelope, back.gave_up) == (ENVELOPE, "attempts")
        assert copy.copy(error).envelope == ENVELOPE


def test_what_a_library_keeps_stays_what_it_was() -> None:
    original = Odd(code=21, session=object())
    made = Odd.made
    error: Any = raised(original)
    assert (error.code, error.doubled, error.asked(1)) == (21, 42, 22)
    assert error.session is original.session
    assert Odd.made == made
    error.code = 5
    assert original.doubled == 10
    del error.code
    assert not hasattr(original, "code")
    slotted: Any = raised(Slotted(7))
    assert slotted.code == 7
    broken: Any = raised(refused())
    assert (broken.errno, broken.strerror, broken.filename) == (111, "Connection refused", "/file")
    lost: Any = raised(a_sqlite_error())
    assert lost.sqlite_errorname == "SQLITE_ERROR"


def test_no_registry_hears_of_it() -> None:
    known, made = list(Registering.known), list(Meta.made)
    raised(Registered("x"))
    assert Registering.known == known
    raised(a_meta_error())
    assert set(Meta.made) == set(made)  # under the name that it has already


def test_a_class_that_allows_no_subclass_is_told_plainly() -> None:
    import pydantic

    class Model(pydantic.BaseModel):
        number: int

    with pytest.raises(pydantic.ValidationError) as caught:
        Model(number="x")  # type: ignore[arg-type]
    error = raised(caught.value)
    assert type(error) is SidecarError
    assert error.__cause__ is caught.value
    assert str(error) == "40P01: deadlock detected"
    # One that forbids it by a hook is none: its hook is for classes of its own library.
    assert isinstance(raised(Sealed("x")), Sealed)


def test_groups_are_split_by_the_interpreter() -> None:
    group = ExceptionGroup("several", [ValueError("a"), KeyError("b")])
    caught: list[BaseException] = []
    try:
        raise enveloped(group, ENVELOPE) from group
    except* ValueError as part:
        caught += part.exceptions
    except* KeyError as part:
        caught += part.exceptions
    assert caught == list(group.exceptions)


def test_a_plain_one_and_a_refusal_say_what_they_mean() -> None:
    for kind in (SidecarError, BreakerOpen):
        error = kind(ENVELOPE)
        assert str(error) == "40P01: deadlock detected"
        assert error.gave_up is None
        back = pickle.loads(pickle.dumps(error))
        assert (type(back), back.envelope) == (kind, ENVELOPE)
        assert original_of(error) is error


def _fail(code: int) -> None:
    original = Odd(code=code, session=1)
    raise enveloped(original, ENVELOPE) from original


def test_a_pool_of_processes_is_not_broken_by_an_original_that_cannot_be_read_back() -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        future = pool.submit(_fail, 3)
        with pytest.raises(SidecarError) as caught:
            future.result()
        assert caught.value.envelope == ENVELOPE
        assert pool.submit(int, 3).result() == 3


def test_nothing_holds_it_once_it_is_handled() -> None:
    class Held:
        pass

    def handled() -> weakref.ref[Held]:
        held = Held()
        reference = weakref.ref(held)
        try:
            original = ValueError("x")
            original.held = held  # type: ignore[attr-defined]
            raise enveloped(original, ENVELOPE) from original
        except ValueError:
            return reference

    gc.collect()
    gc.disable()
    try:
        reference = handled()
        gc.collect(0)
    finally:
        gc.enable()
    gc.collect()
    assert reference() is None


@given(st.text(), st.text(), st.integers())
def test_whatever_was_said_is_still_said(name: str, text: str, code: int) -> None:
    kind = type("Made", (Exception,), {"code": code})
    error: Any = enveloped(kind(name, text), ENVELOPE)
    assert (error.args, error.code) == ((name, text), code)
