"""Reading one offset range of one partition into Arrow record batches, in order.

The next fetch is on its way while the records of the last one are turned into columns. Small batches are
joined: a record batch costs Spark something beside its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow

from spark_connector import kernels
from spark_connector.client import Backoff, Cluster
from spark_connector.columns import ColumnBuilder
from spark_connector.connection import Connection, Unavailable
from spark_connector.errors import MissingTopicError
from spark_connector.fetching import Fetcher
from spark_connector.kernels import Bytes, Longs
from spark_connector.offsets import OffsetRange
from spark_connector.options import Options
from spark_connector.shape import Shape
from spark_connector.unpacking import Piece, Unpacker, merged, payload_bytes

# Less than this is kept back and joined with what comes next.
LEAST_ROWS = 10_000
LEAST_BYTES = 1024 * 1024


class RangeReader:
    """One pass over one range. Owned by: the task that reads it."""

    def __init__(self, options: Options, cluster: Cluster, wanted: OffsetRange, shape: Shape) -> None:
        self.topic_partition = wanted.topic_partition
        self._settings = options.client
        self._cluster = cluster
        self._fetcher = Fetcher(options, cluster, wanted.topic_partition, wanted.start, wanted.end)
        self._start = wanted.start
        self._builder = ColumnBuilder(shape, wanted.topic_partition)
        self._unpacker = Unpacker(wanted.topic_partition)
        self._pending: list[Piece] = []
        self._pending_rows = 0
        self._pending_bytes = 0

    def record_batches(self) -> Iterator[pyarrow.RecordBatch]:
        """All records of the range, in order."""
        backoff = Backoff(self._settings, is_missing=lambda: self._cluster.is_missing(self.topic_partition))
        while self._fetcher.next < self._fetcher.end:
            try:
                try:
                    yield from self._read_from_leader(backoff)
                except Unavailable as problem:
                    self._cluster.forget_leaders([self.topic_partition])
                    backoff.wait(problem, f"reading {self.topic_partition} at offset {self._fetcher.next}")
            except MissingTopicError as missing:  # of the wait, or of a look for where the log begins
                self._fetcher.lose(str(missing))
                self._fetcher.next = self._fetcher.end
        yield from self._flush()

    def _read_from_leader(self, backoff: Backoff) -> Iterator[pyarrow.RecordBatch]:
        fetcher = self._fetcher
        with self._cluster.connection(self._cluster.leader_of(self.topic_partition)) as connection:
            fetcher.request(connection)
            while True:
                reached = fetcher.next
                pieces = fetcher.take(connection.receive())
                if fetcher.start > self._start:
                    yield from self._flush()
                    self._start = fetcher.start
                has_more = fetcher.next < fetcher.end
                problem = self._ask_for_more(connection) if has_more else None
                while pieces:
                    # Taken off the list: nothing of an answer stays in memory while the next one is read.
                    yield from self._add(*pieces.pop(0))
                if fetcher.next > reached:
                    # Not before: what Spark takes its time for is no trouble, even if connections end by it.
                    backoff.restart()
                if problem is not None:
                    raise problem
                if not has_more:
                    return

    def _ask_for_more(self, connection: Connection) -> Unavailable | None:
        """What went wrong, if anything, for later: the records of the last answer are not given yet, and the
        fetcher has moved on behind them."""
        try:
            self._fetcher.request(connection)
        except Unavailable as problem:
            return problem
        return None

    def _add(self, data: Bytes, batches: Longs) -> Iterator[pyarrow.RecordBatch]:
        """Turn chosen batches into record batches; what is too little for one waits for more."""
        for unpacked, chosen in self._unpacker.forwards(data, batches):
            self._pending.append((unpacked, chosen))
            self._pending_rows += int(chosen[:, kernels.RECORD_COUNT].sum())
            self._pending_bytes += payload_bytes(chosen)
            del unpacked
            if self._pending_rows >= LEAST_ROWS or self._pending_bytes >= LEAST_BYTES:
                yield from self._flush()

    def _flush(self) -> Iterator[pyarrow.RecordBatch]:
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        self._pending_rows = self._pending_bytes = 0
        data, batches = merged(pending)
        pending.clear()
        yield from self._builder.build(data, batches, self._start, self._fetcher.end)
