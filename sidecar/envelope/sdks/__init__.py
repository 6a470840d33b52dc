"""What the vendor SDKs raise, one family each; a family is found by its classes, else by name."""

from __future__ import annotations

from collections.abc import Iterable

from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks.azure import AZURE
from sidecar.envelope.sdks.botocore import BOTOCORE
from sidecar.envelope.sdks.brokers import BROKERS
from sidecar.envelope.sdks.clients import CLIENTS
from sidecar.envelope.sdks.elasticsearch import ELASTICSEARCH
from sidecar.envelope.sdks.family import Family
from sidecar.envelope.sdks.google import GENAI, GOOGLE
from sidecar.envelope.sdks.grpc import GRPC
from sidecar.envelope.sdks.hubs import HUBS
from sidecar.envelope.sdks.kubernetes import KUBERNETES
from sidecar.envelope.sdks.models import ANTHROPIC, GENERATED_ALIKE
from sidecar.envelope.sdks.tools import TOOLS
from sidecar.envelope.sdks.vector_stores import PINECONE, QDRANT

__all__ = ["FAMILIES", "UNKNOWN", "family_of", "family_of_classes"]

FAMILIES: tuple[Family, ...] = (
    *GENERATED_ALIKE,
    *HUBS,
    BOTOCORE,
    *GOOGLE,
    GRPC,
    *AZURE,
    *TOOLS,
    ELASTICSEARCH,
    KUBERNETES,
    PINECONE,
    QDRANT,
    *BROKERS,
    *CLIENTS,
)

#: An SDK that nobody has written down. A missing key is told by sentences that nobody else writes.
UNKNOWN = Family(
    name="an unknown SDK", packages=(), plain=True, says=(*ANTHROPIC.says, *GENAI.says)
)

_BY_PACKAGE = {package: family for family in FAMILIES for package in family.packages}
_BY_NAME = {name: family for family in FAMILIES for name in family.sdks}
_DEEPEST = max(package.count(".") for package in _BY_PACKAGE) + 1


def family_of(raised: Raised, sdk: str | None = None) -> Family | None:
    """The family of an exception: by its classes, the most special first; else by a given name.

    Args:
        raised: the exception.
        sdk: a name such as `openai` or `boto3-s3`; what follows the first dash may be a service.
    """
    family = family_of_classes(raised.names)
    if family is not None or not sdk:
        return family
    named = sdk.lower()
    return _BY_NAME.get(named) or _BY_NAME.get(named.partition("-")[0])


def family_of_classes(names: Iterable[str]) -> Family | None:
    """The family of the first of some dotted class names that has one."""
    for name in names:
        parts = name.split(".", _DEEPEST)
        for length in range(min(_DEEPEST, len(parts) - 1), 0, -1):
            family = _BY_PACKAGE.get(".".join(parts[:length]))
            if family is not None:
                return family
    return None
