"""A file of the configuration that was exchanged is noticed; one that is being edited is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trustme

from sidecar.config.load import load
from sidecar.config.watch import Watch, watchable

FILE = "providers: {up: {upstream: 'http://127.0.0.1:1'}}\n"


class Volume:
    """A mounted ConfigMap, as the kubelet's atomic writer lays it out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generation = 0
        folder.mkdir()

    def write(self, **files: str) -> None:
        """Every file at once, by one swap of `..data`."""
        self.generation += 1
        made = self.folder / f"..2026_{self.generation}"
        made.mkdir()
        for name, text in files.items():
            (made / f"{name}.yaml").write_text(text)
            link = self.folder / f"{name}.yaml"
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}.yaml")
        swap = self.folder / "..data_tmp"
        swap.symlink_to(made.name)
        swap.replace(self.folder / "..data")

    def path(self, name: str = "breakers") -> str:
        return str(self.folder / f"{name}.yaml")


def test_a_swapped_link_is_noticed(tmp_path):
    volume = Volume(tmp_path / "volume")
    volume.write(breakers=FILE)
    watch = Watch()
    watch.note([volume.path()])
    assert watch.changes() == {}
    # The same bytes and the same time of change: another file all the same.
    before = Path(volume.path()).stat()
    volume.write(breakers=FILE)
    os.utime(volume.path(), ns=(before.st_atime_ns, before.st_mtime_ns))
    assert set(watch.changes()) == {volume.path()}
    watch.note([volume.path()])
    assert watch.changes() == {}


@pytest.mark.parametrize("plain", [False, True])
def test_a_plain_file_is_left_alone_unless_asked_for(tmp_path, plain):
    file = tmp_path / "breakers.yaml"
    file.write_text(FILE)
    watch = Watch(plain=plain)
    watch.note([str(file)])
    file.write_text(FILE * 2)
    assert bool(watch.changes()) is plain
    file.unlink()
    assert watch.changes() == ({str(file): None} if plain else {})


def test_what_is_gone_is_noticed_where_a_link_stood(tmp_path):
    volume = Volume(tmp_path / "volume")
    volume.write(breakers=FILE)
    watch = Watch()
    watch.note([volume.path()])
    Path(volume.path()).unlink()
    assert watch.changes() == {volume.path(): None}


def test_a_link_takes_the_place_of_a_file(tmp_path):
    file = tmp_path / "breakers.yaml"
    file.write_text(FILE)
    watch = Watch()
    watch.note([str(file)])
    other = tmp_path / "other.yaml"
    other.write_text(FILE)
    file.unlink()
    file.symlink_to(other)
    assert set(watch.changes()) == {str(file)}


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("breakers.yaml").write_text(FILE)
    watch = Watch()
    watch.note(["breakers.yaml"])
    Path("breakers.yaml").write_text(FILE * 2)
    assert watch.changes() == {}


@pytest.mark.parametrize("path", ["/nowhere/breakers.yaml", "/\0", ""])
def test_what_cannot_be_looked_at_is_no_fault(path):
    watch = Watch(plain=True)
    watch.note([path])
    assert watch.changes() == {}


def test_certificates_are_watched_too(tmp_path):
    authority = trustme.CA()
    mine = authority.issue_cert("agent.test")
    volume, certificates = Volume(tmp_path / "volume"), Volume(tmp_path / "certificates")
    certificates.write(
        ca=authority.cert_pem.bytes().decode(), mine=mine.private_key_and_cert_chain_pem.bytes().decode()
    )  # fmt: skip
    ca, cert = certificates.path("ca"), certificates.path("mine")
    volume.write(
        breakers="providers:\n  up:\n    upstream: https://127.0.0.1:1\n"
        f"    tls: {{ca: {ca}, cert: {cert}}}\n"
    )
    config = load(Path(volume.path()), environ={})
    assert set(watchable(config)) == {volume.path(), ca, cert}


def test_the_secrets_that_a_file_names_are_watched_and_forgotten(tmp_path):
    volume, secrets = Volume(tmp_path / "volume"), Volume(tmp_path / "secrets")
    secrets.write(token="first", key="one")
    token, key = secrets.path("token"), secrets.path("key")
    volume.write(
        breakers=f"admin: {{token_file: {token}}}\nproviders:\n  up:\n    upstream: http://127.0.0.1:1\n"
        f"    set_headers: {{authorization: {{file: {key}}}, x-a: {{value: b}}}}\n"
    )
    config = load(Path(volume.path()), environ={})
    assert set(watchable(config)) == {volume.path(), token, key}
    watch = Watch()
    watch.note(watchable(config))
    secrets.write(token="second", key="two")
    assert set(watch.changes()) == {token, key}
    watch.note_new([volume.path()])
    assert watch.changes() == {}
