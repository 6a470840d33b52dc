"""F122: a bad file of any kind is a problem with a line, and never more than that."""

import pathlib

import pytest
import yaml

from sidecar.config import ConfigError, document, load
from sidecar.config.document import Mapping, Scalar, Sequence


@pytest.fixture(params=["SafeLoader", "CSafeLoader"], autouse=True)
def _loader(request, monkeypatch):
    """The parser in C where there is one, and the one in Python."""
    if not hasattr(yaml, request.param):
        pytest.skip("PyYAML has no parser in C here")
    monkeypatch.setattr(document, "_LOADER", getattr(yaml, request.param))


def problem(content):
    with pytest.raises(ConfigError) as caught:
        document.parse(content if isinstance(content, bytes) else content.encode(), "f.yaml")
    assert caught.value.exit_code == 78
    (only,) = caught.value.problems
    return only


def plain(node):
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return {key.text: plain(value) for key, value in node.entries}


def test_lines_and_quotes_are_kept():
    root = document.parse(b"a: 1\nb:\n  - x\n  - 'y'\n", "f.yaml")
    assert isinstance(root, Mapping)
    (a, one), (b, items) = root.entries
    assert (a.line, one.line, one.plain, b.line) == (1, 1, True, 2)
    assert [(item.line, item.plain) for item in items.items] == [(3, True), (4, False)]


def test_syntax_error_names_its_line():
    found = problem("a: 1\nb: [1, 2\nc: 3\n")
    assert found.line in (2, 3, 4)
    assert "no valid YAML" in found.message


def test_tab_as_indentation():
    assert problem("a:\n\tb: 1\n").line == 2


@pytest.mark.parametrize("content", ["", "\n\n", "# only a comment\n"])
def test_an_empty_file_has_no_document(content):
    assert document.parse(content.encode(), "f.yaml") is None


def test_an_empty_document_is_null():
    assert plain(document.parse(b"---\n", "f.yaml")) == ""


def test_two_documents():
    assert "second document" in problem("a: 1\n---\nb: 2\n").message


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['true']",
        "a: !!python/object:os.path {}",
        "a: !!python/name:os.system ''",
        "a: !include x",
        "a: !!binary aGk=",
        "a: !!float 1",
        "a: !!set {x, y}",
        "!!omap a: 1",
    ],
)
def test_tags_are_refused(text):
    assert "tags" in problem(text).message


def test_a_text_tag_is_no_harm():
    root = document.parse(b"a: !!str 5\n", "f.yaml")
    assert root.entries[0][1].plain is False


def test_aliases_that_multiply():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert "aliases included" in problem("\n".join(lines)).message


def test_an_alias_to_itself():
    assert "contains itself" in problem("a: &a [*a]").message
    assert "contains itself" in problem("a: &a {b: *a}").message


def test_an_alias_to_nothing():
    assert "not defined" in problem("a: *b").message


def test_depth_is_bounded():
    assert "levels" in problem("[" * 50).message
    assert problem("[" * 50_000).message
    assert "levels" in problem("{a: " * 200).message


def test_aliases_and_merges_work():
    text = "x: &x {p: 1, q: 2}\ny: &y {q: 3, r: 4}\nz: {<<: [*x, *y], p: 9}\nw: {<<: *y}\nv: *x\n"
    assert plain(document.parse(text.encode(), "f"))["z"] == {"p": "9", "q": "2", "r": "4"}
    assert plain(document.parse(text.encode(), "f"))["w"] == {"q": "3", "r": "4"}
    assert plain(document.parse(text.encode(), "f"))["v"] == {"p": "1", "q": "2"}


def test_a_merge_of_no_mapping():
    assert "<<" in problem("a: {<<: 1}").message


def test_a_key_that_is_no_word():
    assert "key" in problem("[a, b]: 1").message


def test_a_large_file():
    assert "larger" in problem(b"#" * (document.MOST_BYTES + 1)).message


def test_a_file_that_is_not_utf8():
    found = problem(b"a: 1\nb: \xff\n")
    assert found.line == 2
    assert "UTF-8" in found.message


def test_a_byte_order_mark_is_no_harm():
    assert plain(document.parse(b"\xef\xbb\xbfa: 1\n", "f")) == {"a": "1"}


@pytest.mark.parametrize("content", [b"a: \x00\n", b"\x00\x01\x02", b"a: \x07"])
def test_characters_that_yaml_forbids(content):
    assert "YAML" in problem(content).message


def test_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "nothing.yaml", environ={})


def test_a_folder(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path, environ={})


def test_a_refused_permission_is_told(tmp_path, monkeypatch):
    file = tmp_path / "f.yaml"
    file.touch()

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "open", refuse)
    with pytest.raises(ConfigError, match="cannot be read: permission denied"):
        load(file, environ={})


@pytest.mark.parametrize(
    "text", ["", "# nothing", "---", "null", "a list: x", "- a\n- b", "just text", "5"]
)
def test_a_file_without_the_needed_shape(text, problems_of):
    assert problems_of(text)


def test_a_file_of_a_hundred_megabytes_is_not_read_whole(tmp_path):
    file = tmp_path / "f.yaml"
    with file.open("wb") as stream:
        stream.truncate(100 * 1024 * 1024)
    with pytest.raises(ConfigError, match="larger than 1024 KiB"):
        load(file, environ={})
