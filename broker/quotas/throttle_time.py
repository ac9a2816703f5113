"""How long a client has to wait, put into an answer that says so, be it a response or the bytes of one.

Produce answers by a template, and large answers are encoded on a thread, before it is known.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import Any

from protocol.schema import registry, schema_of

LENGTH_AND_CORRELATION_BYTES = 8
FIELD = "throttle_time_ms"
_integer = Struct(">i")


def with_throttle_time(answer: Any, api_key: int, version: int, throttle_time_ms: int) -> Any:
    """The answer, which has the client wait if it can say so; bytes are those of a whole frame."""
    if answer.__class__ is not bytes:
        if hasattr(answer, FIELD):
            setattr(answer, FIELD, throttle_time_ms)
        return answer
    at = _place(api_key, version)
    if at is None:
        return answer
    at = at if at > 0 else len(answer) + at
    return answer[:at] + _integer.pack(throttle_time_ms) + answer[at + _integer.size :]


@cache
def _place(api_key: int, version: int) -> int | None:
    """Where it stands in a frame, from its end if negative; None where such a response has none. It is the
    first of the fields, or the last as in Produce.
    """
    schema = schema_of(registry[api_key].response)
    names = [one.name for one in schema.fields if one.versions.has(version) and one.tag is None]
    if FIELD not in names:
        return None
    if names[0] == FIELD:
        return LENGTH_AND_CORRELATION_BYTES + (1 if version >= schema.flexible_header_from else 0)
    assert names[-1] == FIELD, schema.name
    return -_integer.size - (1 if schema.flexible.has(version) else 0)  # no tagged field behind it
