"""Goal: of a JSON value that does not fit the columns as a whole, what fits is kept, as `from_json` does.

Method: values one by one through a fake broker against what is expected of each; the same rows alone and
beside refused ones. `test_formats_in_spark.py` holds random values against Spark's `from_json` itself.
"""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow
import pytest

from spark_connector.options import parse_options
from spark_connector.reader import BatchReader
from spark_connector.shape import shape_of
from spark_connector.values import REPAIRED_ROWS
from tests.spark.conftest import options_for
from tests.spark.ddl import schema_of
from tests.spark.test_value_formats import Start, read, values

SCHEMA = (
    "a string, n int, d double, f float, dec decimal(5,2), at timestamp, local timestamp_ntz, day date, "
    "s struct<x: int, y: string>, l array<int>, ls array<struct<x: int, y: string>>, b boolean, "
    "_corrupt_record binary"
)
WHOLE = {
    '{"a": 1.10}': {"a": "1.10"},
    '{"a": true, "n": 1}': {"a": "true", "n": 1},
    '{"a": {"q": 1.50, "r": [1, null, "ü\\u0041\\""]}}': {"a": '{"q":1.50,"r":[1,null,"üA\\""]}'},
    '{"a": 5, "a": null}': {},
    '{"n": 1, "n": 2}': {"n": 2},
    '{"d": 1e400, "f": -1e400}': {"d": math.inf, "f": -math.inf},
    '{"d": "+INF", "f": "-Infinity", "n": 3}': {"d": math.inf, "f": -math.inf, "n": 3},
    '{"dec": 1.235}': {"dec": Decimal("1.24")},
    '{"dec": "-1.235", "a": "x"}': {"dec": Decimal("-1.24"), "a": "x"},
    '{"at": 1700000000}': {"at": datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)},
    '{"day": "2026-2-1"}': {"day": datetime.date(2026, 2, 1)},
    '{"day": "2026-02-01T10:00:00"}': {"day": datetime.date(2026, 2, 1)},
    '{"day": " 2026-2 ", "local": "2026"}': {
        "day": datetime.date(2026, 2, 1),
        "local": datetime.datetime(2026, 1, 1),
    },
    '{"at": "2026-02-01 12:00:00.5 Europe/Berlin"}': {
        "at": datetime.datetime(2026, 2, 1, 11, 0, 0, 500_000, datetime.UTC)
    },
    '{"a": "\\ud800", "n": 1}': {"a": "?", "n": 1},
    '{"a": "\\ud83d\\ude00", "n": 1, "n": 1}': {"a": "\N{GRINNING FACE}", "n": 1},
}
IN_PART = {
    '{"a": "x", "n": "5"}': {"a": "x"},
    '{"a": "x", "n": 1.0, "b": 1}': {"a": "x"},
    '{"n": 2147483648, "a": 1}': {"a": "1"},
    '{"n": 1, "n": "x"}': {"n": 1},
    '{"a": "x", "d": "1.5", "f": true}': {"a": "x"},
    '{"a": "x", "dec": 999.995}': {"a": "x"},
    '{"a": "x", "dec": 1e999999999, "n": [1]}': {"a": "x"},
    '{"a": "x", "dec": "1_0"}': {"a": "x"},
    '{"a": "x", "at": "soon", "local": 5}': {"a": "x"},
    '{"a": "x", "at": 99999999999999}': {"a": "x"},
    '{"a": "x", "at": "2026-02-30T00:00:00Z"}': {"a": "x"},
    '{"a": "x", "local": "2026-02-01T00:00:00Z"}': {"a": "x"},
    '{"a": "x", "local": "2026-02-01T00:00:00 Europe/Berlin"}': {"a": "x"},
    '{"a": "x", "at": "#5", "local": "#5", "day": "#5"}': {"a": "x"},  # a mark of our own
    '{"a": "x", "day": "2026-02-30", "b": "true"}': {"a": "x"},
    '{"s": {"x": "bad", "y": 7}, "a": "x"}': {"a": "x", "s": {"x": None, "y": "7"}},
    '{"s": [], "l": {"x": 1}, "a": "x"}': {"a": "x"},
    '{"l": [1, "x", 3], "a": "x"}': {"a": "x"},
    '{"ls": [null, {"x": "bad", "y": "q"}], "a": "x"}': {"a": "x", "ls": [None, {"x": None, "y": "q"}]},
    '{"ls": [{"x": 1}, 5], "a": "x"}': {"a": "x"},
}


@pytest.mark.parametrize(("text", "expected"), (WHOLE | IN_PART).items())
def test_what_fits_is_kept(start_broker: Start, text: str, expected: dict[str, Any]) -> None:
    (row,) = read(values(start_broker, text.encode()), SCHEMA, valueFormat="json")
    assert row.pop("_corrupt_record") == (text.encode() if text in IN_PART else None)
    assert {name: value for name, value in row.items() if value is not None} == expected


REFUSED = (b'{"n": "x"}', b'{"n": 1')


def test_a_row_is_the_same_beside_a_refused_one(start_broker: Start) -> None:
    """Whether the parser took it, or it was written anew; also what only one of the two can read."""
    given = [
        b'{"d": Inf, "a": "x"}',  # a word of the parser's own
        b'{"d": 0.1, "f": 0.1, "dec": 1e1, "n": -0, "unknown": {"\xff": 1e999}}',
        b'{"a": "\\u0000\\n\\\\", "s": null, "l": [], "ls": [null, {}], "at": "2026-02-01"}',
        b"{}",
        *(text.encode() for text in WHOLE | IN_PART),
    ]
    alone = [read(values(start_broker, value), SCHEMA, valueFormat="json")[0] for value in given]
    for refused in REFUSED:
        together = read(values(start_broker, refused, *given), SCHEMA, valueFormat="json")
        assert together[1:] == alone


def test_bytes_that_are_no_utf_8_stay(start_broker: Start) -> None:
    """As the parser leaves them: beside a refused row they are what they are elsewhere."""
    raw = b"caf\xe9 \xff\xc3"
    given = (b'{"a": "%s", "n": 1}' % raw, b'{"a": "%s", "n": "x"}' % raw)
    for others in ((), REFUSED):
        parsed = parse_options(options_for(values(start_broker, *given, *others), valueFormat="json"))
        reader = BatchReader(parsed, shape_of(schema_of("a string, n int"), parsed))
        (task,) = reader.partitions()
        (made,) = reader.read(task)
        texts = made.column("a").cast(pyarrow.binary()).to_pylist()
        assert texts == [raw, raw] + [None] * len(others)


def test_every_row_of_many_is_written_anew(start_broker: Start) -> None:
    """A producer that sends numbers for a column of text: over the borders of what is repaired at once."""
    count = 5 * REPAIRED_ROWS + 3
    given = [
        json.dumps({"a": number if number % 7 else "x", "n": number}).encode() for number in range(count)
    ]
    rows = read(values(start_broker, *given), "a string, n int, _corrupt_record string", valueFormat="json")
    assert rows == [
        {"a": str(number) if number % 7 else "x", "n": number, "_corrupt_record": None}
        for number in range(count)
    ]
