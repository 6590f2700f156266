"""Who may say what when.

Rule 1: whatever decides a transition stands in :data:`TRANSITIONS`.
Rule 2: the table speaks of who sent, never of who we are.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from cuframes_nb._wire.messages import (
    Epoch,
    Goodbye,
    Hello,
    Message,
    Passed,
    Query,
    Refuse,
    Status,
    Welcome,
)
from cuframes_nb.errors import LocalProtocolError, RemoteProtocolError

__all__ = ["TRANSITIONS", "Link", "Phase", "Side", "advance"]


class Side(enum.Enum):
    """The two ends."""

    PUBLISHER = "publisher"
    SUBSCRIBER = "subscriber"

    @property
    def other(self) -> Side:
        """The other end."""
        return Side.SUBSCRIBER if self is Side.PUBLISHER else Side.PUBLISHER


class Phase(enum.Enum):
    """How far a connection has come."""

    NEW = "new"
    GREETED = "greeted"
    WELCOMED = "welcomed"
    STREAMING = "streaming"
    QUERIED = "queried"
    CLOSED = "closed"


TRANSITIONS: Final[Mapping[tuple[Phase, Side, type[Message]], Phase]] = {
    (Phase.NEW, Side.SUBSCRIBER, Hello): Phase.GREETED,
    (Phase.NEW, Side.SUBSCRIBER, Query): Phase.QUERIED,
    (Phase.QUERIED, Side.PUBLISHER, Status): Phase.CLOSED,
    (Phase.GREETED, Side.PUBLISHER, Welcome): Phase.WELCOMED,
    (Phase.WELCOMED, Side.PUBLISHER, Epoch): Phase.STREAMING,
    (Phase.STREAMING, Side.PUBLISHER, Epoch): Phase.STREAMING,
    (Phase.STREAMING, Side.SUBSCRIBER, Passed): Phase.STREAMING,
    (Phase.STREAMING, Side.PUBLISHER, Goodbye): Phase.CLOSED,
    (Phase.NEW, Side.PUBLISHER, Refuse): Phase.CLOSED,
    (Phase.QUERIED, Side.PUBLISHER, Refuse): Phase.CLOSED,
    (Phase.GREETED, Side.PUBLISHER, Refuse): Phase.CLOSED,
    (Phase.WELCOMED, Side.PUBLISHER, Refuse): Phase.CLOSED,
    (Phase.STREAMING, Side.PUBLISHER, Refuse): Phase.CLOSED,
}


def advance(phase: Phase, sender: Side, message: Message) -> Phase:
    """Return the phase after `sender` said `message`.

    Raises
    ------
    LocalProtocolError
        If it may not be said in this phase.
    """
    try:
        return TRANSITIONS[phase, sender, type(message)]
    except KeyError:
        raise LocalProtocolError(
            f"the {sender.value} may not say {type(message).__name__} on a connection that is "
            f"{phase.value}"
        ) from None


class Link:
    """One end of a control connection: messages in, messages out, no I/O.

    Parameters
    ----------
    side
        Which end this is.
    """

    __slots__ = ("_side", "phase")

    def __init__(self, side: Side) -> None:
        self._side = side
        self.phase = Phase.NEW

    def outgoing(self, message: Message) -> Message:
        """Note that this end says `message`, and return it.

        Raises
        ------
        LocalProtocolError
            If it may not be said now.
        """
        self.phase = advance(self.phase, self._side, message)
        return message

    def incoming(self, message: Message) -> Message:
        """Note that the other end said `message`, and return it.

        Raises
        ------
        RemoteProtocolError
            If it may not be said now; the connection is closed for good.
        """
        try:
            self.phase = advance(self.phase, self._side.other, message)
        except LocalProtocolError as error:  # the same rule, broken by the other side
            self.phase = Phase.CLOSED
            raise RemoteProtocolError(str(error)) from None
        return message
