"""Goal: a record written here lands in the partition where every other producer would have put it.

Method: the hash that the Java client publishes in its own tests, kafka-python's implementation and zlib, over
known and random keys; then the choice of a partition, with and without a key.
"""

from __future__ import annotations

import zlib

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2  # type: ignore[import-untyped]

from spark_connector.kernels import Bytes
from spark_connector.partitioners import CRC32, MURMUR2, crc32, murmur2, partition_of
from spark_connector.write_columns import read_only

# From the Java client's UtilsTest.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def array(data: bytes) -> Bytes:
    made: Bytes = read_only(numpy.frombuffer(data, numpy.uint8))
    return made


@pytest.mark.parametrize("key", JAVA)
def test_murmur2_is_the_java_clients(key: bytes) -> None:
    assert murmur2(array(key), 0, len(key)) == JAVA[key] & 0xFFFFFFFF


@given(st.binary(max_size=70), st.binary(max_size=9), st.binary(max_size=9))
def test_hashes_of_any_key(key: bytes, before: bytes, behind: bytes) -> None:
    """Wherever in its column the key lies."""
    data = array(before + key + behind)
    assert murmur2(data, len(before), len(key)) == kafka_python_murmur2(key) & 0xFFFFFFFF
    assert crc32(data, len(before), len(key)) == zlib.crc32(key)


@given(st.binary(max_size=20), st.integers(1, 1000))
def test_partitions_of_keys(key: bytes, partitions: int) -> None:
    """Java makes the hash positive by dropping its sign; librdkafka takes an empty key for none."""
    data = array(key)
    expected = (kafka_python_murmur2(key) & 0x7FFFFFFF) % partitions
    assert partition_of(MURMUR2, data, 0, len(key), partitions) == expected
    by_crc = zlib.crc32(key) % partitions if key else -1
    assert partition_of(CRC32, data, 0, len(key), partitions) == by_crc


@pytest.mark.parametrize("partitioner", [MURMUR2, CRC32])
def test_no_key_has_no_partition_of_its_own(partitioner: int) -> None:
    assert partition_of(partitioner, array(b""), 0, -1, 3) == -1
