"""Keeps secrets out of everything that is shown, logged or handed to a model.

Error bodies quote the key that was refused, URLs carry keys in their query, headers are keys. All
text that leaves in an envelope, a log line or an admin answer goes through here. When in doubt a
value is hidden: a lost detail is a nuisance, a leaked key is an incident.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "[redacted]"

_SECRET_HEADERS = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "authentication-info",
        "cookie",
        "set-cookie",
        "set-cookie2",
        "x-amz-security-token",
        "x-csrf-token",
        "x-xsrf-token",
        "private-token",
        "x-vault-token",
        "stripe-signature",
    }
)
_SECRET_HEADER = re.compile(
    r"(?:^|[-_])(?:api-?key|apikey|access-?key|secret|password|passwd|credential|session)s?(?:$|[-_])"
    r"|(?:^|[-_])(?:auth|access|refresh|id|bearer|api|user|session|security)[-_]?token$"
    r"|subscription-key$|goog-api-key$",
)

# Names whose value is a secret wherever they stand: a query, a form, a JSON member.
_NAME_OF_ONE = (
    r"(?:api[_-]?key|apikey|access[_-]?key|secret(?:[_-]?key)?|password|passwd|pwd"
    r"|(?:access|refresh|id|auth|session|security|bearer)[_-]?token|authorization|credential"
    r"|signature|private[_-]?key)"
)
_QUERY_SECRET = re.compile(
    rf"(?i)([?&;](?:[a-z0-9_-]{{0,40}}{_NAME_OF_ONE}|key|token|sig|code|auth|x-amz-[a-z-]{{1,40}})=)"
    r"([^&;#\s\"'<>\\]+)"
)
_ASSIGNED_SECRET = re.compile(
    rf"(?i)({_NAME_OF_ONE}\\?[\"']?\s{{0,8}}[:=]\s{{0,8}})"
    r"(\\\"[^\"]*\"|\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s,;&\"'{}\[\]]+)",
    re.DOTALL,
)
_BARE_MEMBER = re.compile(r"(\"token\"\s*:\s*)\"[^\"]{12,}\"", re.IGNORECASE)
_SCHEME = re.compile(r"(?i)\b(bearer|basic|negotiate|token)(\s+)([A-Za-z0-9._~+/=-]{12,})")
_USERINFO = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,15}://)[^/\s:@\"']{0,256}:[^/\s@\"']{1,256}@")
_SHAPES = re.compile(
    r"""(?x)
    \b(?:
        (?:sk|pk|rk)-[A-Za-z0-9][A-Za-z0-9_*.-]{5,}        # OpenAI, Anthropic and their like
      | (?:sk|pk|rk|whsec)_(?:live_|test_)?[A-Za-z0-9*]{8,} # Stripe
      | (?:gsk|xai|pplx|hf|r8|nvapi|fw|csk|tgp)[_-][A-Za-z0-9_-]{12,}
      | gh[pousr]_[A-Za-z0-9]{16,} | github_pat_[A-Za-z0-9_]{16,} | glpat-[A-Za-z0-9_-]{12,}
      | xox[a-z]-[A-Za-z0-9-]{8,} | xapp-[A-Za-z0-9-]{8,}
      | AIza[A-Za-z0-9_-]{20,} | ya29\.[A-Za-z0-9_-]{10,}
      | (?:AKIA|ASIA)[A-Z0-9]{12,}
      | eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)? # JSON Web Token
    )"""
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)

# One of these stands in every text that the patterns above could hit: most texts have none.
_SCHEME_WORDS = ("bearer", "basic", "negotiate", "token")
_NAME_WORDS = ("key", "secret", "passw", "pwd", "token", "authorization", "credential", "signature")
_SHAPE_STARTS = (
    "sk-", "pk-", "rk-", "sk_", "pk_", "rk_", "whsec_", "gsk", "xai", "pplx", "hf_", "hf-",
    "r8_", "r8-", "nvapi", "fw_", "fw-", "csk", "tgp", "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
    "github_pat_", "glpat-", "xox", "xapp-", "AIza", "ya29.", "AKIA", "ASIA", "eyJ",
)  # fmt: skip


def redact_text(text: str) -> str:
    """Hide keys, tokens, passwords and URL credentials in any text, JSON or prose.

    Args:
        text: what a source wrote.

    Returns:
        The same text with each secret replaced by `[redacted]`; its JSON structure survives.
    """
    if not text:
        return text
    lower = text.lower()
    if "://" in text:
        text = _USERINFO.sub(rf"\1{HIDDEN}@", text)
    if "=" in text:
        text = _QUERY_SECRET.sub(rf"\1{HIDDEN}", text)
    if any(word in lower for word in _SCHEME_WORDS):
        text = _SCHEME.sub(rf"\1\2{HIDDEN}", text)
    if any(word in lower for word in _NAME_WORDS):
        text = _PRIVATE_KEY.sub(HIDDEN, text)
        text = _ASSIGNED_SECRET.sub(_hide_assigned, text)
        text = _BARE_MEMBER.sub(rf'\1"{HIDDEN}"', text)
    if any(start in text for start in _SHAPE_STARTS):
        text = _SHAPES.sub(HIDDEN, text)
    return text


def _hide_assigned(match: re.Match[str]) -> str:
    name, value = match.group(1), match.group(2)
    if HIDDEN in value or value in {"null", "true", "false"}:
        return match.group(0)
    quote = re.match(r"\\?[\"']", value)
    mark = quote.group(0) if quote else ""
    return f"{name}{mark}{HIDDEN}{mark}"


def is_secret_header(name: str) -> bool:
    """Whether the value of the header of this name (any case) must never be shown."""
    name = name.lower()
    return name in _SECRET_HEADERS or _SECRET_HEADER.search(name) is not None


def redact_headers(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers as one mapping of lower-case names, repeats joined by comma, secrets hidden.

    Args:
        pairs: names and values, in the order of the message.

    Returns:
        Name to value; a secret's value is `[redacted]`.
    """
    shown: dict[str, str] = {}
    for name, value in pairs:
        key = name.lower()
        text = HIDDEN if is_secret_header(key) else redact_text(value)
        shown[key] = f"{shown[key]}, {text}" if key in shown else text
    return shown


def redact_target(path_and_query: str) -> str:
    """A request target fit for a log: secrets in path and query hidden, control characters gone.

    Args:
        path_and_query: the target as it came, still percent-encoded.
    """
    path, mark, query = path_and_query.partition("?")
    path = _SHAPES.sub(HIDDEN, path)
    shown = path
    if mark:
        shown = path + _QUERY_SECRET.sub(rf"\1{HIDDEN}", mark + query)
        shown = _SHAPES.sub(HIDDEN, shown)
    if shown.isprintable():
        return shown
    return "".join(char if char.isprintable() else "?" for char in shown)
