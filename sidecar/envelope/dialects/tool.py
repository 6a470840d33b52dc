"""What the APIs have in common that agents use as tools: they hold records, not models.

Their statuses are honest: a 2xx of theirs is never an error, also where it reports on single
records that were refused. And a POST of theirs changes something, a message is sent or a ticket
opened, so it is repeated by nobody unless its route is known to read.
"""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.dialects.generic import Generic
from sidecar.envelope.dialects.oauth import OAUTH
from sidecar.envelope.dialects.rule import Rule
from sidecar.envelope.dialects.words import TOOL_COMMON
from sidecar.envelope.model import Envelope, ErrorClass, Seen

TOOL_RULES: tuple[Rule, ...] = (*OAUTH, *TOOL_COMMON)


class Tool(Generic):
    """An API that holds records.

    Attributes:
        reading_routes: ends of the routes that read although they are asked by POST.
        native_codes: what the provider itself would say for a class of error, where its clients
            decide by that word; the envelope's code for any other class.
    """

    name = "tool"
    rules: ClassVar[tuple[Rule, ...]] = TOOL_RULES
    reading_routes: ClassVar[tuple[str, ...]] = ()
    native_codes: ClassVar[dict[ErrorClass, str]] = {}

    def is_model_route(self, method: str, path: str) -> bool:
        """No route of these is one of a model."""
        del method, path
        return False

    def repeatable(self, method: str, path: str) -> bool:
        """Whether a POST of this route reads."""
        route = path.partition("?")[0].rstrip("/")
        return method == "POST" and route.endswith(self.reading_routes)

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """No: statuses are honest here."""
        del body, seen
        return False

    def native_code(self, envelope: Envelope) -> str:
        """The code under which the provider's clients know an error of this kind."""
        return self.native_codes.get(envelope.class_, envelope.code)
