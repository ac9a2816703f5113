"""`python -m broker`: the command `kompakt serve`, whose name may be left out."""

from __future__ import annotations

import sys

from broker.cli import main

if __name__ == "__main__":
    if sys.argv[1:2] != ["serve"]:
        sys.argv.insert(1, "serve")
    main()
