"""A small Kafka client for tests: one connection, messages as declared, nothing behind the caller's back."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import protocol.messages.every  # noqa: F401  # fills the registry
from broker.clock import ManualClock
from protocol.framing import decode_response, encode_request
from protocol.schema import registry, schema_of

M = TypeVar("M")
LIMIT_SECONDS = 60.0


class Client:
    """One connection to a broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self.reader = reader
        self.writer = writer
        self.client_id = client_id
        self.local_address: tuple[str, int] = writer.get_extra_info("sockname")[:2]
        self._correlation_ids = itertools.count(1)

    @classmethod
    async def connect(cls, host: str, port: int, client_id: str = "test", source: str = "") -> Client:
        """`source`: the address of this machine that it is to come from, if not any."""
        at = (source, 0) if source else None
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 30, local_addr=at)
        return cls(reader, writer, client_id)

    def send(self, request: Any, version: int) -> int:
        """Write a request; its correlation id."""
        correlation_id = next(self._correlation_ids)
        self.writer.writelines(encode_request(request, version, correlation_id, self.client_id))
        return correlation_id

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive_frame(self) -> bytes:
        async with asyncio.timeout(LIMIT_SECONDS):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    async def receive(self, cls: type[M], version: int) -> tuple[int, M]:
        """The next answer, read as `cls`: its correlation id and itself."""
        return decode_response(cls, version, await self.receive_frame())

    async def ask(self, request: Any, version: int) -> Any:
        """Send `request` and return its response."""
        sent = self.send(request, version)
        response = registry[schema_of(request).key].response
        correlation_id, answer = await self.receive(response, version)
        assert correlation_id == sent
        return answer

    async def is_closed_by_peer(self) -> bool:
        """Whether the broker closes the connection (instead of answering)."""
        async with asyncio.timeout(LIMIT_SECONDS):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop run until `condition` holds."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def passes_in(clock: ManualClock, most_ms: int, condition: Callable[[], Any]) -> int:
    """After how many ms of the broker's clock the condition came true; it moves by `most_ms` at most."""
    began_ms = clock.now_ms()

    def is_over() -> bool:
        if clock.now_ms() - began_ms < most_ms:
            clock.advance(500)
        return bool(condition())

    await until(is_over)
    return clock.now_ms() - began_ms
