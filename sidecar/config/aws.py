"""Signing for AWS: what a host tells of it, and whether this installation can do it at all.

A signature names a region and a service. Both stand in the host of a regional endpoint, so that
the file need not repeat them; anywhere else they have to be given.
"""

from __future__ import annotations

import importlib.util
import re
from typing import Final, NamedTuple

from sidecar.config.addresses import AddressError, upstream_port

INSTALL: Final = "pip install 'breaker-sidecar[aws]'"
"""What brings botocore, whose chain finds the credentials."""

_SUFFIXES: Final = (
    ".vpce.amazonaws.com",
    ".vpce.amazonaws.com.cn",
    ".amazonaws.com",
    ".amazonaws.com.cn",
    ".amazonaws.eu",
    ".api.aws",
)
_REGION: Final = re.compile(r"[a-z]{2,4}(?:-[a-z]{2,10}){1,2}-[0-9]{1,2}")

_SERVICES: Final = {
    "bedrock": "bedrock",
    "bedrock-agent": "bedrock",
    "bedrock-agent-runtime": "bedrock",
    "bedrock-agentcore": "bedrock-agentcore",
    "bedrock-data-automation": "bedrock",
    "bedrock-data-automation-runtime": "bedrock",
    "bedrock-mantle": "bedrock-mantle",
    "bedrock-runtime": "bedrock",
    "runtime.sagemaker": "sagemaker",
}
"""The first labels of an endpoint's host to the name its signatures carry; `endpointPrefix` and
`signingName` of botocore's service models, and for bedrock-mantle what AWS's own clients sign."""


class Endpoint(NamedTuple):
    """What the host of an upstream tells of the signatures it takes; None where it tells nothing.

    Attributes:
        service: the name in the signature's scope, such as `bedrock`.
        region: such as `us-east-1`.
    """

    service: str | None
    region: str | None


def endpoint_of(upstream: str) -> Endpoint:
    """Reads the host of an upstream that was read before."""
    address = upstream_port(upstream)
    host = address[0].removesuffix(".") if address is not None else ""
    for suffix in _SUFFIXES:
        *before, region = host.removesuffix(suffix).split(".")
        if not host.endswith(suffix) or not _REGION.fullmatch(region):
            continue
        labels = [label.removesuffix("-fips") for label in before]
        service = _SERVICES.get(".".join(labels[-2:])) or _SERVICES.get("".join(labels[-1:]))
        return Endpoint(service, region)
    return Endpoint(None, None)


def is_installed() -> bool:
    """Can credentials be found at all?"""
    return importlib.util.find_spec("botocore") is not None


def check_profile(name: str) -> None:
    """Looks a profile up in the shared files of AWS.

    Raises:
        AddressError: there is none of this name, or the files cannot be read.
    """
    import botocore.exceptions  # noqa: PLC0415 - an extra, and slow: only who names a profile waits
    import botocore.session  # noqa: PLC0415

    try:
        botocore.session.Session(profile=name).get_scoped_config()
    except botocore.exceptions.ProfileNotFound:
        raise AddressError("the shared files of AWS have no such profile") from None
    except (botocore.exceptions.BotoCoreError, OSError) as error:
        raise AddressError(f"the shared files of AWS cannot be read: {error}") from None
