"""Goal: a person with a browser sees in the console what is true of the broker, can do what it offers, and
nothing that stands in a record can do anything to the page.

Method: an unmodified Chromium on a broker process whose topics librdkafka writes and reads. What is shown is
compared with what clients see; a click's effect is asked of the broker. Any error in the browser's log fails.
"""

from __future__ import annotations

import asyncio
import json
import tomllib
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from broker.console import STATIC, TYPES
from broker.testing import Kompakt
from tests.console.browser import Page, browser_path, browsing
from tests.process import BrokerProcess
from tests.waiting import wait_for

START_MS = 1_700_000_000_000
FIELDS = ("textbox", "searchbox", "combobox", "checkbox", "button")
TURNED = "\u202etheir order\u202c"
EVIL = "<img src=x onerror=document.title='evil'><script>document.title='evil'</script>"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """prices: compacted, 3 partitions, ten values each of 30 keys, one deleted; groups old and next."""
    browser_path()
    directory = tmp_path_factory.mktemp("console")
    settings = {
        "log.cleaner.backoff.ms": "100000000",
        "replica.alter.log.dirs.io.max.bytes.per.second": "1",  # so that a move lasts
    }
    process = BrokerProcess(directory / "data", settings, more_data=[directory / "more"]).start()
    try:
        process.wait_until_ready()
        fill(process)
        yield process
    finally:
        process.close()


def fill(process: BrokerProcess) -> None:
    new = [NewTopic(name, 3, config={"cleanup.policy": "compact"}) for name in ("prices", "told")]
    new += [
        NewTopic("people", 1, config={"cleanup.policy": "compact"}),
        NewTopic("payments", 1),
        NewTopic("_schemas", 1),
        NewTopic("tail", 1),
    ]
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    for made in admin.create_topics(new).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": process.bootstrap})
    for turn in range(10):
        for key in range(30):
            producer.produce(
                "prices", f"{turn}.{key:02}", f"key-{key:02}", key % 3, timestamp=START_MS + turn
            )
    producer.produce("prices", None, "key-07", 1, timestamp=START_MS + 99)
    for name, value in (
        (EVIL, EVIL),
        (TURNED, TURNED),
        (b"\x00\xff", b"\xfe\x00"),
        ("long", "x" * 20_000),
        ("", ""),
        ("null", None),
    ):
        producer.produce("told", value, name, 0, timestamp=START_MS, headers=[("trace", EVIL)])
    assert producer.flush(60) == 0
    commit(process, "old", 5)
    commit(process, "next", 7)


@pytest.fixture
async def page(broker: BrokerProcess, tmp_path: Path) -> AsyncIterator[Page]:
    async with browsing(tmp_path / "profile") as found:
        yield found
        assert await found.evaluate("document.title !== 'evil'")


async def show(page: Page, broker: BrokerProcess, view: str) -> None:
    await page.open("about:blank")  # else the view before is there until this one has its answer
    await page.open(f"http://127.0.0.1:{broker.http_port}/console/#/{view}")


def api(broker: BrokerProcess, path: str) -> Any:
    return json.loads(broker.http(f"/api/{path}"))


def post(broker: BrokerProcess, path: str, body: object) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{broker.http_port}/api/{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


def commit(broker: BrokerProcess, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition("prices", 0, offset)], asynchronous=False)
    consumer.close()


def test_the_distribution_has_every_file_of_the_console() -> None:
    project = tomllib.loads((STATIC.parent.parent.parent / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["broker.console"]
    packed = {path for pattern in patterns for path in STATIC.parent.glob(pattern) if path.is_file()}
    assert packed == {path for path in STATIC.rglob("*") if path.is_file()}
    assert {path.suffix for path in packed} == set(TYPES)


# What is shown


async def test_a_partition_on_its_way_to_another_disk(page: Page, broker: BrokerProcess) -> None:
    directories = [broker.data, *broker.more_data]
    there = next(path for path in directories if not (path / "told-0").exists())

    def ask(directory: Path) -> None:
        body = json.dumps({"directory": str(directory), "partition": 0}).encode()
        url = f"http://127.0.0.1:{broker.http_port}/api/topics/told/move"
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
            assert "error" not in json.load(answer)["partitions"][0]

    await asyncio.to_thread(ask, there)
    await show(page, broker, "broker")
    await page.sees(f"told-0 moves to {there}: ")
    await asyncio.to_thread(ask, next(path for path in directories if path != there))


async def test_topics_and_the_way_to_one(page: Page, broker: BrokerProcess) -> None:
    """From the bare address: the list, a filter, the internal topics, a topic."""
    await page.open(f"http://127.0.0.1:{broker.http_port}")
    await page.sees("prices", "compact", "_schemas", "policy", "all that is dirty is in the active segment")
    rows = {row[0]: row for row in await page.rows()}
    assert rows["prices"][1:4] == ["compact", "3", "301"]
    assert "__kompakt_metadata" not in rows
    await page.click("prices")
    await page.sees("Partitions", "Compaction", "high watermark")
    ends = [row[3] for row in await page.rows("main .scroll:first-of-type table")]
    assert ends[:3] == ["100", "101", "100"]
    assert await page.evaluate("document.title") == "topics · prices – kompakt"


async def test_a_list_follows_what_happens(page: Page, broker: BrokerProcess) -> None:
    """Without a click: a topic that is made shows up by itself."""
    await show(page, broker, "topics")
    await page.sees("prices")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    await asyncio.to_thread(admin.create_topics([NewTopic("later", 1)])["later"].result, 60)
    await page.sees("later")


async def test_why_a_topic_is_not_compacted_and_compacting_it(page: Page, broker: BrokerProcess) -> None:
    """The broker's own sentence; a dry run, which changes nothing; then for good, after a question."""
    before = api(broker, "topics/prices/segments")
    await show(page, broker, "topics/prices/compaction")
    sentence = api(broker, "topics/prices/explain")["partitions"][0]["sentence"]
    await page.sees(sentence.replace("`", ""), "It was never cleaned here.")
    await page.fill("roll", "1")
    await page.click("Dry run")
    await page.sees("Partition 0: 100 → 10 records", "removed: 90 superseded", "nothing was written")
    assert api(broker, "topics/prices/segments")["partitions"] == before["partitions"]
    await page.fill("set", "min.compaction.lag.ms=99999999999")
    await page.click("Dry run")
    await page.sees("holds a record younger than min.compaction.lag.ms")
    await page.fill("set", "nonsense")
    await page.click("Dry run")
    await page.sees("nonsense is no KEY=VALUE")
    await page.click("Compact now")
    await page.sees("all partitions of prices", "for good", selector="dialog")
    await page.click("Cancel", "dialog")
    assert not api(broker, "topics/prices/history")["partitions"][0]["runs"]
    await page.click("Compact now")
    await page.click("Compact", "dialog")
    await page.sees("Partition 0: 100 → 10 records", "Partition 2: 100 → 10 records")
    runs = api(broker, "topics/prices/history")["partitions"]
    assert [one["runs"][0]["records_after"] for one in runs] == [10, 10, 10]
    await show(page, broker, "broker")
    await page.sees("The last cleanings", "prices-2", "asked for", "90 superseded")


async def test_segments_and_where_groups_stand(page: Page, broker: BrokerProcess) -> None:
    await show(page, broker, "topics/prices/segments")
    await page.sees("Partition 0", "Partition 2", "active", "00000000000000000000.log")
    answer = api(broker, "topics/prices/segments")["partitions"][0]["segments"]
    bars = await page.evaluate("document.querySelector('svg.strip').querySelectorAll('rect').length")
    assert bars == len(answer)
    names = await page.evaluate(
        "Array.from(document.querySelector('svg.strip').querySelectorAll('g text'), (one) => one.textContent)"
    )
    assert set(names) >= {"log start", "first dirty", "last stable", "end", "old"}


async def test_the_table_of_a_topic(page: Page, broker: BrokerProcess) -> None:
    """The last value of each key; what is deleted only where it is asked for."""
    await show(page, broker, "topics/prices/table")
    await page.sees("key-00", "9.29")
    rows = await page.rows()
    assert [row[:2] for row in rows] == [[f"key-{key:02}", f"9.{key:02}"] for key in range(30) if key != 7]
    await page.fill("tombstones", "1")
    await page.fill("prefix", "key-0")
    await page.click("Show")
    rows = await page.has_rows(10)
    assert [row[0] for row in rows] == [f"key-0{key}" for key in range(10)]
    assert rows[7][1] == "deleted"


async def test_a_partition_that_was_chosen_stays_chosen(page: Page, broker: BrokerProcess) -> None:
    for view in ("records", "table"):
        await show(page, broker, f"topics/prices/{view}?partition=2")
        await page.until("document.querySelector('[name=partition]')?.value === '2'")
        await page.click("Show")
        await page.until("location.hash.includes('partition=2')")


async def test_records_and_their_pages(page: Page, broker: BrokerProcess) -> None:
    """Nothing that a client wrote becomes a part of the page; bytes that are no text are shown in hex."""
    await show(page, broker, "topics/told/records")
    await page.sees("0x00ff", "0xfe00", "(20 000 bytes)", EVIL, "trace=", r"\u{202e}their order\u{202c}")
    assert (await page.rows())[5][3] == "null"
    assert await page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    await page.fill("contains", "fe00")
    await page.click("Show")
    await page.sees("No record is there.")


async def test_finding_a_key_and_a_place(page: Page, broker: BrokerProcess) -> None:
    await show(page, broker, "topics/told/find")
    await page.fill("at", "0")
    await page.click("Explain")
    await page.sees("this is the active segment")
    await show(page, broker, "topics/prices/find")
    await page.sees("prices", selector="main h1")
    await page.fill("key", "key-07")
    await page.click("Find", "form")
    await page.sees("deleted", "key filters ruled out")
    await page.fill("key", "")
    await page.click("Find", "form")
    await page.sees("No record has this key.")
    await page.fill("at", "50")
    await page.click("Explain")
    steps = api(broker, "topics/prices/partitions/0/seek?offset=50")["steps"]
    await page.sees(*steps)
    await page.fill("by", "time")
    await page.fill("at", "1")
    await page.click("Explain")
    found = api(broker, "topics/prices/partitions/0/seek?time=1")
    await page.sees(*found["time_steps"], *found["steps"])
    await page.fill("by", "offset")
    await page.fill("at", "5000000")
    await page.click("Explain")
    await page.sees("offset 5000000")
    page.errors.clear()


async def test_w11_a_key_is_erased(page: Page, broker: BrokerProcess) -> None:
    """After a question; the receipt is shown, and no client sees a value any more."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(3):
        producer.produce("people", f"secret {number}", "alice")
    assert await asyncio.to_thread(producer.flush, 60) == 0
    await show(page, broker, "topics/people/find")
    await page.fill("key", "alice")
    await page.click("Find", "form")
    await page.sees("secret 2")
    await page.click("Erase")
    await page.sees("Erase alice from people?", "cannot be undone", selector="dialog")
    await page.click("Erase it", "dialog")
    await page.sees("no file holds a value of the key; there were 3", "Its tombstone, offset 3")
    versions = api(broker, "topics/people/get?key=alice&history=1")["partitions"][0]["versions"]
    assert [one["is_tombstone"] for one in versions] == [True]


async def test_records_as_they_come(page: Page, broker: BrokerProcess) -> None:
    await show(page, broker, "topics/tail/records?from=tail")
    await page.sees("Nothing has come yet.")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(3):
        producer.produce("tail", f"event {number}")
        assert await asyncio.to_thread(producer.flush, 60) == 0
        await page.sees(f"event {number}")
    assert [row[3] for row in await page.rows()] == ["event 2", "event 1", "event 0"]


async def test_settings_and_whence_they_are(page: Page, broker: BrokerProcess) -> None:
    await show(page, broker, "topics/prices/settings")
    await page.sees("cleanup.policy", "min.cleanable.dirty.ratio")
    rows = {row[0]: row[1:] for row in await page.rows()}
    assert rows["cleanup.policy"] == ["compact", "topic", "delete"]
    assert rows["retention.ms"][1:] == ["default", ""]


# Groups and transactions


async def test_a_group_with_members_and_its_reset(page: Page, broker: BrokerProcess) -> None:
    """Who has what and how much is left; when its members are gone it can be sent elsewhere."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "dashboard", "auto.offset.reset": "earliest",
         "enable.auto.commit": False}
    )  # fmt: skip
    consumer.subscribe(["prices"])
    messages = await asyncio.to_thread(consumer.consume, 20, 60)
    assert len(messages) == 20
    await asyncio.to_thread(consumer.commit, asynchronous=False)
    await show(page, broker, "groups")
    await page.click("dashboard")
    await page.sees("Stable", "rdkafka", "prices-0 prices-1 prices-2", "stop them first")
    expected = {
        f"{one['topic']}-{one['partition']}": one for one in api(broker, "groups/dashboard")["offsets"]
    }
    rows = {row[0]: row for row in await page.rows("main .scroll:first-of-type table")}
    for name in ("prices-0", "prices-1", "prices-2"):
        assert rows[name][4] == str(expected[name].get("records_left", "–"))
    await asyncio.to_thread(consumer.close)
    await page.sees("Nobody is in it now.", "Read on elsewhere")
    await page.fill("to", "latest")
    await page.evaluate("document.querySelector('main table').dataset.old = 'yes'")
    await page.until("document.querySelector('main table:not([data-old])') !== null")  # made anew meanwhile
    assert await page.evaluate("document.querySelector('[name=to]').value") == "latest"
    await page.click("Preview")
    await page.sees("will read from")
    assert api(broker, "groups/dashboard")["offsets"] != []
    ends = [one["high_watermark"] for one in api(broker, "topics/prices")["partitions"]]
    assert [row[2] for row in await page.rows("main .said table")] == [str(end) for end in ends]
    await page.click("Reset")
    await page.sees("Let dashboard read prices from the end on?", selector="dialog")
    await page.click("Reset", "dialog")
    await page.until(
        "Array.from(document.querySelectorAll('main > section > .scroll:first-of-type tbody tr'))"
        ".every((row) => row.cells[3].innerText === '0')"
    )
    assert await page.rows("main .said table") != []
    wait_for(
        lambda: [one["lag"] for one in api(broker, "groups/dashboard")["offsets"]] == [0, 0, 0], "the reset"
    )
    await page.fill("to", "offset")
    await page.fill("value", "many")
    await page.click("Preview")
    await page.sees("must be of type int")
    page.errors.clear()  # the browser logs each refusal


async def test_a_group_whose_name_a_path_does_not_hold(page: Page, broker: BrokerProcess) -> None:
    """A browser takes `..` and what stands before it out of every path."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": ".."})
    consumer.commit(offsets=[TopicPartition("payments", 0, 7)], asynchronous=False)
    consumer.close()
    await show(page, broker, "groups")
    await page.click("..")
    await page.sees("payments-0", "Read on elsewhere")
    assert await page.evaluate("document.querySelector('h1').innerText") == ".."
    await page.click("Reset")
    await page.click("Reset", "dialog")
    await page.sees("will read from")
    assert [one["committed_offset"] for one in api(broker, "group?group=..")["offsets"]] == [0]


async def test_an_open_transaction_is_shown_and_aborted(page: Page, broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "pay"})
    await asyncio.to_thread(producer.init_transactions, 60)
    for is_commit in (True, False):
        producer.begin_transaction()
        producer.produce("payments", "committed" if is_commit else "aborted", "k")
        assert await asyncio.to_thread(producer.flush, 60) == 0
        await asyncio.to_thread(producer.commit_transaction if is_commit else producer.abort_transaction, 60)
    producer.begin_transaction()
    producer.produce("payments", "open", "k")
    assert await asyncio.to_thread(producer.flush, 60) == 0
    await show(page, broker, "topics/payments/records")
    await page.sees("committed")
    assert [row[3] for row in await page.rows()] == ["committed"]
    await page.fill("hidden", "1")
    await page.click("Show")
    assert [row[5] for row in await page.has_rows(5)] == [
        "",
        "marker: commit",
        "aborted",
        "marker: abort",
        "undecided",
    ]
    await show(page, broker, "transactions")
    await page.sees("payments-0", "pay", "Ongoing")
    await page.click("Abort")
    await page.sees("is fenced", selector="dialog")
    await page.click("Abort it", "dialog")
    await page.sees("No transaction is open.", "CompleteAbort")


async def test_who_is_held_back_and_which_quota_holds(page: Page, broker: BrokerProcess) -> None:
    """A client id is what a client says, whatever it is."""
    await show(page, broker, "quotas")
    await page.sees("Nobody had to wait.", "There are no quotas.")
    greedy = f"greedy{TURNED}"
    quotas = (
        ({"client-id": greedy}, {"producer_byte_rate": 10_000}),
        ({"user": None, "client-id": None}, {"request_percentage": 99.5}),
    )
    for entity, values in quotas:
        await asyncio.to_thread(post, broker, "quotas/set", {"entity": entity, "values": values})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": greedy})
    for _ in range(500):
        producer.produce("bursts", bytes(1000))
    assert await asyncio.to_thread(producer.flush, 60) == 0
    shown = r"greedy\u{202e}their order\u{202c}"
    await page.sees(f"client-id '{shown}'", "the default user-principal, the default client-id", "99.5 %")
    rows = await page.rows()
    assert rows[0][1:3] == ["producer_byte_rate", "10 000 bytes/s"]
    assert rows[0][3].endswith(" bytes/s")
    assert rows[0][4].endswith((" s", " min")), "it waits now"
    await page.click(f"client-id '{shown}'")
    await page.sees("held back for", "8. the default client-id", "1. user-principal 'ANONYMOUS', client-id")
    assert await page.evaluate("document.querySelector('[name=client-id]').value") == greedy
    await page.fill("ip", "10.0.0.7")
    await page.click("Explain")
    await page.sees("1. ip '10.0.0.7'", "connection_creation_rate: No quota holds")
    await page.fill("ip", "nowhere")
    await page.click("Explain")
    await page.sees("'nowhere' is no address")
    await page.click("Quotas")
    await page.until("document.querySelector('main').innerText.includes('nowhere') === false")
    page.errors.clear()  # the browser logs each refusal
    for entity, _ in quotas:
        await asyncio.to_thread(post, broker, "quotas/remove", {"entity": entity})
    await page.sees("none any more", "There are no quotas.")


# A broker with rules


async def test_a_person_says_who_it_is_and_sees_what_that_user_may(page: Page, tmp_path: Path) -> None:
    """The browser asks, once; what the user has no right to is said in words."""
    settings = {
        "listeners": "SECURE://127.0.0.1:{port}",
        "listener.security.protocol.map": "SECURE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'user_alice="secret" user_root="top";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root",
    }
    secured = BrokerProcess(tmp_path / "data")
    secured.settings = {name: text.replace("{port}", str(secured.port)) for name, text in settings.items()}
    await asyncio.to_thread(secured.start)
    try:
        await asyncio.to_thread(secured.wait_until_ready)
        admin = AdminClient(
            {"bootstrap.servers": secured.bootstrap, "security.protocol": "SASL_PLAINTEXT",
             "sasl.mechanism": "PLAIN", "sasl.username": "root", "sasl.password": "top"}
        )  # fmt: skip
        made = admin.create_topics([NewTopic("hers", 1), NewTopic("not-hers", 1)])
        await asyncio.gather(*(asyncio.to_thread(one.result, 60) for one in made.values()))
        reading = AclBinding(
            ResourceType.TOPIC, "hers", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ,
            AclPermissionType.ALLOW,
        )  # fmt: skip
        (allowed,) = admin.create_acls([reading]).values()
        await asyncio.to_thread(allowed.result, 60)
        await page.log_in("alice", "secret")
        await show(page, secured, "topics/hers/records")
        await page.sees("No record is there.")
        await page.click("Topics")
        assert [row[0] for row in await page.has_rows(1)] == ["hers"]
        await page.click("Groups")
        await page.sees("There are no groups yet.")
        await page.click("Broker")
        await page.sees("User:alice has no right to DESCRIBE the cluster")
        page.errors.clear()  # the browser logs each refusal
    finally:
        secured.close()


async def test_when_the_disk_will_be_full(page: Page) -> None:
    """After a minute of writing: the broker's own words, and which topics it is."""
    with Kompakt({"http.port": "0"}) as kompakt:
        kompakt.create_topic("hoard", **{"retention.ms": "-1"})
        kompakt.advance(minutes=1)
        producer = Producer({"bootstrap.servers": kompakt.bootstrap_servers})
        for _ in range(1000):
            producer.produce("hoard", bytes(1000))
        assert await asyncio.to_thread(producer.flush, 60) == 0
        kompakt.advance(minutes=1)
        await page.open(f"{kompakt.http}/console/#/broker")
        await page.sees("its logs grow by", ": full in", "watched for", "hoard", "never")
        await page.open("about:blank")  # or it asks a broker that is gone


# Without a mouse, without eyes, on a telephone


async def renewed(page: Page) -> None:
    """Wait until the view was made anew by itself."""
    await page.evaluate("document.querySelector('main section').id = 'before'")
    await page.until("document.getElementById('before') === null")


async def test_a_view_that_is_made_anew_keeps_the_focus_and_what_was_scrolled(
    page: Page, broker: BrokerProcess
) -> None:
    await page.send(
        "Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=False
    )
    await show(page, broker, "topics")
    await page.sees("payments")
    await page.evaluate("document.querySelector('main .scroll').scrollLeft = 90")
    link = "Array.from(document.querySelectorAll('main a')).find((one) => one.innerText === 'payments')"
    await page.evaluate(f"{link}.focus({{preventScroll: true}})")
    await renewed(page)
    assert await page.evaluate("document.activeElement.innerText") == "payments"
    assert await page.evaluate("document.querySelector('main .scroll').scrollLeft") == 90
    await page.evaluate("document.querySelector('main [type=checkbox]').click()")
    await page.evaluate("document.querySelector('main [type=checkbox]').focus()")
    await page.sees("__kompakt_metadata")
    await renewed(page)
    assert await page.evaluate("document.activeElement.checked")
    await page.evaluate("document.activeElement.click()")


async def looked_twice(page: Page, path: str) -> None:
    """Wait until the view has asked for what it shows twice more."""
    await page.evaluate("performance.clearResourceTimings()")
    asked = f"performance.getEntriesByType('resource').filter((one) => one.name.endsWith({path!r}))"
    await page.until(f"{asked}.length >= 2")


async def test_who_fills_in_a_form_keeps_it(page: Page, broker: BrokerProcess) -> None:
    """The field and where one types in it; a button that has the focus."""
    await show(page, broker, "groups/old")
    await page.sees("Read on elsewhere")
    await page.evaluate(
        "const one = document.querySelector('[name=value]'); one.focus();"
        " one.addEventListener('blur', () => one.dataset.blurred = 'yes')"
    )
    await page.send("Input.insertText", text="12")
    await looked_twice(page, "/api/group?group=old")
    await page.send("Input.insertText", text="34")
    assert await page.evaluate("document.activeElement.value") == "1234"
    assert await page.evaluate("document.activeElement.dataset.blurred") is None
    await page.evaluate("document.querySelector('.fields button').focus()")
    await renewed(page)
    assert await page.evaluate("document.activeElement.innerText") == "Preview"


async def test_a_press_is_a_click_whenever_the_view_is_made_anew(page: Page, broker: BrokerProcess) -> None:
    """What is replaced between the button of the mouse going down and up is not clicked."""
    await show(page, broker, "groups/old")
    await page.sees("Read on elsewhere")
    place = await page.press("Preview")
    await looked_twice(page, "/api/group?group=old")
    await page.release(place)
    await page.sees("will read from")
    await renewed(page)
    place = await page.press("prices-0")
    await looked_twice(page, "/api/group?group=old")
    await page.release(place)
    await page.until("location.hash === '#/topics/prices'")


async def test_a_late_answer_of_one_group_leaves_the_next_its_own_form(
    page: Page, broker: BrokerProcess
) -> None:
    """Who went over from one group to another resets the other, and never the first."""
    await show(page, broker, "groups/old")
    await page.sees("Read on elsewhere")
    await page.evaluate(
        "globalThis.held = []; const real = fetch;"
        " globalThis.fetch = async (...asked) => {"
        " const answer = await real(...asked);"
        " await new Promise((go) => held.push(go));"
        " return answer; }"
    )
    await page.until("held.length === 1")
    await page.evaluate("location.hash = '#/groups/next'")
    await page.until("held.length === 2")
    await page.evaluate("held[0]()")
    await page.evaluate("new Promise((go) => setTimeout(go))")
    await page.evaluate("held[1]()")
    await page.sees("next", "Read on elsewhere")
    await page.click("Reset")
    await page.sees("Let next read prices", selector="dialog")


async def test_a_second_enter_out_of_habit_changes_nothing(page: Page, broker: BrokerProcess) -> None:
    await show(page, broker, "topics/people/compaction")
    await page.click("Compact now")
    await page.sees("removed for good", selector="dialog")
    assert await page.evaluate("document.activeElement.innerText") == "Cancel"


@pytest.mark.parametrize(
    "view",
    [
        *(f"topics/prices/{tab}" for tab in ("records", "find", "table", "compaction", "segments")),
        "quotas?client-id=backfill&ip=10.0.0.7",
    ],
)
async def test_every_field_has_a_name_and_nothing_is_wider_than_a_telephone(
    page: Page, broker: BrokerProcess, view: str
) -> None:
    await page.send(
        "Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=False
    )
    await show(page, broker, view)
    await page.until("document.querySelector('main form, main button') !== null")
    tree = await page.send("Accessibility.getFullAXTree")
    fields = [one for one in tree["nodes"] if one.get("role", {}).get("value") in FIELDS]
    assert fields and all(one["name"]["value"].strip() for one in fields)
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_one_long_name_leaves_room_for_all_columns(page: Page, broker: BrokerProcess) -> None:
    admin, name = AdminClient({"bootstrap.servers": broker.bootstrap}), "n" * 249
    await asyncio.to_thread(admin.create_topics([NewTopic(name, 1)])[name].result, 60)
    await show(page, broker, "topics")
    await page.sees(name, "prices")
    assert await page.evaluate(
        "{const one = document.querySelector('main .scroll'); one.scrollWidth <= one.clientWidth}"
    )
    await asyncio.to_thread(admin.delete_topics([name])[name].result, 60)


# What does not go well


async def test_what_is_not_there_is_told(page: Page, broker: BrokerProcess) -> None:
    await show(page, broker, "topics/nosuch")
    await page.sees("there is no topic nosuch")
    await show(page, broker, "groups/nosuch")
    await page.sees("there is no group nosuch")
    await show(page, broker, "topics/prices/table?offset=1")
    await page.sees("name that as well")
    page.errors.clear()


async def test_a_broker_that_is_gone_comes_back(page: Page, broker: BrokerProcess) -> None:
    """What was shown stays, with a word beside it, until the broker answers again."""
    await show(page, broker, "topics")
    await page.sees("prices")
    assert await asyncio.to_thread(broker.stop) == 0
    await page.sees("does not answer", selector="header")
    await page.sees("prices")
    await asyncio.to_thread(broker.start)
    await page.until("document.getElementById('state').textContent === ''")
    page.errors.clear()
