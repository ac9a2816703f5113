"""One client's connection: frames in, requests to their handlers in order, their answers into the queue.

All connections of a loop share one receive buffer, so that an idle connection costs no buffer memory and
requests that came in one read are handled without a copy of the rest; only a frame that is larger than half
of it gets a buffer of its own (`broker/large_frames.py`), sized by the bytes that really arrive (G27). What
one read brought is handled for `TURN_NS` at a time, so that others have their turn between. Requests run
strictly in order (G26), and their answers leave in that order (`broker/answers.py`). Too many answers that
wait, or too many bytes that the client does not read, pause the reading; a fetch that waits counts with all
that it may be answered. Mirrors Kafka's `Selector` and `SocketServer`.
"""

from __future__ import annotations

import asyncio
import logging
from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, cast

from broker import foreign
from broker.answers import Answers
from broker.api import API_VERSIONS, FETCH, PRODUCE, Api, api_name, apis
from broker.context import RequestContext
from broker.failures import response_to, unsupported_api_versions
from broker.handlers.authentication import bare_token
from broker.handlers.produce import produce_alike
from broker.large_frames import LARGE_BYTES, LargeFrame
from broker.moves import HeldUp
from broker.produce_template import Asked, ProduceTemplate
from broker.quotas.throttle import Throttle
from broker.quotas.throttle_time import with_throttle_time
from broker.quotas.usage import Usage
from broker.receiving import Room, has_hung_up
from broker.security.principal import ANONYMOUS
from broker.security.session import SASL_AUTHENTICATE
from broker.sending import Parts
from broker.slot import Slot, encoded
from protocol.codegen import decode
from protocol.errors import KafkaError, MalformedFrame
from protocol.framing import decode_request_header, encode_response
from protocol.schema import Buffer

if TYPE_CHECKING:
    from broker.door import Door

logger = logging.getLogger(__name__)

MIN_FRAME_BYTES = 8
TURN_NS = 2_000_000
"""for so long one connection's requests are handled in one turn of the loop, and for the one that is at hand
then: a read may bring thousands that take a millisecond each, and every other client waits"""
_integer = Struct(">i").unpack_from
_key = Struct(">h")
_key_and_version = Struct(">hh").unpack_from


class Connection(asyncio.BufferedProtocol):
    """Owned by: event loop."""

    __slots__ = (
        "_answers", "_api", "_broker", "_busy_poll", "_counters", "_departure", "_door", "_has_ended",
        "_head", "_is_reading", "_is_turn_due", "_large", "_limits", "_room", "_throttle", "activity",
        "client_host", "client_id", "peer", "principal", "session", "template", "transport",
    )  # fmt: skip

    def __init__(self, door: Door[Connection]) -> None:
        self._door = door
        self._broker = door.broker
        self.session = door.new_session(self)
        self._limits = door.limits if self.session is None else door.limits_of_strangers
        self._counters = door.broker.metrics_state
        self._busy_poll = door.broker.busy_poll
        self._departure = door.broker.departure
        self._room = door.receive_room
        self._head = b""
        self._large: LargeFrame | None = None
        self._is_reading = True
        self._is_turn_due = False
        self._has_ended = False  # nothing is taken any more, the rest of an answer leaves, or those that wait
        self._throttle: Throttle | None = None
        self._api: Api | None = None
        self.template = ProduceTemplate()
        self.activity = door.sweep
        self.client_id: str | None = None
        self.client_host = ""
        self.peer = ""
        self.principal = ANONYMOUS

    # the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername") or ("", 0)
        self.client_host = str(name[0])
        self.peer = f"{name[0]}:{name[1]}"
        self._answers = Answers(self.transport, self.peer, self._broker, self._read_on)
        self.transport.set_write_buffer_limits(high=self._limits.unread_bytes)
        wait_ms = self._door.wait_ms(self.client_host)
        if not self._door.admit(self):
            self.close()
        elif wait_ms:  # to be closed at once would have it back at once
            self._throttle_for(wait_ms)
            self._has_ended = self._answers.is_over = True

    def believe(self, principal: str) -> None:
        """The client has said who it is: it may ask everything."""
        self.principal = principal
        self._limits = self._door.limits

    def connection_lost(self, error: Exception | None) -> None:
        if not self._answers.is_over:
            self._log_unfinished("the client ended within a frame")
            if error is not None and not isinstance(error, ConnectionError | TimeoutError):
                logger.warning(
                    "lost the connection of %s (client %.100s): %s", self.peer, self.client_id, error
                )
        if self._large is not None:
            self._large.close()
        self._large, self._head = None, b""
        if self._throttle is not None:
            self._throttle.end()
        self._answers.drop()
        self._broker.share_sessions.on_disconnect(self)
        self._door.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room.view[len(self._head) :] if self._large is None else self._large.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._counters.bytes_received += nbytes
        self._busy_poll.received(nbytes)
        answers = self._answers
        if answers.is_over:
            return
        large = self._large
        if large is not None:
            large.add(nbytes)
            if large.is_whole:
                self._large = None
                large.close()
                self._request(Room(large.data), 0, len(large.data))
                if self._is_turn_due and self._throttle is None:
                    self._head = len(large.data).to_bytes(4, "big") + large.data
            elif large.is_waiting:
                self._pause()
        else:
            if head := self._head:
                self._room.view[: len(head)] = head
            self._parse(self._room, len(head) + nbytes)
        if answers.ready:
            self._departure.add(answers)

    def eof_received(self) -> bool:
        """The client asks no more; what is ready or on its way leaves nevertheless."""
        answers = self._answers
        answers.leave()
        # TLS has no half of an end.
        self._has_ended = answers.sender.is_busy and not answers.sender.is_encrypted
        return self._has_ended

    def pause_writing(self) -> None:
        self._answers.sender.pause()

    def resume_writing(self) -> None:
        self._answers.sender.resume()
        self._read_on()

    # frames in

    def _parse(self, room: Room, end: int) -> None:
        """Handle the whole frames among the first `end` bytes of `room`, and keep the rest."""
        data, position, answers = room.view, 0, self._answers
        self._head = b""
        turn_ends_ns = perf_counter_ns() + TURN_NS
        while end - position >= 4:
            size = _integer(data, position)[0]
            if not MIN_FRAME_BYTES <= size <= self._limits.frame_bytes_without_records:
                if MIN_FRAME_BYTES <= size <= self._limits.frame_bytes and end - position < 4 + _key.size:
                    break  # its API tells how long it may be
                allowed = self._allowed_bytes(data, position + 4, end)
                least = 0 if self.session and self.session.takes_bare_tokens else MIN_FRAME_BYTES
                if not least <= size <= allowed:
                    reason = f"a frame of {size} bytes; {least} to {allowed} are allowed"
                    return self.refuse(reason + foreign.hint(size))
            if (answers.slots or answers.sender.is_busy or self._door.is_draining) and self._is_full():
                break
            frame_end = position + 4 + size
            if frame_end > end:
                if size >= LARGE_BYTES:
                    self._begin_large(data[position + 4 : end], size)
                    return None
                break
            self._request(room, position + 4, frame_end)
            if answers.is_over or self._has_ended:
                return None
            if self._is_turn_due:
                if self._throttle is not None:
                    position = frame_end
                break  # it is held up, or those behind it are
            position = frame_end
            if position < end and perf_counter_ns() > turn_ends_ns:
                self._end_turn()
                break
        if position < end:
            self._head = data[position:end].tobytes()
            if self._is_full():
                self._pause()
        return None

    def _begin_large(self, received: memoryview, size: int) -> None:
        self._api = apis.get(_key.unpack_from(received)[0]) if len(received) >= _key.size else None
        self._large = LargeFrame(self._broker.large_frames, received, size, self._read_on, self.end)
        if self._large.is_waiting:
            self._pause()

    def _allowed_bytes(self, data: memoryview, position: int, end: int) -> int:
        """How long the frame may be whose API key is at `position`, as far as that is known."""
        is_known = end - position >= _key.size
        key = _key.unpack_from(data, position)[0] if is_known else PRODUCE
        self._api = apis.get(key) if is_known else None
        return self._limits.frame_bytes if key == PRODUCE else self._limits.frame_bytes_without_records

    def _is_full(self) -> bool:
        """Whether no further request is taken for now."""
        is_short = self._large is not None and self._large.is_waiting  # of memory
        return is_short or self._answers.is_full(self._limits) or self._door.is_draining

    def _pause(self) -> None:
        """Read no more: a request waits. Until one does, reading goes on: to stop it is two system calls."""
        if self._is_reading and not self._answers.is_over:
            self._is_reading = False
            self.transport.pause_reading()

    def _end_turn(self) -> None:
        """Others come first: go on with what was read when they had their turn."""
        self._is_turn_due = True
        self._is_reading = False
        self.transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._begin_turn)

    def _hold_up(self, held: HeldUp) -> None:
        """The request is taken up once more when its partition takes records; what is behind it waits too."""
        self._counters.requests[PRODUCE] -= 1
        self._is_turn_due = True
        self._is_reading = False
        self.transport.pause_reading()
        held.over.add_done_callback(lambda _: self._begin_turn())

    def _begin_turn(self) -> None:
        if self._throttle is None:
            self._is_turn_due = False
            self._read_on()

    def _throttle_for(self, wait_ms: int) -> None:
        """The client has done too much: nothing more is read of it for so long."""
        if self._answers.is_over:
            return
        if self._throttle is None:
            self._throttle = Throttle(self._broker, self._end_throttle)
            self._is_turn_due = True
            self._pause()
        self._throttle.extend(wait_ms)

    def _end_throttle(self) -> None:
        self._throttle = None
        self._begin_turn()

    def _read_on(self) -> None:
        """Something left the queue: take up the frames that had to wait, then the reading."""
        answers = self._answers
        if self._has_ended:
            if self._is_reading or not answers.slots:  # who asks no more waits for none
                answers.leave()
                if not answers.sender.is_busy:
                    self.transport.close()
            return
        if self._is_reading or answers.is_over or self._is_turn_due or self._is_full():
            return
        self._is_reading = True
        if head := self._head:
            self._parse(Room(head), len(head))
            answers.leave()
        if self._is_reading and not answers.is_over:
            self.transport.resume_reading()

    # requests

    def _request(self, room: Room, start: int, end: int) -> None:
        self.activity = self._door.sweep
        started, size = perf_counter_ns(), end - start
        template, broker = self.template, self._broker
        if (session := self.session) is not None and not session.is_open(broker.clock.now_ms()):
            if session.takes_bare_tokens:
                return self._bare_token(bytes(room.frame(start, end)), started)
            key = _key.unpack_from(room.view, start)[0]
            if (reason := session.why_not(key)) is not None:
                self._api = apis.get(key)
                return self.refuse(reason)
        if template.is_learned:
            now_ms = broker.clock.now_ms()
            asked = template.match(room, start, end, broker.partitions, now_ms)
            if asked is not None:
                self._api = apis[PRODUCE]
                self._counters.requests[PRODUCE] += 1
                correlation_id = _integer(room.view, start + 4)[0]
                try:
                    alike = produce_alike(broker, template, correlation_id, asked, now_ms)
                except HeldUp as held:
                    return self._hold_up(held)
                except Exception as error:
                    return self._answer_alike(correlation_id, asked, error, started, size)
                if isinstance(alike, bytes) and not self._answers.slots:
                    if broker.quotas.is_active:
                        context = self._context(PRODUCE, template.version, correlation_id, size, started)
                        alike = self.settle(context, alike)
                    self._counters.latencies[PRODUCE].record(perf_counter_ns() - started)
                    self._answers.ready.append(alike)
                    return None
                return self._answer_alike(correlation_id, asked, alike, started, size)
        frame = room.frame(start, end)
        key, version = _key_and_version(frame)
        api = self._api = broker.apis.get(key)
        if api is None:
            return self.refuse(f"{api_name(key)} v{version} is not served")
        if key != PRODUCE and frame.__class__ is bytearray:
            frame = bytes(frame)  # only records are taken as views; all else may be kept and hashed
        try:
            if not api.min_version <= version <= api.max_version:
                return self._unsupported(api, version, _integer(frame, 4)[0])
            header, position = decode_request_header(cast(bytes, frame))
            self.client_id = header.client_id
            request = decode(api.request, version, cast(bytes, frame), position, self._limits.elements)
        except MalformedFrame as error:
            return self.refuse(f"v{version}: {error}")
        context = self._context(key, version, header.correlation_id, size, started)
        self._counters.requests[key] += 1
        try:
            answer = api.handler(self._broker, context, request)
        except HeldUp as held:
            return self._hold_up(held)
        except Exception as error:
            answer = self.failed(api, context, request, error)
        if key == PRODUCE and (broker.authorizer is None or broker.authorizer.may_repeat(context, request)):
            template.learn(header, request, frame)
        return self._answer(api, context, request, answer, started)

    def _bare_token(self, token: bytes, started: int) -> None:
        api = apis[SASL_AUTHENTICATE]
        context = self._context(api.key, 0, 0, len(token), started)
        context.usage = None  # SASL without a request, which no quota is for
        return self._answer(api, context, None, bare_token(self._broker, context, token), started)

    def _answer_alike(self, correlation_id: int, asked: Asked, answer: Any, started: int, size: int) -> None:
        """What came of a Produce like the one before, where that is more than bytes to be sent now."""
        api, request = apis[PRODUCE], self.template.request(asked)
        context = self._context(PRODUCE, self.template.version, correlation_id, size, started)
        if isinstance(answer, Exception):
            answer = self.failed(api, context, request, answer)
        return self._answer(api, context, request, answer, started)

    def _context(
        self, key: int, version: int, correlation_id: int, size: int, started: int
    ) -> RequestContext:
        is_counted = self._broker.quotas.is_active and self._limits is self._door.limits
        return RequestContext(
            key, version, correlation_id, self.client_id, self._door.listener, self.client_host, self,
            self.principal, Usage(size, started) if is_counted else None,
        )  # fmt: skip

    def _answer(self, api: Api, context: RequestContext, request: Any, answer: Any, started: int) -> None:
        if answer is None or answer.__class__ is api.response or answer.__class__ is bytes:
            if context.usage is not None:
                answer = self.settle(context, answer)
            if answer is None:
                return None
            parts = encoded(self, api, context, request, answer)
            self._counters.latencies[api.key].record(perf_counter_ns() - started)
            return self._enqueue(api, context, request, parts)
        slot = Slot(self, api, context, request, started)
        if api.key == FETCH:
            slot.reserved_bytes = min(max(0, request.max_bytes), self._limits.fetch_bytes)
        self._answers.queue(slot, None)
        return slot.take(answer)

    def settle(self, context: RequestContext, answer: Any) -> Any:
        """The answer, which says how long the client has to wait if it has done too much."""
        wait_ms = self._broker.quotas.settle(context, answer)
        if wait_ms:
            self._throttle_for(wait_ms)
            answer = with_throttle_time(answer, context.api_key, context.api_version, wait_ms)
        return answer

    def _unsupported(self, api: Api, version: int, correlation_id: int) -> None:
        """Only ApiVersions answers a version that is not served: in version 0, with what is (G1)."""
        if api.key != API_VERSIONS:
            return self.refuse(f"v{version} is not served; v{api.min_version} to v{api.max_version} are")
        parts = encode_response(unsupported_api_versions(), 0, correlation_id)
        return self._enqueue(api, self._context(api.key, 0, correlation_id, 0, 0), None, parts)

    def failed(self, api: Api, context: RequestContext, request: Any, error: BaseException) -> Any:
        """The response for a request whose handler raised; None when it closed the connection instead."""
        self._counters.internal_errors += not isinstance(error, KafkaError)
        response = response_to(error, api, context, request)
        if response is None:  # there is no place in it for the error
            self._api = api
            self._log_end(f"v{context.api_version}: {error}")
            self.close()
        return response

    # answers

    def _enqueue(self, api: Api, context: RequestContext, request: Any, parts: Parts) -> None:
        """An answer that is ready: it leaves, or waits behind those that are not."""
        if self._answers.slots:
            self._answers.queue(Slot(self, api, context, request), parts)
        else:
            self._answers.add(api, parts)

    def complete(self, slot: Slot, response: Any) -> None:
        """A slot has its answer."""
        answers = self._answers
        if answers.is_over:
            return
        if slot.context.usage is not None:
            response = self.settle(slot.context, response)
        parts = [] if response is None else encoded(self, slot.api, slot.context, slot.request, response)
        self._counters.latencies[slot.api.key].record(perf_counter_ns() - slot.started_ns)
        answers.fill(slot, parts)
        if not self._is_reading:
            self._read_on()
            if self._door.is_draining and not answers.slots:
                self._door.drained()

    # the end

    @property
    def has_answers_to_come(self) -> bool:
        return bool(self._answers.slots)

    def drain(self) -> None:
        """Take no more requests: the broker stops."""
        self._pause()

    def refuse(self, reason: str) -> None:
        """The client broke the protocol: no later byte of it can be understood."""
        self._counters.malformed_requests += 1
        self.end(reason)

    def end(self, reason: str, *, is_answered: bool = False) -> None:
        """Close the connection, with one log line, when what came before the request at hand is answered, and
        this one too if it is. From now on nothing is taken.
        """
        self._log_end(reason)
        if not self._answers.slots and not is_answered:
            return self.close()
        self._has_ended = True
        return self._pause()

    def is_silent_since(self, sweep: int) -> bool:
        """Whether neither a request was completed nor an answer left since then, as seen at every sweep,
        however busily single bytes arrive; nor is an answer being made.
        """
        if self._answers.sender.has_moved():
            self.activity = self._door.sweep
        return self.activity < sweep and not self.has_answers_to_come

    def is_left_alone(self) -> bool:
        """Whether the client hung up while no more is read from it, and nothing was taken up for a sweep: its
        end would be seen only when the fetch is over that may wait for weeks.
        """
        is_idle = not self._is_reading and self.activity < self._door.sweep - 1
        return is_idle and has_hung_up(self.transport)

    def expire(self) -> None:
        """Cut it off: it was silent for `connections.max.idle.ms`, or the broker stops without its client."""
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes:
            self._log_end(f"{unsent_bytes} bytes of answers were left unread")
        else:
            self._log_unfinished(f"no whole frame for {self._limits.idle_ms} ms")
        self._answers.cut_off()

    def _log_unfinished(self, reason: str) -> None:
        """One line when the connection ends within a frame."""
        if not self._is_reading or (self._large is None and not self._head):
            return
        start: Buffer = self._head[4:] if self._large is None else self._large.received
        self._api = apis.get(_key.unpack_from(start)[0]) if len(start) >= _key.size else None
        self._log_end(reason)

    def _log_end(self, reason: str) -> None:
        logger.warning(
            "closed the connection of %s (client %.100s): %s: %s",
            self.peer, self.client_id, self._api.name if self._api else "no API", reason,
        )  # fmt: skip

    def close(self) -> None:
        """Send what is ready, then close."""
        self._answers.finish()
        self.transport.close()
