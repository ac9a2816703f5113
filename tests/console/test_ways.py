"""Goal: whoever goes from view to view of the console, quickly, back, by keyboard, or while an action still
runs, sees the view that was asked for and loses neither the place nor what was begun there.

Method: as `test_console.py`. Answers are held back in the page where their order matters.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.console.browser import Page, browser_path, browsing
from tests.console.test_console import api, show
from tests.process import BrokerProcess

HELD = (
    "globalThis.held = []; globalThis.isOpen = false; globalThis.really = fetch;"
    " globalThis.fetch = async (...asked) => {"
    " const answer = await really(...asked);"
    " await new Promise((go) => isOpen ? go() : held.push({url: String(asked[0]), go}));"
    " return answer; }"
)
"""From here on an answer is given to the page once it is let go."""
LET_GO = "globalThis.isOpen = true; globalThis.fetch = really; held.forEach((one) => one.go())"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """stock: compacted, 2 partitions, five values of each of 8 keys in the first; group reader."""
    browser_path()
    process = BrokerProcess(tmp_path_factory.mktemp("ways") / "data").start()
    try:
        process.wait_until_ready()
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        new = [NewTopic("stock", 2, config={"cleanup.policy": "compact"}), NewTopic("notes", 1)]
        for made in admin.create_topics(new).values():
            made.result(60)
        write(process, "stock", *(f"{turn}.{key}" for turn in range(5) for key in range(8)))
        consumer = Consumer({"bootstrap.servers": process.bootstrap, "group.id": "reader"})
        consumer.commit(offsets=[TopicPartition("stock", 0, 0)], asynchronous=False)
        consumer.close()
        yield process
    finally:
        process.close()


def write(process: BrokerProcess, topic: str, *values: str) -> None:
    """Each under what stands behind its point as key."""
    producer = Producer({"bootstrap.servers": process.bootstrap})
    for value in values:
        producer.produce(topic, value, value.partition(".")[2], 0)
    assert producer.flush(60) == 0


@pytest.fixture
async def page(broker: BrokerProcess, tmp_path: Path) -> AsyncIterator[Page]:
    async with browsing(tmp_path / "profile") as found:
        yield found


async def let_go(page: Page, words: str) -> None:
    """Wait for an answer to what was asked so, and give it to the page."""
    at = f"held.findIndex((one) => one.url.includes({words!r}))"
    await page.until(f"{at} >= 0")
    await page.evaluate(f"held.splice({at}, 1)[0].go()")
    await page.evaluate("new Promise((go) => setTimeout(go))")


async def test_who_asks_again_in_the_same_words_gets_a_new_answer(page: Page, broker: BrokerProcess) -> None:
    await show(page, broker, "topics/notes/records")
    await page.sees("No record is there.")
    await page.click("Show")
    await page.until("location.hash.includes('from=last')")
    await page.sees("No record is there.")
    await asyncio.to_thread(write, broker, "notes", "first")
    await page.click("Show")
    await page.sees("first")
    await asyncio.to_thread(write, broker, "notes", "second")
    await page.click("Records")
    await page.sees("second")
    await asyncio.to_thread(write, broker, "notes", "third")
    await page.click("Records")
    await page.sees("third")


async def test_an_action_that_ends_while_the_next_view_is_on_its_way(
    page: Page, broker: BrokerProcess
) -> None:
    """It would look at its own view again, which was left; a text that is marked there holds nothing up."""
    await show(page, broker, "groups/reader")
    await page.sees("Read on elsewhere")
    await page.evaluate(HELD)
    await page.click("Reset")
    await page.click("Reset", "dialog")
    await page.until("held.some((one) => one.url.includes('reset'))")
    await page.evaluate("location.hash = '#/broker'")
    await page.until("held.some((one) => one.url.endsWith('/api/broker'))")
    await page.evaluate("getSelection().selectAllChildren(document.querySelector('main h1'))")
    await let_go(page, "reset")
    await page.evaluate(LET_GO)
    await page.sees("Listeners", "The last cleanings")


async def test_who_leaves_while_being_asked_has_said_no(page: Page, broker: BrokerProcess) -> None:
    await show(page, broker, "topics/stock")
    await page.click("Compaction")
    await page.click("Compact now")
    await page.sees("removed for good", selector="dialog")
    await page.evaluate("history.back()")
    await page.sees("high watermark")
    assert not await page.evaluate("document.querySelector('dialog').open")
    assert not api(broker, "topics/stock/history")["partitions"][0]["runs"]


async def test_the_second_half_of_a_double_click_is_no_answer(page: Page, broker: BrokerProcess) -> None:
    """Where the answer lies under the button that was clicked."""
    await show(page, broker, "groups/reader")
    await page.click("Reset")
    await page.click("Reset", "dialog", count=2)
    assert await page.evaluate("document.querySelector('dialog').open")
    await page.click("Reset", "dialog")
    await page.sees("will read from")


async def test_who_walks_by_keyboard_is_in_the_view_that_was_opened(
    page: Page, broker: BrokerProcess
) -> None:
    """At its beginning; in a form that was sent, where one was."""
    await show(page, broker, "topics")
    await page.sees("stock")
    await page.evaluate(
        "Array.from(document.querySelectorAll('main a')).find((one) => one.innerText === 'stock').focus()"
    )
    await page.enter()
    await page.sees("high watermark")
    assert await page.evaluate("document.activeElement.id") == "view"
    await show(page, broker, "topics/stock/records")
    await page.sees("4.7")
    await page.evaluate("document.querySelector('[name=contains]').focus()")
    await page.send("Input.insertText", text="3.")
    await page.enter()
    await page.has_rows(8)
    assert await page.evaluate("document.activeElement.name") == "contains"
    await page.send("Input.insertText", text="7")
    await page.enter()
    assert [row[3] for row in await page.has_rows(1)] == ["3.7"]


async def test_who_comes_back_finds_the_place(page: Page, broker: BrokerProcess) -> None:
    await page.send(
        "Emulation.setDeviceMetricsOverride", width=900, height=300, deviceScaleFactor=1, mobile=False
    )
    await show(page, broker, "topics/stock/records")
    await page.sees("4.7")
    await page.evaluate("scrollTo(0, 500)")
    await page.evaluate("location.hash = '#/topics'")
    await page.sees("last record")
    assert await page.evaluate("scrollY") == 0
    await page.evaluate("history.back()")
    await page.sees("4.7")
    assert await page.evaluate("scrollY") == 500


async def test_a_list_goes_on_while_nothing_is_typed_beside_it(page: Page, broker: BrokerProcess) -> None:
    """The field of the search keeps the focus, and the place in its text."""
    await show(page, broker, "topics")
    await page.sees("stock")
    await page.evaluate("document.querySelector('[type=search]').focus()")
    await page.send("Input.insertText", text="sck")
    await page.evaluate("document.activeElement.setSelectionRange(1, 1)")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    await asyncio.to_thread(admin.create_topics([NewTopic("stocks", 1)])["stocks"].result, 60)
    await page.evaluate("const now = performance.now; performance.now = () => now.call(performance) + 31_000")
    await page.evaluate("document.querySelector('main section').id = 'before'")
    await page.until("document.getElementById('before') === null")
    await page.send("Input.insertText", text="to")
    assert await page.evaluate("document.activeElement.value") == "stock"
    assert {row[0] for row in await page.has_rows(2)} == {"stock", "stocks"}


async def test_a_broker_that_takes_its_time_is_waited_for_in_words(page: Page, broker: BrokerProcess) -> None:
    await show(page, broker, "topics")
    await page.sees("stock")
    await page.evaluate(HELD)
    await page.evaluate("location.hash = '#/groups'")
    await page.sees("waiting for the broker", selector="header")
    await page.evaluate(LET_GO)
    await page.sees("reader")
    assert await page.text("#state") == ""
