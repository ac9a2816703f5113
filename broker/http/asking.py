"""What every request of `/api/` shares: who may ask, what a refusal looks like, how what was asked is read.

A web page that a person has open is an attacker: it can reach 127.0.0.1. Every request must therefore name
this server by an address or a name that is surely its own (else an attacker's name that resolves to 127.0.0.1
would do), and must not come from another site's page. What changes something or costs much is POST and takes
only `application/json`, which a page may not send elsewhere without being asked first. Anything that reads
files runs on I/O threads.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, unquote_to_bytes

from aiohttp import web

from broker.http.access import Access, NotAllowed, Right
from broker.log_lines import one_line
from broker.questions.keys import ENCODINGS, BadKey, decode_key
from broker.questions.partitions import Moment, explained, moment_of
from protocol.errors import KafkaError
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.topic import Topic

logger = logging.getLogger(__name__)

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

READERS = 2
SCANNERS = 2
READING = ("GET", "HEAD")
OWN_NAMES = ("localhost",)
NO_RUNS: Mapping[int, dict[str, Any]] = {}
LONG_MAX = 2**63 - 1
LONG_DIGITS = 19
SHOWN_LETTERS = 60
UNREADABLE = (ValueError, LookupError, RecursionError, web.RequestPayloadError)
"""what a body may be: no JSON or no text, in no charset that is known, too deep, packed wrongly"""


class Refused(Exception):
    """The request is answered with this status and these words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def in_json(request: web.Request, error: web.HTTPException) -> web.Response:
    """What aiohttp refuses by itself, as the API refuses: who asks it reads JSON."""
    allowed = " and ".join(error.headers.getall("Allow", []))
    words = {
        404: f"there is no {request.path[:SHOWN_LETTERS]!r} here",
        405: f"{request.method} is not taken here, {allowed} would be",
        413: f"the body is too long: {request.client_max_size} bytes are taken",
    }
    answer = web.json_response({"error": words.get(error.status, error.reason)}, status=error.status)
    if "Allow" in error.headers:
        answer.headers["Allow"] = error.headers["Allow"]
    return answer


class Asking:
    """Owned by: event loop."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.access = Access(broker)
        self._readers = asyncio.Semaphore(READERS)
        self._scanners = asyncio.Semaphore(SCANNERS)

    def answering(self, handler: Handler, right: Right | None = None) -> Handler:
        """`handler`, for who has the right; what is refused, and that it failed, is told as JSON. Without a
        right the handler looks itself at what it tells.
        """

        async def answer(request: web.Request) -> web.StreamResponse:
            try:
                if not self.broker.is_ready:
                    raise Refused(503, "the broker is starting or stopping")
                self._guard(request)
                await self.access.check(request, right)
                return await handler(request)
            except NotAllowed as refused:
                return web.json_response(
                    {"error": str(refused)}, status=refused.status, headers=refused.headers
                )
            except Refused as refused:
                return web.json_response({"error": str(refused)}, status=refused.status)
            except ConnectionError:  # who asked is gone
                raise
            except (KafkaError, OSError) as error:
                return web.json_response({"error": str(error)}, status=500)
            except web.HTTPException:
                raise
            except Exception as error:  # our own bug
                self.broker.metrics_state.internal_errors += 1
                if request.writer.output_size:  # an answer has begun: aiohttp breaks it off, and logs this
                    raise
                logger.exception("%s %s failed", request.method, one_line(request.path))
                words = f"the broker failed at this, its log tells where: {type(error).__name__}"
                return web.json_response({"error": words}, status=500)

        return answer

    def _guard(self, request: web.Request) -> None:
        if request.method not in READING and request.content_type != "application/json":
            raise Refused(415, "the content type must be application/json")
        if not self._is_own(request.host):
            raise Refused(403, f"this is not {request.host}: ask by an address or a configured name")
        origin = request.headers.get("Origin")
        # A proxy in front may speak TLS with browsers.
        if origin is not None and origin not in (f"http://{request.host}", f"https://{request.host}"):
            raise Refused(403, "requests from other origins are refused")
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise Refused(403, "requests from other sites are refused")

    def _is_own(self, host: str) -> bool:
        """Whether `host` can only mean this machine: an address, or a name that it has by itself."""
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        name = name.strip("[]").lower()
        try:
            ipaddress.ip_address(name)
        except ValueError:
            own = {*OWN_NAMES, socket.gethostname().lower(), self.broker.config.http_host.lower()}
            own.update(listener.advertised_host.lower() for listener in self.broker.listeners)
            return name in own
        return True

    # What is asked about

    def topic(self, request: web.Request) -> Topic:
        """The topic that the path names; Refused."""
        return self.topic_called(request.match_info["topic"])

    def topic_called(self, name: str) -> Topic:
        """The topic of that name; Refused."""
        topic = self.broker.topics.get(name)
        if topic is None:
            raise Refused(404, f"there is no topic {name}")
        return topic

    def indexes(self, topic: Topic, wanted: object) -> list[int]:
        """The partitions that are meant; None means all."""
        if wanted is None:
            return list(range(topic.partition_count))
        index = number(str(wanted), "partition")
        if not 0 <= index < topic.partition_count:
            raise Refused(404, f"{topic.name} has {topic.partition_count} partitions, none is {index}")
        return [index]

    def moments(self, topic: Topic, indexes: list[int]) -> list[tuple[int, Moment]]:
        """Those of the partitions that are served, as they are now."""
        found = ((index, moment_of(self.broker, TopicPartition(topic.name, index))) for index in indexes)
        return [(index, at) for index, at in found if at is not None]

    def readable(self, topic: Topic, wanted: object) -> tuple[int, Moment]:
        """The one partition that is meant, where it can be read; Refused."""
        index = self.indexes(topic, wanted)[0]
        moments = self.moments(topic, [index])
        if not moments or moments[0][1].log.offline_reason is not None:
            raise Refused(503, f"partition {index} is offline")
        return moments[0]

    async def reading(self, function: Callable[..., T], *arguments: object) -> T:
        """Run what reads files on an I/O thread, few at a time: clients read there as well."""
        async with self._readers:
            return await self.broker.run_blocking(function, *arguments)

    async def scanning(self, request: web.Request, function: Callable[..., T], *arguments: object) -> T:
        """As `reading`, for what may read all of a topic: it takes no turn of what is read in a moment, nor
        is it begun for who did not wait for it.
        """
        async with self._scanners:
            if is_gone(request):
                raise ConnectionResetError("who asked is gone")
            return await self.broker.run_blocking(function, *arguments)

    async def explained(
        self, topic: Topic, indexes: list[int], runs: Mapping[int, dict[str, Any]] = NO_RUNS
    ) -> list[dict[str, Any]]:
        """Why each partition is or is not being compacted; `runs` are dry runs by partition."""
        return await self.reading(explained, self.broker, topic, self.moments(topic, indexes), runs)

    async def respond(self, answer: Mapping[str, Any]) -> web.Response:
        """Thousands of rows make a long text: it is written on an I/O thread."""
        text = await self.broker.run_blocking(json.dumps, {**answer, "now_ms": self.broker.clock.now_ms()})
        return web.Response(text=text, content_type="application/json")

    async def respond_of(self, topic: Topic, partitions: list[dict[str, Any]]) -> web.Response:
        """The answer of each partition of a topic."""
        return await self.respond({"topic": topic.name, "partitions": partitions})


# Who asked and what was written


def is_gone(request: web.Request) -> bool:
    """Whether nobody waits for the answer any more. On any thread."""
    return request.transport is None or request.transport.is_closing()


def bytes_of(request: web.Request, name: str) -> bytes:
    """A parameter that may be any bytes, as it is or as `encoding` says."""
    return decoded(_raw(request, name), request.query.get("encoding", "text"))


def decoded(written: bytes, encoding: str) -> bytes:
    """The bytes that were written so; Refused."""
    known = one_of(encoding, "encoding", ENCODINGS)
    try:
        return decode_key(written, known)
    except BadKey as error:
        raise Refused(400, str(error)) from error


def _raw(request: web.Request, name: str) -> bytes:
    """The bytes of a parameter: where they are no UTF-8, `request.query` would leave the escapes as text."""
    for pair in request.rel_url.raw_query_string.replace("+", " ").split("&"):
        found, _, value = pair.partition("=")
        if unquote(found) == name:
            return unquote_to_bytes(value.encode(errors="surrogateescape"))
    raise Refused(400, f"ask for one: ?{name}={name.upper()}")


def number(text: str, name: str) -> int:
    """Digits, as many as a long has."""
    if not text.isascii() or not text.isdigit() or len(text) > LONG_DIGITS or int(text) > LONG_MAX:
        raise Refused(400, f"{text[:SHOWN_LETTERS]!r} is no {name}")
    return int(text)


def time_ms(text: str, name: str) -> int:
    """Milliseconds since 1970, before which there were times as well."""
    return -number(text[1:], name) if text.startswith("-") else number(text, name)


def limit(request: web.Request, default: int, most: int) -> int:
    """How many rows are wanted."""
    wanted = number(request.query.get("limit", str(default)), "limit")
    if not 1 <= wanted <= most:
        raise Refused(400, f"limit is 1 to {most}")
    return wanted


def one_of(value: str, name: str, choices: Sequence[str]) -> str:
    """`value`, one of `choices`."""
    if value not in choices:
        raise Refused(400, f"{value!r} is no {name}; there are {', '.join(choices)}")
    return value


def is_set(request: web.Request, name: str) -> bool:
    """Whether a switch is on."""
    return one_of(request.query.get(name, "0"), name, ("0", "1")) == "1"


async def body_of(request: web.Request, fields: Mapping[str, type]) -> dict[str, Any]:
    """The JSON object that was sent, nothing unknown in it; an empty body is an empty object."""
    try:
        text = await request.text()
        body = json.loads(text) if text.strip() else {}
    except UNREADABLE as error:
        raise Refused(400, f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refused(400, "the body must be a JSON object")
    for name, value in body.items():
        if name not in fields:
            raise Refused(400, f"unknown field {name!r}; there are {', '.join(fields)}")
        if type(value) is not fields[name]:
            raise Refused(400, f"field {name!r} must be of type {fields[name].__name__}")
    return body
