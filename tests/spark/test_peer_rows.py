"""Goal: `format("kompakt")` brings exactly the rows, columns and types of Spark's own Kafka source.

Method: one Spark session holds both sources. Topics of every kind (all codecs, headers, tombstones, no
timestamps of one's own or none at all, aborted transactions, a deleted head, nothing at all) are read by both
with the same options, in batch and as a stream, from Apache Kafka and from kompakt; every row is compared.
Holes are in `test_peer_holes.py`, what only streams have in `test_peer_streams.py`, how reads are cut in
`test_peer_tasks.py`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import confluent_kafka
import pytest

from tests.spark.peer.topics import Options, Topics, rows, same, same_stream
from tests.spark.test_spark import create_topic, produce

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_every_row_of_every_topic(topics: Topics) -> None:
    """One read of all topics: keys, values, places, times, timestamp types, headers."""
    found = same(topics, subscribe=",".join(topics.all), includeHeaders="true")
    assert len(found) >= 300 + 30 + 60
    kinds = {json.loads(text)["timestampType"] for text in found}
    assert kinds == {0, 1}
    nulls = [row for row in map(json.loads, found) if row["topic"] == topics.plain and "value" not in row]
    assert nulls, "there are tombstones"
    times = [row["timestamp"] for row in map(json.loads, found) if row["topic"] == topics.timeless]
    assert times.count("1969-12-31 23:59:59.999000") == 2, "-1 ms, where there is no timestamp"


def everywhere(topic: str, value: int) -> str:
    return json.dumps({topic: {str(number): value for number in range(3)}})


def cases(plain: str) -> dict[str, Options]:
    """Options of table 2, as a user of Spark's own source writes them."""
    places = {"startingOffsets": json.dumps({plain: {"0": 10, "1": -2, "2": 50}})}
    places |= {"endingOffsets": json.dumps({plain: {"0": 20, "1": -1, "2": 50}})}
    return {
        "assign": {"assign": json.dumps({plain: [0, 2]})},
        "pattern": {"subscribePattern": plain[:-1] + "."},
        "pattern of a part of the name": {"subscribePattern": plain[1:-1]},
        "pattern of the whole name": {"subscribePattern": f"^{plain}$"},
        "offsets": {"subscribe": plain, **places},
        "offsets and minPartitions": {"subscribe": plain, **places, "minPartitions": "8"},
        "maxRecordsPerPartition": {"subscribe": plain, "maxRecordsPerPartition": "7"},
        "both": {"subscribe": plain, "maxRecordsPerPartition": "40", "minPartitions": "11"},
        "timestamps": {
            "subscribe": plain,
            "startingTimestamp": "1700000000050",
            "endingTimestamp": "1700000000200",
        },
        "timestamps by partition": {
            "subscribe": plain,
            "startingOffsetsByTimestamp": everywhere(plain, 1_700_000_000_100),
            "endingOffsetsByTimestamp": everywhere(plain, 1_800_000_000_000),
        },
        "too late a timestamp": {
            "subscribe": plain,
            "startingTimestamp": "1800000000000",
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "the words of timestamps": {
            "subscribe": plain,
            "startingTimestamp": "-2",
            "endingTimestamp": "-1",
        },
        "the words of timestamps by partition": {
            "subscribe": plain,
            "startingOffsetsByTimestamp": json.dumps({plain: {"0": -2, "1": -1, "2": 1_700_000_000_050}}),
            "endingOffsetsByTimestamp": json.dumps({plain: {"0": 1_700_000_000_200, "1": -1, "2": -1}}),
        },
        "a timestamp that is the end": {"subscribe": plain, "startingTimestamp": "-1"},
        "a timestamp that is the start": {"subscribe": plain, "endingTimestamp": "-2"},
        "times where records have none": {
            "subscribe": "TIMELESS",
            "startingTimestamp": "0",
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "time beats places": {
            "subscribe": plain,
            "startingOffsets": places["startingOffsets"],
            "startingTimestamp": "1700000000290",
        },
        "limits of streams": {"subscribe": plain, "maxOffsetsPerTrigger": "5"},
        "names of the consumer": {"subscribe": plain, "kafka.group.id": "mine", "groupIdPrefix": "x"},
    }


@pytest.mark.parametrize("topics", ["kompakt"], indirect=True)
def test_what_is_to_be_written_for_java_s_sets_of_sets(topics: Topics) -> None:
    """The pattern of Spark's own source is refused; as the message has it, it chooses the same topics."""
    names = [
        create_topic(topics.bootstrap, name=f"sets-{end}-{topics.plain}") for end in ("abw", "abx", "a1")
    ]
    for name in names:
        produce(topics.bootstrap, name, 3)
    for java, python, count in (
        ("^sets-[a-z&&[^xy]]+-", "^sets-(?:(?![xy])[a-z])+-", 3),
        ("^sets-[a-z[0-9]]+-", "^sets-[a-z0-9]+-", 9),
    ):
        theirs = topics.frame(topics.peer, {"subscribePattern": java})
        with pytest.raises(Exception, match="combines sets of characters in Java and not in Python"):
            topics.frame("kompakt", {"subscribePattern": java})
        found = rows(topics.frame("kompakt", {"subscribePattern": python}))
        assert found == rows(theirs)
        assert len(found) == count


NOTHING = ("too late a timestamp", "a timestamp that is the end", "a timestamp that is the start")


@pytest.mark.parametrize("name", cases("t"))
def test_options_choose_the_same_rows(topics: Topics, name: str) -> None:
    options = cases(topics.plain)[name]
    found = same(
        topics, **{key: value.replace("TIMELESS", topics.timeless) for key, value in options.items()}
    )
    assert bool(found) != (name in NOTHING)


NOT_THEM = "Partitions specified for Kafka (start|end) offsets don't match what are assigned"
REFUSED: list[tuple[Options, str, str]] = [
    (
        {},
        "One of the following options must be specified",
        "exactly one of assign, .* none of them was given",
    ),
    (
        {"subscribe": "t", "assign": '{"t":[0]}'},
        "Only one of the following options can be specified",
        "exactly one of assign, .*, assign and subscribe was given",
    ),
    (
        {"subscribe": "T", "startingOffsets": "latest"},
        "starting offset can't be latest for batch",
        "startingOffsets must not be latest",
    ),
    (
        {"subscribe": "T", "endingOffsets": "earliest"},
        "ending offset can't be earliest for batch",
        "endingOffsets must not be earliest",
    ),
    (
        {"subscribe": "T", "startingOffsets": '{"T":{"0":1}}'},
        NOT_THEM,
        "startingOffsets must name each partition .* missing: T-1, T-2",
    ),
    (
        {"subscribe": "T", "startingOffsets": '{"T":{"0":1,"1":1,"2":1,"3":1}}'},
        NOT_THEM,
        "startingOffsets must name each partition .* not among the partitions to read: T-3",
    ),
    (
        {"subscribe": "T", "endingOffsets": '{"T":{"0":1}}'},
        NOT_THEM,
        "endingOffsets must name each partition .* missing: T-1, T-2",
    ),
    (
        {
            "subscribe": "T",
            "startingOffsets": '{"T":{"0":9,"1":0,"2":0}}',
            "endingOffsets": '{"T":{"0":5,"1":9,"2":9}}',
        },
        "start offset 9 is greater than the end offset 5 for topic T partition 0",
        "T-0: startingOffsets 9 is behind endingOffsets 5",
    ),
    (
        {"subscribe": "T", "startingTimestamp": "1800000000000"},
        r"No offset matched from request of topic-partition T-\d and timestamp 1800000000000",
        r"startingTimestamp: T-\d has no record at or after 1800000000000",
    ),
    *(
        (
            {"subscribe": "T", f"kafka.{name}": "true"},
            rf"Kafka option '{name}' is not supported",
            rf"option kafka\.{name} is not supported: {reason}",
        )
        for name, reason in (
            ("auto.offset.reset", "use startingOffsets"),
            ("key.deserializer", "keys are binary"),
            ("value.deserializer", "values are binary"),
            ("enable.auto.commit", ""),
            ("interceptor.classes", "interceptors are Java classes"),
        )
    ),
    (
        {"subscribe": "T", "startingTimestamp": "-9"},
        "The version of API is not supported",
        r"startingTimestamp must be ms since 1970, -1 \(latest\) or -2 \(earliest\), not -9",
    ),
    *(
        ({"subscribe": "T", name: "0"}, f"(?i){name} must be positive", f"{name} must be positive")
        for name in ("minPartitions", "maxRecordsPerPartition")
    ),
]


@pytest.mark.parametrize("topics", ["kompakt"], indirect=True)  # what is refused, no broker decides
@pytest.mark.parametrize(("options", "theirs", "ours"), REFUSED, ids=[str(case[0]) for case in REFUSED])
def test_both_refuse(topics: Topics, options: Options, theirs: str, ours: str) -> None:
    """What Spark's own source does not take, ours does not either, and says why."""
    chosen = {name: value.replace("T", topics.plain) for name, value in options.items()}
    for source, said in ((topics.peer, theirs), ("kompakt", f"ConnectorError: {ours}")):
        with pytest.raises(Exception, match=re.sub(r"\bT\b", topics.plain, said)):
            topics.frame(source, chosen).count()


@pytest.mark.parametrize(("trigger", "has_many_batches"), [("availableNow", True), ("once", False)])
@pytest.mark.usefixtures("queries")
def test_a_stream_brings_the_same_rows_in_the_same_batches(
    topics: Topics, tmp_path: Path, trigger: str, has_many_batches: bool
) -> None:
    """With a limit, which Trigger.Once passes over: batches end at the same offsets, and the rows are the
    same.
    """
    options = {"subscribe": ",".join(topics.all), "startingOffsets": "earliest", "includeHeaders": "true"}
    _, ends = same_stream(topics, tmp_path, trigger, **options, maxOffsetsPerTrigger="170")
    assert (len(ends) > 1) == has_many_batches


@pytest.mark.parametrize("topics", ["kompakt"], indirect=True)
def test_internal_topics(topics: Topics) -> None:
    """Ours reads them where they are named, Spark's own never; a pattern finds them with neither."""
    group = {"bootstrap.servers": topics.bootstrap, "group.id": "a-group"}
    consumer = confluent_kafka.Consumer(group)
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topics.plain, 0, 1)], asynchronous=False)
    consumer.close()
    internal = "__consumer_offsets"
    named = {"subscribe": internal}, {"assign": json.dumps({internal: list(range(50))})}
    for options in named:
        assert topics.frame(topics.peer, options).count() == 0
        assert topics.frame("kompakt", options).count() > 0
    for source in (topics.peer, "kompakt"):
        assert topics.frame(source, {"subscribePattern": "__consumer_.*"}).count() == 0
