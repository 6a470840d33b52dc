"""What keeps the number of series finite: codes of a closed list, a hundred models a provider.

Callers choose the names of models and paths, upstreams choose codes; either may make them up
without end. A model gets series of its own once a call of it told something about the upstream
(success, failure, throttle); one that only ever earned `alive` is a caller's typo and is counted
as `other`, so that a scanner of a thousand names leaves the hundred places to those in use.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from sidecar.envelope import dialects
from sidecar.envelope.fields import normal
from sidecar.telemetry.observer import LOCAL_REFUSALS

OTHER: Final = "other"

MODELS: Final = 100
"""Models and routes of a provider that have series of their own."""

CODES: Final = 100
"""Codes of a provider that have series of their own; the closed list is longer than any needs."""

OWN_CODES: Final = frozenset(
    """
    model_not_found context_length_exceeded content_filtered token_expired overloaded model_loading
    invalid_upstream_response stream_truncated stream_error tool_error graphql_error hang_abandoned
    credits_exhausted spend_limit_reached plan_window_exhausted request_over_budget quota_exhausted
    connection_refused connection_reset connection_closed connection_error dns_failure
    connect_timeout read_timeout timeout tls_failure pool_timeout local_resource cancelled
    missing_credentials client_error interface_error pool_closed pending_rollback query_timeout
    watch_error max_clients invalid_url too_many_redirects signature_verification_failed
    first_byte_timeout first_content_timeout idle_timeout total_timeout local_network_down
    bulkhead_full internal_error
    """.split()  # noqa: SIM905 - the contract's words as the contract lists them
)
"""The project's own words for failures; with them the decisions, which are codes too."""

_SQLSTATE = re.compile(r"[0-9A-Z]{2}[0-9A-Z]{3}")


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    """Every code that a rule of a dialect names, in the spelling of the rules."""
    codes: set[str] = set()
    for name in dialects.NAMES:
        dialect = dialects.get(name)
        for rule in (*dialect.rules, *dialect.edges):
            codes |= rule.codes
            codes |= {rule.code} if rule.code else set()
    return frozenset(codes)


@lru_cache(maxsize=4096)
def code_label(code: str) -> str:
    """A code as it may stand in a label.

    Args:
        code: of an envelope.
    """
    if code in OWN_CODES or code in LOCAL_REFUSALS:
        return code
    if code.isascii() and code.isdigit() and len(code) == 3:
        return code if 100 <= int(code) < 600 else OTHER
    spelt = normal(code)
    if spelt in _known():
        return spelt
    if _SQLSTATE.fullmatch(code):
        return code[:2] + "xxx"
    return OTHER
