"""F125: a misspelt key is never ignored, and the answer names the right one."""

import pytest
from msgspec import inspect

from sidecar.config.schema import Root
from sidecar.config.suggest import ANY_NAME, all_paths, hint_for, unwrap

HEAD = "providers: {a: {upstream: https://api.example}}\n"


def tree(path, value):
    """YAML in one line that holds a value at a path."""
    text = value
    for part in reversed(path):
        name = "a" if part == ANY_NAME else part
        text = (
            f"[{{{name.removesuffix('[]')}: {text}}}]"
            if name.endswith("]")
            else f"{{{name}: {text}}}"
        )
    return text


def kind_at(path):
    kind = inspect.type_info(Root)
    for part in path:
        kind = unwrap(kind)
        if isinstance(kind, inspect.DictType):
            kind = kind.value_type
        else:
            kind = {field.encode_name: field.type for field in kind.fields}[part]
    return unwrap(kind)


PLAIN = [
    path
    for path in all_paths()
    if path[-1] != ANY_NAME
    and "rules[]" not in path
    and path[:2] not in (("listen", "tls"), ("listen", "address"))
]


def misspell(word):
    """Two letters in the middle change places, or the last one goes."""
    middle = len(word) // 2
    swapped = word[: middle - 1] + word[middle] + word[middle - 1] + word[middle + 1 :]
    return swapped if swapped != word else word[:-1]


@pytest.mark.parametrize("path", PLAIN, ids=".".join)
def test_every_key_misspelt(path, problems_of):
    wrong = (*path[:-1], misspell(path[-1]))
    shown = ".".join("a" if part == ANY_NAME else part for part in wrong)
    lines = problems_of(tree(wrong, "null"))
    ours = [line for line in lines if f": {shown}: unknown key" in line]
    assert len(ours) == 1, lines
    if len(path[-1]) > 3:
        assert f'did you mean "{path[-1]}"?' in ours[0]


@pytest.mark.parametrize("key", ["when", "name", "class", "code", "retryable", "verdict"])
def test_every_key_of_a_rule_misspelt(key, provider_problems):
    lines = provider_problems(f"rules: [{{{misspell(key)}: x}}]\n")
    assert (
        f'breakers.yaml:4: providers.a.rules[0].{misspell(key)}: unknown key; did you mean "{key}"?'
        in lines
    )


@pytest.mark.parametrize("key", ["address", "tls", "tls.cert", "tls.key"])
def test_every_key_of_a_listener_misspelt(key, problems_of):
    wrong = (*key.split(".")[:-1], misspell(key.rpartition(".")[2]))
    lines = problems_of(HEAD + "listen: " + tree(wrong, "null"))
    assert any(f"listen.{'.'.join(wrong)}: unknown key; did you mean" in line for line in lines)


def test_the_line_and_the_words(problems_of):
    text = """\
        log:
          level: info
        providers:
          openai:
            upstream: https://api.openai.com
            timeout: {connect: 5s}
        """
    assert problems_of(text) == [
        'breakers.yaml:6: providers.openai.timeout: unknown key; did you mean "timeouts"?'
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "first_byte: 3s",
            'providers.a.first_byte: unknown key; it belongs under "providers.a.timeouts"',
        ),
        (
            "breaker: {idle: 3s}",
            'providers.a.breaker.idle: unknown key; it belongs under "providers.a.timeouts"',
        ),
        ("listen: x", 'providers.a.listen: unknown key; it belongs under "the top level"'),
        (
            "open-for: 3s",
            'providers.a.open-for: unknown key; it belongs under "providers.a.breaker"',
        ),
        (
            "first_bite: 3s",
            'providers.a.first_bite: unknown key; did you mean "providers.a.timeouts.first_byte"?',
        ),
        ("qwxyz: 1", "providers.a.qwxyz: unknown key"),
        ("timeouts: {Idle: 3s}", 'providers.a.timeouts.Idle: unknown key; did you mean "idle"?'),
    ],
)
def test_the_right_key_at_the_wrong_level(text, expected, provider_problems):
    assert provider_problems(text) == [f"breakers.yaml:4: {expected}"]


def test_a_section_on_the_top_level(problems_of):
    assert problems_of(HEAD + "breaker: {}") == [
        'breakers.yaml:2: breaker: unknown key; it belongs under "defaults"'
    ]


def test_all_at_once_in_order_of_lines(problems_of):
    lines = problems_of(
        """\
        lisen: localhost:1
        log: {level: loud}
        drain: {delay: soon}
        defaults: {breaker: {probes: 0}}
        providers:
          a: {upstream: nowhere, timeouts: {idel: 1}}
          a: {upstream: nowhere}
        """
    )
    assert [line.split(":")[1] for line in lines] == ["1", "2", "3", "4", "6", "6", "7"]


def test_duplicates_are_refused(problems_of):
    lines = problems_of("log: {level: info}\nlog: {level: debug}\n" + HEAD)
    assert lines == ["breakers.yaml:2: log: the key stands twice, first in line 1"]
    lines = problems_of("providers: {a: {upstream: http://x, env: {A_URL: '', A_URL: /v1}}}")
    assert lines == [
        "breakers.yaml:1: providers.a.env.A_URL: the key stands twice, first in line 1"
    ]


def test_x_keys_are_ignored_at_any_level(load_text):
    load_text(
        """
        x-common: &common {idle: 3s, anything: [1, {x: "${UNSET}"}]}
        log: {x-note: 1}
        defaults: {x-a: null, timeouts: {x-b: {}}, breaker: {x-c: []}}
        listen: {address: "localhost:0", x-d: 1}
        providers: {a: {upstream: http://x.example, x-e: !!str y, rules: [{x-f: 1, when: {status: 1xx}, class: permanent}]}}
        """
    )


def test_free_names_are_never_x_keys(load_text, problems_of):
    text = "providers: {x-ai: {upstream: http://x.example, set_headers: {x-api-key: {value: k}}}}"
    assert load_text(text).providers["x-ai"].header_values == {"x-api-key": "k"}
    assert problems_of("providers: {x-ai: {}}")


def test_anchors_have_a_place(load_text):
    config = load_text(
        """
        x-slow: &slow {first_byte: 20m, idle: 10m}
        providers:
          a: {upstream: http://a.example, timeouts: *slow}
          b: {upstream: http://b.example, timeouts: {<<: *slow, idle: 1s}}
        """
    )
    assert config.providers["a"].timeouts.first_byte == 1200
    assert config.providers["b"].timeouts.idle == 1


def test_unknown_keys_as_warnings(load_text):
    config = load_text(HEAD + "future: {deep: 1}\ndefaults: {later: {}}", unknown_keys="warn")
    assert len(config.warnings) == 2
    assert "future: unknown key" in config.warnings[0]


def test_warnings_do_not_soften_other_problems(problems_of):
    assert problems_of(HEAD + "future: 1\nlog: {level: loud}", unknown_keys="warn") != []


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "y", "True.", "1", "0", "'true'", "ja"])
def test_words_that_are_no_booleans(word, provider_problems):
    (line,) = provider_problems(f"breaker: {{fail_fast: {word}}}")
    assert "true or false is needed" in line


@pytest.mark.parametrize("word", ["off", "'off'", '"off"'])
def test_off_is_a_mode(word, load_provider):
    assert load_provider(f"mode: {word}").mode == "off"


@pytest.mark.parametrize("name", ["on", "yes", "no", "null-1", "1", "1e3"])
def test_words_of_yaml_are_names_too(name, load_text):
    config = load_text(f"providers: {{{name}: {{upstream: http://x.example}}}}")
    assert list(config.providers) == [name]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("5", 5), ("5s", 5), ("500ms", 0.5), ("0.25", 0.25), ("'30s'", 30), ("1e1", 10)],
)
def test_durations_as_documented(value, seconds, load_provider):
    assert load_provider(f"timeouts: {{idle: {value}}}").timeouts.idle == seconds


@pytest.mark.parametrize(
    "value", ["'5'", "1m30s", "5 sec", "5 s", "1:30", "five", "[5]", "{s: 5}", "5sec", "0x5", "1_0"]
)
def test_durations_are_strict(value, provider_problems):
    (line,) = provider_problems(f"timeouts: {{idle: {value}}}")
    assert "a duration is needed" in line


@pytest.mark.parametrize("value", ["'5'", "5.0", "five", "5s", "[5]", "1e2"])
def test_whole_numbers_are_strict(value, provider_problems):
    (line,) = provider_problems(f"breaker: {{probes: {value}}}")
    assert "a whole number is needed" in line


@pytest.mark.parametrize("value", ["256KB", "'256'", "1.5MiB", "256 KiB", "many", "5s"])
def test_sizes_are_strict(value, provider_problems):
    (line,) = provider_problems(f"limits: {{classify_body: {value}}}")
    assert "a size is needed" in line


@pytest.mark.parametrize(
    "section", ["timeouts", "breaker", "shedding", "limits", "tls", "set_headers", "env"]
)
@pytest.mark.parametrize("value", ["5", "text", "[]", "true"])
def test_sections_must_be_mappings(section, value, provider_problems):
    (line,) = provider_problems(f"{section}: {value}")
    assert "a mapping" in line


def test_long_and_odd_keys_are_shown_short(provider_problems):
    (line,) = provider_problems(f'"{"k" * 500}\\e": 1')
    assert len(line) < 200
    assert line.isprintable()


def test_no_hint_for_nonsense():
    assert hint_for("zzzzzz", ["idle"], "") == ""
