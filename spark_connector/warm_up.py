"""Compile the connector's kernels into their cache on disk: `python -m spark_connector.warm_up`.

Set-up runs it once, so that no query's first task waits for a compiler.
"""

from __future__ import annotations

import numpy

from protocol.compression import Codec
from protocol.records import as_array, encode_batch
from spark_connector import kernels
from spark_connector.columns import ARROW_TYPES, ColumnBuilder
from spark_connector.offsets import TopicPartition
from spark_connector.shape import Shape


def main() -> None:
    """Send one small batch the way of all others."""
    records = [(0, b"key", None, [("header", b"value")])]
    data = as_array(encode_batch(records, codec=Codec.NONE))
    table = numpy.empty((1, kernels.BATCH_FIELDS), numpy.int64)
    kernels.scan_batches(data, 0, table)
    (made,) = ColumnBuilder(Shape.of(list(ARROW_TYPES)), TopicPartition("warm-up", 0)).build(
        data, table, 0, 1
    )
    assert made.num_rows == 1


if __name__ == "__main__":
    main()
