"""`python -m broker`: the command `kompakt serve`."""

from __future__ import annotations

import sys

from broker.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["serve"]
    main()
