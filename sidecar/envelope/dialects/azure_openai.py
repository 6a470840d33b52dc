"""Azure OpenAI: OpenAI's shape behind Microsoft's gateway.

`error.code` may be the status as a string or a word in PascalCase. The API management in front
answers `{"statusCode", "message"}` without `error`, and calls a plan's spent volume 403.
"""

from __future__ import annotations

import re
from typing import ClassVar
from urllib.parse import unquote

from sidecar.envelope import retry_after
from sidecar.envelope.dialects.openai import OPENAI_RULES, OpenAI
from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.words import PERMANENT
from sidecar.envelope.evidence import Evidence

_DEPLOYMENT = re.compile(r"/openai/deployments/([^/?]+)(?:/|$)")

AZURE_RULES = (
    Rule(
        name="the plan's call volume is spent",
        why="API management answers 403 for a quota policy, and only the text tells",
        says=("out of call volume quota", "quota exceeded", "out of bandwidth quota"),
        statuses=statuses(403),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="no such deployment",
        why="it does not exist; the text invites a wait, which helps a brand-new one only",
        codes=words("DeploymentNotFound"),
        class_=PERMANENT,
        code="model_not_found",
    ),
)


class AzureOpenAI(OpenAI):
    """OpenAI's models at Azure."""

    name = "azure-openai"
    rules: ClassVar[tuple[Rule, ...]] = (*AZURE_RULES, *OPENAI_RULES)
    request_id_headers: ClassVar[tuple[str, ...]] = (
        "apim-request-id",
        *OpenAI.request_id_headers,
        "x-ms-client-request-id",
    )

    def model_of(self, path: str) -> str | None:
        """The deployment: `/openai/deployments/{deployment}/…`."""
        found = _DEPLOYMENT.search(path)
        return unquote(found.group(1)) if found else None

    def resets_in(self, evidence: Evidence) -> float | None:
        """As everywhere, else out of the gateway's `02.13:45:11`."""
        known = super().resets_in(evidence)
        return retry_after.from_days_clock(evidence.message) if known is None else known
