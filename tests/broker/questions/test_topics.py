"""Goal: topics are made, altered and deleted over HTTP as by Kafka's clients, and refused in the same words.

Method: requests to a broker in the loop; what came of them is asked of the broker.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.test_questions import Asker, MakeWorld


@pytest.fixture
async def asker(make_world: MakeWorld) -> Asker:
    return Asker(await make_world(http_port="0", num_partitions="2"))


def state(asker: Asker, name: str = "t") -> tuple[int, dict[str, str]] | None:
    topic = asker.world.broker.topics.get(name)
    return None if topic is None else (topic.partition_count, dict(topic.overrides))


async def test_a_topic_is_made(asker: Asker) -> None:
    body = {"partitions": 3, "configs": {"cleanup.policy": "compact"}}
    told = await asker.post("t/create", body)
    assert (told["topic"], told["partitions"], told["configs"]) == ("t", 3, {"cleanup.policy": "compact"})
    assert state(asker) == (3, {"cleanup.policy": "compact"})
    assert (await asker.post("u/create", {}))["partitions"] == 2, "as many as num.partitions says"


async def test_a_dry_run_makes_nothing(asker: Asker) -> None:
    assert (await asker.post("t/create", {"dry_run": True}))["partitions"] == 2
    assert state(asker) is None
    await asker.post("t/create", {})
    told = await asker.post(
        "t/alter", {"dry_run": True, "partitions": 9, "configs": {"retention.ms": "1000"}}
    )
    assert (told["partitions"], told["configs"]) == (9, {"retention.ms": "1000"})
    assert state(asker) == (2, {})


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("t/create", {}, 409, "Topic 't' already exists"),
        ("__consumer_offsets/create", {}, 400, "is made by the broker only"),
        ("a%20b/create", {}, 400, "a b"),
        ("x/create", {"partitions": 0}, 400, "non-positive"),
        ("x/create", {"partitions": -1}, 400, "non-positive"),
        ("x/create", {"partitions": 2**40}, 400, "max.partitions.per.topic"),
        ("x/create", {"configs": {"cleanup.policy": "x"}}, 400, "cleanup.policy"),
        ("x/create", {"configs": {"no.such": "x"}}, 400, "no.such"),
        ("x/create", {"configs": {"retention.ms": 7}}, 400, "has to be a text"),
        ("x/create", {"configs": {"retention.ms": None}}, 400, "has to be a text"),
        ("x/create", {"configs": {"retention.ms": "\ud800"}}, 400, "surrogates"),
        ("x/create", {"replicas": 3}, 400, "unknown field 'replicas'"),
        ("t/alter", {}, 400, "one of them is needed"),
        ("t/alter", {"partitions": 2}, 400, "already has 2 partition(s)"),
        ("t/alter", {"partitions": 1}, 400, "would not be an increase"),
        ("t/alter", {"partitions": 1, "configs": {"retention.ms": "1"}}, 400, "would not be an increase"),
        ("t/alter", {"configs": {"retention.ms": "soon"}, "partitions": 5}, 400, "retention.ms"),
        ("t/alter", {"configs": {"retentions.ms": None}}, 400, "retentions.ms: did you mean retention.ms?"),
        ("t/alter", {"dry_run": True, "configs": {"retentions.ms": None}}, 400, "did you mean retention.ms?"),
        ("t/alter", {"configs": {"x" * 99: None}}, 400, f"Unknown topic config name: {'x' * 60}"),
        ("none/alter", {"partitions": 5}, 404, "there is no topic none"),
        ("none/delete", {}, 404, "there is no topic none"),
        ("__kompakt_metadata/delete", {}, 400, "cannot be deleted"),
        ("t/delete", {"really": True}, 400, "unknown field"),
    ],
)
async def test_what_is_refused_changes_nothing(
    asker: Asker, path: str, body: dict[str, Any], status: int, words: str
) -> None:
    await asker.post("t/create", {})
    assert words in (await asker.post(path, body, status))["error"]
    assert state(asker) == (2, {})
    assert state(asker, "x") is None


async def test_a_topic_is_altered(asker: Asker) -> None:
    await asker.post("t/create", {"configs": {"retention.ms": "1000", "cleanup.policy": "compact"}})
    told = await asker.post(
        "t/alter", {"partitions": 4, "configs": {"retention.ms": None, "max.message.bytes": "2000"}}
    )
    assert (told["partitions"], told["configs"]) == (
        4,
        {"cleanup.policy": "compact", "max.message.bytes": "2000"},
    )
    assert state(asker) == (4, told["configs"])
    await asker.post("t/alter", {"configs": {"retention.ms": None}})
    assert state(asker) == (4, told["configs"]), "what is not set can be taken back, as by kafka-configs.sh"


async def test_a_topic_is_deleted(asker: Asker) -> None:
    await asker.post("t/create", {})
    assert (await asker.post("t/delete", {}))["partitions"] == 2
    assert state(asker) is None
    await asker.post("t/create", {})


async def test_where_topics_stay_none_is_deleted(make_world: MakeWorld) -> None:
    asker = Asker(await make_world(http_port="0", delete_topic_enable="false"))
    await asker.post("t/create", {})
    assert (await asker.post("t/delete", {}, 409))["error"] == "Topic deletion is disabled."


async def test_the_quota_for_topics_holds_over_http(asker: Asker) -> None:
    """KIP-599, by who asks; of a change whose partitions are too many nothing is made."""
    limit = {"entity": {"user": "ANONYMOUS"}, "values": {"controller_mutation_rate": 1}}
    assert (await asker.send("POST", "/api/quotas/set", limit, Content_Type="application/json"))[0] == 200
    await asker.post("t/create", {"partitions": 15})
    settings = {"cleanup.policy": "compact"}
    changes = (
        ("t/alter", {"partitions": 16, "configs": settings}),
        ("t/alter", {"partitions": 16, "dry_run": True}),
        ("u/create", {}),
        ("t/delete", {}),
    )
    for path, body in changes:
        told = await asker.post(path, body, status=429)
        assert told["error"] == "the quota controller_mutation_rate is used up: try again in 4 seconds"
    assert (state(asker), state(asker, "u")) == ((15, {}), None)
    asker.world.clock.advance(4000)
    await asker.post("t/alter", {"partitions": 16, "configs": settings})
    assert state(asker) == (16, settings)
