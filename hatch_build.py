"""Compiles what every call runs, when a wheel is built and told to.

The modules stay plain, typed Python: mypyc turns them into C, and a compiler into extension modules
that lie beside them in the wheel. Python imports those first; without them all is the same, but
slower.

    HATCH_BUILD_HOOK_ENABLE_CUSTOM=true pip install .

It takes a C compiler and Python's headers. An editable install is never compiled: what was edited
would not be what runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledModules(BuildHookInterface[Any]):
    """Adds the extension modules to a wheel. The modules are named in `pyproject.toml`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles, before the files of the wheel are gathered."""
        if version == "editable":
            return
        # mypy finds the project by the folder it stands in.
        os.chdir(self.root)
        self._folder = Path(mkdtemp(prefix="compiled-"))
        try:
            found = _compiled(self.config["modules"], self._folder)
        except BaseException:
            rmtree(self._folder)
            raise
        for built in found:
            build_data["force_include"][str(built)] = str(built.relative_to(self._folder / "lib"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is written: forgets what was made for it."""
        del version, build_data, artifact_path
        rmtree(self._folder)


def _compiled(modules: list[str], folder: Path) -> list[Path]:
    # Only who compiles has these.
    from mypyc.build import mypycify  # noqa: PLC0415
    from setuptools import Distribution  # noqa: PLC0415
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415

    extensions = mypycify(
        [
            # Strictness is for who changes the code: a newer stub must not stop a build.
            "--config-file=",
            "--ignore-missing-imports",
            f"--cache-dir={folder / 'cache'}",
            *(f"sidecar/{module}.py" for module in modules),
        ],
        # A file each, or the C compiler takes half again as long; more of its effort gains nothing.
        opt_level="2",
        multi_file=True,
        debug_level="0",
        group_name="sidecar",
        target_dir=str(folder / "c"),
    )
    command = build_ext(Distribution({"name": "sidecar", "ext_modules": extensions}))
    command.build_lib = str(folder / "lib")
    command.build_temp = str(folder / "objects")
    command.ensure_finalized()
    command.run()
    return sorted((folder / "lib").rglob("*.so"))
