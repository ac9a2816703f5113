"""Goal: the walk to an offset can be shown step by step (S46 to S51), and is the walk that the files imply.

Method: segments with bases 0, 1000 and 2000 are fabricated batch by batch, with one record of a known size
each, and an index with exactly the entries of the worked example in FORMAT.md.
"""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest

from protocol.records import encode_batch
from storage.checkpoint import encode_offsets
from storage.explain import IndexEntry, OffsetNotThere, explain_read, floor_entry, read_index
from storage.layout import (
    INDEX_SUFFIX,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    TopicPartition,
    segment_file_name,
)

EXAMPLE = [(0, 0), (200, 8123), (400, 16200), (600, 24100)]


def write_segment(
    directory: Path, base: int, offsets: list[int], entries: list[tuple[int, int]]
) -> dict[int, int]:
    """A segment with a batch for each offset; returns the position of each."""
    positions: dict[int, int] = {}
    content = bytearray()
    for offset in offsets:
        positions[offset] = len(content)
        content += encode_batch([(1, b"k", b"v" * 10, [])], base_offset=offset)
    (directory / segment_file_name(base, LOG_SUFFIX)).write_bytes(content)
    (directory / segment_file_name(base, INDEX_SUFFIX)).write_bytes(
        b"".join(pack(">ii", *entry) for entry in entries)
    )
    return positions


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    write_segment(tmp_path, 0, list(range(1000)), [])
    size = len(encode_batch([(1, b"k", b"v" * 10, [])]))
    entries = [(relative, relative * size) for relative in (0, 200, 400, 600)]
    write_segment(tmp_path, 1000, list(range(1000, 2000)), entries)
    write_segment(tmp_path, 2000, [2000, 2001, 2500], [])
    return tmp_path


def test_s49_the_floor_of_573_among_the_entries_of_the_example(tmp_path: Path) -> None:
    path = tmp_path / "example.index"
    path.write_bytes(b"".join(pack(">ii", *entry) for entry in EXAMPLE))
    entries = read_index(path)
    assert entries == [IndexEntry(*entry) for entry in EXAMPLE]
    assert floor_entry(entries, 573) == (IndexEntry(400, 16200), IndexEntry(600, 24100))
    assert floor_entry(entries, 600) == (IndexEntry(600, 24100), None)
    assert floor_entry(entries[1:], 199) == (None, IndexEntry(200, 8123))


def test_s46_s47_s48_s50_s51_the_five_steps_to_1573(partition: Path) -> None:
    found = explain_read(partition, 1573)
    size = found.found.position // 573
    assert found.base_offsets == (0, 1000, 2000)
    assert (found.base_offset, found.relative_offset) == (1000, 573)
    assert found.floor_entry == IndexEntry(400, 400 * size)
    assert [batch.base_offset for batch in found.scanned] == list(range(1400, 1574))
    assert (found.found.base_offset, found.found.last_offset) == (1573, 1573)
    steps = found.steps()
    assert len(steps) == 5
    assert "0, 1000, 2000" in steps[0]
    assert "1000 ≤ 1573 < 2000" in steps[1] and "00000000000000001000.log" in steps[1]
    assert "1573 − 1000 = 573" in steps[2]
    assert f"400 → {400 * size} is the floor of 573" in steps[3]
    assert f"byte {573 * size} holds 1573 to 1573" in steps[4]


def test_s12_a_removed_offset_is_explained_as_the_next_that_survives(partition: Path) -> None:
    found = explain_read(partition, 2100)
    assert found.found.base_offset == 2500
    assert "2100 itself was compacted away" in found.steps()[4]


def test_a_walk_into_a_later_segment_names_the_file_that_holds_the_batch(partition: Path) -> None:
    """A compaction has emptied the end of a segment, and the whole of the one behind it."""
    write_segment(partition, 1000, [1000, 1001], [])
    write_segment(partition, 1500, [], [])
    found = explain_read(partition, 1200)
    assert found.log_file.name == segment_file_name(1000, LOG_SUFFIX)
    assert found.found.log_file.name == segment_file_name(2000, LOG_SUFFIX)
    steps = found.steps()
    assert len(steps) == 6
    assert steps[4] == (
        "scan from byte 0: 1000, 1001: the segment ends below 1200, "
        "the scan goes on in the next that has batches"
    )
    assert steps[5] == (
        f"{segment_file_name(2000, LOG_SUFFIX)}, from byte 0: 2000: the batch at byte 0 holds 2000 to 2000 "
        "(1200 itself was compacted away)"
    )
    assert explain_read(partition, 1600).steps()[4].startswith("scan from byte 0: no batch: the segment ends")


def test_an_offset_outside_the_log_says_where_the_log_is(partition: Path) -> None:
    with pytest.raises(OffsetNotThere, match="ends at 2501"):
        explain_read(partition, 2501)
    (partition / "empty").mkdir()
    with pytest.raises(OffsetNotThere, match="holds no segment"):
        explain_read(partition / "empty", 0)


def test_an_offset_below_the_log_start_is_gone_and_not_compacted_away(tmp_path: Path) -> None:
    """DeleteRecords leaves the batch in its file; only the checkpoint beside the partition tells."""
    partition = tmp_path / "orders-0"
    partition.mkdir()
    write_segment(partition, 0, list(range(100)), [])
    checkpoint = tmp_path / LOG_START_CHECKPOINT
    checkpoint.write_bytes(encode_offsets({TopicPartition("orders", 0): 40, TopicPartition("other", 0): 70}))
    with pytest.raises(OffsetNotThere, match="offset 39 is gone: the log starts at 40"):
        explain_read(partition, 39)
    assert explain_read(partition, 40).found.base_offset == 40
    checkpoint.write_bytes(b"damaged")
    assert explain_read(partition, 39).found.base_offset == 39


@pytest.mark.parametrize("position", [-5, 3, 2**31 - 1])
def test_an_index_entry_that_leads_nowhere_is_told(partition: Path, position: int) -> None:
    """A position below 0 was a traceback, and one within a batch a log that ends in the middle of nowhere."""
    (partition / segment_file_name(1000, INDEX_SUFFIX)).write_bytes(pack(">ii", 400, position))
    with pytest.raises(OffsetNotThere, match=f"no batch begins at byte {position} of .*kompakt verify"):
        explain_read(partition, 1573)


def test_preallocated_zeros_of_an_active_index_are_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "active.index"
    path.write_bytes(pack(">ii", 5, 4200) + bytes(8 * 100))
    assert read_index(path) == [IndexEntry(5, 4200)]
    path.write_bytes(bytes(8 * 100))
    assert read_index(path) == []
