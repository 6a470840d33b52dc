"""The client in a process that has nothing else: what it imports, and what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Refuses whatever is not of the standard library or ours.
FORBID = """
import sys
class Forbid:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top != "sidecar":
            raise ImportError(f"{name} was asked for")
sys.meta_path.insert(0, Forbid())
"""


def run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", textwrap.dedent(code)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def good(code: str, **environ: str) -> str:
    done = run(code, **environ)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_nothing_of_a_third_party_is_imported() -> None:
    names = "aiohttp pybreaker asyncio_throttle opentelemetry rich uvloop msgspec brotli zstandard"
    good(
        f"""{FORBID}
import sidecar.client
assert not [name for name in {names.split()!r} if name in sys.modules]
assert "asyncio" not in sys.modules
"""
    )


def test_a_call_that_goes_well_needs_nothing_either() -> None:
    good(
        f"""{FORBID}
import asyncio
from sidecar.client import guard, retry
with guard("orders-db", admin="http://127.0.0.1:1"):
    pass
@retry
@guard("orders-db", admin="http://127.0.0.1:1")
async def call():
    return 1
assert asyncio.run(call()) == 1
assert retry(idempotent=True).call(lambda: 2) == 2
"""
    )


def test_without_what_judges_the_exception_passes_as_it_is() -> None:
    done = run(
        f"""{FORBID}
from sidecar.client import guard, retry
try:
    with guard("orders-db", admin="http://127.0.0.1:1"):
        raise KeyError("x")
except KeyError as error:
    assert type(error) is KeyError and error.__cause__ is None, error
@retry
def call():
    raise KeyError("x")
try:
    call()
except KeyError as error:
    assert type(error) is KeyError and error.__cause__ is None, error
"""
    )
    assert done.returncode == 0, done.stderr
    assert "could not be judged" in done.stderr
    assert "msgspec was asked for" in done.stderr


def test_every_module_can_be_the_first() -> None:
    folder = ROOT / "sidecar" / "client"
    for name in sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__"):
        good(f"import sidecar.client.{name}")


def test_a_process_leaves_no_threads_and_no_sockets(fake) -> None:
    daemon = fake()
    code = """
        import threading
        from sidecar.client import guard
        for _ in range(3):
            with guard("orders-db"):
                pass
        assert threading.active_count() == 1
        """
    good(code, BREAKER_SIDECAR_ADMIN=daemon.address)
    assert [one["ok"] for one in daemon.outcomes(6)] == [True] * 3


def test_what_the_first_failure_needs_can_be_loaded_before() -> None:
    good(
        """
        import sys
        from sidecar.client import guard, preload
        preload()
        before = set(sys.modules)
        try:
            with guard("orders-db", admin="http://127.0.0.1:1"):
                raise KeyError("x")
        except KeyError as error:
            assert error.envelope.class_ == "permanent"
        late = {name for name in set(sys.modules) - before if name.startswith(("sidecar", "msgspec"))}
        assert not late, late
        """
    )
