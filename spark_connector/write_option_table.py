"""Every option of a write: its name, default, whom it concerns and what it does, in words for the reference.

`write_options.py` reads them, REFERENCE.md lists them.
"""

from __future__ import annotations

from spark_connector.kafka_option_table import CONNECTION_ROWS
from spark_connector.option_table import BOTH, OptionRow

ROWS = (
    OptionRow(
        "topic",
        "",
        BOTH,
        "Where all rows go; beats the column `topic`, whatever its type. A topic that does not exist is made "
        "by the broker if it has `auto.create.topics.enable`.",
    ),
    OptionRow(
        "partitioner",
        "murmur2",
        BOTH,
        "`murmur2`: keys go where the Java producer sends them; `crc32`: where librdkafka does. Rows without "
        "key go round the partitions, 16 KiB to each.",
    ),
    OptionRow(
        "includeHeaders",
        "",
        BOTH,
        "Taken, and without meaning: headers are written when the column is there.",
    ),
)
KAFKA_ROWS = (
    OptionRow(
        "kafka.acks", "all", BOTH, "`all`, `1` or `0`: who must have a batch before it counts as written."
    ),
    OptionRow(
        "kafka.enable.idempotence",
        "true with acks=all",
        BOTH,
        "Batches are numbered, so that one whose answer was lost is written once though sent twice.",
    ),
    OptionRow("kafka.compression.type", "none", BOTH, "`none`, `gzip`, `snappy`, `lz4` or `zstd`."),
    OptionRow(
        "kafka.compression.gzip.level", "", BOTH, "The level of this codec: 1 to 9, or -1, its own default."
    ),
    OptionRow("kafka.compression.lz4.level", "", BOTH, "The level of this codec: 1 to 17."),
    OptionRow("kafka.compression.zstd.level", "", BOTH, "The level of this codec: -131072 to 22."),
    OptionRow(
        "kafka.batch.size",
        "524288",
        BOTH,
        "Bytes of a record batch before compression; 0: one record each. A topic that takes only "
        "smaller ones (`max.message.bytes`, `segment.bytes`) gets halves, and smaller ones from then on.",
    ),
    OptionRow("kafka.max.request.size", "1048576", BOTH, "Bytes of a request; a record above it is refused."),
    OptionRow(
        "kafka.buffer.memory",
        "33554432",
        BOTH,
        "Memory for open batches in a task, shared by the partitions it writes to (at least 16 KiB each).",
    ),
    OptionRow(
        "kafka.max.in.flight.requests.per.connection",
        "5",
        BOTH,
        "Requests to one leader that may wait for their answer; 5 at most when idempotent.",
    ),
    OptionRow(
        "kafka.delivery.timeout.ms",
        "120000",
        BOTH,
        "How long to try again without any progress before the task fails.",
    ),
    *CONNECTION_ROWS,
)
NAMES = {row.name.lower(): row.name for row in ROWS}
