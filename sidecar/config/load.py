"""Find `breakers.yaml`, read it, and make of it what the program works with, or say why not.

The current folder is never searched: a cloned repository must not redirect anybody's keys.
Nothing is applied here and nothing is kept, so that a reload tries a new file as a start does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import sidecar
from sidecar.config import document
from sidecar.config.kinds import READERS
from sidecar.config.overrides import PREFIX, Overrides
from sidecar.config.problems import ConfigError, Problem
from sidecar.config.reader import NOTHING, Reader
from sidecar.config.resolve import Resolver
from sidecar.config.resolved import Config
from sidecar.config.schema import Root

__all__ = ["ConfigError", "Overrides", "default_path", "find", "load"]

SYSTEM_PATH = Path("/etc/breaker-sidecar/breakers.yaml")


def default_path() -> Path:
    """The file that comes with the package: inside it, or beside it in a checkout."""
    package = Path(sidecar.__file__).resolve().parent
    inside = package / "breakers.yaml"
    return inside if inside.exists() else package.parent / "breakers.yaml"


def find(path: Path | None, environ: Mapping[str, str]) -> Path:
    """The file to read: the given one, else the first that is named or exists."""
    if path is not None:
        return path
    if named := environ.get(f"{PREFIX}CONFIG"):
        return Path(named)
    try:
        SYSTEM_PATH.stat()
    except (FileNotFoundError, NotADirectoryError):
        return default_path()
    except OSError:
        # It is there and cannot be reached; reading it says so, and passing over it would not.
        return SYSTEM_PATH
    return SYSTEM_PATH


def load(
    path: Path | None = None,
    *,
    environ: Mapping[str, str],
    unknown_keys: Literal["error", "warn"] = "error",
    overrides: Overrides | None = None,
) -> Config:
    """The whole configuration, checked.

    Args:
        path: the file, if the search is not wanted.
        environ: the environment, for the search, for variables in the file and for overrides.
        unknown_keys: `warn` lets a file with keys of a later version pass.
        overrides: the flags.

    Raises:
        ConfigError: with every problem that was found.
    """
    file = find(path, environ)
    source = str(file)
    root = document.parse(_content(file, source), source)
    if root is None:
        raise ConfigError([Problem(source, None, "", "the file is empty")])
    reader = Reader(
        source,
        environ,
        READERS,
        folder=Path(os.path.abspath(file)).parent,  # noqa: PTH100 - links stay as they are
        unknown_keys=unknown_keys,
    )
    values = reader.read_struct(root, Root, "")
    if values is NOTHING:
        raise ConfigError(reader.problems)
    return Resolver(reader, values, overrides or Overrides()).resolve()


def _content(file: Path, source: str) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(document.MOST_BYTES + 1)
    except FileNotFoundError:
        reason = "there is no such file"
    except (OSError, ValueError) as error:
        text = (error.strerror if isinstance(error, OSError) else None) or "no path to a file"
        reason = f"the file cannot be read: {text.lower()}"
    raise ConfigError([Problem(source, None, "", reason)])
