"""What is not shown of `__kompakt_metadata`, whoever asks: the values that prove passwords. Who has one may
try passwords against it where nobody sees it. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.security.users import SCRAM
from broker.topic import METADATA_TOPIC

if TYPE_CHECKING:
    from protocol.records import Record
    from storage.layout import TopicPartition

INSTEAD = b"(not shown)"


def veiled(topic_partition: TopicPartition, records: Sequence[Record]) -> Sequence[Record]:
    """The records as they may be shown; before they are searched, so that nothing can be guessed."""
    if topic_partition.topic != METADATA_TOPIC:
        return records
    return [_veiled(record) for record in records]


def _veiled(record: Record) -> Record:
    if record.value is None or not _is_secret(record.key):
        return record
    return record._replace(value=INSTEAD)


def _is_secret(key: bytes | None) -> bool:
    """Also of one that is not the broker's."""
    try:
        return bool(json.loads(bytes(key or b""))["type"] == SCRAM)
    except (LookupError, TypeError, ValueError):
        return True
