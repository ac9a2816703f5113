"""Goal: `kompakt spark` and its commands know `-h`, as all commands do.

Method: click's own runner; nothing of Spark is started.
"""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from spark_connector.pipelines.cli import app


@pytest.mark.parametrize("command", [[], *([name] for name in app.commands)])
def test_help(command: list[str]) -> None:
    done = CliRunner().invoke(app, [*command, "-h"])
    assert (done.exit_code, done.output.startswith("Usage: ")) == (0, True), done.output
