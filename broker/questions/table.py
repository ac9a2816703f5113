"""A topic as the table that it means: the latest value of each key, a page of keys at a time. Blocking.

What is counted are keys: one that is in several partitions, as after a change of their number, has a row for
each, all on one page, for the next page begins behind the key.

A page costs a pass over the partitions and the memory of its own keys: of all keys behind `after` the
smallest are kept while reading. A key whose latest record is a tombstone is deleted and takes a place on its
page even where it is not shown, so that a page may have fewer rows, even none, and the next one still goes on
behind it.
"""

from __future__ import annotations

import base64
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from broker.questions.records import losses
from broker.questions.shown import SHOWN_BYTES, record_row
from broker.questions.veil import veiled
from protocol.errors import KafkaError
from protocol.records import Record, decode_batch
from storage.snapshot import is_aborted

if TYPE_CHECKING:
    from storage.log import Log


class TooEarly(LookupError):
    """The table as of then cannot be read any more: compaction has removed what it needs."""


@dataclass(frozen=True, slots=True)
class Page:
    """Which rows: of `most` keys that begin with `prefix` and come behind `after`, in the order of their
    bytes.
    """

    prefix: bytes
    after: bytes | None
    most: int
    tombstones: bool


class _Keys:
    """The smallest keys of a page, each with its latest record of each partition. Owned by: the thread that
    reads.
    """

    def __init__(self, page: Page) -> None:
        self._page = page
        self.order: list[bytes] = []
        self.latest: dict[bytes, dict[int, Record | dict[str, Any]]] = {}
        """a large one as the row that will be shown of it: many of them would be in memory together"""
        self.is_cut = False

    def take(self, partition: int, record: Record) -> None:
        key, after = record.key, self._page.after
        if key is None or not key.startswith(self._page.prefix) or (after is not None and key <= after):
            return
        if key not in self.latest:
            if len(self.order) == self._page.most:
                self.is_cut = True
                if key > self.order[-1]:
                    return
                del self.latest[self.order.pop()]
            insort(self.order, key)
            self.latest[key] = {}
        is_large = len(record.value or b"") > SHOWN_BYTES
        self.latest[key][partition] = record_row(record) if is_large else record


def table_page(
    logs: Sequence[tuple[Log, int]], page: Page, is_gone: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    """The rows of a page, of how many `keys` they are; each log is read up to the offset beside it.
    `next_after_base64` is what the next page comes behind, None at the end. `is_gone`: whether nobody waits
    for it any more; then it ends with a ConnectionResetError.
    """
    keys, problems = _Keys(page), list[str]()
    for log, upper in logs:
        _read(log, upper, keys, problems, is_gone)
    of_keys = [
        [
            {"partition": partition, **(record if isinstance(record, dict) else record_row(record))}
            for partition, record in keys.latest[key].items()
            if page.tombstones or isinstance(record, dict) or record.value is not None
        ]
        for key in keys.order
    ]
    count, rows = sum(map(bool, of_keys)), list(chain.from_iterable(of_keys))
    behind = base64.b64encode(keys.order[-1]).decode() if keys.is_cut else None
    return {"rows": rows, "keys": count, "next_after_base64": behind, "problems": problems}


def _read(log: Log, upper: int, keys: _Keys, problems: list[str], is_gone: Callable[[], bool]) -> None:
    partition, start = log.topic_partition.partition, log.log_start_offset
    if log.offline_reason is not None:
        problems.append(f"partition {partition} is offline: {log.offline_reason}")
        return
    segments = log.segments
    for header, batch in log.scan(start, upper):
        if is_gone():
            raise ConnectionResetError("who asked is gone")
        if header.is_control or (header.is_transactional and is_aborted(log, segments, header)):
            continue
        try:
            records = veiled(log.topic_partition, decode_batch(batch))
        except KafkaError as error:
            problems.append(f"the batch at offset {header.base_offset} is damaged: {error.message}")
            continue
        for record in records:
            if start <= record.offset < upper:
                keys.take(partition, record)
    problems += losses(log, start, upper)


def upper_for(log: Log, as_of: int | None, clean_to: int) -> int:
    """Up to where a table is read: to what is decided now, or as of an offset; `clean_to` is where the last
    cleaning ended. TooEarly.
    """
    end = log.last_stable_offset
    if as_of is None or as_of >= end:
        return end
    if as_of < clean_to:
        raise TooEarly(
            f"partition {log.topic_partition.partition} was compacted up to offset {clean_to}: the table is "
            f"known as of that offset and later ones, not as of {as_of}"
        )
    return as_of
