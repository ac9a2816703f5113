"""Plain counters that the hot path increments and `metrics.py` reads at scrape time.

No metrics library here: an increment is one addition. The per-topic ones mirror Kafka's BrokerTopicMetrics.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class TopicCounters:
    """Traffic of one topic. Owned by: event loop (readers may be any thread)."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_rejected: int = 0
    produce_requests: int = 0
    fetch_requests: int = 0
    failed_produce_requests: int = 0
    failed_fetch_requests: int = 0
    no_key_compacted_topic_records: int = 0
    invalid_magic_number_records: int = 0
    invalid_message_crc_records: int = 0
    invalid_offset_or_sequence_records: int = 0


LATENCY_BUCKETS = 55
"""enough for any count of nanoseconds in 64 bits"""


class Latencies:
    """How long requests of one API took. Bucket n holds those below 2**n * 1024 ns that fit no smaller one:
    its number is a bit length, so that to record one costs two additions. Owned by: event loop (readers:
    any thread).
    """

    __slots__ = ("counts", "nanoseconds")

    def __init__(self) -> None:
        self.counts = [0] * LATENCY_BUCKETS
        self.nanoseconds = 0

    def record(self, nanoseconds: int) -> None:
        self.counts[(nanoseconds >> 10).bit_length()] += 1
        self.nanoseconds += nanoseconds

    @staticmethod
    def limit_seconds(bucket: int) -> float:
        """The upper bound of a bucket."""
        return (1024 << bucket) / 1e9


@dataclass(slots=True)
class Counters:
    """Everything the network side counts. Owned by: event loop (readers may be any thread)."""

    topics: defaultdict[str, TopicCounters] = field(default_factory=lambda: defaultdict(TopicCounters))
    requests: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    """by API key"""
    latencies: defaultdict[int, Latencies] = field(default_factory=lambda: defaultdict(Latencies))
    """by API key: from the frame to its encoded answer, waits included"""
    bytes_received: int = 0
    bytes_sent: int = 0
    unread_bytes: int = 0
    """of large answers that are on their way, what clients have not taken yet"""
    connections_open: int = 0
    connections_opened: int = 0
    connections_refused: int = 0
    authentications: int = 0
    """by a password or a certificate"""
    failed_authentications: int = 0
    """handshakes of TLS among them"""
    malformed_requests: int = 0
    """broken, oversized or unsupported requests that closed their connection"""
    internal_errors: int = 0
    """our own bugs, answered UNKNOWN_SERVER_ERROR"""
    flushes: int = 0
    flush_errors: int = 0
    flush_nanoseconds: int = 0
    fetch_sessions_evicted: int = 0
    delayed_fetches_expired: int = 0
    throttled: dict[str, int] = field(default_factory=dict)
    """answers, and connections, whose client had to wait, by the quota"""
    throttled_ms: dict[str, int] = field(default_factory=dict)
    """how long they were told to"""
    connections_throttled: int = 0
    """that are not read at the moment"""
