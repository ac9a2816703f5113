"""Groups as `__consumer_offsets` has them come to life: at start, and when a log is opened anew."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, MutableMapping

from broker.groups import kinds, records
from broker.groups.commits import AnyGroup, Commits
from broker.groups.consumer import changes as consumer_changes
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.heartbeats import Heartbeats
from broker.groups.contents import SKIPPED, UNREADABLE, Contents
from broker.groups.kinds import Change, Protocol
from broker.groups.membership import Group
from broker.groups.rebalance import Rebalancer
from broker.groups.records import GroupKey
from broker.groups.share.heartbeats import ShareGroups
from broker.groups.streams import changes as streams_changes
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.heartbeats import StreamsGroups
from broker.node import Node

logger = logging.getLogger(__name__)

_Made = Mapping[Protocol, dict[str, list[Change]]]
"""what the records of groups say, by group id"""


class Restoring:
    """Owned by: event loop."""

    def __init__(
        self,
        node: Node,
        groups: MutableMapping[str, AnyGroup],
        rebalancer: Rebalancer,
        commits: Commits,
        heartbeats: Heartbeats,
        shared: ShareGroups,
        streams: StreamsGroups,
    ) -> None:
        self._node = node
        self._groups = groups
        self._rebalancer = rebalancer
        self._commits = commits
        self._heartbeats = heartbeats
        self._shared = shared
        self._streams = streams

    def apply(self, contents: Contents) -> set[AnyGroup]:
        """Take in all that a partition says of its groups; their members have their whole time again. Those
        with offsets.
        """
        now_ms = self._node.clock.now_ms()
        made: _Made = {protocol: defaultdict(list) for protocol in Protocol}
        for group_id, commits in contents.committed.items():
            self._known_or_new(group_id, now_ms).offsets.load_all(commits)
        for key, value in contents.groups.items():
            try:
                if isinstance(key, GroupKey):
                    self._restore(records.read_group(key.group_id, value, now_ms))
                else:
                    change = kinds.read_change(key, value)
                    made[key.protocol][key.group_id] += [change] if change else []
            except UNREADABLE as error:
                logger.warning(SKIPPED, key, error)
        self._put_modern_groups(made)
        self._apply_undecided(contents, now_ms)
        for group in self._groups.values():
            if isinstance(group, Group) and len(group.members) > self._node.config.group_max_size:
                self._rebalancer.start_if_possible(group, "more members than group.max.size")
        undecided = {key.group_id for entries in contents.undecided.values() for key, _ in entries}
        return {self._groups[group_id] for group_id in contents.committed.keys() | undecided}

    def _put_modern_groups(self, made: _Made) -> None:
        for group_id, of_consumers in made[Protocol.CONSUMER].items():
            consumers = ConsumerGroup(group_id, self._node.config.group_consumer_assignors)
            consumer_changes.apply(consumers, of_consumers)
            self._put(consumers)
            self._heartbeats.resume(consumers)
        for group_id, of_streams in made[Protocol.STREAMS].items():
            streams = StreamsGroup(group_id)
            streams_changes.apply(streams, of_streams)
            self._put(streams)
            self._streams.resume(streams)
        for group_id, shared in made[Protocol.SHARE].items():
            self._shared.restore(group_id, shared)

    def _apply_undecided(self, contents: Contents, now_ms: int) -> None:
        for producer_id, entries in contents.undecided.items():
            for key, commit in entries:
                group = self._known_or_new(key.group_id, now_ms)
                self._commits.append_undecided(group, producer_id, key.topic_partition, commit)

    def _restore(self, group: Group) -> None:
        self._put(group)
        for member in group.members.values():
            self._rebalancer.touch(member, group)

    def _put(self, group: AnyGroup) -> None:
        """In the place of what is known of it, with the offsets that are."""
        known = self._groups.get(group.group_id)
        if known is not None:
            known.stop_timers()
            group.offsets = known.offsets
        self._groups[group.group_id] = group

    def _known_or_new(self, group_id: str, now_ms: int) -> AnyGroup:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id, now_ms)
        return group
