"""Goal: the topics in which coordinators keep what they know move between disks while they write there, and
nothing is lost: no transaction is there by halves, no settled record goes to a share group again.

Method: transactional workers and members of a share group, as in the tests of power cuts, go on while a
partition of one of these topics is moved after the other, some before the last move is over.
"""

from __future__ import annotations

import json
import random
import urllib.request
from pathlib import Path

import pytest

from tests.crash.test_power_cut_share_groups import PLACES, SETTINGS, Member
from tests.crash.test_power_cut_transactions import Worker, check, wait_for_commits
from tests.kafka.share_player import SharePlayer
from tests.process import BrokerProcess
from tests.waiting import wait_for

MOVES = 150
MOVED = ("__transaction_state", "__consumer_offsets", "__share_group_state", "a")
PARTITIONS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
EVERYBODY = 3


@pytest.mark.slow
def test_state_topics_move_under_load(tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    broker = BrokerProcess(directories[0], {**SETTINGS, **PARTITIONS}, more_data=directories[1:]).start()
    broker.wait_until_ready()
    dice = random.Random(20261127)
    player = SharePlayer(broker.port)
    for topic in ("a", "b"):
        player.raw.create(topic, {"retention.ms": "-1"}, partitions=2)  # the workers' records are old
    player.prepare({})
    player.alter(dict.fromkeys(PLACES, 0))
    members = [Member(f"m{n}", broker, random.Random(dice.random()), player.ids) for n in range(EVERYBODY)]
    for member in members:
        member.start(members)
    workers = [Worker(f"w{n}", broker, random.Random(dice.random())) for n in range(EVERYBODY)]
    wait_for_commits(workers)
    at = dict.fromkeys(((topic, index) for topic in MOVED for index in range(2)), 0)
    for _ in range(MOVES):
        topic, index = dice.choice(list(at))
        at[topic, index] = 1 - at[topic, index]
        _move(broker, topic, index, directories[at[topic, index]])
        if dice.random() < 0.7:
            wait_for(lambda: not _moves(broker), "the moves")
    wait_for(lambda: not _moves(broker), "the moves")
    wait_for_commits(workers)
    for worker in workers:
        worker.finish()
    wait_for(lambda: [row[5] for row in player.offsets(*PLACES)[2]] == [0] * len(PLACES), "the share group")
    for member in members:
        member.finish()
    assert check(broker, workers, f"behind {MOVES} moves") > MOVES
    player.close()
    assert broker.stop() == 0
    assert "Traceback" not in broker.log()
    broker.close()


def _move(broker: BrokerProcess, topic: str, index: int, directory: Path) -> None:
    body = json.dumps({"directory": str(directory), "partition": index}).encode()
    url = f"http://127.0.0.1:{broker.http_port}/api/topics/{topic}/move"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request) as answer:
        rows = json.load(answer)["partitions"]
    assert not [row["error"] for row in rows if row.get("error")], rows


def _moves(broker: BrokerProcess) -> list[object]:
    """Those that are under way."""
    moves: list[object] = json.loads(broker.http("/api/broker"))["moves"]
    return moves
