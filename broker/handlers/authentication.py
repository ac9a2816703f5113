"""SaslHandshake (key 17) v0-v1, SaslAuthenticate (36) v0-v2: a client says who it is.

`broker/security/` decides, here it is answered: with Kafka's words, and late where a client is refused, whose
connection ends then. v0 of the handshake is followed by bare tokens, v1 by SaslAuthenticate, whose v1 tells
how long the session lasts (KIP-368). Where no SASL is spoken, and where the client has said who it is, both
are ILLEGAL_SASL_STATE, as in Kafka. Not implemented: GSSAPI, delegation tokens.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker.api import Later, handles
from broker.context import RequestContext
from broker.security.sasl import Refused
from broker.security.session import OVER, Session
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from broker.broker import Broker

TOKENS_VERSION = 1


def _session(context: RequestContext) -> Session | None:
    return None if context.connection is None else context.connection.session


@handles(SaslHandshakeRequest)
def sasl_handshake(
    broker: Broker, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse | Later:
    session = _session(context)
    if session is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        sends_bare_tokens = context.api_version < TOKENS_VERSION
        session.begin(request.mechanism, broker.clock.now_ms(), sends_bare_tokens=sends_bare_tokens)
    except KafkaError as error:
        if error.code is ErrorCode.ILLEGAL_SASL_STATE:
            return SaslHandshakeResponse(error_code=error.code)
        refused = SaslHandshakeResponse(error_code=error.code, mechanisms=session.mechanisms)
        return _late(broker, context, refused, f"the mechanism {request.mechanism:.50} is not offered")
    return SaslHandshakeResponse(mechanisms=session.mechanisms)


@handles(SaslAuthenticateRequest)
def sasl_authenticate(
    broker: Broker, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Later:
    session, now_ms = _session(context), broker.clock.now_ms()
    try:
        if session is None:
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, OVER)
        token = session.answer(bytes(request.auth_bytes), now_ms)
    except Refused as error:
        code, message = ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)
        refused = SaslAuthenticateResponse(error_code=code, error_message=message)
        return _late(broker, context, refused, message)
    except KafkaError as error:
        return SaslAuthenticateResponse(error_code=error.code, error_message=error.message)
    return SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=session.lifetime_ms(now_ms))


def bare_token(broker: Broker, context: RequestContext, token: bytes) -> bytes | Later:
    """SASL as after a handshake of v0: tokens in frames without a header, and no word where it fails."""
    session = _session(context)
    assert session is not None
    try:
        answer = session.answer(token, broker.clock.now_ms())
    except Refused as error:
        return _late(broker, context, None, str(error))
    return len(answer).to_bytes(4, "big") + answer


def _late(broker: Broker, context: RequestContext, answer: Any, reason: str) -> Later:
    """An answer that refuses the client, or None, when it has waited for it; the connection ends with it. No
    request is taken meanwhile: what is wrong with one would end the connection at once.
    """
    connection = context.connection
    assert connection is not None
    connection.end(reason, is_answered=True)
    delay_ms = context.listener.security.keys.connection_failed_authentication_delay_ms
    waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = broker.clock.call_later(delay_ms, waited.set_result, None)
    return Later([waited], lambda: answer, timer.cancel)
