"""Goal: a partition moves to another of `log.dirs` while clients read and write it, whatever comes between.

Method: a broker on two data directories whose copying is held up by a limit of one byte a second, so that a
move stands still until the limit is taken away; records are written, topics deleted, the broker stopped.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.moves import LAST_BYTES
from broker.transactions.markers import Markers
from broker.transactions.state import Status
from cleaner.states import Phase
from protocol.errors import ErrorCode
from protocol.messages.admin import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from protocol.messages.configs import IncrementalAlterConfigsRequest
from protocol.messages.produce import ProduceResponse
from storage import layout
from storage.layout import TopicPartition
from storage.log_copy import LogCopy
from storage.moving import LogMover
from tests.broker.client import Client, until
from tests.broker.conftest import World, fetch_request, produce_request
from tests.broker.transactions.producer import Transactional

KEY = TopicPartition("t", 0)
LIMIT = "replica.alter.log.dirs.io.max.bytes.per.second"
MakeWorld = Callable[..., Awaitable[World]]


class Disks:
    """A broker on the directories a and b, and an administrator."""

    def __init__(self, world: World, paths: list[Path], client: Client) -> None:
        self.world = world
        self.paths = paths
        self.client = client

    @property
    def broker(self) -> Any:
        return self.world.broker

    def place(self, key: TopicPartition = KEY) -> Path:
        (place,) = (path for path in self.paths if (path / str(key)).is_dir())
        return place

    def other(self, key: TopicPartition = KEY) -> Path:
        return self.paths[1 - self.paths.index(self.place(key))]

    def futures(self) -> list[str]:
        return [path.name for one in self.paths for path in one.iterdir() if path.name.endswith("-future")]

    async def ask_for(self, path: Path | str, key: TopicPartition = KEY, version: int = 2) -> ErrorCode:
        return (await self.ask_for_all({key: path}, version))[key]

    async def ask_for_all(
        self, wanted: dict[TopicPartition, Path | str], version: int = 2
    ) -> dict[TopicPartition, ErrorCode]:
        directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir
        dirs = [
            directory(
                path=str(path),
                topics=[directory.AlterReplicaLogDirTopic(name=key.topic, partitions=[key.partition])],
            )
            for key, path in wanted.items()
        ]
        answer = await self.client.ask(AlterReplicaLogDirsRequest(dirs=dirs), version)
        return {
            TopicPartition(topic.topic_name, one.partition_index): ErrorCode(one.error_code)
            for topic in answer.results
            for one in topic.partitions
        }

    async def limit(self, bytes_per_second: int) -> None:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        config = resource.AlterableConfig(name=LIMIT, config_operation=0, value=str(bytes_per_second))
        asked = resource(resource_type=4, resource_name=str(self.broker.node_id), configs=[config])
        answer = await self.client.ask(IncrementalAlterConfigsRequest(resources=[asked]), 1)
        assert answer.responses[0].error_code == 0

    async def fill(self, size_bytes: int, topic: str = "t") -> None:
        for _ in range(size_bytes // 500_000):
            answer = await self.world.produce(self.client, self.world.batch((b"k", b"v" * 500_000)), topic)
            assert answer.error_code == 0

    async def begin_and_stand_still(self) -> Path:
        """A move that has begun and does not end by itself; where it goes."""
        await self.limit(1)
        target = self.other()
        assert await self.ask_for(target) is ErrorCode.NONE
        await until(lambda: any(move.copy and move.copy.copied_bytes for move in self.broker.moves.all()))
        return target

    async def moved(self) -> None:
        await self.limit(0)
        await until(lambda: not self.broker.moves.all())


@pytest.fixture
async def disks(make_world: MakeWorld, tmp_path: Path) -> Disks:
    paths = [tmp_path / "a", tmp_path / "b"]
    world = await make_world(log_dirs=",".join(map(str, paths)))
    world.topic("t")
    return Disks(world, paths, await world.connect())


@pytest.mark.parametrize("version", [1, 2])
async def test_a_partition_moves_while_it_is_read_and_written(disks: Disks, version: int) -> None:
    world, target = disks.world, disks.other()
    await disks.fill(2 * LAST_BYTES)
    assert await disks.ask_for(target, version=version) is ErrorCode.NONE
    number = 0
    while disks.broker.moves.all():
        answer = await world.produce(disks.client, world.batch((b"n", b"%d" % number)))
        assert answer.error_code == 0
        number += 1
        assert await world.values(disks.client, offset=0)
    assert disks.place() == target
    assert disks.futures() == []
    offset = 2 * LAST_BYTES // 500_000
    assert await world.values(disks.client, offset=offset) == [b"%d" % one for one in range(number)]
    await world.restart()
    disks.client = await world.connect()
    assert await world.values(disks.client, offset=offset) == [b"%d" % one for one in range(number)]
    assert disks.place() == target


async def test_where_it_goes_and_how_far_it_has_come_is_told(disks: Disks) -> None:
    await disks.fill(2 * LAST_BYTES)
    end = disks.broker.partitions[KEY].log.log_end_offset
    target = await disks.begin_and_stand_still()
    answer = await disks.client.ask(DescribeLogDirsRequest(topics=None), 4)
    rows = {
        (result.log_dir, one.is_future_key): one
        for result in answer.results
        for topic in result.topics
        if topic.name == "t"
        for one in topic.partitions
    }
    assert set(rows) == {(str(disks.place()), False), (str(target), True)}
    future = rows[str(target), True]
    assert 0 < future.partition_size < rows[str(disks.place()), False].partition_size
    assert future.offset_lag == end
    await disks.moved()
    answer = await disks.client.ask(DescribeLogDirsRequest(topics=None), 4)
    assert not [
        one
        for result in answer.results
        for topic in result.topics
        for one in topic.partitions
        if one.is_future_key
    ]


async def test_a_fetch_that_waits_gets_what_comes_after_the_move(disks: Disks) -> None:
    world = disks.world
    await world.produce(disks.client, world.batch((b"k", b"before")))
    reader = await world.connect()
    asked = asyncio.create_task(reader.ask(fetch_request([("t", 0, 1)], max_wait_ms=60_000, min_bytes=1), 12))
    await until(lambda: bool(disks.broker.partitions[KEY].high_watermark_waiters))
    assert await disks.ask_for(disks.other()) is ErrorCode.NONE
    await until(lambda: not disks.broker.moves.all())
    if asked.done():  # the move ends the wait, as a move of the leader does
        (answer,) = (await asked).responses[0].partitions
        assert (answer.error_code, answer.records) == (0, b"")
    await world.produce(disks.client, world.batch((b"k", b"after")))
    assert await world.values(reader, offset=1) == [b"after"]


class LastStep:
    """The last step of moves, which waits until it may be done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_begun = asyncio.Event()
        self._may_end = asyncio.Event()
        loop, finish = asyncio.get_running_loop(), LogMover.finish

        def wait_and_finish(mover: LogMover, old: Any, copy: LogCopy) -> Any:
            loop.call_soon_threadsafe(self.has_begun.set)
            asyncio.run_coroutine_threadsafe(self._may_end.wait(), loop).result(60)
            return finish(mover, old, copy)

        monkeypatch.setattr(LogMover, "finish", wait_and_finish)

    def let_go(self) -> None:
        self._may_end.set()


@pytest.fixture
async def last_step(monkeypatch: pytest.MonkeyPatch) -> LastStep:
    return LastStep(monkeypatch)


async def test_producers_wait_while_the_copy_takes_the_place(disks: Disks, last_step: LastStep) -> None:
    """In order, whatever they asked for: one that is like the last one, one that is large, one without an
    answer. Readers do not.
    """
    world, producer, reader = disks.world, await disks.world.connect(), await disks.world.connect()
    for number in range(3):
        assert (await world.produce(producer, world.batch((b"k", b"%d" % number)), acks=1)).error_code == 0
    assert await disks.ask_for(disks.other()) is ErrorCode.NONE
    await last_step.has_begun.wait()
    large = b"large" * 100_000
    for value, acks in ((b"3", 1), (b"4", -1), (large, 1), (b"6", 0), (b"7", 1)):
        producer.send(produce_request([("t", 0, world.batch((b"k", value)))], acks), 9)
    asked = asyncio.create_task(producer.receive(ProduceResponse, 9))
    assert await world.values(reader) == [b"0", b"1", b"2"]
    other = await world.connect()
    world.topic("other")
    assert (await world.produce(other, world.batch((b"k", b"x")), "other")).error_code == 0
    assert not asked.done()
    last_step.let_go()
    answers = [(await asked)[1], *[(await producer.receive(ProduceResponse, 9))[1] for _ in range(3)]]
    placed = [answer.responses[0].partition_responses[0] for answer in answers]
    assert [(one.error_code, one.base_offset) for one in placed] == [(0, 3), (0, 4), (0, 5), (0, 7)]
    expected = [b"0", b"1", b"2", b"3", b"4", large, b"6", b"7"]
    assert await world.values(reader) == expected
    assert world.broker.metrics_state.requests[0] == 3 + 5 + 1
    await until(lambda: not disks.broker.moves.all())


async def test_who_hangs_up_while_held_up_is_forgotten(disks: Disks, last_step: LastStep) -> None:
    world, producer = disks.world, await disks.world.connect()
    assert await disks.ask_for(disks.other()) is ErrorCode.NONE
    await last_step.has_begun.wait()
    producer.send(produce_request([("t", 0, world.batch((b"k", b"v")))], -1), 9)
    assert await world.values(disks.client) == []
    await producer.close()
    last_step.let_go()
    await until(lambda: not disks.broker.moves.all())
    await until(lambda: world.broker.metrics_state.connections_open == 1)


async def test_a_topic_that_is_deleted_in_the_last_step_is_gone(disks: Disks, last_step: LastStep) -> None:
    assert await disks.ask_for(disks.other()) is ErrorCode.NONE
    await last_step.has_begun.wait()
    deleted = asyncio.create_task(disks.broker.deletions.delete("t"))
    await until(lambda: KEY not in disks.broker.partitions)
    last_step.let_go()
    await deleted
    assert KEY not in disks.broker.partitions
    assert KEY not in disks.broker.logs.logs
    await until(lambda: not [path for one in disks.paths for path in one.glob("t-0*")])
    disks.world.topic("t")
    assert await disks.world.values(disks.client) == []


@pytest.mark.parametrize("key", [KEY, TopicPartition("__transaction_state", 0)], ids=str)
async def test_a_transaction_ends_with_the_move_and_not_later(
    make_world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: TopicPartition
) -> None:
    """What cannot be written is tried again after 10 s, which the clock of this world never comes to."""
    paths = [tmp_path / "a", tmp_path / "b"]
    world = await make_world(log_dirs=",".join(map(str, paths)), transaction_state_log_num_partitions="1")
    world.topic("t")
    disks = Disks(world, paths, await world.connect())
    producer = await Transactional.begin(world)
    await producer.add(KEY)
    await producer.put(b"v")
    last_step = LastStep(monkeypatch)
    marked = asyncio.Event()
    write = Markers.write

    async def note_and_write(markers: Markers, *arguments: Any) -> None:
        marked.set()
        if key != KEY:  # its log is held when what was decided is on disk already
            assert await disks.ask_for(disks.other(key), key) is ErrorCode.NONE
            await last_step.has_begun.wait()
        await write(markers, *arguments)

    monkeypatch.setattr(Markers, "write", note_and_write)
    if key == KEY:
        assert await disks.ask_for(disks.other(key), key) is ErrorCode.NONE
        await last_step.has_begun.wait()
    ended = asyncio.create_task(producer.end(is_commit=True))
    await marked.wait()
    last_step.let_go()
    assert await ended is ErrorCode.NONE
    log = world.broker.partitions[KEY].log
    assert log.last_stable_offset == log.log_end_offset == 2
    assert world.broker.transactions.states["tx"].status is Status.COMPLETE_COMMIT
    assert await world.values(disks.client) == [b"v"]


async def test_a_stop_interrupts_and_the_next_start_goes_on(disks: Disks) -> None:
    await disks.fill(2 * LAST_BYTES)
    source, target = disks.place(), await disks.begin_and_stand_still()
    await disks.world.stop()
    assert disks.futures()
    assert disks.place() == source
    await disks.world.start()
    disks.client = await disks.world.connect()
    await disks.moved()
    assert disks.place() == target
    assert disks.futures() == []


async def test_naming_its_own_directory_calls_a_move_off(disks: Disks) -> None:
    await disks.fill(2 * LAST_BYTES)
    source = disks.place()
    await disks.begin_and_stand_still()
    assert disks.broker.cleaner.state_of(KEY).phase is Phase.PAUSED
    assert await disks.ask_for(source) is ErrorCode.NONE
    assert disks.broker.moves.all() == ()
    assert disks.futures() == []
    assert disks.place() == source
    assert disks.broker.cleaner.state_of(KEY).phase is Phase.IDLE
    assert await disks.ask_for(source) is ErrorCode.NONE  # where it is already
    assert disks.broker.moves.all() == ()


async def test_a_move_is_called_off_before_it_began(disks: Disks) -> None:
    source, target = disks.place(), disks.other()
    await disks.broker.moves.begin(KEY, str(target))
    assert disks.futures()
    await disks.broker.moves.give_up(KEY)
    assert disks.futures() == []
    assert disks.broker.moves.all() == ()
    await asyncio.gather(*(disks.broker.moves.begin(KEY, str(path)) for path in (target, source, target)))
    await until(lambda: not disks.broker.moves.all())
    assert disks.futures() == []
    assert disks.place() in (source, target)


async def test_asking_twice_is_one_move(disks: Disks) -> None:
    await disks.fill(2 * LAST_BYTES)
    target = await disks.begin_and_stand_still()
    (before,) = disks.broker.moves.all()
    assert await disks.ask_for(target) is ErrorCode.NONE
    assert disks.broker.moves.all() == (before,)
    await disks.moved()
    assert disks.place() == target


async def test_a_topic_is_deleted_in_the_middle_of_a_move_and_of_one_that_waits(disks: Disks) -> None:
    for name in ("first", "second"):
        disks.world.topic(name)
    await disks.fill(2 * LAST_BYTES)
    await disks.begin_and_stand_still()
    waiting = TopicPartition("second", 0)
    assert await disks.ask_for(disks.other(waiting), waiting) is ErrorCode.NONE
    assert len(disks.broker.moves.all()) == 2
    for name in ("second", "t"):
        await disks.broker.deletions.delete(name)
    assert disks.broker.moves.all() == ()
    assert disks.futures() == []
    disks.world.topic("t")
    assert await disks.ask_for(disks.other()) is ErrorCode.NONE
    await disks.moved()


async def test_a_partition_that_is_not_there_is_made_where_it_was_asked_for(disks: Disks) -> None:
    for name, path in (("new-a", disks.paths[0]), ("new-b", disks.paths[1])):
        key = TopicPartition(name, 0)
        assert await disks.ask_for(path, key) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        disks.world.topic(name)
        assert disks.place(key) == path


async def test_what_cannot_be_is_refused_with_kafkas_codes(
    disks: Disks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = TopicPartition("l" * 240, 0)
    offline = TopicPartition("gone", 0)
    for key in (long, offline):
        disks.world.topic(key.topic)
    disks.broker.partitions[offline].log.take_offline("a test")
    metadata = TopicPartition("__kompakt_metadata", 0)
    assert await disks.ask_for(tmp_path / "c") is ErrorCode.LOG_DIR_NOT_FOUND
    assert await disks.ask_for(disks.other(long), long) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await disks.ask_for(disks.other(metadata), metadata) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await disks.ask_for(disks.other(offline), offline) is ErrorCode.KAFKA_STORAGE_ERROR
    await disks.fill(1_000_000)
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr("broker.moves.shutil.disk_usage", lambda path: usage)
    assert await disks.ask_for(disks.other()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert disks.futures() == []
    assert disks.broker.moves.all() == ()


async def test_a_partition_named_for_two_directories_goes_to_the_last(disks: Disks) -> None:
    source, target = disks.place(), disks.other()
    directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topics = [directory.AlterReplicaLogDirTopic(name="t", partitions=[0])]
    dirs = [directory(path=str(path), topics=topics) for path in (target, source)]
    answer = await disks.client.ask(AlterReplicaLogDirsRequest(dirs=dirs), 2)
    assert [[one.error_code for one in topic.partitions] for topic in answer.results] == [[0]]
    assert disks.broker.moves.all() == ()
    assert disks.place() == source


async def test_a_move_that_fails_leaves_all_as_it_was(
    disks: Disks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world, source = disks.world, disks.place()

    def fail(copy: LogCopy, log: Any) -> None:
        raise OSError(28, "No space left on device")

    await world.produce(disks.client, world.batch((b"k", b"before")))
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(LogCopy, "finish", fail)
        assert await disks.ask_for(disks.other()) is ErrorCode.NONE
        await until(lambda: not disks.broker.moves.all())
    assert "t-0 does not move to" in caplog.text
    assert "No space left on device" in caplog.text
    assert disks.futures() == []
    assert disks.place() == source
    assert (await world.produce(disks.client, world.batch((b"k", b"after")))).error_code == 0
    assert await world.values(disks.client) == [b"before", b"after"]
    assert disks.broker.cleaner.state_of(KEY).phase is Phase.IDLE
    assert world.broker.metrics_state.internal_errors == 0
    assert await disks.ask_for(disks.other()) is ErrorCode.NONE
    await until(lambda: not disks.broker.moves.all())
    assert disks.place() != source


async def test_how_far_a_log_is_clean_comes_along(disks: Disks) -> None:
    cleaner, source, target = disks.broker.cleaner, disks.place(), disks.other()
    await disks.world.produce(disks.client, disks.world.batch((b"k", b"v")))
    cleaner.checkpoints.put(source, KEY, 1)
    assert await disks.ask_for(target) is ErrorCode.NONE
    await until(lambda: not disks.broker.moves.all())
    assert cleaner.checkpoints.offset_of(target, KEY) == 1
    assert cleaner.checkpoints.offset_of(source, KEY) is None
    assert layout.CLEANER_CHECKPOINT in {path.name for path in target.iterdir()}


async def test_groups_and_transactions_go_on(disks: Disks) -> None:
    world = disks.world
    await world.commit(disks.client)
    for index in range(2):
        key = TopicPartition("__consumer_offsets", index)
        target = disks.other(key)
        assert await disks.ask_for(target, key) is ErrorCode.NONE
        await until(lambda: not disks.broker.moves.all())
        assert disks.place(key) == target
    await world.commit(disks.client)
    await world.restart()
    disks.client = await world.connect()
    assert disks.broker.groups.groups["g"].offsets
