"""A Chromium as a person has it, driven over its DevTools protocol: it opens pages, clicks, types, and tells
what is to be seen. Whatever a page logs as an error is one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
REQUIRED = "KOMPAKT_REQUIRE_BROWSER"
LIMIT_SECONDS = 60.0
LOOK_SECONDS = 0.05
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
    "--window-size=1300,900", "about:blank",
)  # fmt: skip


def browser_path() -> str:
    """Where one is; without any the test is skipped, or fails where `KOMPAKT_REQUIRE_BROWSER` is set."""
    found = next((path for name in NAMES if (path := shutil.which(name)) is not None), None)
    if found is None:
        words = f"there is no browser: none of {', '.join(NAMES)} is on the PATH"
        if os.environ.get(REQUIRED):
            pytest.fail(words)
        pytest.skip(words)
    return found


class Page:
    """One tab. Owned by: the test's event loop."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.errors: list[str] = []
        self.questions = 0
        """how often it was asked for a name and a password"""
        self._login: dict[str, str] = {}
        self._replies: set[asyncio.Task[Any]] = set()
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                self._waiting.pop(told["id"]).set_result(told)
            else:
                self._note(told["method"], told["params"])

    def _note(self, method: str, told: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Fetch.requestPaused":
            self._reply("Fetch.continueRequest", requestId=told["requestId"])
        elif method == "Fetch.authRequired":
            self.questions += 1
            self._reply(
                "Fetch.continueWithAuth", requestId=told["requestId"], authChallengeResponse=self._login
            )
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.errors.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"):
            self.errors.append(str(told["args"]))

    def _reply(self, method: str, **parameters: Any) -> None:
        task = asyncio.ensure_future(self.send(method, **parameters))
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    async def log_in(self, user: str, password: str) -> None:
        """What a person types when the browser asks for a name and a password."""
        self._login = {"response": "ProvideCredentials", "username": user, "password": password}
        await self.send("Fetch.enable", handleAuthRequests=True)

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol; its result."""
        number = next(self._ids)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        told = await asyncio.wait_for(answer, LIMIT_SECONDS)
        assert "error" not in told, told
        result: dict[str, Any] = told["result"]
        return result

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page, awaited if it is a promise."""
        told = await self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Look until the expression is true; its value."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while True:
            value = await self.evaluate(expression)
            if value:
                return value
            assert time.monotonic() < deadline, f"in vain for {expression}; it shows:\n{await self.text()}"
            await asyncio.sleep(LOOK_SECONDS)

    async def open(self, url: str) -> None:
        await self.send("Page.navigate", url=url)

    async def text(self, selector: str = "body") -> str:
        """What a person reads there."""
        found: str = await self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return found

    async def sees(self, *words: str, selector: str = "main") -> str:
        """Wait until all of these words can be read; the text."""
        wanted, where = json.dumps(words), json.dumps(selector)
        found: str = await self.until(
            f"{{const text = document.querySelector({where})?.innerText.replaceAll('\\u202f', ' ') ?? '';"
            f" {wanted}.every((one) => text.includes(one)) && text}}"
        )
        return found

    async def rows(self, selector: str = "main table") -> list[list[str]]:
        """The cells of a table's body."""
        found: list[list[str]] = await self.evaluate(
            f"Array.from(document.querySelectorAll({json.dumps(selector + ' tbody tr')}), (row) =>"
            " Array.from(row.cells, (cell) => cell.innerText.replaceAll('\\u202f', ' ')))"
        )
        return found

    async def has_rows(self, count: int, selector: str = "main table") -> list[list[str]]:
        """Wait until a table has so many rows; their cells."""
        await self.until(
            f"document.querySelectorAll({json.dumps(selector + ' tbody tr')}).length === {count}"
        )
        return await self.rows(selector)

    async def click(self, words: str, within: str = "body", count: int = 1) -> None:
        """A link or button by its words, with the mouse, where it is; 2: as the second of a double click."""
        await self.release(await self.press(words, within, count), count)

    async def press(self, words: str, within: str = "body", count: int = 1) -> dict[str, float]:
        """The first half of a click; where it was."""
        place: dict[str, float] = await self.until(
            f"{{const one = Array.from(document.querySelector({json.dumps(within)})"
            f"?.querySelectorAll('a, button') ?? []).find((one) => one.innerText === {json.dumps(words)});"
            " if (one) one.scrollIntoView({block: 'center'});"
            " const box = one?.getBoundingClientRect();"
            " box && {x: box.x + box.width / 2, y: box.y + box.height / 2}}"
        )
        await self._mouse("mousePressed", 1, place, count)
        return place

    async def release(self, place: dict[str, float], count: int = 1) -> None:
        await self._mouse("mouseReleased", 0, place, count)

    async def _mouse(self, kind: str, buttons: int, place: dict[str, float], count: int) -> None:
        await self.send(
            "Input.dispatchMouseEvent", type=kind, button="left", buttons=buttons, clickCount=count, **place
        )

    async def enter(self) -> None:
        """The key, where the focus is."""
        for kind in ("keyDown", "keyUp"):
            await self.send(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13,
                **({"text": "\r"} if kind == "keyDown" else {}),
            )  # fmt: skip

    async def fill(self, name: str, value: str) -> None:
        """A field of a form, by its name; as if a person had typed or chosen."""
        await self.until(f"document.querySelector('[name={name}]') !== null")
        await self.evaluate(
            f"{{const one = document.querySelector('[name={name}]');"
            f" if (one.type === 'checkbox') one.checked = {json.dumps(bool(value))};"
            f" else one.value = {json.dumps(value)};"
            " one.dispatchEvent(new Event('input', {bubbles: true}));"
            " one.dispatchEvent(new Event('change', {bubbles: true}))}"
        )

    async def close(self) -> None:
        self._reading.cancel()
        await self._socket.close()


@contextlib.asynccontextmanager
async def browsing(profile: Path) -> AsyncIterator[Page]:
    """A browser with one tab; in the end the page must have logged no error."""
    nothing = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        browser_path(), f"--user-data-dir={profile}", *OPTIONS, stdin=nothing, stdout=nothing, stderr=nothing
    )
    try:
        async with aiohttp.ClientSession() as session:
            port = await _port(process, profile)
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                (tab,) = [one for one in await answer.json() if one["type"] == "page"]
            page = Page(await session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0))
            for domain in ("Page", "Runtime", "Log"):
                await page.send(f"{domain}.enable")
            yield page
            assert not page.errors, page.errors
            await page.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _port(process: asyncio.subprocess.Process, profile: Path) -> int:
    """Where the browser listens, once it says so."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        assert process.returncode is None, f"the browser ended with status {process.returncode}"
        with contextlib.suppress(OSError, ValueError, IndexError):
            return _told_port(profile)
        assert time.monotonic() < deadline, "the browser does not listen"
        await asyncio.sleep(LOOK_SECONDS)


def _told_port(profile: Path) -> int:
    return int((profile / "DevToolsActivePort").read_text().splitlines()[0])
