"""The real helm and kubectl, from a package of the npm registry: they come with no other one."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.conftest import need

HERE = Path(__file__).parent / "node"
INSTALL_SECONDS = 180


@pytest.fixture(scope="session")
def binaries() -> Path:
    """A folder with `helm` and `kubectl` of package-lock.json."""
    npm = shutil.which("npm")
    if npm is None:
        need("npm is not installed, which brings helm and kubectl")
    lock, folder = HERE / "package-lock.json", HERE / "node_modules"
    mark, found = folder / ".installed", folder / ".binaries"
    if not mark.exists() or mark.read_text() != lock.read_text():
        try:
            subprocess.run(
                [npm, "ci", "--prefer-offline", "--ignore-scripts"],
                cwd=HERE, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            need("npm could not fetch helm and kubectl in time")
        except subprocess.CalledProcessError as error:
            need(f"npm could not fetch helm and kubectl: {error.stderr[-300:]}")
        (layer,) = folder.glob("@aws-cdk/*/lib/layer.zip")
        found.mkdir()
        with zipfile.ZipFile(layer) as packed:
            for name in ("helm", "kubectl"):
                (found / name).write_bytes(packed.read(f"{name}/{name}"))
                (found / name).chmod(0o755)
        mark.write_text(lock.read_text())
    try:
        subprocess.run([found / "helm", "version"], check=True, capture_output=True)
    except OSError:
        need("helm of the package does not run on this machine")
    return found


@pytest.fixture(scope="session")
def helm(binaries: Path) -> str:
    return str(binaries / "helm")


@pytest.fixture(scope="session")
def kubectl(binaries: Path) -> str:
    return str(binaries / "kubectl")
