"""The state file on a disk: replaced whole, by one process, and read whatever stands there."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from sidecar.fleet.disk import LARGEST, NotOurs, StateFile


@pytest.fixture
def file(tmp_path):
    made = StateFile(str(tmp_path / "state.json"))
    yield made
    made.close()


def test_nothing_yet(file):
    assert file.read() is None


def test_written_and_read(file):
    file.write(b"one")
    file.write(b"a second one")
    assert file.read() == b"a second one"
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert sorted(one.name for one in file.path.parent.iterdir()) == [
        "state.json",
        "state.json.lock",
    ]


def test_what_a_crash_left_is_in_nobodys_way(file):
    new = file.path.with_name("state.json.new")
    new.write_bytes(b"half of someth" * 100)
    assert file.read() is None
    file.write(b"one")
    assert file.read() == b"one"
    assert not new.exists()


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_what_fails_leaves_what_was_there(file, monkeypatch, step):
    file.write(b"before")

    def fail(*_args, **_more):
        raise OSError(errno.ENOSPC, "No space left on device")

    if step == "replace":
        monkeypatch.setattr(type(file.path), "replace", fail)
    elif step == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(StateFile, "_write_new", fail)
    with pytest.raises(OSError, match="No space"):
        file.write(b"after")
    monkeypatch.undo()
    assert file.read() == b"before"
    assert not file.path.with_name("state.json.new").exists()
    file.write(b"after")
    assert file.read() == b"after"


def test_a_folder_that_cannot_be_synced_is_no_failure(file, monkeypatch):
    real = os.fsync

    def sync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    file.write(b"one")
    assert file.read() == b"one"


def test_one_writes_at_a_time(file):
    other = StateFile(str(file.path))
    file.write(b"one")
    with pytest.raises(OSError, match="another daemon"):
        other.write(b"two")
    assert file.read() == other.read() == b"one"
    file.close()
    other.write(b"two")
    assert other.read() == b"two"
    other.close()


def test_through_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "real" / "state.json")
    file = StateFile(str(tmp_path / "link.json"))
    file.write(b"one")
    file.close()
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real" / "state.json").read_bytes() == b"one"


def test_a_link_in_the_way_is_not_followed(file, tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    file.path.with_name("state.json.new").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"):
        file.write(b"one")
    assert victim.read_bytes() == b"mine"
    # It is gone now, and the next try succeeds.
    file.write(b"one")
    assert victim.read_bytes() == b"mine"


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotOurs, match="no regular file"):
        StateFile(str(tmp_path / "pipe")).read()
    with pytest.raises((NotOurs, OSError)):
        StateFile(str(tmp_path)).read()
    with pytest.raises((NotOurs, OSError)):
        StateFile("/dev/zero").read()


def test_what_is_too_large(file):
    with file.path.open("wb") as large:
        large.truncate(LARGEST + 1)
    with pytest.raises(NotOurs, match="too large"):
        file.read()
    with pytest.raises(OSError, match="too much"):
        file.write(b"x" * (LARGEST + 1))


def test_set_aside(file):
    file.set_aside()
    file.path.write_bytes(b"somebody's")
    file.set_aside()
    assert file.read() is None
    assert file.path.with_name("state.json.ignored").read_bytes() == b"somebody's"
