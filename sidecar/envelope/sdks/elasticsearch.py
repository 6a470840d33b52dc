"""Elasticsearch and OpenSearch: the type of a Java exception, in the body, says what happened.

A 429 may be a full queue or a full disk, a 403 a missing right or a blocked index. A bulk call
fails item by item inside a 200, and its helper raises one exception for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sidecar.envelope.fields import as_word, is_prose
from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks.family import (
    CONFLICT,
    FINAL,
    INVALID,
    NO_ANSWER,
    OUTAGE,
    REFUSED,
    THROTTLE,
    Facts,
    Family,
    because,
    changed,
    decoded,
    member,
    named,
    statuses,
    words,
)

_JAVA = named(
    (
        "a queue or the memory is full for the moment",
        THROTTLE,
        """
        es_rejected_execution_exception rejected_execution_exception
        circuit_breaking_exception too_many_scroll_contexts_exception
        """,
    ),
    (
        "the index or the cluster is blocked: somebody has to lift that",
        FINAL,
        "cluster_block_exception index_closed_exception",
    ),
    (
        "the document, or what it is compared with, has changed: read again first",
        FINAL,
        """
        version_conflict_engine_exception version_conflict_exception
        document_missing_exception document_already_exists_exception
        index_not_found_exception resource_not_found_exception search_context_missing_exception
        strict_dynamic_mapping_version_exception content_too_long_exception
        """,
    ),
    (
        "a node or the master is missing for the moment",
        OUTAGE,
        """
        master_not_discovered_exception no_shard_available_action_exception
        unavailable_shards_exception process_cluster_event_timeout_exception
        node_closed_exception node_disconnected_exception node_not_connected_exception
        no_node_available_exception primary_missing_action_exception not_master_exception
        receive_timeout_transport_exception connect_transport_exception timeout_exception
        index_shard_not_started_exception index_shard_closed_exception
        shard_not_found_exception coordination_state_rejected_exception
        failed_to_commit_cluster_state_exception failed_node_exception
        """,
    ),
    (
        "another operation on the same thing is still running",
        CONFLICT,
        """
        snapshot_in_progress_exception concurrent_snapshot_execution_exception
        index_primary_shard_not_allocated_exception not_yet_available_exception
        """,
    ),
    ("the caller may not", REFUSED, "security_exception elasticsearch_security_exception"),
    (
        "the request is at fault",
        INVALID,
        """
        illegal_argument_exception parsing_exception x_content_parse_exception
        mapper_parsing_exception document_parsing_exception strict_dynamic_mapping_exception
        action_request_validation_exception query_shard_exception json_parse_exception
        invalid_index_name_exception invalid_alias_name_exception script_exception
        number_format_exception input_coercion_exception too_many_buckets_exception
        """,
    ),
)


def _elastic(_: Raised, facts: Facts) -> Facts:
    """The type of the body; where a search failed as a whole, the type of its first root cause."""
    kind = as_word(member(facts.body, "error", "type"))
    root = as_word(member(facts.body, "error", "root_cause", "type"))
    told = member(facts.body, "error", "reason") or member(
        facts.body, "error", "root_cause", "reason"
    )
    code = kind or facts.code
    if code is not None and is_prose(code):
        code = None
    return changed(
        facts,
        code=code,
        codes=tuple(word for word in (code, root) if word),
        body={"error": {"code": code, "message": told}} if isinstance(told, str) else facts.body,
    )


def _items(raised: Raised) -> tuple[Raised, ...]:
    """The items of a bulk call that failed, each with a status and an error of its own."""
    if raised.name != "BulkIndexError":
        return ()
    body = decoded(raised.body)
    held = body.get("errors") if isinstance(body, Mapping) else None
    if not isinstance(held, list):
        held = next((one for one in raised.args if isinstance(one, list)), [])
    return tuple(_item(item) for item in held[:256] if isinstance(item, Mapping))


def _item(item: Mapping[str, Any]) -> Raised:
    told = next((one for one in item.values() if isinstance(one, Mapping)), {})
    status = told.get("status")
    error = told.get("error")
    return Raised(
        type="elasticsearch.ApiError",
        code=as_word(member(error, "type")),
        status=status if type(status) is int else None,
        body={"error": error} if isinstance(error, Mapping) else None,
        message=as_word(member(error, "reason")) or (error if isinstance(error, str) else ""),
    )


def _elastic_statuses(module: str) -> dict[str, int]:
    return statuses(
        module,
        BadRequestError=400,
        RequestError=400,
        AuthenticationException=401,
        AuthorizationException=403,
        NotFoundError=404,
        ConflictError=409,
    )


ELASTICSEARCH = Family(
    name="elasticsearch",
    packages=("elasticsearch", "elastic_transport", "opensearchpy"),
    sdks=("elasticsearch", "opensearch", "opensearchpy"),
    dialect="generic",
    codes=_JAVA,
    statuses={
        **_elastic_statuses("elasticsearch"),
        **_elastic_statuses("elasticsearch.exceptions"),
        **_elastic_statuses("opensearchpy.exceptions"),
    },
    classes={
        f"{module}.{name}": meaning
        for module in (
            "elasticsearch",
            "elasticsearch.exceptions",
            "elastic_transport",
            "opensearchpy.exceptions",
        )
        for name, meaning in (
            ("UnsupportedProductError", because(FINAL, "the server is another product")),
            ("SerializationError", because(NO_ANSWER, "what came back cannot be read")),
            ("ImproperlyConfigured", because(INVALID, "refused before sending")),
        )
    },
    words={
        **words(
            "elastic_transport",
            connection_error="ConnectionError TransportError",
            timeout="ConnectionTimeout",
            tls_failure="TlsError",
        ),
        **words(
            "opensearchpy.exceptions",
            connection_error="ConnectionError",
            timeout="ConnectionTimeout",
            tls_failure="SSLError",
        ),
    },
    read=_elastic,
    members=_items,
)
