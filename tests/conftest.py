"""What holds for all tests: data files that a module has left open are closed behind it.

Logs that end by a crash let go of nothing, and thousands of descriptors in one process break what still uses
`select`: PySpark's callback server ends, and waits for it never do.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage.file import POOL


@pytest.fixture(autouse=True, scope="module")
def no_files_left_open() -> Iterator[None]:
    yield
    POOL.shed()
