"""The table of a dialect's rules finds what trying them one by one would find."""

from hypothesis import given
from hypothesis import strategies as st

from sidecar.envelope.dialects.rule import Rule, RuleTable
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.headers import Headers
from sidecar.envelope.model import Seen

CODES = ["a", "b", "c", "d"]
STATUSES = [200, 400, 429, 503]

rules = st.builds(
    Rule,
    name=st.text(min_size=1, max_size=3),
    codes=st.frozensets(st.sampled_from(CODES), max_size=2),
    statuses=st.frozensets(st.sampled_from(STATUSES), max_size=2),
    says=st.lists(st.sampled_from(["x", "y"]), max_size=1).map(tuple),
)


@given(
    st.lists(rules, max_size=12),
    st.lists(st.sampled_from(CODES), max_size=3),
    st.sampled_from(STATUSES),
    st.sampled_from(["", "x", "y"]),
)
def test_the_first_that_matches_decides(listed, words, status, message):
    seen = Seen(status=status, headers=Headers())
    spelt = {word: word.upper() for word in words}
    evidence = Evidence(status=status, seen=seen, words=spelt, message=message)
    one_by_one = next(
        ((rule, hit) for rule in listed if (hit := rule.match(evidence)) is not None), None
    )
    assert RuleTable(listed).first(evidence) == one_by_one
