"""Compile the connector's kernels into their cache on disk: `python -m spark_connector.warm_up`.

Set-up runs it once, so that no query's first task waits for a compiler.
"""

from __future__ import annotations

import numpy
import pyarrow
from pyspark.sql.types import LongType, StructField, StructType

from protocol import lz4_frames
from protocol.compression import Codec
from protocol.kernel import NOT_KEPT, Kernel
from protocol.records import as_array, encode_batch
from spark_connector import kernels
from spark_connector.arrays import ARROW_TYPES
from spark_connector.columns import ColumnBuilder
from spark_connector.encoder import Encoder, split
from spark_connector.formats import Formats
from spark_connector.key_set import (
    ENTRY_BYTES,
    FIRST_SLOTS,
    SECRET,
    KeySet,
    Part,
    forget_others,
    hash_rows,
    hashes_of,
)
from spark_connector.offsets import TopicPartition
from spark_connector.options import ClientSettings
from spark_connector.partitioners import PARTITIONERS
from spark_connector.shape import Shape
from spark_connector.values import ValueDecoder
from spark_connector.write_options import WriteOptions


def main() -> None:
    """Send one small batch the way of all others: as columns, as a table's key, as JSON."""
    lz4_frames.compile_kernels()
    records = [(0, b"key", b'{"id": 1}', [("header", b"value")])]
    data = as_array(encode_batch(records, codec=Codec.NONE))
    table = numpy.empty((1, kernels.BATCH_FIELDS), numpy.int64)
    kernels.scan_batches(data, 0, table)
    builder = ColumnBuilder(Shape.of(list(ARROW_TYPES)), TopicPartition("warm-up", 0))
    (made,) = builder.build(data, table, 0, 1)
    assert made.num_rows == 1
    for located in builder.locate(data, table, 0, 1):
        hashes = hashes_of([b"key"])
        hash_rows(data, located.rows, SECRET, hashes)
        forget_others(hashes, hashes_of([b"key"]))
        assert KeySet(FIRST_SLOTS * ENTRY_BYTES, Part(0, 0, 1)).add(hashes).tolist() == [1]
        fields = StructType([StructField("id", LongType())])
        (ids,) = (
            ValueDecoder(Shape(("id",), fields, Formats(value="json"))).decode(data, located.rows).values()
        )
        assert ids.to_pylist() == [1]
    warm_writer()
    if not Kernel.is_kept:
        raise SystemExit(NOT_KEPT)


def warm_writer() -> None:
    """Encode two rows, by key and by checksum, and halve their batch."""
    pairs = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
    columns = [pyarrow.array([b"key"] * 2), pyarrow.array([b"value"] * 2)]
    columns.append(pyarrow.array([[{"key": "header", "value": b"value"}]] * 2, pairs))
    batch = pyarrow.RecordBatch.from_arrays(columns, names=["key", "value", "headers"])
    for partitioner in PARTITIONERS:
        options = WriteOptions(ClientSettings(()), topic="warm-up", partitioner=partitioner)
        encoder = Encoder(options, lambda topic: 1)
        assert not list(encoder.encode(batch, 0))
        (sealed,) = encoder.flush()
        assert [piece.record_count for piece in split(sealed, None)] == [1, 1]


if __name__ == "__main__":
    main()
