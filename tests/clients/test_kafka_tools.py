"""Goal: Apache Kafka's own command line tools take the broker for Kafka, and its dump tool takes our files
for its own.

Method: the tools of the release archive, unmodified, run from Maven's jars against the broker process of
the client tests; what they print is compared. Without a JVM every test here is skipped with the reason (see
tests/kafka).
"""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import confluent_kafka
import pytest

from broker.state_topic import partition_for
from protocol.messages.transactions import DescribeTransactionsRequest
from storage.layout import TopicPartition
from tests.clients.adaptors import Confluent, Sent
from tests.clients.conftest import COMPACTED, MINUTE_MS, alter, wait_until_compacted
from tests.kafka.fixtures import kafka_tools  # noqa: F401
from tests.kafka.raw import Raw
from tests.kafka.streams_player import StreamsPlayer, info, sub, topology
from tests.kafka.tools import Tools
from tests.process import BrokerProcess
from tests.thoroughness import slow

pytestmark = pytest.mark.java
NOW_MS = 1_700_000_000_000


@pytest.fixture
def tools(kafka_tools: Tools) -> Tools:  # noqa: F811
    return kafka_tools


@pytest.fixture
def at(broker: BrokerProcess) -> tuple[str, str]:
    return "--bootstrap-server", broker.bootstrap


def test_console_producer_and_console_consumer(tools: Tools, at: tuple[str, str], topic: str) -> None:
    tools.run("kafka-topics", *at, "--create", "--topic", topic, "--partitions", 1)
    lines = "".join(f"k{number}:v{number}\n" for number in range(100))
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    tools.run("kafka-console-producer", *at, "--topic", topic, *keyed, stdin=lines)
    printed = tools.run(
        "kafka-console-consumer",
        *at,
        *("--topic", topic, "--from-beginning", "--max-messages", 100, "--group", f"{topic}-group"),
        *("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:"),
    )
    assert printed == lines


def test_s17_topics_are_created_described_altered_and_deleted(
    tools: Tools, at: tuple[str, str], topic: str
) -> None:
    created = tools.run("kafka-topics", *at, "--create", "--topic", topic, "--partitions", 3)
    assert f"Created topic {topic}" in created
    described = tools.run("kafka-topics", *at, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described and "ReplicationFactor: 1" in described
    tools.run("kafka-topics", *at, "--alter", "--topic", topic, "--partitions", 4)
    described = tools.run("kafka-topics", *at, "--describe", "--topic", topic)
    assert re.findall(r"Partition: (\d)", described) == ["0", "1", "2", "3"]
    assert topic in tools.run("kafka-topics", *at, "--list").split()
    tools.run("kafka-topics", *at, "--delete", "--topic", topic)
    assert topic not in tools.run("kafka-topics", *at, "--list").split()


def test_share_groups(tools: Tools, at: tuple[str, str], topic: str, broker: BrokerProcess) -> None:
    """Read by one, looked at, begun elsewhere, deleted; the state is what Kafka's own decoder reads."""
    group = f"{topic}-shared"
    tools.run("kafka-topics", *at, "--create", "--topic", topic, "--partitions", 1)
    earliest = (
        "--entity-type",
        "groups",
        "--entity-name",
        group,
        "--add-config",
        "share.auto.offset.reset=earliest",
    )
    tools.run("kafka-configs", *at, "--alter", *earliest)
    lines = "".join(f"v{number}\n" for number in range(50))
    tools.run("kafka-console-producer", *at, "--topic", topic, stdin=lines)
    read = ("--topic", topic, "--group", group, "--max-messages", 50)
    assert tools.run("kafka-console-share-consumer", *at, *read) == lines
    assert group in tools.run("kafka-share-groups", *at, "--list").split()
    described = tools.run("kafka-share-groups", *at, "--describe", "--group", group)
    assert re.search(rf"{group} +{topic} +0 +\d+ +0", described), described
    elsewhere = ("--group", group, "--topic", topic, "--to-earliest", "--execute")
    assert re.search(rf"{topic} +0 +0", tools.run("kafka-share-groups", *at, "--reset-offsets", *elsewhere))
    described = tools.run("kafka-share-groups", *at, "--describe", "--group", group)
    assert re.search(rf"{group} +{topic} +0 +0 +50", described), described
    files = sorted(broker.data.glob("__share_group_state-*/*.log"))
    dumped = "".join(tools.dump("--share-group-state-decoder", "--files", path) for path in files)
    assert f'"groupId":"{group}"' in dumped and '"deliveryState":2' in dumped, dumped
    tools.run("kafka-share-groups", *at, "--delete", "--group", group)
    assert group not in tools.run("kafka-share-groups", *at, "--list").split()


def test_streams_groups(tools: Tools, at: tuple[str, str], topic: str, broker: BrokerProcess) -> None:
    """Looked at, begun elsewhere and deleted with its internal topics; Kafka's own decoder reads it."""
    group, changelog = f"{topic}-app", f"{topic}-app-store-changelog"
    player = StreamsPlayer(Raw(broker.port))
    player.use(group)
    player.prepare({topic: 2})
    store = info(changelog, cleanup_policy="compact")
    player.joins("m", topology(sub("0", topic, state_changelog_topics=[store])))
    assert player.topics(changelog) == {changelog: 2}
    assert player.settles("m")[3] == "Stable"
    done = player.commit("m", player.epochs["m"], (topic, 0), (topic, 1))
    assert done == [(topic, 0, 0), (topic, 1, 0)]
    run = partial(tools.run, "kafka-streams-groups", *at)
    assert group in run("--list").split()
    assert re.search(rf"{group} .* Stable +1", run("--describe", "--group", group, "--state"))
    assert "ACTIVE: 0:[0,1];" in run("--describe", "--group", group, "--members")
    assert re.search(rf"{group} +{topic} +0 +7 ", run("--describe", "--group", group, "--verbose"))
    dumped = tools.dump(
        "--offsets-decoder",
        "--files",
        ",".join(str(path) for path in sorted(broker.data.glob("__consumer_offsets-*/*.log"))),
    )
    assert f'"groupId":"{group}"' in dumped and '"subtopologyId":"0"' in dumped, dumped
    assert player.beats("m", -1)[0] is True
    player.raw.close()
    elsewhere = ("--group", group, "--input-topic", topic, "--to-earliest", "--execute")
    assert re.search(rf"{group} +{topic} +0 +0", run("--reset-offsets", *elsewhere))
    deleted = run("--delete", "--group", group, "--delete-all-internal-topics")
    assert "Deletion of associated internal topics" in deleted
    assert group not in run("--list").split()
    assert changelog not in tools.run("kafka-topics", *at, "--list").split()


def test_a_reassignment_to_the_only_node_is_completed(
    tools: Tools, at: tuple[str, str], topic: str, tmp_path: Path
) -> None:
    tools.run("kafka-topics", *at, "--create", "--topic", topic, "--partitions", 2)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    moved = ("--topics-to-move-json-file", topics, "--broker-list", 1, "--generate")
    plan = tmp_path / "plan.json"
    plan.write_text(tools.run("kafka-reassign-partitions", *at, *moved).strip().splitlines()[-1])
    given = ("--reassignment-json-file", plan)
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in tools.run(
        "kafka-reassign-partitions", *at, *given, "--execute"
    )
    verified = tools.run("kafka-reassign-partitions", *at, *given, "--verify")
    assert [f"Reassignment of partition {topic}-{index} is completed." in verified for index in (0, 1)] == [
        True,
        True,
    ]


def test_s30_configs_are_altered_and_described(tools: Tools, at: tuple[str, str], topic: str) -> None:
    tools.run("kafka-topics", *at, "--create", "--topic", topic)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    settings = "retention.ms=3600000,cleanup.policy=[compact,delete]"
    tools.run("kafka-configs", *at, "--alter", *entity, "--add-config", settings)
    described = tools.run("kafka-configs", *at, "--describe", *entity)
    assert "retention.ms=3600000" in described and "cleanup.policy=compact,delete" in described
    tools.run("kafka-configs", *at, "--alter", *entity, "--delete-config", "retention.ms")
    assert "retention.ms=" not in tools.run("kafka-configs", *at, "--describe", *entity)
    everything = tools.run("kafka-configs", *at, "--describe", "--all", *entity)
    assert "retention.ms=604800000" in everything and "min.cleanable.dirty.ratio=0.5" in everything
    brokers = tools.run(
        "kafka-configs", *at, "--describe", "--all", "--entity-type", "brokers", "--entity-name", 1
    )
    assert "log.cleaner.threads=1" in brokers


def test_settings_of_a_group_are_altered_described_and_listed(tools: Tools, at: tuple[str, str]) -> None:
    entity = ("--entity-type", "groups", "--entity-name", "settled")
    tools.run("kafka-configs", *at, "--alter", *entity, "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in tools.run("kafka-configs", *at, "--describe", *entity)
    described = tools.run("kafka-configs", *at, "--describe", "--entity-type", "groups")
    assert "Dynamic configs for group settled are:" in described
    tools.run("kafka-configs", *at, "--alter", *entity, "--delete-config", "consumer.session.timeout.ms")
    assert "consumer.session.timeout.ms" not in tools.run("kafka-configs", *at, "--describe", *entity)


def test_levels_of_loggers_are_altered_and_described(tools: Tools, at: tuple[str, str]) -> None:
    entity = ("--entity-type", "broker-loggers", "--entity-name", 1)
    tools.run("kafka-configs", *at, "--alter", *entity, "--add-config", "broker.answers=ERROR")
    assert "broker.answers=ERROR" in tools.run("kafka-configs", *at, "--describe", *entity)
    tools.run("kafka-configs", *at, "--alter", *entity, "--delete-config", "broker.answers")
    assert "broker.answers=INFO" in tools.run("kafka-configs", *at, "--describe", *entity)


def test_consumer_groups_are_listed_described_and_reset(
    tools: Tools, at: tuple[str, str], broker: BrokerProcess, topic: str
) -> None:
    client = Confluent(broker.bootstrap)
    client.create_topic(topic)
    client.produce(topic, [Sent(b"k", b"v", 0)] * 10)
    client.commit(topic, topic, 0, 4)
    assert topic in tools.run("kafka-consumer-groups", *at, "--list").split()
    described = tools.run("kafka-consumer-groups", *at, "--describe", "--group", topic)
    assert re.search(rf"{topic}\s+{topic}\s+0\s+4\s+10\s+6\b", described)
    reset = ("--reset-offsets", "--to-earliest", "--group", topic, "--topic", topic, "--execute")
    tools.run("kafka-consumer-groups", *at, *reset)
    assert client.committed(topic, topic, 0) == 0
    tools.run("kafka-consumer-groups", *at, "--delete", "--group", topic)
    assert topic not in tools.run("kafka-consumer-groups", *at, "--list").split()


def test_s18_get_offsets_prints_the_ends(
    tools: Tools, at: tuple[str, str], broker: BrokerProcess, topic: str
) -> None:
    client = Confluent(broker.bootstrap)
    client.create_topic(topic, 3)
    for partition, count in enumerate((3, 2, 4)):
        client.produce(topic, [Sent(b"k", b"v", partition)] * count)
    ends = tools.run("kafka-get-offsets", *at, "--topic", topic)
    assert ends.split() == [f"{topic}:0:3", f"{topic}:1:2", f"{topic}:2:4"]
    first = tools.run("kafka-get-offsets", *at, "--topic", topic, "--time", "earliest")
    assert first.split() == [f"{topic}:{partition}:0" for partition in range(3)]


def test_t136_delete_records_moves_the_start(
    tools: Tools, at: tuple[str, str], broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    client = Confluent(broker.bootstrap)
    client.create_topic(topic)
    client.produce(topic, [Sent(b"k", b"v", 0)] * 10)
    asked = tmp_path / "offsets.json"
    asked.write_text(
        json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 7}], "version": 1})
    )
    printed = tools.run("kafka-delete-records", *at, "--offset-json-file", asked)
    assert "low_watermark: 7" in printed
    assert client.offsets(topic, 0) == (7, 10)


def test_log_dirs_tells_sizes(tools: Tools, at: tuple[str, str], broker: BrokerProcess, topic: str) -> None:
    client = Confluent(broker.bootstrap)
    client.create_topic(topic)
    client.produce(topic, [Sent(b"k", b"v", 0)] * 10)
    printed = tools.run("kafka-log-dirs", *at, "--describe", "--topic-list", topic)
    answer = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    (directory,) = answer["brokers"][0]["logDirs"]
    (partition,) = directory["partitions"]
    assert directory["error"] is None
    assert partition["partition"] == f"{topic}-0"
    assert partition["size"] == (broker.data / f"{topic}-0" / f"{0:020d}.log").stat().st_size


def test_broker_api_versions_and_cluster_id(tools: Tools, at: tuple[str, str]) -> None:
    printed = tools.run("kafka-broker-api-versions", *at)
    assert re.search(r"Produce\(0\): 0 to 13", printed)
    assert re.search(r"Fetch\(1\): 4 to 18", printed)
    assert re.search(r"Cluster ID: \S{22}", tools.run("kafka-cluster", "cluster-id", *at))


def test_a_java_producer_uses_transactions_v2(
    tools: Tools, at: tuple[str, str], broker: BrokerProcess, topic: str
) -> None:
    """Each of its transactions has an epoch of its own. They last a while: the producer of 4.3.1 asks first
    whether records are unsent, then what to send. Where its thread is held up between the two for as long as
    a transaction lasts, the commit leaves before the records: InvalidTxnStateException, on Kafka as well.
    """
    assert "FinalizedVersionLevel: 2" in tools.run("kafka-features", *at, "describe")
    tools.run("kafka-topics", *at, "--create", "--topic", topic, "--partitions", 1)
    record = ("--num-records", 2_000, "--throughput", 2_000, "--record-size", 100)
    transactions = ("--transactional-id", "perf", "--transaction-duration-ms", 50)
    tools.run("kafka-producer-perf-test", "--topic", topic, *record, *transactions, *at)
    raw = Raw(broker.port)
    (state,) = raw.ask(DescribeTransactionsRequest(transactional_ids=["perf"]), 0).transaction_states
    raw.close()
    assert state.transaction_state == "CompleteCommit"
    assert state.producer_epoch > 1


def dump(tools: Tools, directory: Path) -> list[str]:
    """What kafka-dump-log says of every file of a partition, one text a file; it must complain about none."""
    texts = []
    files = sorted(
        path for path in directory.iterdir() if path.suffix in (".log", ".index", ".timeindex", ".snapshot")
    )
    for path in files:
        options = ["--deep-iteration", "--print-data-log"] if path.suffix == ".log" else []
        if path.suffix in (".index", ".timeindex"):
            options = ["--verify-index-only"]
        done = tools.attempt("kafka-dump-log", "--files", path, *options)
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        for complaint in (
            "Mismatches",
            "out of order",
            "isvalid: false",
            "Exception",
            "Found timestamp mismatch",
        ):
            assert complaint not in output, f"{path.name}: {output}"
        texts.append(output)
    return texts


@pytest.mark.parametrize("codec", [slow("none"), "zstd"])
def test_t184_s42_kafka_dumps_our_segments_before_and_after_a_cleaning(
    tools: Tools, broker: BrokerProcess, topic: str, codec: str
) -> None:
    client = Confluent(broker.bootstrap)
    client.create_topic(
        topic, 1, {**COMPACTED, "min.cleanable.dirty.ratio": "1.0", "index.interval.bytes": "256"}
    )
    for number in range(4):
        timestamp = NOW_MS + number * MINUTE_MS
        for part in range(4):
            keys = range(part * 25, part * 25 + 25)
            batch = [Sent(b"key-%03d" % key, b"%d" % number * 20, 0, timestamp_ms=timestamp) for key in keys]
            client.produce(topic, batch, codec)
    directory = broker.data / f"{topic}-0"
    before = "".join(dump(tools, directory))
    assert len(re.findall(r"\| offset: ", before)) == 400
    alter(broker, topic, {"min.cleanable.dirty.ratio": "0.01"})
    wait_until_compacted(broker, topic, 0, 300)
    after = "".join(dump(tools, directory))
    assert len(re.findall(r"\| offset: ", after)) == 200
    assert re.findall(r"\| offset: (\d+)", after) == [str(offset) for offset in range(200, 400)]


def test_transactions_are_listed_described_and_ended(
    tools: Tools, at: tuple[str, str], broker: BrokerProcess, topic: str
) -> None:
    """By Kafka's own tool, which fences the producer; its dump tool reads what is stored of the id."""
    tools.run("kafka-topics", *at, "--create", "--topic", topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"v")
    assert producer.flush(60) == 0

    def listed() -> dict[str, str]:
        rows = [row.split() for row in tools.run("kafka-transactions", *at, "list").splitlines()[1:]]
        return {transactional_id: state for transactional_id, _, _, state in rows}

    assert listed()[topic] == "Ongoing"
    ours = ("--transactional-id", topic)
    heading, row = tools.run("kafka-transactions", *at, "describe", *ours).splitlines()
    described = dict(zip(heading.split(), row.split(), strict=True))
    assert (described["TransactionState"], described["TopicPartitions"]) == ("Ongoing", f"{topic}-0")
    tools.run("kafka-transactions", *at, "forceTerminateTransaction", "--transactionalId", topic)
    assert listed()[topic] == "Empty"
    with pytest.raises(confluent_kafka.KafkaException, match="fenced"):
        producer.commit_transaction(60)

    place = TopicPartition("__transaction_state", partition_for(topic, 50))
    (segment,) = (broker.data / str(place)).glob("*.log")
    dumped = tools.dump("--files", segment, "--transaction-log-decoder", "--print-data-log")
    own = "\n".join(line for line in dumped.splitlines() if topic in line)  # others' ids may lie there too
    states = re.findall(r'"producerEpoch":(\d),"transactionTimeoutMs":\d+,"transactionStatus":(\d)', own)
    assert states == [("0", "0"), ("0", "1"), ("1", "3"), ("1", "5"), ("2", "0")]


def test_the_quorum_is_this_node(tools: Tools, at: tuple[str, str]) -> None:
    status = tools.run("kafka-metadata-quorum", *at, "describe", "--status")
    told = dict(re.findall(r"^(\w+): +(.+)$", status, re.MULTILINE))
    assert told["LeaderId"] == "1" and told["MaxFollowerLag"] == "0"
    assert '"id": 1' in told["CurrentVoters"] and told["CurrentObservers"] == "[]"
    rows = tools.run("kafka-metadata-quorum", *at, "describe", "--replication").splitlines()
    assert [row.split()[-1] for row in rows] == ["Status", "Leader"]
