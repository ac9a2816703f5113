"""Keys of Kafka that are taken and do nothing, each with its reason; and what is said about all others.

They stand in the property files and compose files that people bring along.
"""

from __future__ import annotations

from collections.abc import Mapping

from config.definition import closest

HARMLESS: dict[str, str] = {
    "process.roles": "one node is both broker and controller",
    "inter.broker.listener.name": "there is no other broker",
    "security.inter.broker.protocol": "there is no other broker",
    "sasl.mechanism.inter.broker.protocol": "there is no other broker",
    "sasl.mechanism.controller.protocol": "there is no controller apart",
    "ssl.endpoint.identification.algorithm": "there is no other broker whose name would be checked",
    "ssl.protocol": "ssl.enabled.protocols says which versions are spoken",
    "ssl.secure.random.implementation": "the system's own is used",
    "inter.broker.protocol.version": "there is no other broker",
    "log.message.format.version": "the format is version 2 always",
    "zookeeper.connect": "there is none",
    "zookeeper.connection.timeout.ms": "there is none",
    "num.network.threads": "one event loop serves the network",
    "num.io.threads": "one event loop runs the requests",
    "num.replica.fetchers": "there is no other broker",
    "num.replica.alter.log.dirs.threads": "one partition moves at a time",
    "queued.max.requests": "requests are limited by connection: connection.max.in.flight.requests",
    "socket.send.buffer.bytes": "the system's own size is used",
    "socket.receive.buffer.bytes": "the system's own size is used",
    "socket.listen.backlog.size": "the system's own size is used",
    "request.timeout.ms": "there is no other broker",
    "auto.leader.rebalance.enable": "there is one leader",
    "leader.imbalance.check.interval.seconds": "there is one leader",
    "leader.imbalance.per.broker.percentage": "there is one leader",
    "broker.rack": "there is one node",
    "broker.id.generation.enable": "the number is node.id",
    "reserved.broker.max.id": "the number is node.id",
    "broker.heartbeat.interval.ms": "there is no controller apart",
    "broker.session.timeout.ms": "there is no controller apart",
    "initial.broker.registration.timeout.ms": "there is no controller apart",
    "log.dir.failure.timeout.ms": "there is no controller apart",
    "controlled.shutdown.enable": "there is no other broker to hand over to",
    "controlled.shutdown.max.retries": "there is no other broker to hand over to",
    "offsets.topic.replication.factor": "one node holds one copy",
    "offsets.topic.compression.codec": "offsets are stored uncompressed",
    "offsets.commit.timeout.ms": "a commit is answered when it is flushed",
    "offsets.commit.required.acks": "a commit is answered when it is flushed",
    "offsets.load.buffer.size": "loading reads whole batches",
    "transaction.state.log.replication.factor": "one node holds one copy",
    "transaction.state.log.min.isr": "one node holds one copy",
    "transaction.state.log.load.buffer.size": "loading reads whole batches",
    "transaction.partition.verification.enable": "partitions are always verified: it costs nothing here",
    "group.coordinator.threads": "groups live on the event loop",
    "group.coordinator.background.threads": "groups live on the event loop",
    "group.coordinator.cached.buffer.max.bytes": "records of groups are small and encoded one by one",
    "group.coordinator.rebalance.protocols": "all protocols are served",
    "group.consumer.assignor.offload.enable": "groups live on the event loop",
    "group.consumer.regex.refresh.interval.ms": "a group is looked at whenever the topics have changed",
    "group.coordinator.append.linger.ms": "one flush serves all commits that wait",
    "metric.reporters": "metrics are at /metrics",
    "auto.include.jmx.reporter": "metrics are at /metrics",
    "metrics.num.samples": "metrics are at /metrics",
    "metrics.sample.window.ms": "metrics are at /metrics",
    "metrics.recording.level": "metrics are at /metrics",
    "log.cleaner.hash.algorithm": "the offset map chooses its own hash",
    "fetch.purgatory.purge.interval.requests": "what ended is removed at once",
    "producer.purgatory.purge.interval.requests": "what ended is removed at once",
    "delete.records.purgatory.purge.interval.requests": "what ended is removed at once",
    "kafka.metrics.reporters": "metrics are at /metrics",
    "kafka.metrics.polling.interval.secs": "metrics are at /metrics",
    "telemetry.max.bytes": "clients are not asked for their metrics",
    "add.partitions.to.txn.retry.backoff.ms": "partitions are always verified: it costs nothing here",
    "add.partitions.to.txn.retry.backoff.max.ms": "partitions are always verified: it costs nothing here",
    "early.start.listeners": "no listener opens before the others",
    "follower.fetch.last.tiered.offset.enable": "there is no other broker",
    "group.coordinator.new.enable": "all protocols are served",
    "log.local.retention.bytes": "all that is kept is local",
    "log.local.retention.ms": "all that is kept is local",
    "share.fetch.purgatory.purge.interval.requests": "what ended is removed at once",
    "group.share.assignors": "there is one, simple",
    "group.share.assignor.offload.enable": "groups live on the event loop",
    "group.share.initialize.retry.interval.ms": "a partition begins with the heartbeat that asks for it",
    "group.share.persister.class.name": "what is known of share groups goes to __share_group_state",
    "share.coordinator.state.topic.replication.factor": "one node holds one copy",
    "share.coordinator.state.topic.min.isr": "one node holds one copy",
    "share.coordinator.state.topic.compression.codec": "records of share groups are small",
    "share.coordinator.threads": "groups live on the event loop",
    "share.coordinator.load.buffer.size": "loading reads whole batches",
    "share.coordinator.append.linger.ms": "one flush serves all acknowledgements that wait",
    "share.coordinator.write.timeout.ms": "a write is answered when it is on disk, or when it cannot be",
    "share.coordinator.cold.partition.snapshot.interval.ms": "state.topic.prune.interval.ms stands for both",
    "share.coordinator.cached.buffer.max.bytes": "records of share groups are small and encoded one by one",
    "group.streams.assignor.offload.enable": "groups live on the event loop",
    "socket.connection.setup.timeout.ms": "there is no other broker",
    "socket.connection.setup.timeout.max.ms": "there is no other broker",
}
HARMLESS_FAMILIES: dict[str, str] = {
    "controller.quorum.": "one node needs no quorum",
    "controller.socket.": "one node needs no quorum",
    "replica.": "there is no other broker",
    "metadata.": "metadata is a compacted topic",
    "replication.quota.window.": "there is no other broker",
    "alter.log.dirs.replication.quota.window.": "a limit of moves holds at every moment",
    "confluent.": "it is for parts of Confluent's broker",
}
OFF = ("remote.log.storage.system.enable", "transaction.two.phase.commit.enable")


def is_harmless(name: str, text: str | None = None) -> bool:
    """Whether a key does nothing, or says with this text that what does not exist here is off."""
    if name in OFF:
        return text is not None and text.strip().lower() == "false"
    return name in HARMLESS or name.startswith(tuple(HARMLESS_FAMILIES))


def why_harmless(name: str) -> str:
    """The reason why it does nothing; `name` is a harmless one."""
    return HARMLESS.get(name) or next(why for head, why in HARMLESS_FAMILIES.items() if name.startswith(head))


_INSTEAD: dict[str, str] = {
    "sasl.jaas.config": "Name its listener and mechanism: listener.name.<listener>.plain.sasl.jaas.config",
    "ssl.keystore.password": "A PEM file has none; the password of its key is ssl.key.password",
    "ssl.truststore.password": "A PEM file has none",
    "ssl.cipher.suites": "The system's own choice of ciphers is used",
    "principal.builder.class": "ssl.principal.mapping.rules says whom a certificate names",
}
"""what to do about keys of Kafka that a file may bring along and that cannot be taken"""
_ABSENT = (
    "alter.config.policy.class.name", "client.quota.callback.class", "config.providers", "cordoned.log.dirs",
    "create.topic.policy.class.name", "transaction.two.phase.commit.enable",
    "authorizer",
)  # fmt: skip
_NOT_HERE = ("ssl.", "sasl.", "authorizer.", "security.", "remote.", "password.encoder.", "delegation.")


def unknown(name: str, keys: Mapping[str, str]) -> str:
    """The line for a key that nobody knows; `keys` leads from names that a person may mean to keys of the
    broker.
    """
    if name in _INSTEAD:
        return f"Configuration {name} is not supported. {_INSTEAD[name]}"
    if name.startswith(_NOT_HERE) or name in _ABSENT:
        return f"Configuration {name} is not supported: kompakt does not have what it sets up"
    if name in keys:
        return f"Unknown configuration {name}: a key of topics, whose default the broker calls {keys[name]}"
    found = closest(name, keys)
    if found is not None:
        return f"Unknown configuration {name}: did you mean {keys[found]}?"
    return f"Unknown configuration {name}: REFERENCE.md lists the keys"
