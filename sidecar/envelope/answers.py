"""Whether a 2xx is an answer at all: a model route's blank, page or cut JSON is none."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from sidecar.envelope.decode import looks_like_html
from sidecar.envelope.model import Seen

# Decoding to check for a cut end is worth it for bodies of this size; of longer ones the last
# bracket has to do.
_WORTH_VALIDATING = 32768


@lru_cache(maxsize=64)
def may_be_text(content_type: str | None) -> bool:
    """Audio, images and archives hold no error; JSON, text, pages and unknown types may."""
    if content_type is None:
        return True
    kind = content_type.partition(";")[0].strip().lower()
    return not kind or "json" in kind or (kind.startswith("text/") and kind != "text/event-stream")


def why_no_answer(seen: Seen) -> str | None:
    """Why a model route's 2xx is none: blank, a page, or cut JSON; None if it may be one."""
    body = seen.body.strip(b"\xef\xbb\xbf \t\r\n")
    if not body:
        coded = (seen.headers.get("content-encoding") or "identity").lower() != "identity"
        return None if seen.body == b"" and coded else "an empty body"
    if body[:1] == b"<" and looks_like_html(body):
        return "a web page"
    if seen.truncated or not body.startswith((b"{", b"[")):
        return None
    if not body.endswith((b"}", b"]")):
        return "JSON that was cut"
    if len(body) <= _WORTH_VALIDATING:
        try:
            msgspec.json.decode(body, type=msgspec.Raw)
        except msgspec.DecodeError as error:
            # Some servers write NaN: only a missing end is a fault here.
            return "JSON that was cut" if "truncated" in str(error) else None
        except RecursionError:
            return None
    return None
