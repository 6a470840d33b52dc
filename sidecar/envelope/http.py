"""From an HTTP answer to an envelope and a verdict: the pure heart of the product.

Evidence is asked in a fixed order and the first that decides wins: a cut answer, the operator's
rules, the codes of the dialect in the body on any status, codes in headers, the shapes that
everybody shares, a phrase where a dialect has nothing better, and last the bare status. Errors
dressed as outages (a typo as 503, a spent budget as 429) and outages dressed as answers (an error
in a 200) come out as what they are.

A good answer is the common case and pays least: one substring search, and no decoding.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sidecar.envelope import compose, table
from sidecar.envelope.answers import may_be_text, why_no_answer
from sidecar.envelope.compose import Decision
from sidecar.envelope.credentials import Secrets
from sidecar.envelope.decode import decode, decode_cut, first_data
from sidecar.envelope.dialects.aws import AWS
from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.edges import with_edges
from sidecar.envelope.dialects.rule import Rule
from sidecar.envelope.evidence import Evidence, inner_errors, read_text, with_challenge
from sidecar.envelope.fields import is_prose, status_like
from sidecar.envelope.locate import find_error
from sidecar.envelope.model import Classified, ErrorClass, Seen, Verdict
from sidecar.envelope.rules import ABSENT, OperatorRule, for_status, holds
from sidecar.envelope.xml_error import error_in_xml, is_stores_error

_STORE = AWS()
"""Reads what object stores answer, whoever was configured."""

_SUCCESS = Classified(
    envelope=None, verdict=Verdict.SUCCESS, rule="success: a whole answer without an error marker"
)

# A wait that a caller can sit out: under a quota word it tells a rate from a spent budget.
_SHORT_RESET = 120.0


def classify(
    seen: Seen,
    dialect: Dialect,
    *,
    rules: Sequence[OperatorRule] = (),
    correlation_id: str = "",
    secrets: Secrets = tuple,
) -> Classified:
    """Classify one whole HTTP answer.

    Args:
        seen: the answer.
        dialect: how this provider words its errors.
        rules: the operator's own, before the dialect's.
        correlation_id: goes into the envelope.
        secrets: tells the credentials of the request (`request_secrets`); asked only where an
            envelope is composed, which then echoes none of them.

    Returns:
        The envelope (None for a good answer), the verdict and the rule that decided. Never raises:
        a fault in here is `neutral`, with the class that the bare status gives.
    """
    try:
        brought = dialect.decided(seen, correlation_id)
        if brought is not None:
            return compose.without_secrets(brought, secrets)
        return _classify(seen, dialect.for_answer(seen), rules, correlation_id, secrets)
    except Exception as error:  # noqa: BLE001 - a fault in a dialect must not cost a call
        return _fault(seen, error, correlation_id, secrets)


def _fault(seen: Seen, error: Exception, correlation_id: str, secrets: Secrets) -> Classified:
    rule = f"fault in classification: {type(error).__name__}"
    if seen.status < 400:
        return Classified(envelope=None, verdict=Verdict.NEUTRAL, rule=rule)
    bare = Evidence(status=seen.status, seen=seen, headers=seen.headers)
    decision = msgspec.structs.replace(by_status(bare), verdict=Verdict.NEUTRAL, rule=rule)
    return compose.classified(bare, decision, Dialect(), correlation_id, secrets)


def _classify(
    seen: Seen,
    dialect: Dialect,
    rules: Sequence[OperatorRule],
    correlation_id: str,
    secrets: Secrets,
) -> Classified:
    if not seen.complete and seen.status < 400:
        return _cut(seen, dialect, correlation_id, secrets)
    if rules:
        decided = by_operator(seen, dialect, rules, correlation_id, secrets)
        if decided is not None:
            return decided
    if seen.status < 400:
        return _below_400(seen, dialect, correlation_id, secrets)
    evidence = _read_failed(seen, dialect)
    return compose.classified(*decide(evidence, dialect), dialect, correlation_id, secrets)


def _cut(seen: Seen, dialect: Dialect, correlation_id: str, secrets: Secrets) -> Classified:
    answer = dialect.is_model_route(seen.method, seen.path)
    return no_answer(
        seen,
        dialect,
        correlation_id,
        secrets,
        code="invalid_upstream_response" if answer else "stream_truncated",
        message="the upstream's answer ended before its framing said so",
        rule="transport: the body was cut",
    )


def no_answer(
    seen: Seen,
    dialect: Dialect,
    correlation_id: str,
    secrets: Secrets,
    *,
    code: str,
    message: str,
    rule: str,
) -> Classified:
    """A 2xx that is no answer: transient, and a failure."""
    decision = Decision(
        class_=ErrorClass.TRANSIENT,
        code=code,
        retryable=True,
        verdict=Verdict.FAILURE,
        rule=rule,
    )
    evidence = Evidence(status=seen.status, seen=seen, message=message, headers=seen.headers)
    return compose.classified(evidence, decision, dialect, correlation_id, secrets)


# --- the operator ---------------------------------------------------------------------------


def by_operator(
    seen: Seen,
    dialect: Dialect,
    rules: Sequence[OperatorRule],
    correlation_id: str,
    secrets: Secrets,
) -> Classified | None:
    """The first of the operator's rules that matches, or None."""
    likely = [rule for rule in for_status(rules, seen.status) if _outside_matches(rule, seen)]
    if not likely:
        return None
    looks_inside = any(part.place == "body" for rule in likely for part in rule.when)
    body = decode(seen.body) if looks_inside else None
    for rule in likely:
        if rule.matches(seen.status, seen.headers, ABSENT if body is None else body):
            break
    else:
        return None
    evidence = _read_failed(seen, dialect)
    decision = Decision(
        class_=rule.class_,
        code=rule.code,
        retryable=rule.retryable,
        verdict=rule.verdict,
        rule=f"{rule.name}: the operator's own rule",
        raw_code=evidence.code,
        terminal=not rule.retryable,
        settled=True,
    )
    return compose.classified(evidence, decision, dialect, correlation_id, secrets)


def _outside_matches(rule: OperatorRule, seen: Seen) -> bool:
    """Whether what can be told without decoding the body holds."""
    return all(
        holds(part, seen.status, seen.headers, ABSENT) for part in rule.when if part.place != "body"
    )


# --- answers below 400 ----------------------------------------------------------------------


def _below_400(seen: Seen, dialect: Dialect, correlation_id: str, secrets: Secrets) -> Classified:
    if seen.status >= 300 or seen.method == "HEAD":
        return _SUCCESS
    if "x-amzn-waf-action" in seen.headers:
        return compose.classified(
            *decide(read_text(seen), dialect), dialect, correlation_id, secrets
        )
    outside = dialect.outside(seen)
    if outside is not None:
        return compose.classified(*decide(outside, dialect), dialect, correlation_id, secrets)
    if is_stores_error(seen):
        found = error_in_xml(seen)
        if found is not None:
            evidence, decision = decide(_STORE.read(found, seen), _STORE)
            return compose.classified(evidence, decision, _STORE, correlation_id, secrets)
    if not may_be_text(seen.headers.get("content-type")):
        return _SUCCESS
    if seen.status != 204 and dialect.is_model_route(seen.method, seen.path):
        fault = why_no_answer(seen)
        if fault is not None:
            return no_answer(
                seen,
                dialect,
                correlation_id,
                secrets,
                code="invalid_upstream_response",
                message=f"the upstream answered {seen.status} with {fault}",
                rule="no answer: a model route's 2xx must hold one",
            )
    if not dialect.may_hold_error(seen.body, seen):
        return _SUCCESS
    body = decode_cut(seen.body) if seen.truncated else decode(seen.body)
    found = None if body is None else dialect.locate(body, seen)
    if found is None:
        return _SUCCESS
    evidence, decision = decide(dialect.read(found, seen), dialect)
    if decision.class_ is None:
        return _SUCCESS
    return compose.classified(evidence, decision, dialect, correlation_id, secrets)


# --- errors ---------------------------------------------------------------------------------


def _read_failed(seen: Seen, dialect: Dialect) -> Evidence:
    outside = dialect.outside(seen)
    if outside is not None:
        return outside
    body = decode(seen.body)
    if body is None and (event := first_data(seen.body)):
        body = decode(event)
    if body is None and (seen.truncated or not seen.complete):
        body = decode_cut(seen.body)
    found = None if body is None else dialect.locate(body, seen)
    return dialect.read_text(seen) if found is None else dialect.read(found, seen)


def decide(evidence: Evidence, dialect: Dialect) -> tuple[Evidence, Decision]:
    """What located evidence means: the dialect's rules, an error wrapped inside, the status.

    Args:
        evidence: of an answer or of an event of a stream.
        dialect: whose rules are asked.

    Returns:
        The evidence that decided (of a wrapped error the inner one) and the decision, whose class
        is None if weak evidence matched no rule.
    """
    evidence = with_edges(with_challenge(evidence))
    decision = by_rules(evidence, dialect)
    if decision is None or not (decision.terminal and decision.by_code):
        inner = _inner(evidence, dialect)
        if inner is not None and not _is_a_rate(*inner, dialect):
            return inner
        decision = decision or (inner and inner[1])
    if decision is None:
        decision = _unknown(evidence, dialect)
    elif _is_a_rate(evidence, decision, dialect):
        decision = Decision(
            class_=ErrorClass.RATE_LIMIT,
            code=None,
            rule=f"{decision.rule}; but a short wait says that it is a rate limit",
        )
    return evidence, decision


def by_rules(evidence: Evidence, dialect: Dialect) -> Decision | None:
    """The first rule of the dialect, then of the boxes in the path, that matches; or None."""
    found = dialect.table.first(evidence)
    return None if found is None else _decision(*found, evidence)


def _decision(rule: Rule, hit: str, evidence: Evidence) -> Decision:
    return Decision(
        class_=rule.class_ or table.class_of(evidence.status),
        code=rule.code,
        retryable=rule.retryable,
        verdict=rule.verdict,
        rule=f"{rule.name}: {rule.why}" if rule.why else rule.name,
        raw_code=hit or evidence.code,
        by_code=bool(hit),
        wait=rule.wait,
        terminal=rule.is_terminal,
    )


def _inner(evidence: Evidence, dialect: Dialect) -> tuple[Evidence, Decision] | None:
    """An error that a gateway wrapped into its message, if no repetition can mend that one.

    A passing inner error changes nothing: the gateway's own code is then the better one.
    """
    for body in inner_errors(evidence):
        found = find_error(body, failed=True, answers=False)
        if found is None:
            continue
        inner = dialect.read(found, evidence.seen, stream=evidence.stream)
        inner = msgspec.structs.replace(inner, status=evidence.status)
        decision = by_rules(inner, dialect)
        if decision is not None and decision.terminal:
            return inner, msgspec.structs.replace(
                decision, rule=f"{decision.rule} (wrapped in the message)"
            )
    return None


def _is_a_rate(evidence: Evidence, decision: Decision, dialect: Dialect) -> bool:
    """Whether a quota word is a rate limit here: waits that can be sat out are no spent budget."""
    if not dialect.quota_may_be_a_rate or decision.code != "quota_exhausted":
        return False
    if evidence.status != 429:
        return False
    wait = compose.wait_of(evidence, dialect)
    return wait is not None and wait[0] <= _SHORT_RESET


def _unknown(evidence: Evidence, dialect: Dialect) -> Decision:
    if evidence.weak:
        return Decision(class_=None, code=None, rule="weak evidence and no rule", bare=True)
    if evidence.status >= 400:
        return by_status(evidence, sells_requests=dialect.sells_requests)
    class_ = ErrorClass.TRANSIENT if evidence.stream else dialect.unknown_in_success
    return Decision(
        class_=class_,
        code=None,
        rule="an error inside a success that says nothing else",
        raw_code=evidence.code,
        bare=True,
    )


def by_status(evidence: Evidence, *, sells_requests: bool = False) -> Decision:
    """The HTTP table on the status that counts.

    402 is a spent budget where nothing more specific was said, and at whoever sells the requests
    themselves; elsewhere it may be the customer's card that was declined.
    """
    code = evidence.code
    vague = code is None or is_prose(code) or status_like(code) is not None
    spent = evidence.status == 402 and (vague or sells_requests)
    return Decision(
        class_=table.class_of(evidence.status),
        code="quota_exhausted" if spent else None,
        rule=f"status {evidence.status}: the HTTP table",
        bare=True,
    )
