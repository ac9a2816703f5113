"""Standard output that takes no more: its reader is gone, or its disk is full."""

from __future__ import annotations

import os
import sys


def give_up_output() -> None:
    """What is still to be written goes nowhere: the interpreter would try it once more as it ends, and
    complain.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
