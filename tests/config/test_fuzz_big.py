"""Whatever the file holds, the answer is a configuration or a list of problems."""

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.config import Config, ConfigError, load
from sidecar.config.suggest import ANY_NAME, all_paths

WORDS = sorted({path[-1].removesuffix("[]") for path in all_paths()} - {ANY_NAME})
NEAR = st.sampled_from(
    [*WORDS, "a", "b", "x-a", "<<", "openai", "status", "body.a", "header.b", "when"]
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        [
            "localhost:1",
            "unix:/x",
            "https://a.example",
            "http://[::1",
            "${A}",
            "${B:-5s}",
            "$${",
            "${",
            "5s",
            "1MiB",
            "enforce",
            "off",
            "openai",
            "/",
            ".",
            "/dev/null",
            "/etc/hostname",
            "5xx",
            "env",
            "0",
            "-1",
            ".nan",
            "~",
        ]
    ),
)
TREES = st.recursive(
    VALUES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(NEAR, st.text(max_size=5)), inner, max_size=5),
    ),
    max_leaves=25,
)
SHAPED = st.fixed_dictionaries(
    {
        "providers": st.dictionaries(
            NEAR, st.one_of(TREES, st.fixed_dictionaries({"upstream": VALUES})), max_size=3
        )
    },
    optional=dict.fromkeys(
        ("listen", "admin", "defaults", "log", "drain", "probe", "allowed_hosts"), TREES
    ),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "f.yaml"


def try_it(file, content):
    file.write_bytes(content)
    try:
        config = load(file, environ={"A": "one", "C": "\udcff"})
    except ConfigError as error:
        problems = error.problems
    else:
        problems = None
    if problems is not None:
        assert problems
        assert all(str(problem).isprintable() for problem in problems)
        return
    assert isinstance(config, Config)
    msgspec.json.encode(config.redacted())


many = settings(max_examples=6000, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(content=st.binary(max_size=200))
def test_any_bytes(file, content):
    try_it(file, content)


@many
@given(text=st.text(st.sampled_from("ab:-{}[]&*!|>'\"%#@`, \n\t<$~?=0.x"), max_size=60))
def test_anything_like_yaml(file, text):
    try_it(file, text.encode())


@many
@given(tree=st.one_of(TREES, SHAPED))
def test_any_tree(file, tree):
    try_it(file, yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "replace"))
