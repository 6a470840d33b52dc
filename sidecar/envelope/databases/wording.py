"""What of a database's text a person, or a model, may see.

The server's first sentence names the constraint, the column, the table; that is what helps. The
row that failed, the statement with its parameters and the whole reply hold data and stay out. A
key that exists already is named with its value, unless the column, or the value, is a secret by
its looks.
"""

from __future__ import annotations

import re

from sidecar.envelope.key_shapes import HIDDEN
from sidecar.envelope.redact import is_secret_name, looks_secret

_READ = 8192

# What begins the part of a text that repeats data, a statement or a picture of the cluster.
_CUTS = (
    "\n[SQL: ",
    "\n[parameters: ",
    "(Background on this error at",
    ", full error: {",
    ", full error: BulkWrite",
    " (configured timeouts: ",
    ", Topology Description: ",
    "Failing row contains",
    "\nHelp: https://",
)
# Lines of PostgreSQL's that quote the statement or say where in the server it was.
_DROPPED_LINES = (
    "LINE ",
    "CONTEXT:",
    "QUERY:",
    "STATEMENT:",
    "LOCATION:",
    "DETAIL:  Process ",
    "Process ",
)
# What is left of a line whose rest was cut.
_DROPPED = frozenset({"DETAIL:", "HINT:"})

# MySQL says whether a password was sent, in the words of one that is shown.
_LIBRARY = re.compile(r"DB-Lib error message \d{1,6}, severity \d{1,2}:")
_USING_PASSWORD = re.compile(r" \(using password: (?:YES|NO)\)")
_KEY = re.compile(r"\bKey \(([^()\n]{1,200})\)=\((.{0,500}?)\)(?= |\.|\Z)")
_ENTRY = re.compile(r"\bDuplicate entry '(.{0,1000})' for key '([^'\n]{1,200})'")
_MEMBER = re.compile(r"(?<![\w])([\w.]{1,80}): (\"[^\"\n]{0,1000}\"|'[^'\n]{0,1000}')")


def plain(text: str) -> str:
    """The part of a database's text that helps and holds no row, in one piece.

    Args:
        text: what the server or the driver said.
    """
    text = text[:_READ]
    for cut in _CUTS:
        found = text.find(cut)
        if found >= 0:
            text = text[:found]
    lines = [line.strip() for line in text.splitlines()]
    lines = [_USING_PASSWORD.sub("", _LIBRARY.sub("", line)).strip() for line in lines]
    kept = [line for line in lines if line and not _is_dropped(line)]
    said = _without_secrets(" ".join(kept).strip())
    return said if any(map(str.isalnum, said)) else ""


def _is_dropped(line: str) -> bool:
    return line.startswith(_DROPPED_LINES) or not line.strip("^ ") or line in _DROPPED


def _without_secrets(text: str) -> str:
    if "Key (" in text:
        text = _KEY.sub(_key, text)
    if "Duplicate entry '" in text:
        text = _ENTRY.sub(_entry, text)
    if "dup key: {" in text:
        text = _MEMBER.sub(_member, text)
    return text


def _is_secret(names: str, value: str) -> bool:
    columns = [name.strip(' "`').rpartition(".")[2] for name in names.split(",")]
    return any(map(is_secret_name, columns)) or any(map(looks_secret, value.split(", ")))


def _key(match: re.Match[str]) -> str:
    names, value = match.groups()
    return f"Key ({names})=({HIDDEN})" if _is_secret(names, value) else match[0]


def _entry(match: re.Match[str]) -> str:
    value, name = match.groups()
    return f"Duplicate entry '{HIDDEN}' for key '{name}'" if _is_secret(name, value) else match[0]


def _member(match: re.Match[str]) -> str:
    name, value = match.groups()
    return f'{name}: "{HIDDEN}"' if _is_secret(name, value[1:-1]) else match[0]
