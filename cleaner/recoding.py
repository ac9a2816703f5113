"""What a cleaning leaves, in another codec: `compaction.compression.type` (W21), opt-in.

Who writes compresses for speed, or not at all; what compaction has kept is read rarely and stays for long. A
batch is unpacked and packed again as it is written to the new segment, with the same header and the same
records, bit for bit. One that would not become smaller stays as it is, and so does one whose bytes fail their
checksum: a new checksum would make the damage look whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.batch import CODEC_MASK, CONTROL, is_intact, parse_header, seal_header
from protocol.compression import Codec, compress
from protocol.errors import KafkaError
from protocol.records import payload
from storage.append import chosen_codec
from storage.batch_table import ATTRIBUTES, POSITION, RECORD_COUNT, SIZE_BYTES, read_table

if TYPE_CHECKING:
    from config.topic import TopicConfig


class Recoder:
    """Owned by: one cleaner thread."""

    def __init__(self, codec: Codec, level: int | None) -> None:
        self._codec = codec
        self._level = level

    def recode(self, batches: memoryview) -> memoryview:
        """Whole batches, each in the codec that is wanted where that makes it smaller."""
        table, _, _ = read_table(batches)
        parts: list[memoryview | bytes] = []
        start = 0
        for position, size, attributes, count in table[
            [POSITION, SIZE_BYTES, ATTRIBUTES, RECORD_COUNT]
        ].T.tolist():
            if attributes & CONTROL or attributes & CODEC_MASK == self._codec or count <= 0:
                continue
            again = self._recoded(batches, position)
            if again is not None and len(again) < size:
                parts += (batches[start:position], again)
                start = position + size
        if not parts:
            return batches
        return memoryview(b"".join((*parts, batches[start:])))

    def _recoded(self, batches: memoryview, position: int) -> bytes | None:
        header = parse_header(batches, position)
        if not is_intact(batches, position, header):
            return None
        try:
            records = payload(batches, position, header)
        except KafkaError:  # not of the codec that it says: left to who reads it
            return None
        section = compress(self._codec, records.data, self._level)
        attributes = header.attributes & ~CODEC_MASK | self._codec
        return seal_header(header._replace(attributes=attributes), section) + section


def recoder_of(config: TopicConfig) -> Recoder | None:
    """What a topic asks for; None where batches keep the codec that they have."""
    codec, level = chosen_codec(config, config.compaction_compression_type)
    return None if codec is None else Recoder(codec, level)
