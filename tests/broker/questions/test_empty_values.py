"""Goal: who wrote an empty text to delete a key is told that it is no tombstone (W10).

Method: a broker in the loop gets records with empty values, null and without a key, in plain and compressed
batches; each place that tells of tombstones is asked. The words of the commands are compared as text.
"""

from __future__ import annotations

from typing import Any

import pytest

from broker.cli.tables import tombstone_words
from protocol.compression import Codec
from tests.broker.questions.test_overview import get
from tests.broker.test_metrics_table import AT, scrape, value
from tests.broker.test_questions import Asker, MakeWorld, compacted, log_of, put

WORDS = "a key and an empty value, which is no tombstone: to delete a key write null."


@pytest.fixture
async def asker(make_world: MakeWorld) -> Asker:
    return Asker(await make_world(http_port="0"))


async def segments(asker: Asker, topic: str = "t") -> list[dict[str, Any]]:
    """Of partition 0; the statistics of the closed ones are made where they are not there yet."""
    rows: list[dict[str, Any]] = (await get(asker, f"topics/{topic}/segments"))["partitions"][0]["segments"]
    return rows


async def told(asker: Asker) -> dict[str, Any]:
    answer: dict[str, Any] = (await get(asker, "topics/t/explain"))["partitions"][0]
    return answer


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
async def test_empty_values_are_told_until_they_are_gone(asker: Asker, codec: Codec) -> None:
    world = asker.world
    compacted(world, min_cleanable_dirty_ratio="0")
    partition = next(iter(p for place, p in world.broker.partitions.items() if place.topic == "t"))
    records = [(b"a", b""), (b"b", b""), (b"c", None), (b"d", b"value")]
    partition.append(world.batch(*records, codec=codec), world.clock.now_ms())
    await put(world, ("e", ""), roll=True)
    await put(world, ("f", ""))
    rows = await segments(asker)
    assert [row["empty_values"] for row in rows] == [3, 1]
    assert [row["tombstones"]["fresh"] for row in rows] == [1, 0]
    answer = await told(asker)
    assert answer["empty_values"] == 3, "of closed segments"
    assert f"closed segments 3 have {WORDS}" in answer["sentence"]
    assert value(await scrape(world), "kompakt_empty_values", **AT) == 3
    assert value(await scrape(world), "kompakt_tombstones", state="fresh", **AT) == 1
    await put(world, ("a", None), ("b", "x"), roll=True)
    await asker.compact()
    await segments(asker)
    answer = await told(asker)
    assert answer["empty_values"] == 2, "e and f"
    assert f"closed segments 2 have {WORDS}" in answer["sentence"]
    await put(world, ("e", None), roll=True)
    await asker.compact()
    await segments(asker)
    assert f"closed segments 1 has {WORDS}" in (await told(asker))["sentence"]


async def test_where_nothing_is_compacted_nobody_is_warned(asker: Asker) -> None:
    asker.world.topic("t")
    await put(asker.world, ("a", ""), roll=True)
    assert (await segments(asker))[0]["empty_values"] == 1
    answer = await told(asker)
    assert (answer["empty_values"], answer["sentence"]) == (0, "Not compacted: cleanup.policy is delete.")
    assert log_of(asker.world).config.is_compacted is False


def test_the_words_of_the_command() -> None:
    none = {"fresh": 0, "armed": 0, "armed_until_ms": None, "expired": 0}
    assert tombstone_words(none, 0) == "0"
    assert tombstone_words({**none, "fresh": 4}, 2) == "4 fresh; 2 empty values are none"
    assert tombstone_words(None, 0) == "–"
