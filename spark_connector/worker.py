"""What is done once in each of Spark's Python workers, of planning and of tasks, to be quick later."""

from __future__ import annotations

import gc
import sys

DAEMON = "pyspark.daemon"
_settled = False


def settle() -> None:
    """After the imports of a worker's first job: take what is there out of the collector's sight.

    Spark's daemon collects garbage after every job, and looks at some 80,000 objects of loaded modules each
    time: longer than a small task takes. They are never garbage. In any other process nothing is done.
    """
    global _settled
    main = sys.modules["__main__"]
    if _settled or getattr(main.__spec__, "name", "") != DAEMON:
        return
    _settled = True
    gc.collect()
    gc.freeze()
