"""The image's file tree without a container engine, and processes in it.

The base is made of the same Debian packages as the one that the Dockerfile names, copied from this
machine; what the image adds is installed by the script that the Dockerfile runs. A process gets
what a container engine would give: its own mounts and process numbers, a root that cannot be
written to, and the fixed user.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[2]
SOURCE = (
    "pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "breakers.yaml", "container",
    "sidecar",
)  # fmt: skip
EPOCH = 1_700_000_000
USER = 65532
LIMIT = 300

BASE_PACKAGES = (
    "libbz2-1.0", "libc6", "libcom-err2", "libcrypt1", "libdb5.3", "libexpat1", "libffi8",
    "libgcc-s1", "libgssapi-krb5-2", "libk5crypto3", "libkeyutils1", "libkrb5-3", "libkrb5support0",
    "liblzma5", "libncursesw6", "libnsl2", "libpython3.11-minimal", "libpython3.11-stdlib",
    "libreadline8", "libsqlite3-0", "libssl3", "libstdc++6", "libtinfo6", "libtirpc3", "libuuid1",
    "netbase", "python3.11-minimal", "tini", "tzdata", "zlib1g",
)  # fmt: skip
"""What distroless/python3-debian12 is made of, and tini."""

LEFT_OUT = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/lintian/", "/usr/share/bug/")


def missing() -> str:
    """Why the tree cannot be built here; nothing if it can."""
    if os.geteuid() != 0:
        return "mounts need root"
    for command in ("dpkg", "unshare", "mount", "chroot", "strip", "gcc"):
        if shutil.which(command) is None:
            return f"{command} is not installed"
    if not Path("/usr/bin/python3.11").exists():
        return "the base is Debian 12's with Python 3.11, and this machine has another"
    found = subprocess.run(
        ["dpkg", "--listfiles", *BASE_PACKAGES, "python3-venv"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode != 0:
        return found.stderr.splitlines()[0]
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], check=False).returncode:
        return "mounts of its own are not allowed here"
    return ""


def lay_base(tree: Path) -> None:
    """Copies the files of the base's packages."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (tree / "usr" / name).mkdir(parents=True)
        (tree / name).symlink_to(f"usr/{name}")
    for name in ("proc", "sys", "dev", "etc/ssl/certs", "opt/breaker-sidecar"):
        (tree / name).mkdir(parents=True)
    (tree / "tmp").mkdir(mode=0o1777)
    listed = subprocess.run(
        ["dpkg", "--listfiles", *BASE_PACKAGES], capture_output=True, text=True, check=True
    )
    for line in listed.stdout.splitlines():
        source = Path(line)
        if line.startswith(LEFT_OUT) or not line.startswith("/") or source.is_dir():
            continue
        target = tree / line.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() and not target.is_symlink():
            shutil.copy2(source, target, follow_symlinks=False)
    (tree / "usr/bin/python3").symlink_to("python3.11")
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", tree / "etc/ssl/certs/ca-certificates.crt")
    (tree / "etc/passwd").write_text("root:x:0:0::/:\nnonroot:x:65532:65532::/:\n")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")


def install(tree: Path, source: Path) -> None:
    """What the Dockerfile's build stage does, with the tree's folder in the place of its own."""
    script = (
        'mkdir -p /opt/breaker-sidecar && mount --bind "$1" /opt/breaker-sidecar'
        ' && exec "$2/container/install.sh" "$2"'
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script, "sh", tree / "opt/breaker-sidecar", source],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)},
        check=False, capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def copy_source(target: Path) -> Path:
    """What `.dockerignore` lets into the build."""
    for name in SOURCE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.so")
            )
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    return target


def size(tree: Path) -> int:
    """Bytes of all files in a tree."""
    return sum(one.lstat().st_size for one in tree.rglob("*") if not one.is_dir())


def digest(tree: Path) -> dict[str, str]:
    """What stands at each path, with its mode and time."""
    found = {}
    for one in sorted(tree.rglob("*")):
        about = one.lstat()
        if one.is_symlink():
            content = str(one.readlink())
        else:
            content = "" if one.is_dir() else hashlib.sha256(one.read_bytes()).hexdigest()
        mode = stat.filemode(about.st_mode)
        found[str(one.relative_to(tree))] = f"{mode} {int(about.st_mtime)} {content}"
    return found


ENTER = """
set -e
tree=$1; shift
mount --bind "$tree" "$tree"
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"
[ -z "$CONFIG" ] || mount --bind "$CONFIG" "$tree/etc/breaker-sidecar"
mount -o remount,bind,ro "$tree"
exec chroot --userspec=65532:65532 "$tree" "$@"
"""


class Container:
    """A process in the tree, as process 1 of its own.

    Args:
        tree: the image's files.
        command: what runs; a full path.
        config: a folder of the machine that stands at /etc/breaker-sidecar, which the tree has.
        log: where its output goes.
    """

    def __init__(
        self,
        tree: Path,
        command: Sequence[str],
        log: Path,
        *,
        config: Path | None = None,
        environ: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.log = log
        with log.open("wb") as stream:
            self.popen = subprocess.Popen(
                ["unshare", "--mount", "--pid", "--fork", "sh", "-c", ENTER, "sh",
                 str(tree), *command],
                env={
                    "PATH": "/opt/breaker-sidecar/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                    "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1",
                    "CONFIG": str(config or ""),
                    **environ,
                },
                stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            )  # fmt: skip

    @property
    def pid(self) -> int | None:
        """Process 1 of the container, by its number outside; None before it takes signals.

        No process can take one in the moment between its start and its first call of the system;
        this one has taken its first when it has a child.
        """
        (first,) = _children(self.popen.pid) or (None,)
        return first if first is not None and _is_tini(first) and _children(first) else None

    @property
    def daemon(self) -> int:
        """The daemon itself, by its number outside."""
        return _children(self.began())[0]

    def began(self) -> int:
        """Waits until the image's own process runs."""
        deadline = time.monotonic() + LIMIT
        while self.popen.poll() is None and time.monotonic() < deadline:
            if pid := self.pid:
                return pid
            time.sleep(0.001)
        raise AssertionError(self.log.read_text())

    def stop(self) -> None:
        os.kill(self.began(), signal.SIGTERM)

    def end(self) -> None:
        # The end of process 1 is the end of all; its parent alone would leave it behind.
        for child in _children(self.popen.pid):
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
        self.popen.kill()
        self.popen.wait(LIMIT)


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _is_tini(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text() == "tini\n"
    return False
