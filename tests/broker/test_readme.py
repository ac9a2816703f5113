"""Goal: what the README has a newcomer type does what stands beside it.

Method: its first script is taken out of it and run against a broker process; then the files are asked.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from broker.cli import app
from storage.dump import dump
from tests.process import BrokerProcess

README = (Path(__file__).parents[2] / "README.md").read_text()
BEGIN, END = "    from confluent_kafka import Consumer, Producer\n", "# 0 b'EURUSD' b'1.10'\n"
EXACTLY_ONCE = "    worker = Producer(", "  # or abort_transaction()\n"


FORMAT = (Path(__file__).parents[2] / "FORMAT.md").read_text()
OF_OTHER_CASES = {  # a log was cleaned, records were deleted
    "cleaner-offset-checkpoint",
    "cleaner-offset-witness",
    "log-start-offset-checkpoint",
    "log-start-offset-witness",
}


def _assert_it_is_as_format_says(directory: Path) -> None:
    """The files of a data directory are those of FORMAT.md's picture of one."""
    named = set(re.findall(r"^      (\S+[^/\s]) {2,}\S", FORMAT, re.MULTILINE))
    assert named >= OF_OTHER_CASES
    present = {path.name for path in directory.iterdir() if path.is_file()}
    assert named - OF_OTHER_CASES <= present <= named


def test_the_first_script_does_what_its_comments_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = textwrap.dedent(README[README.index(BEGIN) : README.index(END) + len(END)])
    process = BrokerProcess(tmp_path / "data").start()
    try:
        names: dict[str, Any] = {}
        exec(script.replace("127.0.0.1:9092", process.bootstrap), names)
        begin, end = map(README.index, EXACTLY_ONCE)
        exec(textwrap.dedent(README[begin:end]), names)
        places = names["consumer"].committed(names["consumer"].assignment(), 60)
        assert [place.offset for place in places] == [1], "what was read"
        names["consumer"].close()
        names.clear()
        assert process.stop() == 0
        assert capsys.readouterr().out == "0 b'EURUSD' b'1.10'\n"
        rows = list(dump(tmp_path / "data" / "prices-0" / "00000000000000000000.log"))
        assert [row["record_count"] for row in rows][-2:] == [1, 1], "a transaction's record and its marker"
        assert sum(row["record_count"] for row in rows) == 5
        assert all(row["producer_id"] is not None for row in rows), "the producer is idempotent"
        monkeypatch.chdir(tmp_path)
        verified = CliRunner().invoke(app, ["verify", "./data"])
        assert (verified.exit_code, verified.stdout) == (0, "data is in order\n")
        _assert_it_is_as_format_says(tmp_path / "data")
        assert f"$ kompakt verify ./data\n    {verified.stdout}" in README
    finally:
        process.close()
