"""The recorded cases: what providers really sent, and what it means.

They are read from the folder they are kept in where that stands beside the repository, else from
the copy in `tests/data`.
"""

import base64
import json
from functools import cache
from pathlib import Path

from sidecar.envelope.dialects import get
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.model import Classified, Seen
from sidecar.envelope.stream import StreamReader, is_stream

_ROOT = Path(__file__).resolve().parent.parent
_KEPT = _ROOT.parent / "shared" / "cases"
_COPY = _ROOT / "tests" / "data"

#: 2026-11-30T12:00:00Z, the moment at which the cases without one of their own are seen.
NOW = 1796040000.0


@cache
def all_cases(name="http-cases.jsonl"):
    """Every case of a file, in order."""
    path = _KEPT / name if (_KEPT / name).exists() else _COPY / name
    return tuple(json.loads(line) for line in path.read_text().splitlines() if line.strip())


def seen_of(case):
    """The answer of a case as the proxy would have seen it."""
    response = case["response"]
    body = response.get("body") or ""
    encoded = response.get("body_encoding") == "base64"
    return Seen(
        status=response["status"],
        headers=Headers((response.get("headers") or {}).items()),
        body=base64.b64decode(body) if encoded else body.encode(),
        method=case["request"]["method"],
        path=case["request"]["path"],
        now=float(case.get("now") or NOW),
    )


def classify_case(case, *, piece=None, correlation_id="corr-1") -> Classified:
    """Classify a case whole, or as a stream in pieces of that many bytes."""
    seen, dialect = seen_of(case), get(case["provider"])
    kind = seen.headers.get("content-type")
    stream = seen.status < 400 and is_stream(kind, seen.body[:512])
    if not case.get("stream", stream):
        return classify(seen, dialect, correlation_id=correlation_id)
    reader = StreamReader(dialect, seen, correlation_id=correlation_id)
    step = piece or max(1, len(seen.body))
    for start in range(0, len(seen.body), step):
        reader.feed(seen.body[start : start + step])
    return reader.finish(clean=True)
