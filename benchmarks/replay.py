"""A reader on a bare socket as a process of its own: fetches a topic from its start to an offset.

`python -m benchmarks.replay PORT TOPIC END_OFFSET` prints the bytes it got.
"""

from __future__ import annotations

import sys

from benchmarks.wire import Connection, fetch_frame, fetched

PARTITION_BYTES = 1 << 20  # as Kafka's consumer asks for


def replay(port: int, topic: str, end_offset: int) -> int:
    """Bytes of records below `end_offset`."""
    connection = Connection(port)
    offset = size = 0
    try:
        while offset < end_offset:
            connection.socket.sendall(fetch_frame(topic, offset, PARTITION_BYTES, wait_ms=500))
            got, next_offset = fetched(connection.receive())
            size += got
            offset = max(offset, next_offset)
    finally:
        connection.close()
    return size


if __name__ == "__main__":
    print(replay(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
