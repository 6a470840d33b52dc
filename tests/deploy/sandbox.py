"""Runs a command under what a unit forbids, without a manager: `python sandbox.py UNIT COMMAND …`.

The unit's own `SystemCallFilter=` becomes a filter of libseccomp, which systemd itself uses, and
`MemoryDenyWriteExecute=` the kernel's own switch for it. Both hold for the command from its first
instruction on.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import subprocess
import sys
from pathlib import Path

PR_SET_NO_NEW_PRIVS = 38
PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1
ALLOW = 0x7FFF0000
REFUSE = 0x00050000 | errno.EPERM
# What systemd allows whatever the filter says (systemd.exec(5)).
ALWAYS = ("@default",)


def allowed(unit: str) -> set[str]:
    """The names of the system calls that a unit leaves."""
    found = {name for group in ALWAYS for name in _expanded(group)}
    for words in re.findall(r"^SystemCallFilter=(.+)$", unit, re.MULTILINE):
        names = {name for word in words.lstrip("~").split() for name in _expanded(word)}
        found = found - names if words.startswith("~") else found | names
    return found


def _expanded(word: str) -> set[str]:
    if not word.startswith("@"):
        return {word}
    told = subprocess.run(
        ["systemd-analyze", "syscall-filter", word], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    inner = [line.strip() for line in told[1:]]
    return {name for one in inner if one and one[0] != "#" for name in _expanded(one)}


def confine(names: set[str]) -> None:
    """Forbids this process everything else, for good."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    # A kernel before 6.3 has it not, and systemd does it by a filter of arguments there.
    libc.prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0)
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(REFUSE)))
    for name in names:
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            seccomp.seccomp_rule_add(context, ctypes.c_uint32(ALLOW), number, 0)
    assert seccomp.seccomp_load(context) == 0


if __name__ == "__main__":
    confine(allowed(Path(sys.argv[1]).read_text()))
    os.execvp(sys.argv[2], sys.argv[2:])
