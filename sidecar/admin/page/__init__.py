"""The status page: one document, put together once from the files of this folder.

Markup, style and script are files of their own so that each can be read as what it is, and are
answered as one, so that the page needs no second call: a browser that is asked for a token can be
shown it together with the refusal. It holds no figures. The script asks `/status`, `/events` and
`/v1/failures` for them as any other client would, and writes them as text nodes only; the policy
below makes the browser refuse everything else.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from importlib.resources import files

import msgspec

from sidecar.admin.words import IN_WORDS

_SCRIPTS = (
    "document.js",
    "wire.js",
    "words.js",
    "breakers.js",
    "failures.js",
    "steer.js",
    "main.js",
)
"""In the order in which they build on each other; they share one scope."""


class Page(msgspec.Struct, frozen=True):
    """The page as it is sent.

    Attributes:
        body: the document.
        policy: its `Content-Security-Policy`: this style and this script, no other, and no
            address but our own.
    """

    body: bytes
    policy: str


@functools.cache
def page() -> Page:
    """The page, read once."""
    style = _file("style.css")
    script = '"use strict";\n' + "\n".join(_file(name) for name in _SCRIPTS)
    words = json.dumps(IN_WORDS).replace("<", "\\u003c")
    document = _file("index.html")
    for mark, text in (("style", style), ("words", words), ("script", script)):
        document = document.replace(f"/*{mark}*/", text)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return Page(document.encode(), policy)


def _file(name: str) -> str:
    return (files(__name__) / name).read_text("utf-8")


def _hash(text: str) -> str:
    """The source expression that lets exactly this text run."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
