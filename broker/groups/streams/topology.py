"""What a Kafka Streams application runs, and which internal topics it needs for that. Pure.

The first member of a group says what the topology is; with the topics as they are it follows how many tasks
each subtopology has, how many partitions its repartition and changelog topics get, which of them are missing,
or what stands in the way. Mirrors Kafka's InternalTopicManager, RepartitionTopics, ChangelogTopics,
CopartitionedTopicsEnforcer (KIP-1071).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from broker.groups.streams.assignor import Work
from broker.topic import INTERNAL_TOPICS
from config.topic import topic_name_problem
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.internal_streams_groups import StreamsGroupTopologyValue
from protocol.messages.streams_groups import Subtopology, TopicInfo

SizeOf = Callable[[str], int | None]
"""the number of partitions of a topic; None where there is none of this name"""

SHOWN_TOPICS = 3
"""so many names of topics are told, the others are counted"""


class StatusCode(IntEnum):
    """What a member is told of its group with each heartbeat; the numbers are those of the answer."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Status(NamedTuple):
    """One thing that a member is told."""

    code: StatusCode
    detail: str


@dataclass(frozen=True, slots=True)
class Configured:
    """A topology on the topics as they are."""

    problem: Status | None = None
    """what stands in the way of an assignment"""
    tasks: Mapping[str, int] | None = None
    """number of tasks by subtopology; None where that cannot be said"""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """number of partitions of the internal topics, by name"""
    missing: Sequence[TopicInfo] = ()
    """internal topics that are not there yet"""


NOT_CONFIGURED = Configured()


class _Stopped(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        self.status = Status(code, detail)


def names_of(topology: Any) -> list[str]:
    """The names of all topics of a topology, as a request, a record or an answer has it."""
    names = (
        name
        for one in topology.subtopologies or ()
        for name in (
            *one.source_topics,
            *one.repartition_sink_topics,
            *(info.name for info in one.repartition_source_topics),
            *(info.name for info in one.state_changelog_topics),
        )
    )
    return list(dict.fromkeys(names))


def is_well_named(name: str) -> bool:
    """Whether an application may have a topic of this name."""
    return name not in INTERNAL_TOPICS and topic_name_problem(name) is None


def check_names(topology: StreamsGroupTopologyValue) -> None:
    """KafkaError (STREAMS_INVALID_TOPOLOGY) where a topic cannot be the application's."""
    names = [name for name in names_of(topology) if not is_well_named(name)]
    internal = ",".join(name for name in names if name in INTERNAL_TOPICS)
    if internal:
        raise _invalid(f"Use of Kafka internal topics {internal} in a Kafka Streams topology is prohibited.")
    if names:
        raise _invalid(f"Topic names {','.join(names)} are not valid topic names.")


def check_topology(topology: StreamsGroupTopologyValue) -> None:
    """KafkaError (STREAMS_INVALID_TOPOLOGY) where it makes no sense, whatever topics there are."""
    if topology.epoch < 0:
        raise _invalid(f"Topology epoch must be non-negative, it is {topology.epoch}.")
    names = [one.subtopology_id for one in topology.subtopologies]
    if len(set(names)) < len(names):
        raise _invalid(f"A subtopology is there twice: {', '.join(names)}.")
    for one in topology.subtopologies:
        for info in one.state_changelog_topics:
            if info.partitions:
                raise _invalid(
                    f"Changelog topic {info.name} must have an undefined partition count, but it is set to "
                    f"{info.partitions}."
                )
        for info in one.repartition_source_topics:
            if info.partitions < 0:
                raise _invalid(f"Repartition topic {info.name} cannot have {info.partitions} partitions.")
        for group in one.copartition_groups:
            for places, topics in (
                (group.source_topics, one.source_topics),
                (group.repartition_source_topics, one.repartition_source_topics),
            ):
                if any(not 0 <= place < len(topics) for place in places):
                    raise _invalid(
                        f"A copartition group of {one.subtopology_id} names a topic that is not there."
                    )


def configured(topology: StreamsGroupTopologyValue, size_of: SizeOf) -> Configured:
    """The topology with these topics. KafkaError (STREAMS_INVALID_TOPOLOGY): it can never be run."""
    try:
        return _configured(topology.subtopologies, size_of)
    except _Stopped as stopped:
        return Configured(stopped.status)


def _configured(subtopologies: Sequence[Subtopology], size_of: SizeOf) -> Configured:
    lost = {name for one in subtopologies for name in one.source_topics if size_of(name) is None}
    if lost:
        raise _Stopped(
            StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {some_of(sorted(lost))} are missing."
        )
    decided: dict[str, int] = {}

    def known(name: str) -> int:
        size = size_of(name)
        size = decided.get(name) if size is None else size
        if size is None:
            raise _invalid(f"Number of partitions must be set for topic {name}")
        return size

    decided |= _repartition_sizes(subtopologies, size_of)
    sources = _repartition_sources(subtopologies)
    names = frozenset(info.name for info in sources if info.partitions)
    fixed = _Fixed(names, list(dict.fromkeys(map(known, sorted(names)))))
    flexible = frozenset(info.name for info in sources) - names
    for group in _copartition_groups(subtopologies):
        decided |= _copartitioned(group, fixed, flexible, known)
    tasks = {}
    for one in sorted(subtopologies, key=lambda one: one.subtopology_id):
        most = max(map(known, sources_of(one)), default=0)
        if not most:
            raise _invalid(f"No source topics found for subtopology {one.subtopology_id}")
        tasks[one.subtopology_id] = most
        decided |= {info.name: most for info in one.state_changelog_topics}
    wanted = {info.name: info.partitions or decided[info.name] for info in internal_topics(subtopologies)}
    for name, size in wanted.items():
        found = size_of(name)
        if found not in (None, size):
            raise _Stopped(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {size}, found {found}",
            )
    missing = {info.name: info for info in internal_topics(subtopologies) if size_of(info.name) is None}
    problem = Status(
        StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {some_of(list(missing))}"
    )
    return Configured(problem if missing else None, tasks, wanted, list(missing.values()))


def internal_topics(subtopologies: Iterable[Subtopology]) -> Iterator[TopicInfo]:
    """The topics that the application needs for itself."""
    for one in subtopologies:
        yield from one.repartition_source_topics
        yield from one.state_changelog_topics


def topics_of(topology: StreamsGroupTopologyValue) -> frozenset[str]:
    """The names of all topics that are read or kept; not all of them need exist."""
    return frozenset(
        name
        for one in topology.subtopologies
        for name in (*sources_of(one), *(info.name for info in one.state_changelog_topics))
    )


def subtopologies_by_source(topology: StreamsGroupTopologyValue) -> dict[str, str]:
    """Which subtopology reads a topic."""
    return {name: one.subtopology_id for one in topology.subtopologies for name in sources_of(one)}


def work_of(topology: StreamsGroupTopologyValue, tasks: Mapping[str, int]) -> dict[str, Work]:
    """What there is to divide."""
    return {
        one.subtopology_id: Work(tasks[one.subtopology_id], bool(one.state_changelog_topics))
        for one in sorted(topology.subtopologies, key=lambda one: one.subtopology_id)
    }


def some_of(names: Sequence[str], rest: str = "additional topics") -> str:
    """Names for a message."""
    more = len(names) - SHOWN_TOPICS
    return ", ".join(names[:SHOWN_TOPICS]) + (f" and {more} {rest}" if more > 0 else "")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def sources_of(one: Subtopology) -> list[str]:
    """The names of the topics that a subtopology reads."""
    return [*one.source_topics, *(info.name for info in one.repartition_source_topics)]


def _repartition_sources(subtopologies: Iterable[Subtopology]) -> list[TopicInfo]:
    return [info for one in subtopologies for info in one.repartition_source_topics]


def _repartition_sizes(subtopologies: Sequence[Subtopology], size_of: SizeOf) -> dict[str, int]:
    """A repartition topic that does not say has as many partitions as the widest source of who writes it.

    As if one went through the subtopologies again and again, in their order, as Kafka does: each is looked at
    when it has a source whose size is known, by its turn.
    """
    sources = _repartition_sources(subtopologies)
    sizes = {info.name: info.partitions for info in sources if info.partitions}
    readers: dict[str, list[int]] = defaultdict(list)
    for place, one in enumerate(subtopologies):
        for info in one.repartition_source_topics:
            readers[info.name].append(place)
    found = [
        [size for size in map(size_of, dict.fromkeys(one.source_topics)) if size is not None]
        for one in subtopologies
    ]
    turns = [
        (0, place)
        for place, one in enumerate(subtopologies)
        if found[place] or any(info.name in sizes for info in one.repartition_source_topics)
    ]
    has_turn = {place for _, place in turns}
    while turns:
        turn, place = heapq.heappop(turns)
        one = subtopologies[place]
        known = [sizes[info.name] for info in one.repartition_source_topics if info.name in sizes]
        for name in one.repartition_sink_topics:
            if name not in sizes:
                sizes[name] = max(found[place] + known)
                for reader in readers[name]:
                    if reader not in has_turn:
                        has_turn.add(reader)
                        heapq.heappush(turns, (turn + (reader < place), reader))
    if any(name not in sizes for one in subtopologies for name in one.repartition_sink_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics. There may be loops in "
            "the topology that cannot be resolved."
        )
    if any(info.name not in sizes for info in sources):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source "
            "topic is never used as a sink topic."
        )
    return sizes


def _copartition_groups(subtopologies: Iterable[Subtopology]) -> Iterator[frozenset[str]]:
    for one in subtopologies:
        for group in one.copartition_groups:
            yield frozenset(
                [one.source_topics[place] for place in group.source_topics]
                + [one.repartition_source_topics[place].name for place in group.repartition_source_topics]
            )


class _Fixed(NamedTuple):
    """The repartition topics whose number of partitions the application says."""

    names: frozenset[str]
    sizes: Sequence[int]
    """what they have, each number once, that of the first name first"""


def _copartitioned(
    group: frozenset[str], fixed: _Fixed, flexible: frozenset[str], known: Callable[[str], int]
) -> dict[str, int]:
    """Give the repartition topics of a group the number of partitions that all of it must have."""
    if not group:
        return {}
    repartitioned, others = dict[str, int](), dict[str, int]()
    for name in sorted(group):
        is_ours = name in fixed.names or name in flexible
        (repartitioned if is_ours else others)[name] = known(name)
    sizes: Sequence[int] = [max(repartitioned.values(), default=0)]
    if others:
        sizes = list(dict.fromkeys(others.values()))
    elif fixed.names:
        sizes = fixed.sizes
    if len(sizes) > 1:
        shown = ", ".join(f"{name}={one}" for name, one in (others or repartitioned).items())
        raise _Stopped(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{shown}}}]",
        )
    (size,) = sizes
    for name, one in repartitioned.items():
        if name in fixed.names and one != size:
            raise _Stopped(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{one}] of repartition topic [{name}] doesn't match number of "
                f"partitions [{size}] of the source topic.",
            )
    return dict.fromkeys(repartitioned, size)
