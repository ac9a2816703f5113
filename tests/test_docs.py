"""Goal: the documents say what is there, all of it, and nothing else.

Method: what the code declares (messages, config keys, metrics, commands, promises shown by tests, struct
sizes of the file formats) is listed from the code and compared with the documents.
"""

from __future__ import annotations

import re
from pathlib import Path

from aiohttp import web

from broker.http.server import Api
from config.broker import BrokerConfig
from config.definition import rows_of
from config.harmless import HARMLESS_FAMILIES
from config.topic import TopicConfig
from tests import promises, reference

ROOT = Path(__file__).resolve().parent.parent


def test_every_promise_has_a_test_that_names_it() -> None:
    carried = promises.tests_by_number()
    missing = [number for number in promises.S_NUMBERS if f"S{number}" not in carried]
    assert missing == list(promises.LATER)


def test_every_case_of_compaction_is_shown() -> None:
    """No number missing, none pointing at nothing."""
    carried = promises.tests_by_number()
    wanted = {f"T{number}" for number in promises.COMPACTION}
    assert sorted(wanted - carried.keys()) == []
    unknown = [name for name in carried if not 1 <= int(name[1:]) <= promises.KNOWN[name[0]]]
    assert unknown == []


def test_the_table_of_promises_is_the_one_the_tests_carry() -> None:
    assert promises.current() == promises.render(), "run `python -m tests.promises`"


def test_the_reference_lists_every_api_config_key_metric_and_command() -> None:
    assert reference.REFERENCE.read_text() == reference.render(), "run `make docs`"


def test_the_reference_gives_bounds_to_the_last_digit() -> None:
    """1.04858e+06 bytes are not 1 MiB."""
    text = reference.REFERENCE.read_text()
    rows = rows_of(BrokerConfig) | rows_of(TopicConfig)
    for row in rows.values():
        (line, *_) = re.findall(rf"^\| `{re.escape(row.name)}` \|.*$", text, re.MULTILINE)
        for bound in (row.at_least, row.at_most, row.client_at_least):
            numbers = {float(number) for number in re.findall(r"[≥≤] (-?[\d.]+)(?=[, |])", line)}
            assert bound is None or row.one_of or bound in numbers, line


def test_the_reference_lists_the_families_of_keys_that_do_nothing() -> None:
    text = reference.REFERENCE.read_text()
    assert all(f"| `{family}*` |" in text for family in HARMLESS_FAMILIES)


def test_the_readme_names_every_command() -> None:
    readme = (ROOT / "README.md").read_text()
    for command in reference.commands():
        assert f"kompakt {command}" in readme, f"README.md does not show `kompakt {command}`"
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in targets:
        assert f"make {target}" in readme, f"README.md does not name `make {target}`"


def test_the_readme_begins_with_a_list_of_its_chapters() -> None:
    readme = (ROOT / "README.md").read_text()
    top, _, chapters = readme.partition("\n## ")
    headings = re.findall(r"^## (.+)$", f"## {chapters}", re.MULTILINE)
    anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    assert re.findall(r"\[([^]]+)\]\(#([^)]+)\)", top) == list(zip(headings, anchors, strict=True))


def test_the_readme_lists_every_question_over_http() -> None:
    router = web.UrlDispatcher()
    Api(None).add_to(router)  # type: ignore[arg-type]
    words = {"{topic}": "TOPIC", "{group}": "GROUP", "{partition}": "N"}
    routes = {
        (route.method, re.sub(r"{\w+}", lambda found: words[found[0]], route.resource.canonical))
        for route in router.routes()
        if route.resource and route.method != "HEAD"
    }
    rows = re.findall(r"^\| `(GET|POST) (/api/[\w/]+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert set(rows) == routes


def test_documents_name_only_files_that_exist() -> None:
    rooms = (
        "benchmarks|broker|cleaner|config|demo|docker|locks|protocol|pyspark_kompakt"
        "|spark_connector|storage|tests"
    )
    documents = (*ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md"), ROOT / "tests" / "README.md")
    for document in documents:
        for name in re.findall(rf"`((?:{rooms})/[\w/.-]+)`", document.read_text()):
            assert (ROOT / name).exists(), f"{document.name} names {name}, which is not there"
