"""Is what every call runs compiled?

The same modules are compiled or interpreted, as the build was told (`hatch_build.py`). Nothing but
the speed differs, and whoever wonders about that wants to know.
"""

from importlib.util import find_spec


def compiled() -> bool:
    """Does a call run as machine code, and not as byte code?"""
    found = find_spec("sidecar.proxy.call")
    return found is not None and not (found.origin or ".py").endswith(".py")
