"""Keeps secrets out of everything that is shown, logged or handed to a model.

Error bodies quote the key that was refused, URLs carry keys in their query, headers are keys. All
text that leaves in an envelope, a log line or an admin answer goes through here. When in doubt a
value is hidden: a lost detail is a nuisance, a leaked key is an incident.

Here secrets are known by their looks and their names; `credentials` knows those of one request.
Whoever sends a text chooses it, so no pattern may look at a character more than a fixed number of
times: a repetition without a bound is possessive, ends the pattern, or begins only where nothing
like it stands before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from secrets import token_bytes
from urllib.parse import unquote, unquote_plus

from sidecar.envelope.key_shapes import (
    CAPABILITY,
    HIDDEN,
    KEY_RUN,
    SHAPES,
    WEB_TOKEN,
    hide_shapes,
)

SHORTEST = 8
"""Characters of the shortest value that is taken for a secret where nothing names it."""

SHOWN_TARGET = 512
"""Characters of a path, and of a query, that a log line has room for; 64 KiB may come."""

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
        "signature",
        "dpop",
        "token",
    }
)
_SECRET_HEADER = re.compile(
    r"(?:^|[-_])(?:api-?key|apikey|access-?key|secret|password|passwd|credential|session)s?(?:$|[-_])"
    r"|(?:^|[-_])auth(?:orization)?(?:[-_]key)?$"
    r"|(?:^|[-_])(?:auth|access|refresh|id|bearer|api|user|session|security)[-_]?token$"
    r"|(?:^|[-_])(?:assertion|bearer|jwt|pass|secret-?key|sid)$"
    r"|[-_]signature(?:-\d{1,4})?$"
    r"|subscription-key$|goog-api-key$",
)

# Names whose value is a secret wherever they stand: a query, a form, a JSON member.
_NAME_OF_ONE = (
    r"(?:(?:access|account|admin|api|app(?:lication)?|auth|client|consumer|encryption|license"
    r"|master|private|service|shared|signing|subscription|user)[_-]?key"
    r"|secret(?:[_-]?key)?|password|passwd|passphrase|passcode|pwd"
    r"|(?:access|api|app|auth|bearer|bot|client|csrf|deploy|device|id|job|login|private|refresh"
    r"|security|session|user|xsrf)[_-]?token"
    r"|authorization|credentials?|signature|client[_-]?assertion|code[_-]?verifier"
    r"|device[_-]?code)"
)
_SECRET_NAME = re.compile(rf"{_NAME_OF_ONE}\Z|\Ax-amz-")
_OF_A_PARAMETER = re.compile(r"[_-](?:key|token)\Z|\A(?:pin|sign)\Z")
# Keys and tokens that open nothing: where a page begins, how a thing is called.
_OPEN_NAME = re.compile(
    r"(?:page|next|cursor|continuation|sync|skip|idempotency|public|cache|sort|partition|primary"
    r"|row|group|issue|project)[_-]?(?:page[_-]?)?(?:key|token)\Z"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SHORT_SECRET_NAMES = frozenset(
    {"key", "token", "sig", "code", "auth", "jwt", "pass", "sid", "ticket", "assertion", "hmac",
     "otp", "pat", "session", "sessionid", "jsessionid", "session_id", "appid", "app_id", "appkey",
     "app_key"}
)  # fmt: skip
# A quotation mark as JSON in JSON, a page and a query write it.
_ENTITY = r"(?:&(?:quot|apos|\#0{0,2}3[49]|\#[xX]0{0,2}2[27]);|\\{1,7}u002[27]|%2[27])"
_QUERY_PAIR = re.compile(r"([?&;])([^=&;#?\s\"'<>\\]{1,64})=([^&;#\s\"'<>\\]+)")
_ASSIGNED_SECRET = re.compile(
    rf"(?i)({_NAME_OF_ONE}(?:\\{{0,7}}[\"']|{_ENTITY})?[\s+]{{0,8}}(?:[:=]|%3[ad])[\s+]{{0,8}})"
    rf"({_ENTITY}(?:(?!{_ENTITY})[^\n])*+{_ENTITY}?"
    r"|\\{1,7}\"[^\"\n]*+\"?|\"(?:[^\"\\\n]|\\.)*+\"?|'[^'\n]*+'?|[^\s,;&\"'{}\[\]]+)",
    re.DOTALL,
)
_MARK = re.compile(rf"(?i)\\{{0,7}}[\"']|{_ENTITY}")
_BARE_MEMBER = re.compile(
    rf"(?i)((?:\\{{0,7}}\"|{_ENTITY})(?:token|jwt|auth|pat)(?:\\{{0,7}}\"|{_ENTITY})\s{{0,8}}:\s{{0,8}}"
    rf"(?:\\{{0,7}}\"|{_ENTITY}))[^\s\"\\&%]{{12,}}+(?=\\{{0,7}}\"|{_ENTITY})"
)
# "Incorrect API key provided: …": prose that quotes what was refused.
_TOLD_SECRET = re.compile(
    r"(?i)\b((?:api|access|secret|auth|bearer|session)[ _-]?(?:key|token)s?"
    r"(?: (?:provided|supplied|given|received|used|invalid|is|was)){0,2}"
    r"(?:\s?[:=]\s?|\s)[\\\"'`(]{0,2})"
    r"(?=[A-Za-z0-9._~+/*=-]{0,64}\d)([A-Za-z0-9][A-Za-z0-9._~+/*=-]{11,})"
)
# `token: …` outside JSON: parsers speak of tokens, too, but not of long ones with digits in them.
_BARE_TOKEN = re.compile(
    r"(?i)\b(token\s{0,8}[:=]\s{0,8}[\"']?)"
    r"(?=[A-Za-z0-9._~+/*-]{0,64}\d)([A-Za-z0-9][A-Za-z0-9._~+/*-]{15,}+=*+)"
)
# SQL that sets a password, which servers quote where it does not parse.
_SQL_PASSWORD = re.compile(r"(?i)\b((?:identified by|password)\s{1,8})'[^'\n]*+'?")
# `user/password@//host:1521/service`, as Oracle's clients write an address.
_EASY_CONNECT = re.compile(r"\b(\w{1,64}/)[^\s/@\"']++(@//)")
_COOKIES = re.compile(
    r"(?i)\b((?:set-)?cookie2?\\?[\"']?\s{0,8}[:=]\s{0,8}\\?[\"']?)"
    r"[^\s=;,\"'<>\\]{1,128}=[^\s;\"'<>\\]*+"
    r"(?:;\s{0,4}[^\s=;\"'<>\\]++(?:=[^\s;\"'<>\\]*+)?)*+"
)
_SCHEME = re.compile(r"(?i)\b(bearer|basic|negotiate|token)(\s{1,8})([A-Za-z0-9._~+/=-]{12,})")
_USERINFO = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,15}://)[^/\s:@\"']*+:[^/\s@\"']++@")
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)

# What stands in every text that the patterns above could hit: most texts have none of it.
_SCHEME_TOKEN = re.compile(r"token\s")
_NAME_ENDS = (
    "key", "token", "secret", "password", "passwd", "passphrase", "passcode", "pwd",
    "authorization", "credential", "credentials", "signature", "assertion", "verifier",
    "device_code", "device-code", "devicecode", "jwt", "auth", "pat",
)  # fmt: skip
_TOLD_NAMES = ("api", "access", "secret", "auth", "bearer", "session")
_BETWEEN = " \t\n\r\f\v\"'\\"

# Nothing in a path of short words can be a secret, unless it is the address of a webhook.
_SHORT_WORDS = re.compile(
    r"(?:[^A-Za-z0-9%;]*+(?:[A-Za-z]{1,23}+|[A-Za-z0-9]{1,11}+)(?![A-Za-z0-9]))*+[^A-Za-z0-9%;]*+"
)
_HOOKS = frozenset(
    {"hook", "hooks", "services", "triggers", "workflows"}
)  # fmt: skip
"""Path segments whose followers are the credential of an incoming webhook, beside those that speak
of a webhook themselves."""

_NAMES_IN_PATHS = frozenset(
    {"token", "access-token", "access_token", "apikey", "api-key", "api_key", "secret"}
)
"""Path segments that name the one behind them."""

_PARTS = re.compile(r"[:/.@\s]")
_ID_PREFIX = re.compile(r"[a-z]{2,16}[_-]")
_RANDOM_RUN = re.compile(
    r"(?<![A-Za-z0-9])(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{12,}+"
)
_RANDOM_LENGTH = 32
"""Characters, without an id's prefix, from which on a random name is taken for a key: 192 bits.
The ids that APIs hand out are shorter or hexadecimal."""

_SALT = token_bytes(16)


# In a storm the same words come again and again. Only texts without a secret are remembered.
_CLEAN: dict[str, None] = {}
_CLEAN_LENGTH = 2048
_MOST_CLEAN = 256


def redact_text(text: str) -> str:
    """Hide keys, tokens, passwords and URL credentials in any text, JSON or prose.

    Args:
        text: what a source wrote.

    Returns:
        The same text with each secret replaced by `[redacted]`; its JSON structure survives.
    """
    if not text or text in _CLEAN:
        return text
    shown = _hide(text)
    if len(text) <= _CLEAN_LENGTH and shown == text:
        if len(_CLEAN) >= _MOST_CLEAN:
            _CLEAN.clear()
        _CLEAN[text] = None
    return shown


def _hide(text: str) -> str:
    lower = text.lower()
    if "/" in text and "://" in text:
        text = _USERINFO.sub(rf"\1{HIDDEN}@", text)
    if "@//" in text:
        text = _EASY_CONNECT.sub(rf"\1{HIDDEN}\2", text)
    if "=" in text:
        text = _QUERY_PAIR.sub(_hide_pair, text)
        if "cookie" in lower:
            text = _COOKIES.sub(rf"\1{HIDDEN}", text)
    if _may_name_scheme(lower):
        text = _SCHEME.sub(rf"\1\2{HIDDEN}", text)
    return hide_shapes(_hide_named(text, lower))


def _may_name_scheme(lower: str) -> bool:
    if "bearer" in lower or "basic" in lower or "negotiate" in lower:
        return True
    return "token" in lower and _SCHEME_TOKEN.search(lower) is not None


def _hide_named(text: str, lower: str) -> str:
    """Hide values that stand behind the name of a secret; `lower` is the text before any change."""
    if _may_assign(lower):
        text = _ASSIGNED_SECRET.sub(_hide_assigned, text)
        text = _BARE_MEMBER.sub(rf"\1{HIDDEN}", text)
        text = _BARE_TOKEN.sub(rf"\1{HIDDEN}", text)
    if "'" in text and ("identified by" in lower or "password" in lower):
        text = _SQL_PASSWORD.sub(rf"\1{HIDDEN}", text)
    if _tells_of(lower, "key") or _tells_of(lower, "token"):
        text = _TOLD_SECRET.sub(rf"\1{HIDDEN}", text)
    return _PRIVATE_KEY.sub(HIDDEN, text) if "-----BEGIN " in text else text


def _may_assign(lower: str) -> bool:
    if "&quot" in lower or "&#" in lower or "u002" in lower or "%3" in lower:
        return any(end in lower for end in _NAME_ENDS)
    return _assigns(lower, ":") or ("=" in lower and _assigns(lower, "="))


def _assigns(lower: str, mark: str) -> bool:
    """Whether the name of a secret stands in front of a colon or an equals sign."""
    parts = lower.split(mark)
    parts.pop()
    return any(part[-32:].rstrip(_BETWEEN).endswith(_NAME_ENDS) for part in parts)


def _tells_of(lower: str, word: str) -> bool:
    """Whether the text speaks of a key or a token of the kind that is a secret."""
    if word not in lower:
        return False
    parts = lower.split(word)
    parts.pop()
    return any(part[-8:].rstrip(" _-").endswith(_TOLD_NAMES) for part in parts)


def _hide_pair(match: re.Match[str]) -> str:
    mark, name, value = match.groups()
    if is_secret_parameter(name) or looks_secret(unquote_plus(value) if "%" in value else value):
        return f"{mark}{name}={HIDDEN}"
    return match.group(0)


def _hide_assigned(match: re.Match[str]) -> str:
    name, value = match.group(1), match.group(2)
    if HIDDEN in value or value in {"null", "true", "false"}:
        return match.group(0)
    quote = _MARK.match(value)
    mark = quote.group(0) if quote else ""
    return f"{name}{mark}{HIDDEN}{mark}"


def is_secret_header(name: str) -> bool:
    """Whether the value of the header of this name (any case) must never be shown."""
    return _header(name)[1]


@lru_cache(maxsize=1024)
def _header(name: str) -> tuple[str, bool]:
    """A header's name in lower case, and whether its value is a secret."""
    name = name.lower()
    return name, name in _SECRET_HEADERS or _SECRET_HEADER.search(name) is not None


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether the value of a member, a column or a parameter of this name must never be shown.

    Args:
        name: as it stands in the query; `k%65y` is `key` to whoever reads it.
    """
    name = _spelt(name)
    if name in _SHORT_SECRET_NAMES or name.replace("_", "") in _SHORT_SECRET_NAMES:
        return True
    return _SECRET_NAME.search(name) is not None


@lru_cache(maxsize=1024)
def is_secret_parameter(name: str) -> bool:
    """`is_secret_name` of what a caller sends: any key and any token but those that open nothing.

    Args:
        name: as it stands in the query.
    """
    if is_secret_name(name):
        return True
    name = _spelt(name)
    return _OF_A_PARAMETER.search(name) is not None and _OPEN_NAME.search(name) is None


def _spelt(name: str) -> str:
    return _CAMEL.sub("_", unquote_plus(name)).lower()


def looks_secret(text: str) -> bool:
    """Whether one value, name or path segment is a credential by its looks.

    True for the known shapes of keys with something random in them, and for 32 characters or more
    that mix upper case, lower case and digits. A UUID, a hash in hexadecimal digits, an id with its
    prefix or a model's name is none.
    """
    if len(text) < SHORTEST or KEY_RUN.search(text) is None:
        return False
    for shape in SHAPES.finditer(text):
        if KEY_RUN.search(shape[0]):
            return True
    if "eyJ" in text and WEB_TOKEN.search(text):
        return True
    if (":" in text or "/" in text or "%" in text) and CAPABILITY.search(text):
        return True
    if len(text) < _RANDOM_LENGTH or _RANDOM_RUN.search(text) is None:
        return False
    return any(_is_random(part) for part in _PARTS.split(text))


def _is_random(part: str) -> bool:
    if len(part) < _RANDOM_LENGTH or _RANDOM_RUN.search(part) is None:
        return False
    prefix = _ID_PREFIX.match(part)
    return len(part) - (prefix.end() if prefix else 0) >= _RANDOM_LENGTH


def redact_headers(
    pairs: Iterable[tuple[str, str]], redact: Callable[[str], str] = redact_text
) -> dict[str, str]:
    """Headers as one mapping of lower-case names, repeats joined by comma, secrets hidden.

    Args:
        pairs: names and values, in the order of the message.
        redact: what becomes of values that are not secrets by their name.

    Returns:
        Name to value; a secret's value is `[redacted]`.
    """
    lines = [(*_header(name), value) for name, value in pairs]
    # Most heads hold no secret but those that their names tell: one look at all values says so.
    values = "\n".join([value for _, secret, value in lines if not secret])
    clean = redact(values) == values
    shown: dict[str, str] = {}
    for name, secret, value in lines:
        text = HIDDEN if secret else value if clean else redact(value)
        shown[name] = f"{shown[name]}, {text}" if name in shown else text
    return shown


# --- targets and names ----------------------------------------------------------------------


SecretPaths = tuple[re.Pattern[str], ...]
"""Routes of a provider that carry a credential: searched in a path, each group is a secret."""


def redact_target(path_and_query: str, secret_paths: SecretPaths = ()) -> str:
    """A request target fit for a log: secrets in path and query hidden, control characters gone.

    Args:
        path_and_query: the target as it came, still percent-encoded. Of a long one only the
            beginning is shown, up to a whole segment or parameter, and then `...`.
        secret_paths: the provider's own, beside what looks like a secret anywhere.
    """
    path, mark, query = path_and_query.partition("?")
    if len(path) > SHOWN_TARGET:
        path = _beginning(path, "/")
    for pattern in secret_paths:
        path = pattern.sub(_hide_groups, path)
    shown = path if _is_of_short_words(path) else _redact_path(path)
    if mark:
        if len(query) > SHOWN_TARGET:
            query = _beginning(query, "&")
        shown += hide_shapes(_QUERY_PAIR.sub(_hide_pair, mark + query))
    if shown.isprintable():
        return shown
    return "".join(char if char.isprintable() else "?" for char in shown)


def _hide_groups(match: re.Match[str]) -> str:
    shown, end = "", match.start()
    for group in range(1, len(match.groups()) + 1):
        if match.start(group) >= end:
            shown += match.string[end : match.start(group)] + HIDDEN
            end = match.end(group)
    return shown + match.string[end : match.end()]


def secrets_of_path(path: str, secret_paths: SecretPaths) -> Iterator[str]:
    """The credentials that a path carries on routes of its provider, as they stand there."""
    for pattern in secret_paths:
        for match in pattern.finditer(path):
            yield from (secret for secret in match.groups() if secret)


def _beginning(text: str, separator: str) -> str:
    """What is shown of a long text, in whole parts: a secret that was cut looks like none."""
    return text[: text.rfind(separator, 0, SHOWN_TARGET) + 1] + "..."


def _is_of_short_words(path: str) -> bool:
    if _SHORT_WORDS.fullmatch(path) is None:
        return False
    path = path.lower()
    return not (
        "hook" in path
        or "services" in path
        or "triggers" in path
        or "workflows" in path
        or any(f"/{name}/" in path for name in _NAMES_IN_PATHS)
    )


def _redact_path(path: str) -> str:
    shown = [HIDDEN if secret else segment for segment, secret in path_segments(path)]
    if ";" in path:
        shown = [_QUERY_PAIR.sub(_hide_pair, segment) for segment in shown]
    return "/".join(shown)


def path_segments(path: str) -> Iterator[tuple[str, bool]]:
    """The segments of a path, as they came, each with whether it is a secret.

    Some addresses are their own credential: the token of a bot, of an incoming webhook.
    """
    after_hook = named = False
    for segment in path.split("/"):
        if len(segment) < SHORTEST:
            yield segment, False
        else:
            text = unquote(segment) if "%" in segment else segment
            yield segment, looks_secret(text) or ((after_hook or named) and _is_opaque(text))
        lower = segment.lower()
        after_hook = after_hook or lower in _HOOKS or "webhook" in lower
        named = lower in _NAMES_IN_PATHS


def _is_opaque(text: str) -> bool:
    """Neither a word of a path nor a plain number."""
    if text.isdigit():
        return False
    if any(char.isdigit() for char in text) or not (text.islower() or text.isupper()):
        return True
    return len(text) >= 2 * SHORTEST and text.isalnum()


def shown_path(path: str, secret_paths: SecretPaths = ()) -> str:
    """`redact_target` of a path without a query, quicker for the few that most calls go to."""
    # Whoever calls with long paths fills no memory.
    shown = _shown_path if len(path) <= SHOWN_TARGET else redact_target
    return shown(path, secret_paths)


_shown_path = lru_cache(maxsize=512)(redact_target)


_MARKED = re.compile(re.escape(HIDDEN) + r"-[0-9a-f]{6}")


def is_of_this_process(name: str) -> bool:
    """Is this a name that `shown_name` made, and that means nothing once the process has ended?"""
    return _MARKED.fullmatch(name) is not None


def shown_name(name: str, secrets: Callable[[], Sequence[str]] = tuple) -> str:
    """A name that a caller chose, such as a model's, fit to be shown and to be a key.

    Args:
        name: as it stood in the request.
        secrets: the credentials of that request; asked only if the name could be one.

    Returns:
        The name; for one that is a credential, `[redacted]-` and six hexadecimal digits, which are
        the same for the same name until the process ends.
    """
    if KEY_RUN.search(name) is None:
        return name
    if not looks_secret(name) and not any(secret in name for secret in secrets()):
        return name
    mark = blake2b(name.encode("utf-8", "surrogatepass"), key=_SALT, digest_size=3)
    return f"{HIDDEN}-{mark.hexdigest()}"
