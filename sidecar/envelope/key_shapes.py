"""Keys that are known by their looks alone: what many providers put in front, and what follows.

A new provider's prefix is a line here and the end of its word in `_ENDS`. As in `redact`, no
pattern looks at a character more than a fixed number of times.
"""

from __future__ import annotations

import re

HIDDEN = "[redacted]"

KEY_RUN = re.compile(r"(?<![A-Za-z0-9])(?:(?=[A-Za-z]*[0-9])[A-Za-z0-9]{12,}+|[A-Za-z0-9]{24,}+)")
SHAPES = re.compile(
    r"""(?x)
    \b(?:
        (?:sk|pk|rk)-[A-Za-z0-9][A-Za-z0-9_*.-]{5,}        # OpenAI, Anthropic and their like
      | (?:sk|pk|rk|whsec)_(?:live_|test_)?[A-Za-z0-9*]{8,} # Stripe
      | (?:gsk|xai|pplx|hf|r8|nvapi|fw|csk|tgp)[_-][A-Za-z0-9_-]{12,}
      | gh[pousr]_[A-Za-z0-9]{16,} | github_pat_[A-Za-z0-9_]{16,} | glpat-[A-Za-z0-9_-]{12,}
      | xox[a-z]-[A-Za-z0-9-]{8,} | xapp-[A-Za-z0-9-]{8,}
      | AIza[A-Za-z0-9_-]{20,} | ya29\.[A-Za-z0-9_-]{10,}
      | AQ\.[A-Za-z0-9_-]{20,}                             # Google's keys of the newer kind
      | (?:AKIA|ASIA)[A-Z0-9]{12,}
      | (?:ABSK|bedrock-api-key-)[A-Za-z0-9+/]{20,}=*      # Bedrock's
      | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}         # SendGrid's
      | npm_[A-Za-z0-9]{30,} | pypi-[A-Za-z0-9_-]{30,} | do[opr]_v1_[A-Za-z0-9]{30,}
      | gl(?:ptt|cbt|dt|rt|ft|soat)-[A-Za-z0-9_-]{16,} | dckr_pat_[A-Za-z0-9_-]{16,}
      | (?:e2b|esecret|figd|glsa|GOCSPX|HRKU|jina|lin_(?:api|oauth)|lsv2_(?:pt|sk)|nfp|NRAK|ntn
          |pcsk|ph[cx]|sbp|shp(?:at|ca|pa|ss)|sntry[su]|tvly|xkeysib)[_-][A-Za-z0-9_-]{16,}
      | secret_[A-Za-z0-9]{40,} | re_[A-Za-z0-9]{7,9}_[A-Za-z0-9]{16,} | a[ks]-[A-Za-z0-9]{20,}
      | pa-[A-Za-z0-9_-]{40,} | (?:fc|key)-[0-9a-f]{32} | (?:dapi|SK)[0-9a-f]{32}
      | hv[bs]\.[A-Za-z0-9_-]{20,} | dp\.(?:ct|pt|st)\.[A-Za-z0-9]{30,}
      | ATATT3x[A-Za-z0-9_-]{20,}(?:=[A-F0-9]{8})?         # Atlassian's
      | (?:FwoG|IQoJ)[A-Za-z0-9+/]{24,}=*                  # a session's of AWS
      | EAA[A-Za-z0-9]{24,}                                # Meta's
    )"""
)
# Airtable's, and those of Discord's bots; nothing but their dots and lengths tells them.
_DOTTED = re.compile(
    r"pat[A-Za-z0-9]{14}\.[0-9a-f]{20,}"
    r"|[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"
)
WEB_TOKEN = re.compile(
    r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{0,16}?eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{4,}+"
    r"(?:\.[A-Za-z0-9_-]*+){0,3}"
)
# Addresses that are themselves the credential: bots and incoming webhooks of chats.
CAPABILITY = re.compile(
    r"""(?x)
    \bbot\d{3,20}(?::|%3[Aa])[A-Za-z0-9_-]{8,}
  | \b\d{6,20}(?::|%3[Aa])AA[A-Za-z0-9_-]{28,}
  | \b(?:services/T[A-Z0-9]{5,}/B[A-Z0-9]{5,} | webhooks/\d{5,25}) / [A-Za-z0-9_-]{8,}
    """
)

# What stands in every text that the patterns above could hit: to search for a word is ten times
# quicker than to try a pattern at every character.
_STARTS = (
    "AIza", "AKIA", "ASIA", "AQ.", "ABSK", "ATATT3x", "EAA", "FwoG", "IQoJ", "SG.", "SK",
    "dapi", "dp.", "hvb.", "hvs.", "xox", "ya29.",
)  # fmt: skip
# How the words in front of the dash or underscore of a known key end.
_ENDS = (
    "sk", "pk", "rk", "whsec", "xai", "pplx", "hf", "r8", "nvapi", "fw", "tgp", "ghp", "gho",
    "ghu", "ghs", "ghr", "pat", "xapp", "key", "npm", "pypi", "v1", "glptt", "glcbt", "gldt",
    "glrt", "glft", "glsoat", "e2b", "secret", "figd", "glsa", "GOCSPX", "HRKU", "jina", "api",
    "oauth", "pt", "nfp", "NRAK", "ntn", "phc", "phx", "sbp", "shpat", "shpca", "shppa", "shpss",
    "sntrys", "sntryu", "tvly", "xkeysib", "re", "ak", "as", "pa", "fc",
)  # fmt: skip


def hide_shapes(text: str) -> str:
    """Hide what has the looks of a key, a signed token or the address of a bot."""
    if _may_hold_shape(text):
        text = SHAPES.sub(_hide_shape, text)
    if "." in text and ("pat" in text or text.count(".") > 1):
        text = _DOTTED.sub(HIDDEN, text)
    if "J" in text and "eyJ" in text:
        text = WEB_TOKEN.sub(HIDDEN, text)
    if "bot" in text or "s/" in text or ("A" in text and "AA" in text):
        text = CAPABILITY.sub(HIDDEN, text)
    return text


def _may_hold_shape(text: str) -> bool:
    for part in text.replace("-", "_").split("_"):
        if part.endswith(_ENDS):
            return True
    return any(start in text for start in _STARTS)


def _hide_shape(match: re.Match[str]) -> str:
    """A key after a word that names of models begin with, too, has something random in it."""
    shape = match[0]
    if shape.startswith(("sk", "pk", "rk", "whsec", "xox", "xapp")) or KEY_RUN.search(shape):
        return HIDDEN
    return shape
