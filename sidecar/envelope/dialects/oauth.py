"""OAuth: the token endpoint (RFC 6749, 8628) and what it says with a word under `error`.

The words are the standard's. They count only where they stand as a string under `error`, which is
how the standard writes them: `slow_down` means something else in an error object of OpenAI's kind.
"""

from __future__ import annotations

from sidecar.envelope.dialects.rule import Rule, words
from sidecar.envelope.dialects.words import AUTHENTICATION, TRANSIENT, VALIDATION
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.model import Verdict

_POLLING = words("authorization_pending slow_down")


def _spoken(evidence: Evidence) -> bool:
    return "word" in evidence.error


def polling_interval(evidence: Evidence) -> float | None:
    """The seconds between two polls that a device flow's answer names (GitHub's does), or None."""
    if not (_spoken(evidence) and evidence.words.keys() & _POLLING):
        return None
    interval = evidence.error.get("interval")
    if isinstance(interval, bool) or not isinstance(interval, int | float):
        return None
    return float(interval) if 0 <= interval < 3600 else None


OAUTH = (
    Rule(
        name="the device flow still waits",
        why="RFC 8628: keep polling, every 5 seconds where nothing else was said",
        codes=words("authorization_pending"),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
        wait=5.0,
    ),
    Rule(
        name="the device flow polls too fast",
        why="RFC 8628: add 5 seconds to the interval; it paces one device code, not the API",
        codes=words("slow_down"),
        when=_spoken,
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
        wait=10.0,
    ),
    Rule(
        name="the grant is dead",
        why="the refresh token, code or device code is gone: refreshing again would loop",
        codes=words(
            "invalid_grant invalid_client unauthorized_client access_denied expired_token"
            " login_required consent_required interaction_required"
            " account_selection_required bad_verification_code incorrect_client_credentials"
            " incorrect_device_code"
        ),
        when=_spoken,
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the token request is malformed",
        why="RFC 6749: the request is at fault",
        codes=words(
            "unsupported_grant_type invalid_scope unsupported_response_type"
            " unsupported_token_type invalid_target invalid_request_uri redirect_uri_mismatch"
        ),
        when=_spoken,
        class_=VALIDATION,
    ),
    Rule(
        name="the server is not there for the moment",
        why="RFC 6749: overload or maintenance",
        codes=words("temporarily_unavailable server_error"),
        when=_spoken,
        class_=TRANSIENT,
    ),
)
