"""What a checkpoint knows, held against what the query before has done: Spark itself never compares them.

A micro-batch has a number, counted by the checkpoint, and Spark's file sink passes over each whose number its
directory has already. With another checkpoint than the one before, which counts from 0 again, it would pass
over records that it has never seen, and the query would end well. So would a restore whose checkpoint says
that all is written, into another topic: which one that was is noted beside what Spark notes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from spark_connector.client import connect
from spark_connector.errors import ConnectorError
from spark_connector.options import ClientSettings

SINK_LOG = "_spark_metadata"
TARGET_NOTE = "_restored_into"
NONE = -1
"""In place of a micro-batch's number: there was none yet."""


class Directory:
    """A directory as Spark sees it, on whatever file system; errors of that one are Py4JJavaError."""

    def __init__(self, spark: Any, path: str) -> None:
        self._path_class = spark._jvm.org.apache.hadoop.fs.Path
        self._path = self._path_class(path)
        self._system = self._path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def last_batch(self, log: str) -> int:
        """The highest number of a micro-batch in the log of that name (a directory within this one)."""
        place = self._path_class(self._path, log)
        if not self._system.exists(place):
            return NONE
        names = [status.getPath().getName() for status in self._system.listStatus(place)]
        numbers = [name.removesuffix(".compact") for name in names]  # each tenth of a file sink's
        return max((int(number) for number in numbers if number.isdecimal()), default=NONE)

    def remove_unfinished(self, log: str) -> None:
        """If the log of that name has no micro-batch, remove what Spark was writing as it noted its first,
        and nothing else: `.0.<id>.tmp`, and a checksum, which no listing shows.
        """
        place = self._path_class(self._path, log)
        if self.last_batch(log) != NONE or not self._system.exists(place):
            return
        for status in self._system.listStatus(place):
            if status.getPath().getName().startswith(".0."):
                self._system.delete(status.getPath(), False)
        self._system.delete(self._path_class(place, ".0.crc"), False)

    def read(self, name: str) -> str | None:
        """What the file of that name says; None when there is none."""
        place = self._path_class(self._path, name)
        if not self._system.exists(place):
            return None
        stream = self._system.open(place)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Whole or not at all, where a rename is."""
        place, unfinished = (self._path_class(self._path, one) for one in (name, f"{name}.tmp"))
        stream = self._system.create(unfinished, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        self._system.rename(unfinished, place)


@dataclass(frozen=True)
class Target:
    """Where a restore writes. Empty is what brokers do not tell: old ones have no ids of topics."""

    topic: str
    topic_id: str
    cluster_id: str
    archived: str = ""
    """The topic whose records they are; empty when the archive has none yet, or does not tell."""

    @classmethod
    def look_up(cls, settings: ClientSettings, topic: str, archived: str = "") -> Target:
        """As a write does: a topic that is missing may be made now. ConnectorError when it is not."""
        cluster = connect(settings)
        cluster.describe_or_create(topic)
        topic_id = cluster.topic_id(topic)
        return cls(topic, str(topic_id) if topic_id.int else "", cluster.cluster_id or "", archived)

    def why_another(self, noted: Target) -> str:
        """In what it differs from the one that was noted; empty when it is the same."""
        if self.topic != noted.topic:
            return f"into topic {noted.topic}"
        if self.cluster_id and noted.cluster_id and self.cluster_id != noted.cluster_id:
            return f"into topic {noted.topic} of another cluster ({noted.cluster_id})"
        if self.topic_id and noted.topic_id and self.topic_id != noted.topic_id:
            return f"into another topic {noted.topic}, which was deleted since"
        if self.archived and noted.archived and self.archived != noted.archived:
            return f"of topic {noted.archived}"
        return ""


def refuse_another_target(spark: Any, checkpoint: str, target: Target) -> None:
    """ConnectorError when `checkpoint` says what was written into another topic; else note `target` there.

    One without a note is new, or was used before there were notes, and nobody knows for what.
    """
    directory = Directory(spark, checkpoint)
    text = directory.read(TARGET_NOTE)
    if text is None:
        directory.write(TARGET_NOTE, json.dumps(asdict(target)))
        return
    another = target.why_another(Target(**json.loads(text)))
    if another:
        raise ConnectorError(
            f"the checkpoint {checkpoint} is that of a restore {another}: what it says is written there "
            f"would be left out here. Name another checkpoint, a new directory"
        )


def refuse_another_checkpoint(spark: Any, path: str, checkpoint: str) -> None:
    """ConnectorError unless the files in `path` were written with `checkpoint`, as far as numbers tell.

    A query notes a micro-batch in `offsets` when it is planned, then in the sink's own list, then in
    `commits`; it may have been killed after any of these.
    """
    known = Directory(spark, checkpoint)
    written = Directory(spark, path).last_batch(SINK_LOG)
    planned, committed = known.last_batch("offsets"), known.last_batch("commits")
    if written > planned:
        raise ConnectorError(
            f"{path} was written with another checkpoint than {checkpoint}: the directory has "
            f"{_up_to(written)}, the checkpoint {_up_to(planned)}. Spark would leave out what it takes for "
            f"written, and those records would be lost: use the checkpoint that was used before, or archive "
            f"into a new directory"
        )
    if committed > written:
        raise ConnectorError(
            f"the checkpoint {checkpoint} is that of another directory than {path}, or files were removed "
            f"there: the checkpoint has {_up_to(committed)}, the directory {_up_to(written)}. What came "
            f"before would be missing: use the directory that was used before, or begin anew with a new "
            f"directory and a new checkpoint"
        )


def begin_anew_if_unused(spark: Any, checkpoint: str) -> None:
    """Let a query begin with a checkpoint that has no micro-batch yet, also where one was killed as it noted
    its first: Spark refuses that since 4.1 (`The checkpoint location ... should be empty on batch 0`)."""
    for log in ("offsets", "commits"):
        Directory(spark, checkpoint).remove_unfinished(log)


def _up_to(batch: int) -> str:
    return "no micro-batch" if batch == NONE else f"micro-batches up to number {batch}"
