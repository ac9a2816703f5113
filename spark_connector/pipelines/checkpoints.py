"""What a checkpoint knows, held against what the query before has done: Spark itself never compares them.

A micro-batch has a number, counted by the checkpoint, and Spark's file sink passes over each whose number its
directory has already. With another checkpoint than the one before, which counts from 0 again, it would pass
over records that it has never seen, and the query would end well.
"""

from __future__ import annotations

from typing import Any

from spark_connector.errors import ConnectorError

SINK_LOG = "_spark_metadata"
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


def _up_to(batch: int) -> str:
    return "no micro-batch" if batch == NONE else f"micro-batches up to number {batch}"
