"""Which rows and columns of a task a batch came from that the broker has refused."""

from __future__ import annotations

from protocol.compression import decompress_array
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceResponse
from protocol.record_kernels import KEY_BYTES, RECORD_BYTES, VALUE_BYTES, locate_records
from spark_connector.encoder import BIGGEST_SECTION_BYTES, SealedBatch
from spark_connector.kernels import Longs

Answer = ProduceResponse.TopicProduceResponse.PartitionProduceResponse

SHOWN_ROWS = 5
# For the whole batch (max.message.bytes) and for a segment (segment.bytes).
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


def refused_rows(batch: SealedBatch, answer: Answer) -> str:
    """By the records that the broker named; all rows of the batch when it named none."""
    if answer.error_code in TOO_LARGE and batch.record_count == 1:
        return _too_large(batch)
    named = [error for error in answer.record_errors if 0 <= error.batch_index < batch.record_count]
    if not named:
        rows = batch.rows
        return f"rows {int(rows.min())} to {int(rows.max())} of the task are among the refused"
    key_bytes = _located(batch)[KEY_BYTES]
    shown = []
    for error in named[:SHOWN_ROWS]:
        reason = error.batch_index_error_message or ""
        is_keyless = key_bytes[error.batch_index] < 0
        column = _column(answer.error_code, reason, is_keyless=bool(is_keyless))
        where = f"row {int(batch.rows[error.batch_index])} of the task{column}"
        shown.append(f"{where} ({reason})" if reason else where)
    more = f" and {len(named) - SHOWN_ROWS} more" if len(named) > SHOWN_ROWS else ""
    return f"refused: {', '.join(shown)}{more}"


def _column(error_code: int, reason: str, *, is_keyless: bool) -> str:
    """The column that a record was refused for; empty where the broker's words do not tell."""
    if error_code == ErrorCode.INVALID_TIMESTAMP:
        return ", column timestamp"
    if error_code == ErrorCode.INVALID_RECORD and is_keyless and "key" in reason.lower():
        return ", column key"
    return ""


def _too_large(batch: SealedBatch) -> str:
    """The column that takes the most of a record that no batch of its topic can hold."""
    located = _located(batch)[:, 0]
    key, value = max(int(located[KEY_BYTES]), 0), max(int(located[VALUE_BYTES]), 0)
    record = int(located[RECORD_BYTES])
    sizes = {"value": value, "key": key, "headers": record - key - value}
    column = max(sizes, key=lambda name: sizes[name])
    return (
        f"row {int(batch.rows[0])} of the task, column {column}: a record of {record} bytes is a batch of "
        f"{batch.size_bytes}, more than the topic takes (max.message.bytes, segment.bytes)"
    )


def _located(batch: SealedBatch) -> Longs:
    section = decompress_array(batch.codec, batch.payload, BIGGEST_SECTION_BYTES)
    located: Longs = locate_records(section, batch.record_count)
    return located
