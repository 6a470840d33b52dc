"""What every recorded case is judged to be, kept so that no class changes unnoticed.

`python -m tests.golden` writes the file anew. A class that changes needs an entry under
`Breaking: class` in CHANGELOG.md.
"""

import json
from pathlib import Path

from sidecar.envelope import database, sdk
from sidecar.envelope.raised import recorded
from tests.cases import NOW, all_cases, classify_case

PATH = Path(__file__).resolve().parent / "data" / "golden-classes.json"


def judged(case):
    """The classification of a case of any source."""
    if "response" in case:
        return classify_case(case)
    raised, now = recorded(case["error"]), float(case.get("now") or NOW)
    if "sdk" in case:
        return sdk.classify(raised, sdk=case["sdk"], now=now)
    return database.classify(raised, vendor=case["vendor"], driver=case["driver"], now=now)


def current():
    """Class, code, retryability and verdict of every case, by its id."""
    found = {}
    for file in ("http-cases.jsonl", "db-cases.jsonl", "sdk-cases.jsonl"):
        for case in all_cases(file):
            classified = judged(case)
            envelope = classified.envelope
            found[case["id"]] = {
                "class": envelope and str(envelope.class_),
                "code": envelope and envelope.code,
                "retryable": bool(envelope and envelope.retryable),
                "verdict": str(classified.verdict),
            }
    return found


def lines(cases):
    """One line a case, so that a change is one line of a diff."""
    rows = [f" {json.dumps(name)}: {json.dumps(told)}" for name, told in cases.items()]
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    PATH.write_text(lines(current()))
