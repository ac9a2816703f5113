"""Apache Kafka's command line tools, run unmodified by the names of its release archive."""

from __future__ import annotations

import contextlib
import functools
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.classes import ClassArchive
from tests.kafka.jars import HERE, NoKafkaError, environment, java, libraries
from tests.kafka.resident import PROGRAM as RESIDENT_PROGRAM
from tests.kafka.resident import Resident

TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
# Tools whose speed is the point get the whole compiler; the others start faster without it.
MEASURING = frozenset({"kafka-producer-perf-test", "kafka-consumer-perf-test", "kafka-e2e-latency"})
SHORT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
RUN_LIMIT_SECONDS = 180.0
# What kafka-dump-log says of records, of indexes, and of records that its decoders do not know. A batch that
# a cleaning has emptied, Kafka's own too, has no time there (-1).
COMPLAINT = re.compile(
    r"isvalid: false|Mismatches in|Indexed offset|log timestamp: (?!-1$)|out of order timestamp"
    r"|Ignoring unknown file|, skipping\.",
    re.MULTILINE,
)


class ToolError(AssertionError):
    """A tool ended with another status than 0; its whole output is in the message."""


class Tools:
    """Runs tools of one set of jars. NoKafkaError at construction when there is no JVM or no jars."""

    def __init__(self, directory: Path | None = None) -> None:
        self.java = java()
        self.libraries = libraries() if directory is None else directory
        self._idle: list[Resident] = []

    def jvm(self, class_name: str, *options: str, log_level: str = "WARN") -> list[str]:
        """The command that runs a class of the jars."""
        logging = f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"
        classes = f"{self.libraries}/*"
        return [self.java, *options, logging, f"-Dkafka.log.level={log_level}", "-cp", classes, class_name]

    def with_compiler(self) -> Tools:
        """These tools, if their JVM runs a source file as well; else NoKafkaError."""
        if not self.has_compiler:
            raise NoKafkaError(f"{self.java} is no JDK: it has no compiler for the tests' own programs")
        return self

    @functools.cached_property
    def has_compiler(self) -> bool:
        command = [self.java, "--list-modules"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment())
        return "jdk.compiler" in answer.stdout

    def command(self, name: str, *arguments: object, options: Sequence[str] = ()) -> list[str]:
        """The command of a tool, for those who start and watch it themselves (with `environment()`)."""
        if name in MEASURING:
            usual = ["-Xmx512m", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        else:
            usual = ["-Xmx256m", *SHORT]
        return [*self.jvm(TOOLS[name], *usual, *options), *map(str, arguments)]

    def attempt(
        self, name: str, *arguments: object, stdin: str = "", limit_s: float = RUN_LIMIT_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool to its end, whatever its exit status: in a JVM that stays, where it can be compiled."""
        if name in MEASURING or not self.has_compiler:
            command = self.command(name, *arguments)
            return subprocess.run(
                command, input=stdin, capture_output=True, text=True, timeout=limit_s, env=environment()
            )
        with self._resident() as resident:
            texts = list(map(str, arguments))
            status, printed, errors = resident.run(TOOLS[name], texts, stdin, limit_s)
        return subprocess.CompletedProcess([name, *texts], status, printed, errors)

    @contextlib.contextmanager
    def _resident(self) -> Iterator[Resident]:
        """One that is idle, or a new one; it is idle again unless what it was taken for has failed, or others
        shall start from what it leaves.
        """
        try:
            resident = self._idle.pop()
        except IndexError:
            archive = ClassArchive(self.java, "resident", str(self.libraries))
            options = ("-Xmx256m", *SHORT, "-XX:+DisplayVMOutputToStderr", *archive.options())
            resident = Resident(self.jvm(str(RESIDENT_PROGRAM), *options), archive)
        yield resident
        if resident.makes_archive:
            resident.close()
        elif not resident.has_ended:
            self._idle.append(resident)

    def assert_sane_indexes(self, files: Sequence[Path]) -> None:
        """kafka-dump-log finds each of these sane; an empty `.index` it names so."""
        said = self.run("kafka-dump-log", "--index-sanity-check", "--files", ",".join(map(str, files)))
        expected = []
        for path in files:
            is_empty = path.suffix == ".index" and not path.stat().st_size
            verdict = "is empty." if is_empty else "passed sanity check."
            expected += [f"Dumping {path}", f"{path} {verdict}"]
        assert said.splitlines() == expected, said

    def dump(self, *arguments: object) -> str:
        """What kafka-dump-log printed, which must find no fault: those of indexes it tells on its standard
        error, and ends with status 0.
        """
        done = self._succeeded("kafka-dump-log", arguments)
        complaint = COMPLAINT.search(done.stdout + done.stderr)
        assert complaint is None, (complaint, done.stderr + done.stdout)
        return done.stdout

    def run(self, name: str, *arguments: object, stdin: str = "", limit_s: float = RUN_LIMIT_SECONDS) -> str:
        """What a tool printed on its standard output; ToolError when it failed."""
        return self._succeeded(name, arguments, stdin, limit_s).stdout

    def _succeeded(
        self, name: str, arguments: Sequence[object], stdin: str = "", limit_s: float = RUN_LIMIT_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        done = self.attempt(name, *arguments, stdin=stdin, limit_s=limit_s)
        if done.returncode != 0:
            shown = " ".join([name, *map(str, arguments)])
            raise ToolError(f"{shown}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done
