"""Regular expressions of clients, by RE2 as in Kafka: each takes time linear in what it is held against,
whatever it says.
"""

from __future__ import annotations

import functools
from typing import Any

from protocol.errors import ErrorCode, KafkaError


@functools.lru_cache(maxsize=256)
def compiled(regex: str, what: str) -> Any:
    """INVALID_REGULAR_EXPRESSION where it is none; `what` it is, in Kafka's words."""
    import re2  # only who asks by regular expression needs it

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        said = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{what} `{regex}` is not a valid regular expression: {said}.",
        ) from error
