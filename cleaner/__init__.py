"""Compaction: the log forgets what was overwritten and keeps the last value of every key.

The idea. A compacted log is a table told as its history. A record is *obsolete* when a later record of the
same log has the same key; dropping it changes nothing for a reader who wants the final state. Offsets and
order of what stays never change, so a reader who remembers an offset is never wrong, there are only holes.

Tail and head. The *tail* has been cleaned, each key at most once; the *head*, from `first_dirty_offset` on,
is as it was written. Between cleanings only the head grows. What may be cleaned ends at the
`first_uncleanable_offset`: the last stable offset (an undecided transaction may yet be aborted), the active
segment (it is still written), and the first segment younger than `min.compaction.lag.ms` (readers are
promised that long a full history). `selection.py` weighs head against tail: the log with the largest
`dirty_ratio` is cleaned when that exceeds `min.cleanable.dirty.ratio`, or at once when
`max.compaction.lag.ms` demands it.

One cleaning, in four steps (`cleaner.py`):

1. *map*: read the dirty part once and remember each key's last offset in a table of fixed size
   (`offset_map.py`). The keys of compressed batches are mostly known from their append
   (`storage/key_hashes.py`). When the table is full the cleaning simply ends there; the rest is for the
   next one.
2. *group*: neighbouring segments that together fit into one are rewritten as one (`grouping.py`).
3. *rewrite*: read from the very beginning up to the end of the mapped part, and copy what survives to a
   `.cleaned` segment: a record goes if the map knows a later offset for its key (`filter_kernels.py`).
4. *swap*: the log's owner puts the new segments in the place of the old; only then is the checkpoint moved.
   A crash at any point leaves the old log or the new one, and at worst the same part is cleaned twice.

Tombstones. A record without a value deletes its key. It must outlive the first cleaning that meets it, or a
reader half-way through the log would keep the deleted value for ever. That cleaning writes a *delete
horizon* (now + `delete.retention.ms`) into the batch; a cleaning after the horizon drops the tombstone
(KIP-534).

What else stays:

- The last batch of a living producer stays as an empty shell, since it carries the sequence number by which
  duplicates are recognised; so does the last batch of a cleaning, since it carries the end offset.
- A transaction's marker stays until nothing of its transaction is left, then gets a delete horizon of its
  own, and is dropped after that. An abort marker keeps its entry in the transaction index as long as a batch
  of the transaction is left (`transactions.py`).

Aborted records go at the first chance, and never enter the map: they must not shadow committed values.

Versions. A topic may ask for the record with the highest timestamp or header version instead of the last
(`compaction.strategy`); then the map is filled by `versions.py`, in which the clean part may win as well.

Keys are compared by a 128-bit keyed hash and not byte by byte, as in Kafka. Two of n keys are taken for one
another with probability n*n / 2**129 (for a billion keys: 1 in 10**21), and the hash's secret key keeps
anybody from making such a pair on purpose.

Who does it: `pool.py` runs the threads, `manager.py` hands logs to them, one thread to a log at a time,
remembers how far each is clean, and sets aside those that cannot be read. Cleaner threads only read
segments that never change again and write files that nobody else knows; every change of a log is done by
its owner.
"""
