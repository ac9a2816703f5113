"""Goal: a commit finds the coordinator of its group, wherever it is and however long it takes to be there.

Method: the committer against a leader that answers as a new cluster does, which makes its topic of offsets
when it is first asked, and as a broker does whose groups have moved to another one.
"""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from spark_connector.commits import GroupCommitter
from spark_connector.offsets import TopicPartition
from spark_connector.options import parse_client_settings
from tests.spark.conftest import options_for
from tests.spark.fake_leader import FakeLeader


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR])
def test_a_coordinator_that_is_not_there_yet_is_asked_again(leader: FakeLeader, code: ErrorCode) -> None:
    """Else the last micro-batch of an AvailableNow would never show in a new cluster's group."""
    leader.commit_errors.extend([code, code])
    place = TopicPartition("t", 0)
    GroupCommitter(parse_client_settings(options_for(leader)), "g").commit({place: 5})
    assert leader.committed == [("g", {place: 5})]
