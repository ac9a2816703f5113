"""Who may touch a partition: its cleaning states and every legal move between them.

Mirrors Kafka's `LogCleaningState`. Pauses are counted: who pauses twice must resume twice (T123). Who pauses
aborts a running cleaning, cooperatively: it notices at the next chunk. What else the broker does to a log its
owner does in one step, beside cleanings (in Kafka it pauses them).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    IDLE = "idle"
    IN_PROGRESS = "in progress"
    ABORTED = "aborted"
    PAUSED = "paused"


class Move(Enum):
    BEGIN = "begin"
    ABORT = "abort"
    RESUME = "resume"
    DONE = "done"


class IllegalMove(RuntimeError):
    """Our own bug: somebody resumes what is not paused, or ends what was not begun."""


@dataclass(frozen=True, slots=True)
class CleaningState:
    """The phase, and how many still hold the partition back."""

    phase: Phase = Phase.IDLE
    pauses: int = 0


IDLE = CleaningState()

# (phase, move) -> the phase while somebody holds it back afterwards, and the phase when nobody does.
MOVES: dict[tuple[Phase, Move], tuple[Phase, Phase]] = {
    (Phase.IDLE, Move.BEGIN): (Phase.PAUSED, Phase.IN_PROGRESS),
    (Phase.IDLE, Move.ABORT): (Phase.PAUSED, Phase.IDLE),
    (Phase.IN_PROGRESS, Move.ABORT): (Phase.ABORTED, Phase.ABORTED),
    (Phase.IN_PROGRESS, Move.DONE): (Phase.PAUSED, Phase.IDLE),
    (Phase.ABORTED, Move.ABORT): (Phase.ABORTED, Phase.ABORTED),
    (Phase.ABORTED, Move.RESUME): (Phase.ABORTED, Phase.ABORTED),
    (Phase.ABORTED, Move.DONE): (Phase.PAUSED, Phase.IDLE),
    (Phase.PAUSED, Move.ABORT): (Phase.PAUSED, Phase.PAUSED),
    (Phase.PAUSED, Move.RESUME): (Phase.PAUSED, Phase.IDLE),
}  # fmt: skip

PAUSES = {Move.ABORT: 1, Move.RESUME: -1}


def after(state: CleaningState, move: Move) -> CleaningState:
    """The next state; `IllegalMove` when there is none."""
    phases = MOVES.get((state.phase, move))
    pauses = state.pauses + PAUSES.get(move, 0)
    if phases is None or pauses < 0:
        raise IllegalMove(
            f"{move.value} of a partition whose cleaning is {state.phase.value} ({state.pauses} pauses)"
        )
    return CleaningState(phases[0] if pauses else phases[1], pauses)
