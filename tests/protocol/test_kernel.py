"""Goal: kernels compile wherever they are installed. Method: a package directory and a home that nobody may
write.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []  # what numba finds where neither the source nor the home is writable
from protocol.kernel import kernel

@kernel
def twice(number):
    return 2 * number

print(twice(21))
"""


def test_a_kernel_compiles_where_no_cache_can_be_written(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.returncode) == ("42\n", 0), done.stderr
