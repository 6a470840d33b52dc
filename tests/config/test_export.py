"""The reference page and the JSON Schema are the schema."""

from pathlib import Path

import msgspec
import yaml

from sidecar.config import default_path, load
from sidecar.config.export import json_schema, reference
from sidecar.config.suggest import ANY_NAME, all_paths

ROOT = Path(__file__).parents[2]


def test_the_page_is_current():
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == reference(), "run: python -m sidecar.config.export > docs/configuration.md"


def test_every_key_is_on_the_page():
    page = reference()
    for path in all_paths():
        assert path[-1] == ANY_NAME or f"| `{path[-1]}` |" in page, path


def test_the_examples_on_the_page_load(load_text):
    blocks = [block.split("```")[0] for block in reference().split("```yaml\n")[1:]]
    smallest, rules, dependencies, signing = blocks
    load_text(smallest)
    assert load_text(signing).providers["bedrock"].sign.aws.region == "us-east-1"
    indented = rules.replace("\n", "\n  ")
    config = load_text(f"{smallest}defaults:\n  {indented}")
    assert [rule.name for rule in config.providers["openai"].rules] == [
        "proxy says quota for a burst",
        "the gateway is being deployed",
    ]
    config = load_text(smallest + dependencies)
    assert config.dependencies["orders-db"].vendor == "postgresql"
    assert config.dependencies["payments"].breaker.consecutive_failures == 3


def nodes(value):
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from nodes(item)
    elif isinstance(value, list):
        for item in value:
            yield from nodes(item)


def test_json_schema_is_plain_and_whole():
    schema = json_schema()
    assert msgspec.json.decode(msgspec.json.encode(schema)) == schema
    for node in nodes(schema):
        assert "x-kind" not in node
        if "$ref" in node:
            assert node["$ref"].removeprefix("#/$defs/") in schema["$defs"]
        if node.get("additionalProperties") is False:
            assert node["patternProperties"] == {"^x-": {}}


def test_json_schema_of_a_duration():
    idle = json_schema()["$defs"]["Timeouts"]["properties"]["idle"]
    (duration, null) = idle["anyOf"]
    assert duration["type"] == ["number", "string"]
    assert (duration["minimum"], duration["maximum"]) == (0.001, 86400)
    assert null == {"type": "null"}
    assert idle["default"] == "5m"
    assert "Silence" in idle["description"]


def test_json_schema_asks_for_what_is_needed():
    schema = json_schema()
    assert schema["required"] == ["providers"]
    assert schema["$defs"]["ProviderSection"]["required"] == ["upstream"]
    assert schema["$defs"]["DependencySection"]["required"] == ["source"]
    assert set(schema["$defs"]["RuleSection"]["required"]) == {"when", "class"}


def test_json_schema_knows_every_key_of_the_shipped_file():
    """A small validator: keys and references, without types."""
    schema = json_schema()

    def visit(value, node):
        node = [
            part
            for part in [node, *node.get("anyOf", ())]
            if "$ref" in part or "properties" in part or "additionalProperties" in part
        ]
        if not isinstance(value, dict) or not node:
            return
        (part,) = node
        part = schema["$defs"][part["$ref"].removeprefix("#/$defs/")] if "$ref" in part else part
        for key, item in value.items():
            inner = part.get("properties", {}).get(key)
            if inner is None:
                inner = part["additionalProperties"]
                assert inner is not False, key
            visit(item, inner)

    for shown in (
        yaml.safe_load(default_path().read_text()),
        load(default_path(), environ={}).redacted(),
    ):
        shown.pop("x-disabled", None)
        visit(shown, schema)


def test_json_schema_bounds_names():
    properties = json_schema()["properties"]
    (named, null) = properties["dependencies"]["anyOf"]
    assert named["propertyNames"] == properties["providers"]["propertyNames"]
    assert named["propertyNames"]["pattern"] == "^[a-z0-9][a-z0-9-]*$"
    assert null == {"type": "null"}
