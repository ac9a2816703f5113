"""What a user of the connector can be told: one exception for every refusal, one for lost data."""

from __future__ import annotations


class ConnectorError(RuntimeError):
    """A wrong option, an unreachable broker, an answer that cannot be used: the message says what to do."""


class DataLossError(ConnectorError):
    """Planned offsets are no longer (or not yet) in the log and `failOnDataLoss` is true."""


class TopicError(ConnectorError):
    """A topic that the broker does not give: its name, or the right to use it, is what to look at."""


class MissingTopicError(TopicError):
    """No broker knows the topic or partition, although it was asked for more than once."""


class AuthenticationError(ConnectorError):
    """One side does not trust the other: a password, a certificate, a mechanism. Never tried again."""
