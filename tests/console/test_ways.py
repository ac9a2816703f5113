"""Goal: whoever goes from view to view of the console, quickly, back, by keyboard, or while an action still
runs, sees the view that was asked for and loses neither the place nor what was begun there.

Method: as `test_console.py`. Answers are held back in the page where their order matters.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.console.browser import Page, browser_path, browsing
from tests.console.test_console import START_MS, api, looked_twice, show
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
    await page.sees("Looked at: offsets")  # the list of topics may say "4.73 s ago"
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


async def test_what_takes_the_broker_long_is_asked_for_less_often(page: Page, broker: BrokerProcess) -> None:
    """The more there is to tell, the longer an answer takes; nobody sees it age so fast."""
    await show(page, broker, "topics")
    await page.sees("stock")
    await page.evaluate(
        "globalThis.took = 0; globalThis.rests = []; const now = performance.now, later = setTimeout;"
        " performance.now = () => now.call(performance) + took; globalThis.really = fetch;"
        " globalThis.fetch = async (...asked) => { const found = await really(...asked);"
        " took += 2000; return found; };"
        " globalThis.setTimeout = (act, ms) => (rests.push(ms), later(act, ms))"
    )
    await page.until("rests.some((ms) => ms >= 8000)")


async def test_a_broker_that_takes_its_time_is_waited_for_in_words(page: Page, broker: BrokerProcess) -> None:
    await show(page, broker, "topics")
    await page.sees("stock")
    await page.evaluate(HELD)
    await page.evaluate("location.hash = '#/groups'")
    await page.sees("waiting for the broker", selector="header")
    await page.evaluate(LET_GO)
    await page.sees("reader")
    assert await page.text("#state") == ""


# Late answers


async def test_the_answer_to_the_last_question_is_shown(page: Page, broker: BrokerProcess) -> None:
    """Whichever comes last: a value of one key beside the name of another would be erased for it."""
    await show(page, broker, "topics/stock/find")
    await page.fill("key", "1")
    await page.evaluate(HELD)
    await page.click("Find", "form")
    await page.until("held.length === 1")
    await page.fill("key", "2")
    await page.click("Find", "form")
    await let_go(page, "key=2")
    await page.sees("4.2")
    await page.evaluate("held.forEach((one) => one.go())")
    await page.evaluate("new Promise((go) => setTimeout(go))")
    assert [row[3] for row in await page.rows()] == ["4.2"]


async def test_the_preview_is_of_what_was_chosen_last(page: Page, broker: BrokerProcess) -> None:
    await show(page, broker, "groups/reader")
    await page.sees("Read on elsewhere")
    await page.evaluate(HELD)
    await page.click("Preview")
    await page.until("held.some((one) => one.url.includes('reset'))")
    await page.evaluate("globalThis.first = held.find((one) => one.url.includes('reset')); held.length = 0")
    await page.fill("to", "latest")
    await page.click("Preview")
    await let_go(page, "reset")
    await page.sees("will read from")
    await page.evaluate("first.go()")
    await page.evaluate("new Promise((go) => setTimeout(go))")
    assert [row[2] for row in await page.rows("main .said table")] == ["40", "0"]


async def test_pages_of_a_table_that_are_asked_for_quickly(page: Page, broker: BrokerProcess) -> None:
    """Every page costs a pass over the topic: what is not wanted any more is not waited for."""
    await asyncio.to_thread(write, broker, "many", *(f"v.{key:03}" for key in range(250)))
    await show(page, broker, "topics/many/table")
    await page.sees("099")
    await page.click("Next keys")
    await page.sees("199")
    await page.evaluate(HELD)
    await page.click("Next keys")
    await page.until("held.length === 1")
    await page.click("First keys")
    await page.until("held.length === 2")
    await page.evaluate("held[1].go()")
    await page.sees("000")
    await page.evaluate("held[0].go()")
    await page.evaluate("new Promise((go) => setTimeout(go))")
    assert (await page.rows())[0][0] == "000"


# Records as they come


async def test_the_tail_of_a_topic_that_is_made_again(page: Page, broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    await asyncio.to_thread(admin.create_topics([NewTopic("again", 1)])["again"].result, 60)
    await asyncio.to_thread(write, broker, "again", "old 1", "old 2", "old 3")
    await show(page, broker, "topics/again/records?from=tail")
    await page.sees("old 3")
    await page.evaluate(HELD)
    await page.until("held.length === 1")
    await asyncio.to_thread(admin.delete_topics(["again"])["again"].result, 60)
    await asyncio.to_thread(admin.create_topics([NewTopic("again", 1)])["again"].result, 60)
    await asyncio.to_thread(write, broker, "again", "new 1", "new 2", "new 3", "new 4")
    await page.evaluate(LET_GO)
    await page.sees("new 4", "new 1")
    assert [row[3] for row in await page.rows()] == ["new 4", "new 3", "new 2", "new 1"]
    page.errors.clear()


async def test_the_tail_goes_on_when_the_broker_does(page: Page, broker: BrokerProcess) -> None:
    """What was seen stays, the trouble does not."""
    await asyncio.to_thread(write, broker, "lasting", "before")
    await show(page, broker, "topics/lasting/records?from=tail")
    await page.sees("before")
    assert await asyncio.to_thread(broker.stop) == 0
    await page.sees("does not answer", "before")
    await asyncio.to_thread(broker.start)
    await page.until("!document.querySelector('main').innerText.includes('does not answer')")
    await page.sees("before")
    page.errors.clear()


async def test_the_tail_does_not_ask_again_who_was_refused_or_does_not_look(
    page: Page, broker: BrokerProcess
) -> None:
    """A browser would ask for a name and a password each second."""
    await asyncio.to_thread(write, broker, "seen", "one")
    await show(page, broker, "topics/seen/records?from=tail")
    await page.sees("one")
    await page.evaluate(
        "globalThis.asked = 0; globalThis.really = fetch; globalThis.timers = globalThis.fired = 0;"
        " globalThis.fetch = (...given) => (asked += 1, really(...given));"
        " const later = setTimeout; globalThis.setTimeout = (act, ms) => (timers += 1,"
        " later(() => (act(), fired += 1), ms));"
        " Object.defineProperty(document, 'hidden', {get: () => globalThis.isAway ?? false})"
    )
    await page.until("asked > 0")
    await page.evaluate("globalThis.isAway = true; fired = asked = 0")
    await page.until("fired > 0")
    assert await page.evaluate("asked") == 0
    await asyncio.to_thread(write, broker, "seen", "two")
    await page.evaluate("globalThis.isAway = false; document.dispatchEvent(new Event('visibilitychange'))")
    await page.sees("two")
    await page.evaluate(
        "globalThis.fetch = async () => (globalThis.before = timers,"
        " new Response(JSON.stringify({error: 'no right to READ'}), {status: 403}))"
    )
    await page.sees("no right to READ", "two")
    assert await page.evaluate("timers - before") == 0
    await page.evaluate(
        "globalThis.fetch = async (url, more) => String(url).includes('/records')"
        " ? new Response(JSON.stringify({error: 'no right at all'}), {status: 403}) : really(url, more)"
    )
    await page.click("Records")
    await page.until("location.hash.endsWith('/records')")
    await page.sees("no right at all")
    await page.evaluate("history.back()")
    await page.until("location.hash.endsWith('from=tail')")
    await page.sees("no right at all", "Nothing has come yet.")


async def test_what_a_view_that_was_left_has_asked_ends(page: Page, broker: BrokerProcess) -> None:
    await show(page, broker, "topics")
    await page.sees("stock")
    await page.evaluate(
        "globalThis.really = fetch; globalThis.signals = [];"
        " globalThis.fetch = (url, more) => String(url).includes('/table')"
        " ? new Promise(() => signals.push(more.signal)) : really(url, more)"
    )
    await page.evaluate("location.hash = '#/topics/stock/table'")
    await page.until("signals.length === 1 && !signals[0].aborted")
    await page.evaluate("location.hash = '#/groups'")
    await page.sees("reader")
    assert await page.evaluate("signals[0].aborted")


async def test_who_marks_a_record_keeps_it_marked(page: Page, broker: BrokerProcess) -> None:
    await asyncio.to_thread(write, broker, "marked", "one", "two")
    await show(page, broker, "topics/marked/records?from=tail")
    await page.sees("two")
    await page.evaluate(
        "getSelection().selectAllChildren(document.querySelector('main td:nth-child(4) .content'))"
    )
    marked = await page.evaluate("String(getSelection())")
    await asyncio.to_thread(write, broker, "marked", "three")
    await looked_twice(page, "limit=500")
    assert await page.evaluate("String(getSelection())") == marked != ""
    await page.evaluate("getSelection().removeAllRanges()")
    await page.sees("three")


async def test_the_tail_of_what_is_written_fast_is_young(page: Page, broker: BrokerProcess) -> None:
    """Of more records than it shows the last ones, at once: not page after page behind what is written."""
    await asyncio.to_thread(write, broker, "fast", "begin")
    await show(page, broker, "topics/fast/records?from=tail")
    await page.sees("begin")
    await page.evaluate(HELD)
    await page.until("held.length === 1")
    await asyncio.to_thread(write, broker, "fast", *(f"number {number}" for number in range(5000)))
    await page.evaluate("performance.clearResourceTimings()")
    await page.evaluate(LET_GO)
    await page.sees("number 4999")
    assert len(await page.rows()) == 500
    assert await page.evaluate("performance.getEntriesByType('resource').length") <= 4


# What is shown


async def test_an_offset_of_sixty_three_bits_is_shown_digit_for_digit(
    page: Page, broker: BrokerProcess
) -> None:
    far = 2**53 + 1
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "far"})
    await asyncio.to_thread(consumer.commit, offsets=[TopicPartition("stock", 1, far)], asynchronous=False)
    consumer.close()
    await show(page, broker, "groups/far")
    await page.sees("9 007 199 254 740 993")
    times = (
        "import('/console/format.js').then(({time}) => [time(-1), time(-2000), time('9223372036854775807')])"
    )
    assert await page.evaluate(times) == ["–", "1969-12-31 23:59:58 UTC", "9223372036854775807 ms"]


async def test_what_is_shown_can_be_asked_for(page: Page, broker: BrokerProcess) -> None:
    """A time, an offset and a key are taken as the console writes them."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(1100):
        producer.produce("shown", str(number), b"\xff\x00", timestamp=START_MS + 1000 * number)
    assert await asyncio.to_thread(producer.flush, 60) == 0
    await show(page, broker, "topics/shown/records")
    await page.sees("1099")
    row = next(one for one in await page.rows() if one[3] == "1050")
    assert row[:3] == ["1 050", "2023-11-14 22:30:50 UTC", "0xff00"]
    for way, place in (("time", row[1]), ("offset", "1\u202f050")):
        await page.fill("from", way)
        await page.fill("at", place)
        await page.click("Show")
        assert (await page.has_rows(50))[0] == row
        await page.click("Records")
        await page.has_rows(100)
    await page.click("Find")
    await page.fill("encoding", "hex")
    await page.fill("key", row[2])
    await page.click("Find", "form")
    await page.sees("1099", "key filters ruled out")


async def test_what_a_client_calls_itself_turns_nothing_around(page: Page, broker: BrokerProcess) -> None:
    name = "\u202egroup\u202c"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name})
    commits = [TopicPartition("stock", 0, 1, f"meta{name}")]
    await asyncio.to_thread(consumer.commit, offsets=commits, asynchronous=False)
    consumer.close()
    shown = r"\u{202e}group\u{202c}"
    await show(page, broker, "groups")
    await page.click(shown)
    await page.sees(f"meta{shown}", selector="main")
    assert await page.text("h1") == shown
    for view in ("topics/stock", "topics/stock/segments"):
        await show(page, broker, view)
        await page.until(f"document.querySelector('main')?.textContent.includes({json.dumps(shown)})")
        assert "\u202e" not in await page.evaluate("document.documentElement.textContent")


async def test_a_broker_without_topics_says_so(page: Page, tmp_path: Path) -> None:
    empty = BrokerProcess(tmp_path / "data")
    await asyncio.to_thread(empty.start)
    try:
        await asyncio.to_thread(empty.wait_until_ready)
        await show(page, empty, "topics")
        await page.sees("There are no topics yet.")
        await page.open("about:blank")
    finally:
        empty.close()


async def test_partitions_that_could_not_all_be_looked_at(page: Page, broker: BrokerProcess) -> None:
    """The rest of the segments come one by one: what stops them is told, and they go on from there."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    await asyncio.to_thread(admin.create_topics([NewTopic("wide", 20)])["wide"].result, 60)
    await show(page, broker, "topics/wide/segments")
    await page.sees("Partition 7")
    await page.evaluate(
        "globalThis.really = fetch; globalThis.fetch = (...asked) =>"
        " String(asked[0]).endsWith('partition=10') ? Promise.reject(new TypeError()) : really(...asked)"
    )
    await page.click("The other 12 partitions")
    await page.sees("Partition 9", "does not answer")
    await page.evaluate("globalThis.fetch = really")
    await page.click("The other 10 partitions")
    await page.sees("Partition 10", "Partition 19")
    assert await page.evaluate("document.querySelectorAll('main article').length") == 20


CONTRASTS = """
{
const of = (color) => {
  const context = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  context.fillStyle = color;
  context.fillRect(0, 0, 1, 1);
  return Array.from(context.getImageData(0, 0, 1, 1).data);
};
const light = (color) => {
  const [red, green, blue] = of(color).map((one) => one / 255).map(
    (one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const behind = (one) => {
  for (; one; one = one.parentElement) {
    const color = getComputedStyle(one).backgroundColor;
    if (of(color)[3] === 255) return color;
  }
  return "white";
};
const ratio = (one, other) => {
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const poor = [];
const look = (one, color, least, what) => {
  const found = ratio(color, behind(one));
  if (found < least) poor.push(`${what} of ${one.tagName} ${one.className}: ${found.toFixed(2)}`);
};
for (const one of document.querySelectorAll("body *")) {
  if (!one.checkVisibility()) continue;
  const style = getComputedStyle(one);
  if (Array.from(one.childNodes).some((child) => child.nodeType === 3 && child.data.trim()))
    look(one, style.color, 4.5, "text");
  if (one.placeholder) look(one, getComputedStyle(one, "::placeholder").color, 4.5, "placeholder");
  if (one.matches("input:not([type=checkbox]), select, button"))
    look(one.parentElement, style.borderTopColor, 3, "edge");
}
[...new Set(poor)];
}
"""
"""What has less contrast than WCAG 2.1 AA asks for: 4.5 of a text, 3 of the edge of a field."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_what_is_written_can_be_read(page: Page, broker: BrokerProcess, scheme: str) -> None:
    await page.send(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    views = [f"topics/stock/{tab}" for tab in ("partitions", "compaction", "table", "records", "settings")]
    for view in [*views, "topics", "groups/reader", "quotas", "broker"]:
        await show(page, broker, view)
        await page.until("document.querySelector('main section') !== null")
        assert await page.evaluate(CONTRASTS) == [], view
