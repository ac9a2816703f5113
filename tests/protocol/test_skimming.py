"""Goal: the quick reading of usual records accepts exactly what the checked one accepts.
Method: sections of usual and unusual records, whole, cut and with bytes changed; `validate_records`, which
skims, against the same decision made record by record with `locate_record` alone.
"""

from __future__ import annotations

from random import Random

import numpy
import pytest

from protocol import record_kernels as kernels
from protocol.records import as_array, encode_record, validate_records

SIZES = (None, 0, 1, 5, 62, 63, 64, 65, 130, 8_190, 8_192, 9_000)


def section(source: Random, count: int) -> bytes:
    """Records whose numbers take one, two and more bytes."""

    def some() -> bytes | None:
        size = source.choice(SIZES if source.random() < 0.3 else SIZES[:5])
        return None if size is None else source.randbytes(size)

    times = (0, 0, 1, 63, 64, -1, -64, -65, 8_191, 8_192, 2**40, -(2**62))
    return b"".join(
        encode_record(
            index, source.choice(times), some(), some(), [("h", b"v")] if source.random() < 0.1 else ()
        )
        for index in range(count)
    )


def checked(payload: bytes, count: int, *, require_keys: bool) -> tuple[int, int, int]:
    """What `validate_records` promises, slowly."""
    view = as_array(payload)
    row = numpy.empty(kernels.LOCATED_ROWS, numpy.int64)
    if count < 0 or count > view.size // kernels.MIN_RECORD_BYTES:
        return kernels.BAD_RECORD_COUNT, 0, 0
    position, keyless = 0, -1
    largest: int | None = None
    for index in range(count):
        if position >= view.size:
            return kernels.BAD_RECORD_COUNT, index, 0
        fault = kernels.locate_record(view, position, row)
        if fault != kernels.OK:
            return fault, index, 0
        if row[kernels.OFFSET_DELTA] != index:
            return kernels.BAD_OFFSET_DELTA, index, 0
        delta = int(row[kernels.TIMESTAMP_DELTA])
        largest = delta if largest is None else max(largest, delta)
        if row[kernels.KEY_BYTES] < 0 and keyless < 0:
            keyless = index
        position += int(row[kernels.RECORD_BYTES])
    if position != view.size:
        return kernels.BAD_RECORD_COUNT, count, 0
    if require_keys and keyless >= 0:
        return kernels.KEYLESS, keyless, largest or 0
    return kernels.OK, -1, largest or 0


@pytest.mark.parametrize("seed", range(6))
def test_skimming_decides_as_the_checked_reading_does(seed: int) -> None:
    source = Random(seed)
    outcomes = set()
    for _ in range(150):
        count = source.choice((1, 2, 3, 70, 8_200 if source.random() < 0.03 else 4))
        payload = bytearray(section(source, count))
        for change in range(8):
            for require_keys in (False, True):
                expected = checked(bytes(payload), count, require_keys=require_keys)
                assert validate_records(as_array(bytes(payload)), count, require_keys) == expected
                outcomes.add(expected[0])
            if source.random() < 0.2:
                del payload[source.randrange(1, len(payload) + 1) :]
                if not payload:
                    break
            else:  # mostly in the heads of records, where it matters
                place = source.randrange(min(len(payload), source.choice((12, 40, len(payload)))))
                payload[place] = source.choice((0, 1, 2, 127, 128, 129, 255, payload[place] ^ 1 << change))
    assert {kernels.OK, kernels.KEYLESS, kernels.BAD_RECORD_LENGTH, kernels.TRUNCATED} <= outcomes


def test_it_is_skimmed_at_all() -> None:
    payload = as_array(encode_record(0, 3, b"key", b"v" * 100) + encode_record(1, 64, None, None) + bytes(20))
    following, delta, has_key = kernels.skim_record(payload, 0, 0)
    assert (following, delta, has_key) == (len(encode_record(0, 3, b"key", b"v" * 100)), 3, True)
    assert kernels.skim_record(payload, following, 1)[1:] == (64, False)
    assert kernels.skim_record(payload, following, 2)[0] < 0
