"""Kernels that make values ready for a parser: take Confluent's prefix off, set JSON values apart by lines.

The JSON parser reads lines one after another, and would read on into the next record where one is not whole.
So a value goes to it only if it is one object with its brackets closed, seen from outside: strings and
brackets are followed, nothing else. What is inside is the parser's affair.
"""

from __future__ import annotations

from protocol.kernel import kernel
from protocol.record_kernels import VALUE_BYTES, VALUE_POSITION
from spark_connector.kernels import Bytes, Ints, Longs, copy_block

PREFIX_BYTES = 5
NO_PREFIX, SOME_PREFIX, ALL_PREFIX = 0, 1, 2

GOOD, ABSENT, BAD = 0, 1, 2
MAX_DEPTH = 256

QUOTE, BACKSLASH, SPACE, NEWLINE, RETURN, TAB = 34, 92, 32, 10, 13, 9
OPEN_BRACE, CLOSE_BRACE, OPEN_BRACKET, CLOSE_BRACKET = 123, 125, 91, 93


@kernel
def strip_prefixes(data: Bytes, rows: Longs, prefix: int, bodies: Longs, ids: Ints, verdicts: Bytes) -> None:
    """bodies[i] = place and size of the value behind its prefix; ids[i] = the schema's id, -1 without."""
    for index in range(rows.shape[0]):
        position, size = rows[index, VALUE_POSITION], rows[index, VALUE_BYTES]
        ids[index] = -1
        verdicts[index] = ABSENT if size < 0 else GOOD
        if size >= 0 and prefix != NO_PREFIX:
            if size >= PREFIX_BYTES and data[position] == 0:
                number = 0
                for at in range(position + 1, position + PREFIX_BYTES):
                    number = (number << 8) | int(data[at])
                ids[index] = number - (1 << 32) if number >= 1 << 31 else number
                position += PREFIX_BYTES
                size -= PREFIX_BYTES
            elif prefix == ALL_PREFIX:
                verdicts[index] = BAD
        bodies[index, 0] = position
        bodies[index, 1] = size if verdicts[index] == GOOD else -1


@kernel
def is_one_object(data: Bytes, position: int, size: int) -> bool:
    """Whether the bytes are one JSON object with all its brackets closed, and nothing but space around it."""
    depth = 0
    is_text = False
    is_over = False
    at = position
    end = position + size
    while at < end:
        byte = data[at]
        at += 1
        if is_text:
            if byte == BACKSLASH:
                at += 1
            elif byte == QUOTE:
                is_text = False
            elif byte in (NEWLINE, RETURN):
                return False  # it stands there as \n; `copy_line` would make a space of it
        elif byte in (SPACE, NEWLINE, RETURN, TAB):
            continue
        elif is_over:
            return False
        elif byte == OPEN_BRACE or (byte == OPEN_BRACKET and depth > 0):
            depth += 1
            if depth > MAX_DEPTH:
                return False
        elif depth == 0:
            return False
        elif byte in (CLOSE_BRACE, CLOSE_BRACKET):
            depth -= 1
            is_over = depth == 0
        elif byte == QUOTE:
            is_text = True
    return is_over


@kernel
def lines_of(data: Bytes, bodies: Longs, verdicts: Bytes, output: Bytes, ends: Longs) -> int:
    """Copy each value as a line, `{}` for what is absent or no object; how many bytes were written."""
    written = 0
    for index in range(bodies.shape[0]):
        position, size = bodies[index, 0], bodies[index, 1]
        if verdicts[index] == GOOD and not is_one_object(data, position, size):
            verdicts[index] = BAD
        if verdicts[index] == GOOD:
            copy_line(data, position, size, output, written)
            written += size
        else:
            output[written] = OPEN_BRACE
            output[written + 1] = CLOSE_BRACE
            written += 2
        output[written] = NEWLINE
        written += 1
        ends[index] = written
    return written


@kernel
def copy_line(data: Bytes, position: int, size: int, output: Bytes, at: int) -> None:
    """Copy a value that may go over several lines into one: line ends are space to JSON."""
    if position < 0 or size < 0 or position + size > data.size or at < 0 or at + size > output.size:
        raise IndexError("a value outside of its bytes")
    copy_block(output, at, data, position, size)
    for index in range(at, at + size):
        if output[index] == NEWLINE or output[index] == RETURN:
            output[index] = SPACE
