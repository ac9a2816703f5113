"""Whether a broker can run on this system. Its commands, which ask one over HTTP, run on others as well."""

from __future__ import annotations

import sys

SYSTEM = "linux"


def why_not() -> str | None:
    """What is wrong with this system, and what can be done; None on one that will do."""
    if sys.platform == SYSTEM:
        return None
    return (
        f"the broker needs Linux, for it calls what others have not, and this is {sys.platform}. Run it in a "
        "container (docker/Dockerfile): clients and the other commands reach it from here"
    )
