"""Every option of a read: its name, default, whom it concerns and what it does, in words for the reference.

`options.py` reads them, REFERENCE.md lists them; one table, so that nothing can be accepted undocumented.
"""

from __future__ import annotations

from dataclasses import dataclass

BATCH, STREAM, BOTH = "batch", "stream", "both"


@dataclass(frozen=True)
class OptionRow:
    """One option; Spark hands its name over in lower case."""

    name: str
    default: str
    where: str
    words: str


ROWS = (
    OptionRow("assign", "", BOTH, 'The partitions to read: `{"topic":[0,1]}`.'),
    OptionRow("subscribe", "", BOTH, "The topics to read, with commas."),
    OptionRow(
        "subscribePattern",
        "",
        BOTH,
        "A regular expression (Python's) that is found anywhere in the topic's name: `orders` reads "
        "`orders-eu` as well, `^orders$` does not. Java's sets within sets, `[a-z&&[^x]]`, are refused.",
    ),
    OptionRow(
        "startingOffsets",
        "earliest; latest in a stream",
        BOTH,
        '`earliest`, `latest`, or `{"topic":{"0":23,"1":-2}}` (-1 latest, -2 earliest).',
    ),
    OptionRow("endingOffsets", "latest", BATCH, "As `startingOffsets`; the offset itself is not read."),
    OptionRow(
        "startingTimestamp",
        "",
        BOTH,
        "Begin at the first record at or after these ms (-1: latest, -2: earliest); beats offsets.",
    ),
    OptionRow(
        "endingTimestamp",
        "",
        BATCH,
        "End before the first record at or after these ms (-1: latest, -2: earliest); beats offsets.",
    ),
    OptionRow("startingOffsetsByTimestamp", "", BOTH, "As `startingTimestamp`, by partition, in JSON."),
    OptionRow("endingOffsetsByTimestamp", "", BATCH, "As `endingTimestamp`, by partition, in JSON."),
    OptionRow(
        "startingOffsetsByTimestampStrategy",
        "error",
        BOTH,
        "`error` or `latest`: where to begin when no record is that young.",
    ),
    OptionRow(
        "asOf",
        "",
        BATCH,
        "A time, ISO 8601 with a zone or ms: read each log up to its first record that is younger. With "
        "`view=latest` the table as of then, as far as compaction has left it.",
    ),
    OptionRow(
        "view",
        "",
        BATCH,
        "`latest`: the topic as a table. One row a key, its last record; keys whose last record is a "
        "tombstone are absent. The ends are taken once, when the query is planned.",
    ),
    OptionRow(
        "keylessRecords",
        "error",
        BATCH,
        "`error` or `absent`: what `view=latest` makes of records without key.",
    ),
    OptionRow(
        "viewMemoryBytes",
        "4194304",
        BATCH,
        "Memory for the keys of `view=latest` in a task, 16 bytes a key; a partition with more keys is read "
        "in several passes.",
    ),
    OptionRow(
        "failOnDataLoss",
        "true",
        BOTH,
        "Whether offsets that are gone (a topic made again included) end the query, or are skipped.",
    ),
    OptionRow(
        "minPartitions",
        "",
        BOTH,
        "About how many tasks there should be at least; splits large ranges. Where it splits and "
        "`failOnDataLoss` is false, a range that would begin behind the log's end is left out.",
    ),
    OptionRow(
        "maxRecordsPerPartition",
        "",
        BOTH,
        "Splits ranges of more offsets than this, before `minPartitions` does. In a batch read also those "
        "from `earliest` or to `latest`, by the offsets as they are when the query is planned; Spark's own "
        "source leaves these whole, and gives the same rows.",
    ),
    OptionRow(
        "packOffsets",
        "50000",
        BOTH,
        "Topic partitions with little to read share a task, up to so many offsets (and about 16 MiB) in all; "
        "0: a task each. `minPartitions` goes before.",
    ),
    OptionRow(
        "maxOffsetsPerTrigger", "", STREAM, "At most so many offsets a micro-batch, shared by backlog."
    ),
    OptionRow(
        "maxBytesPerTrigger",
        "",
        STREAM,
        "About so many bytes a micro-batch, as stored (compressed), by the sizes of a few batches looked at; "
        "never less than one batch of each partition.",
    ),
    OptionRow(
        "minOffsetsPerTrigger",
        "",
        STREAM,
        "Wait for so many offsets, at most `maxTriggerDelay`; 0 or less: for none.",
    ),
    OptionRow(
        "maxTriggerDelay",
        "15m",
        STREAM,
        "How long `minOffsetsPerTrigger` may hold a micro-batch back; 0 or less: not at all.",
    ),
    OptionRow(
        "includeHeaders",
        "false",
        BOTH,
        "Adds the column `headers`; where `columns` or a schema names the columns, it is named there.",
    ),
    OptionRow(
        "columns",
        "",
        BOTH,
        "The columns to build, with commas; a schema of the user does the same, and may not have others.",
    ),
    OptionRow(
        "valueFormat",
        "binary",
        BOTH,
        "`binary`, `string`, `json` or `avro`. With the last two the schema's columns are fields of the "
        "value, but for those with name and type of a column of the record (or, if given, those in "
        "`columns`). A row that does not parse has null fields, one that fits in part keeps those that "
        "fit; both have their value in `_corrupt_record` if that is a column.",
    ),
    OptionRow(
        "timeZone",
        "the session's, or UTC",
        BOTH,
        "For `valueFormat=json`: the zone of times that have none, `Europe/Berlin` or `+01:00`. The "
        "session's is known here if `spark.sql.session.timeZone` was set, not if Spark took the machine's.",
    ),
    OptionRow("keyFormat", "binary", BOTH, "`binary` or `string`."),
    OptionRow(
        "avroSchema",
        "",
        BOTH,
        "For `valueFormat=avro`: the schema the values were written with, as JSON. A `.schema(...)` may "
        "leave fields out and widen numbers; a type that no value fits, or that would change some, is "
        "refused. Without one, or with one that is the same, each column is a field, whatever it is called.",
    ),
    OptionRow(
        "valuePrefix",
        "auto",
        BOTH,
        "`confluent`: values begin with a zero byte and four of a schema id (column `_schema_id int`); "
        "`none`; `auto`: `confluent` for avro, in JSON where the zero byte is there, `none` else.",
    ),
    OptionRow(
        "pushdown",
        "false",
        BATCH,
        "Apply filters on topic, partition, offset, timestamp, and with `view=latest` on key, while reading; "
        "needs `spark.sql.python.filterPushdown.enabled=true`.",
    ),
    OptionRow(
        "kafkaConsumer.pollTimeoutMs",
        "120000",
        BOTH,
        "How long to wait for records that should be there. Where the log's last offset is silent too, the "
        "rest of the range is a hole (compaction) after 1 s, or this if it is less.",
    ),
    OptionRow(
        "groupId",
        "",
        STREAM,
        "The consumer group that `commitOffsets` commits to. It is not joined, and nothing is read from it.",
    ),
    OptionRow(
        "commitOffsets",
        "false",
        STREAM,
        "Commit the offsets of finished micro-batches to `groupId`, when the next one is planned: for lag "
        "tools, the query's own position is its checkpoint. A commit that fails is a warning. With "
        "`Trigger.Once` nothing is planned behind the one batch, and its commit comes with the next run; the "
        "listener `commit_offsets` commits as each batch ends.",
    ),
    OptionRow("groupIdPrefix", "", BOTH, "Taken, and without meaning: no group is joined."),
    OptionRow(
        "fetchOffset.numRetries",
        "1",
        BOTH,
        "How often topics and offsets are looked up before that is an error. Each time goes on by itself for "
        "`kafka.default.api.timeout.ms` while a broker is not there, which is why once is enough.",
    ),
    OptionRow("fetchOffset.retryIntervalMs", "10", BOTH, "The pause between these."),
)
NAMES = {row.name.lower(): row.name for row in ROWS}
