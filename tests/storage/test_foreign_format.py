"""Goal: records of a format that is not read here, in a directory that Kafka has left, are neither cut off by
a recovery nor called damaged; one flipped bit is not taken for such a format.

Method: behind good batches of a log are messages as Kafka before 0.11 wrote them, or batches with a magic
that nobody knows yet, whole and torn; the log is opened as after a crash and as after a clean stop.
"""

from __future__ import annotations

import logging
import struct
import zlib
from pathlib import Path

import pytest

from protocol.errors import ErrorCode, KafkaError
from storage import layout
from storage.verify import verify_log
from tests.storage.builders import NOW_MS, LogBuilder, batch

OURS = 3
MAGIC_AT = 16


def message(offset: int, magic: int, value: bytes = b"v") -> bytes:
    """A message of Kafka before 0.11, without a key; that of format 1 has a time."""
    time = struct.pack(">q", NOW_MS) if magic else b""
    covered = struct.pack(">bb", magic, 0) + time + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(covered), zlib.crc32(covered)) + covered


def newer(offset: int) -> bytes:
    """As of today, but for its magic."""
    data = bytearray(struct.pack(">q", offset) + batch()[8:])
    data[MAGIC_AT] = 3
    return bytes(data)


OTHERS = {
    "before 0.11, format 0": b"".join(message(OURS + number, 0) for number in range(4)),
    "before 0.11, format 1": b"".join(message(OURS + number, 1) for number in range(4)),
    "a newer Kafka": b"".join(newer(OURS + number) for number in range(4)),
}


def file_of(log: LogBuilder) -> Path:
    return log.directory / layout.segment_file_name(0, layout.LOG_SUFFIX)


def followed_by(log: LogBuilder, data: bytes) -> bytes:
    """Three batches of ours and `data` are in the file; all of it."""
    log.fill(OURS)
    log.log.close()
    whole = file_of(log).read_bytes() + data
    file_of(log).write_bytes(whole)
    log.is_damaged = True  # type: ignore[attr-defined]
    return whole


@pytest.mark.parametrize("kind", OTHERS)
def test_a_recovery_leaves_them(log: LogBuilder, kind: str) -> None:
    whole = followed_by(log, OTHERS[kind])
    assert any(kind.split(",")[0] in line for line in verify_log(log.directory))
    for _ in range(2):
        with pytest.raises(KafkaError, match=kind.split(",")[0]) as refused:
            log.open()
        assert refused.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        assert f"from offset {OURS} on" in refused.value.message
        assert file_of(log).read_bytes() == whole


@pytest.mark.parametrize("kind", OTHERS)
def test_after_a_clean_stop_they_are_told_as_what_they_are(
    log: LogBuilder, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    whole = followed_by(log, OTHERS[kind])
    log.recovery_point = 7
    log.open(is_clean=True)
    with pytest.raises(KafkaError):
        log.offsets()
    assert file_of(log).read_bytes() == whole
    (line,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert f"has message format {dict(zip(OTHERS, '013', strict=True))[kind]} of" in line
    assert f"offsets {OURS} to 6 cannot be read here" in line


@pytest.mark.parametrize(
    "data",
    [newer(OURS), newer(OURS) + batch()[:-9], message(OURS, 1)[:-1], message(OURS, 0)[:-1] + b"w"],
    ids=["one alone", "one and a torn one", "a torn one", "a wrong checksum"],
)
def test_what_a_flip_or_a_torn_write_explains_is_cut_off(log: LogBuilder, data: bytes) -> None:
    whole = followed_by(log, data)
    log.open()
    assert log.log.log_end_offset == OURS
    assert file_of(log).read_bytes() == whole[: -len(data)]
