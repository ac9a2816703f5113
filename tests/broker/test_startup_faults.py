"""Goal: a broker that cannot start says why in one line for each reason, with a status that scripts can
use; one that starts on damaged files has lost nothing that it does not name.

Method: real processes. A data directory with topics, records, settings, a group's offsets and an idempotent
producer is made once; each test damages a copy of it, starts a broker there and looks at what is left.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.group_offsets import OffsetCommitRequest
from protocol.messages.groups import FindCoordinatorRequest
from protocol.messages.offsets import ListOffsetsRequest
from protocol.messages.transactions import InitProducerIdRequest
from storage.verify import verify_data_directory
from tests.broker.client import Client
from tests.process import BrokerProcess, free_port
from tests.siege import Siege, fetch_request
from tests.survivor import TOPIC, Survivor, write_numbers
from tests.thoroughness import slow

SET, UNSET = "5000000", "1073741824"
COUNT = 20
METADATA = "__kompakt_metadata-0"
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint")
POWERLESS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
"""a command behind it is root as little as anybody: it may write only what is its own"""
Damage = Callable[[Path], object]


def start_in_vain(*arguments: str, prefix: Sequence[str] = (), **environment: str) -> tuple[int, list[str]]:
    """Run `kompakt serve` that must end by itself: its status, and the lines it wrote."""
    kompakt = str(Path(sys.executable).with_name("kompakt"))
    command = [*prefix, kompakt, "serve", "--port", "0", "--http-port", "-1"]
    ended = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )
    assert ended.stdout == ""
    return ended.returncode, ended.stderr.splitlines()


def refusal(*arguments: str, prefix: Sequence[str] = ()) -> str:
    """The one line of a start that fails for want of something outside of the settings.

    Before it the log may tell of damaged places.
    """
    status, lines = start_in_vain(*arguments, prefix=prefix)
    assert status == 1
    told = [line for line in lines if "ERROR storage.trust: " not in line]
    assert len(told) == 1, lines
    assert told[0].startswith("kompakt cannot start: ")
    return told[0]


# What the broker needs and does not get


def test_every_bad_setting_is_one_line(tmp_path: Path) -> None:
    """Of the file, the environment and the flags; status 2."""
    properties = tmp_path / "server.properties"
    properties.write_text("no.such.key=1\nlog.retention.ms=soon\nlog.cleaner.min.compaction.lag.ms=-1\n")
    status, lines = start_in_vain(
        "--config", str(properties), "--set", "num.partitions=0", "--set", "nonsense",
        "--set", "listeners=nowhere",
        KAFKA_LOG_SEGMENT_BYTES="big", KAFKA_NO_SUCH_KEY_EITHER="1",
    )  # fmt: skip
    assert status == 2
    named = (
        "no.such.key:", "log.retention.ms", "log.cleaner.min.compaction.lag.ms", "num.partitions", "nonsense",
        "listeners", "log.segment.bytes", "no.such.key.either",
    )  # fmt: skip
    assert len(lines) == len(named), lines
    for name in named:
        assert sum(name in line for line in lines) == 1, (name, lines)
    assert all(line.startswith("kompakt: ") for line in lines)


def test_a_value_of_several_lines_is_refused_in_one() -> None:
    status, lines = start_in_vain("--set", "log.roll.ms=1\n2")
    assert (status, len(lines)) == (2, 1)
    assert "Invalid value 1\\n2 for configuration log.roll.ms" in lines[0]


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_settings_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    properties = tmp_path / "server.properties"
    if content is not None:
        properties.write_bytes(content)
    status, lines = start_in_vain("--config", str(properties))
    assert (status, len(lines)) == (2, 1)
    assert f"Cannot read {properties}" in lines[0]


def test_a_second_broker_on_the_directory_is_refused(tmp_path: Path) -> None:
    """T181: and the first one does not notice."""
    first = BrokerProcess(tmp_path / "data").start()
    try:
        assert "is in use by another broker" in refusal("--data", str(first.data))
        first.wait_until_ready()
        assert "ok" in first.http("/healthz")
        assert first.stop() == 0
    finally:
        first.close()


@pytest.mark.parametrize("other", ["data/.", "link"])
def test_a_directory_that_is_named_twice(tmp_path: Path, other: str) -> None:
    """It was said to be in use by another broker, for which one would look in vain."""
    (tmp_path / "link").symlink_to(tmp_path / "data")
    line = refusal("--data", str(tmp_path / "data"), "--data", f"{tmp_path}/{other}")
    assert "are one directory: name it once" in line
    assert "another broker" not in line


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/kompakt", "x" * 300])
def test_a_directory_that_cannot_be_one(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    line = refusal("--data", str(tmp_path / place))
    assert f"{tmp_path / place} cannot be used as a data directory" in line


@pytest.mark.parametrize("place", ["link", "link/data"])
def test_a_directory_whose_link_leads_to_nothing(tmp_path: Path, place: str) -> None:
    """Its disk is not mounted, most likely; "File exists" said the opposite."""
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    line = refusal("--data", str(tmp_path / place))
    assert (
        f"{tmp_path / 'link'} leads to {tmp_path / 'disk'}, which is not there: mount it, or make it" in line
    )


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o555)
    line = refusal("--data", str(directory), prefix=() if os.geteuid() else POWERLESS)
    assert f"{directory} cannot be used as a data directory" in line
    assert f"; user {os.geteuid()} of group {os.getegid()}, who runs this, has to own it" in line


def test_s33_the_customary_limit_of_files_is_raised_as_far_as_it_may(tmp_path: Path) -> None:
    """1024, as most shells have it, would be few connections."""
    broker = BrokerProcess(tmp_path / "data", prefix=["prlimit", "--nofile=256:2048"]).start()
    try:
        assert broker.process is not None
        assert resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE) == (2048, 2048)
    finally:
        broker.close()


def test_ports_in_use(tmp_path: Path) -> None:
    """The line names the listener, and the directory is left as it was: the ports are taken first, before a
    log is opened or a client answered.
    """
    first = BrokerProcess(tmp_path / "data").start()
    assert first.stop() == 0
    before = {path: path.stat().st_mtime_ns for path in first.data.rglob("*.log")}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        line = refusal("--data", str(first.data), "--port", port)
        assert f"cannot listen on PLAINTEXT://127.0.0.1:{port}: Address already in use" in line
        line = refusal("--data", str(first.data), "--http-port", port)
        assert f"cannot listen on http://127.0.0.1:{port}: Address already in use" in line
    port = str(free_port())
    line = refusal("--data", str(first.data), "--port", port, "--http-port", port)
    assert f"cannot listen on http://127.0.0.1:{port}: Address already in use" in line
    assert {path: path.stat().st_mtime_ns for path in first.data.rglob("*.log")} == before != {}
    assert (first.data / ".kafka_cleanshutdown").exists()
    assert verify_data_directory(first.data) == []
    first.close()


def test_a_host_that_does_not_exist(tmp_path: Path) -> None:
    address = "listeners=PLAINTEXT://no.such.host.invalid:9092"
    line = refusal("--data", str(tmp_path / "data"), "--set", address)
    assert "cannot listen on PLAINTEXT://no.such.host.invalid:0: " in line


# Damage


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that was left in order."""
    siege = Siege(tmp_path_factory.mktemp("pristine"), {"offsets.topic.num.partitions": "3"})
    try:
        asyncio.run(_fill(siege))
        assert siege.process.stop() == 0
        return Path(shutil.copytree(siege.process.data, siege.process.data.parent / "pristine"))
    finally:
        siege.process.close()


async def _fill(siege: Siege) -> None:
    client = await siege.connect()
    await siege.create_topic_on(client, TOPIC, segment_bytes=SET)
    answer = await client.ask(InitProducerIdRequest(transactional_id=None), 4)
    assert (answer.error_code, answer.producer_id) == (0, 0)
    await write_numbers(client, answer.producer_id, COUNT)
    await client.ask(FindCoordinatorRequest(coordinator_keys=["group"]), 4)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    request = OffsetCommitRequest(group_id="group", topics=[topic(name=TOPIC, partitions=[partition])])
    answer = await client.ask(request, 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    await siege.hang_up()


def look_after(
    pristine: Path, directory: Path, damage: Damage, *, was_killed: bool, committed: int = 7
) -> tuple[str, str]:
    """Damage a copy, start there, and find every record; the log, and the segment size that holds."""
    data = Path(shutil.copytree(pristine, directory / "data"))
    if was_killed:
        (data / ".kafka_cleanshutdown").unlink()
    damage(data)
    process = BrokerProcess(data).start()

    async def look() -> str:
        survivor = Survivor(await Client.connect("127.0.0.1", process.port))
        try:
            assert await survivor.keys() == [b"%d" % number for number in range(COUNT)]
            assert await survivor.committed() == committed
            await survivor.new_producer_writes()
            return await survivor.segment_bytes()
        finally:
            await survivor.client.close()

    try:
        segment_bytes = asyncio.run(look())
        assert process.stop() == 0
        log = process.log()
        assert "Traceback" not in log
        assert verify_data_directory(data) == []
    finally:
        process.close()
    return log, segment_bytes


@pytest.mark.parametrize("was_killed", [False, True], ids=["stopped", "killed"])
def test_undamaged(pristine: Path, tmp_path: Path, was_killed: bool) -> None:
    log, segment_bytes = look_after(pristine, tmp_path, lambda data: None, was_killed=was_killed)
    assert segment_bytes == SET
    assert " WARNING " not in log


@pytest.mark.parametrize("was_killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize(
    "content", [b"0", b"garbage\nx y z\n\xff", b"0\n99999999999\n", b"0\n1\nkept 0 999999\n"]
)
def test_t180_damaged_checkpoints(pristine: Path, tmp_path: Path, content: bytes, was_killed: bool) -> None:
    def damage(data: Path) -> None:
        for name in CHECKPOINTS if b"kept" not in content else CHECKPOINTS[:1]:
            (data / name).write_bytes(content)

    log, segment_bytes = look_after(pristine, tmp_path, damage, was_killed=was_killed)
    assert segment_bytes == SET
    if b"kept" not in content:
        assert sum("is damaged" in line for line in log.splitlines()) >= 2, log


@pytest.mark.parametrize("was_killed", [False, True], ids=["stopped", "killed"])
def test_strange_things_in_the_directory_are_left_alone(
    pristine: Path, tmp_path: Path, was_killed: bool
) -> None:
    """T182."""
    names = ("backup", "notes.txt", "kept-x", "kept-1.deadbeef-delete-not")

    def damage(data: Path) -> None:
        (data / names[0]).mkdir()
        (data / names[1]).write_text("notes")
        (data / names[2]).mkdir()
        (data / names[3]).mkdir()

    log, _ = look_after(pristine, tmp_path, damage, was_killed=was_killed)
    for name in names:
        assert sum(name in line for line in log.splitlines()) == 1, (name, log)


def metadata_segment(data: Path) -> Path:
    """The one that a test damages; a start that finds its end damaged makes another one behind it."""
    return min((data / METADATA).glob("*.log"))


def flip(position: float) -> Damage:
    """Turn a byte over at this part of the metadata segment."""

    def damage(data: Path) -> None:
        segment = metadata_segment(data)
        content = bytearray(segment.read_bytes())
        content[int(position * (len(content) - 1))] ^= 255
        segment.write_bytes(content)

    return damage


def cut(part: float) -> Damage:
    def damage(data: Path) -> None:
        segment = metadata_segment(data)
        content = segment.read_bytes()
        segment.write_bytes(content[: int(part * len(content))])

    return damage


DAMAGES: dict[str, Damage] = {
    "first byte": flip(0.02),
    "middle": flip(0.5),
    "last byte": flip(1),
    "cut in the middle": cut(0.5),
    "cut at the end": cut(0.99),
    "noise": lambda data: metadata_segment(data).write_bytes(b"\x93" * 500),
    "zeros": lambda data: metadata_segment(data).write_bytes(bytes(500)),
    "empty": cut(0),
    "no segment": lambda data: metadata_segment(data).unlink(),
    "no directory": lambda data: shutil.rmtree(data / METADATA),
}
SOME = {"middle", "cut at the end", "no segment"}
"""one of each kind; the others are left to the slow suite, for each starts several brokers"""
SOME_DAMAGES = [what if what in SOME else slow(what) for what in DAMAGES]


@pytest.mark.parametrize("what", SOME_DAMAGES)
def test_damaged_metadata_after_a_kill(pristine: Path, tmp_path: Path, what: str) -> None:
    """What is cut off is said; topics whose record is lost are found by their directories, with settings
    that delete nothing; no producer id is given twice.
    """
    log, segment_bytes = look_after(pristine, tmp_path, DAMAGES[what], was_killed=True)
    is_adopted = "adopted topic kept" in log
    assert segment_bytes == (UNSET if is_adopted else SET)
    if what not in ("empty", "no segment", "no directory"):
        assert "are no good batches and are cut off" in log
    else:
        assert is_adopted


@pytest.mark.parametrize("what", SOME_DAMAGES)
def test_damaged_metadata_after_a_clean_stop(pristine: Path, tmp_path: Path, what: str) -> None:
    """Nothing can have been torn then: the broker does not guess, it says what to do, and that works."""
    if what in ("empty", "no segment", "no directory"):
        log, _ = look_after(pristine, tmp_path, DAMAGES[what], was_killed=False)
        assert "adopted topic kept" in log
        return
    data = Path(shutil.copytree(pristine, tmp_path / "first"))
    DAMAGES[what](data)
    before = metadata_segment(data).read_bytes()
    for _ in range(2):
        line = refusal("--data", str(data))
        assert f"{data / METADATA} is damaged" in line
        assert "move it away" in line
    assert metadata_segment(data).read_bytes() == before

    def as_told(copy: Path) -> None:
        DAMAGES[what](copy)
        shutil.move(copy / METADATA, tmp_path / "away")

    log, _ = look_after(pristine, tmp_path, as_told, was_killed=False)
    assert "adopted topic kept" in log


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff\xfe\0", b"version=1\nnode.id=1\n"])
def test_damaged_meta_properties(pristine: Path, tmp_path: Path, content: bytes) -> None:
    """A guess would give the cluster another id: the broker says what is wrong instead."""
    data = Path(shutil.copytree(pristine, tmp_path / "data"))
    properties = data / "meta.properties"
    properties.write_bytes(content)
    assert f"{properties} is damaged: it has no cluster.id" in refusal("--data", str(data))
    assert properties.read_bytes() == content
    assert (data / ".kafka_cleanshutdown").exists(), "and a start that failed does not cost a recovery"


def test_meta_properties_of_a_newer_broker(pristine: Path, tmp_path: Path) -> None:
    """It was taken for one of ours, whatever the newer version means; it stays as it is."""
    data = Path(shutil.copytree(pristine, tmp_path / "data"))
    properties = data / "meta.properties"
    newer = properties.read_text().replace("version=1", "version=2")
    properties.write_text(newer)
    assert f"{properties} has version 2, and 0 and 1 are known here" in refusal("--data", str(data))
    assert properties.read_text() == newer
    assert verify_data_directory(data) == ["meta.properties: has the unknown version 2"]
    properties.write_text(newer.replace("version=2", "version=1"))
    assert verify_data_directory(data) == []
    assert (data / ".kafka_cleanshutdown").exists()


def test_missing_meta_properties_are_made_anew(pristine: Path, tmp_path: Path) -> None:
    log, segment_bytes = look_after(
        pristine, tmp_path, lambda data: (data / "meta.properties").unlink(), was_killed=False
    )
    assert segment_bytes == SET
    assert sum("meta.properties is missing beside partitions" in line for line in log.splitlines()) == 1


def test_a_directory_of_another_node(pristine: Path) -> None:
    assert "is of node 1, this is node 7: set node.id" in refusal(
        "--data", str(pristine), "--set", "node.id=7"
    )


def test_a_partition_that_cannot_be_opened_is_offline_alone(pristine: Path, tmp_path: Path) -> None:
    """The others serve, and its files are not touched."""
    data = Path(shutil.copytree(pristine, tmp_path / "data"))
    (data / f"{TOPIC}-0" / "00000000000000000000.log").unlink()
    (data / f"{TOPIC}-0" / "00000000000000000000.log").mkdir()
    process = BrokerProcess(data).start()
    try:

        async def look() -> None:
            client = await Client.connect("127.0.0.1", process.port)
            answer = await client.ask(fetch_request(TOPIC, 0), 12)
            assert answer.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert await Survivor(client).committed() == 7
            await client.close()

        asyncio.run(look())
        process.wait_until_ready()
        assert "degraded" in process.http("/healthz")
        assert process.stop() == 0
    finally:
        process.close()


@pytest.mark.parametrize("is_link", [False, True])
def test_what_stands_in_the_place_of_a_partition(pristine: Path, tmp_path: Path, is_link: bool) -> None:
    """A link to a disk that is not mounted, or a file: the line was 'File exists' or 'kept-0 exists', after
    one that said that the partition starts empty.
    """
    data = Path(shutil.copytree(pristine, tmp_path / "data"))
    place = data / f"{TOPIC}-0"
    shutil.move(place, tmp_path / "away")
    if is_link:
        place.symlink_to(tmp_path / "mounted")
        told = f"kompakt cannot start: {place} leads to nothing: mount what it leads to, or remove it"
    else:
        place.touch()
        told = f"kompakt cannot start: {place} is no directory: move it away"
    status, lines = start_in_vain("--data", str(data))
    assert status == 1
    assert lines[-1].startswith(told)
    assert not any("starts empty" in line for line in lines)
    (tmp_path / "away").rename(tmp_path / "mounted")
    if not is_link:
        place.unlink()
        place.symlink_to(tmp_path / "mounted")
    process = BrokerProcess(data).start()
    try:

        async def look() -> list[bytes | None]:
            survivor = Survivor(await Client.connect("127.0.0.1", process.port))
            found = await survivor.keys()
            await survivor.client.close()
            return found

        assert asyncio.run(look()) == [b"%d" % number for number in range(COUNT)]
        assert process.stop() == 0
    finally:
        process.close()


BEFORE_1970 = "import time\nreal = time.time_ns\ntime.time_ns = lambda: real() - 4_000_000_000_000_000_000\n"


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_a_clock_before_1970(tmp_path: Path, timestamp_type: str) -> None:
    """A machine without a battery: the broker serves, nothing expires, and a kill loses nothing."""
    (tmp_path / "sitecustomize.py").write_text(BEFORE_1970)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "0"}
    siege = Siege(tmp_path, settings, prefix=("env", f"PYTHONPATH={path}"))
    process = siege.process

    async def write() -> None:
        client = await siege.connect()
        await siege.create_topic_on(client, TOPIC, message_timestamp_type=timestamp_type)
        await write_numbers(client, 5, COUNT)
        await siege.hang_up()

    async def read() -> None:
        client = await siege.connect()
        survivor = Survivor(client)
        assert await survivor.keys() == [b"%d" % number for number in range(COUNT)]
        is_stamped = timestamp_type == "LogAppendTime"
        assert all((record.timestamp < -1) == is_stamped for record in await survivor.records())
        asked = ListOffsetsRequest.ListOffsetsTopic
        for timestamp, offset in ((-1, COUNT), (-2, 0)):
            partition = asked.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            answer = await client.ask(
                ListOffsetsRequest(topics=[asked(name=TOPIC, partitions=[partition])]), 7
            )
            assert answer.topics[0].partitions[0].offset == offset
        await siege.hang_up()

    try:
        asyncio.run(write())
        asyncio.run(read())
        process.kill()
        process.start()
        asyncio.run(read())
        assert process.stop() == 0
        assert "Traceback" not in process.log()
        assert verify_data_directory(process.data) == []
    finally:
        process.close()
