"""Whether a program that wants a broker in its process has modules with the names of ours.

kompakt's packages have plain names (`config`, `storage`), and a process has one module of each: where the
program's own `config.py` is found first, the broker cannot be imported.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

NAMES = ("broker", "cleaner", "config", "protocol", "storage")
HERE = Path(__file__).resolve().parent.parent.parent
"""the directory in which all of ours lie"""


def check() -> None:
    """ImportError, with what can be done, where a name of ours is somebody else's."""
    for name in NAMES:
        place = _place(name)
        if place is not None and not place.is_relative_to(HERE / name):
            raise ImportError(
                f"kompakt cannot run in this process: its package `{name}` is hidden by {place}. "
                "Give that another name or put it into a package, or run `kompakt serve --port 0` beside."
            )


def _place(name: str) -> Path | None:
    """The file, or for a directory without `__init__.py` the directory, that `import name` gives."""
    loaded = sys.modules.get(name)
    spec = loaded.__spec__ if loaded is not None else find_spec(name)
    if spec is None:
        return None
    if spec.origin is not None:
        return Path(spec.origin).resolve()
    return next((Path(path).resolve() for path in spec.submodule_search_locations or ()), None)
