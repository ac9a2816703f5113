"""Goal: the image, the compose file and the dashboard speak of things that exist.

Method: no container engine is needed: the files are read, and every path, setting and metric that they name
is looked up where it is declared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from broker import metric_tables
from broker.metric import Kind, Metric
from config.load import load, read_environment

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKER = ROOT / "docker"
SUFFIXES = {
    Kind.GAUGE: ("",),
    Kind.COUNTER: ("_total",),
    Kind.HISTOGRAM: ("_sum", "_count", "_bucket"),
}
LIBRARY = {"process_resident_memory_bytes", "process_cpu_seconds_total"}


def exposed_names() -> set[str]:
    """Every sample name that /metrics can show."""
    tables = [value for value in vars(metric_tables).values() if isinstance(value, tuple)]
    rows: list[Metric[Any]] = [row for table in tables for row in table if isinstance(row, Metric)]
    return LIBRARY | {row.name + suffix for row in rows for suffix in SUFFIXES[row.kind]}


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:kafka|kompakt|process)_\w+", expression))


def expressions(value: Any) -> Iterator[str]:
    """Every query of a dashboard."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("expr", "definition") and isinstance(inner, str):
                yield inner
            else:
                yield from expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner)


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    dashboard = json.loads((DOCKER / "grafana/dashboards/compaction.json").read_text())
    asked = [names_in(expression) for expression in expressions(dashboard)]
    assert len(asked) > 30
    assert all(asked)
    assert set().union(*asked) <= exposed_names()


def test_the_dashboard_shows_every_figure_of_a_partitions_compaction() -> None:
    text = (DOCKER / "grafana/dashboards/compaction.json").read_text()
    shown = names_in(text)
    for row in metric_tables.PARTITION:
        assert any(name.startswith(row.name) for name in shown), row.name


def test_the_panels_do_not_overlap() -> None:
    dashboard = json.loads((DOCKER / "grafana/dashboards/compaction.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_alerts_ask_for_metrics_that_exist() -> None:
    rules = re.findall(r"expr: (.*)", (DOCKER / "alerts.yml").read_text())
    assert rules
    assert set().union(*(names_in(rule) for rule in rules)) <= exposed_names()


def test_the_image_copies_what_exists() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)
    names = [name for line in copied for name in line.split()[:-1]]
    assert {"broker", "cleaner", "config", "protocol", "storage", "pyproject.toml"} <= set(names)
    ignore = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    for name in names:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignore, name


def test_the_settings_of_image_and_compose_are_good() -> None:
    """G33: inside the network and outside, clients are told an address that they can reach."""
    image = (DOCKER / "Dockerfile").read_text()
    settings = dict(re.findall(r"^\s+(KAFKA_\w+)=([^\s\\]+)", image, re.MULTILINE))
    compose = dict(
        re.findall(r"^\s+(KAFKA_\w+): \"?([^\s\"]+)", (DOCKER / "compose.yml").read_text(), re.MULTILINE)
    )
    assert read_environment(settings)
    assert read_environment(compose)
    alone = load(environment=settings)
    assert (alone.endpoints[0].host, alone.endpoints[0].advertised_host) == ("", "localhost")
    assert alone.http_host == "0.0.0.0"
    together = load(environment={**settings, **compose})
    assert {(endpoint.advertised_host, endpoint.advertised_port) for endpoint in together.endpoints} == {
        ("localhost", 9092),
        ("kompakt", 19092),
    }


def test_the_image_does_not_run_as_root() -> None:
    lines = (DOCKER / "Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == ["kompakt"]
    assert any(line.startswith("HEALTHCHECK") for line in lines)


def test_the_health_check_is_in_the_image() -> None:
    """What it says is in `security/test_https.py`."""
    text = (DOCKER / "Dockerfile").read_text()
    place = re.search(r"^COPY docker/health.py (.*)$", text, re.MULTILINE)
    assert place is not None
    assert f'CMD ["python", "{place[1]}"]' in text


def test_mounted_files_exist() -> None:
    mounts = re.findall(r"^\s+- (\./[^:]+):", (DOCKER / "compose.yml").read_text(), re.MULTILINE)
    assert len(mounts) == 4
    assert all((DOCKER / mount).exists() for mount in mounts)
