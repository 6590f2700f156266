"""Snapshots of counters, with units."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PublisherStats", "SubscriberStats"]


class PublisherStats(NamedTuple):
    """What a publisher has done, at one moment."""

    published: int  #: frames since start, over all epochs
    dropped: int  #: frames that found no free slot
    discarded: int  #: slots acquired and given back unpublished
    epoch: int  #: number of the current configuration, from 1
    slots: int  #: slots of the ring
    slots_leased: int  #: slots that some subscriber is reading
    subscribers: int  #: connected subscribers


class SubscriberStats(NamedTuple):
    """What a subscriber has seen, at one moment."""

    received: int  #: frames handed out
    skipped: int  #: frames published meanwhile that it never took
    retries: int  #: times a slot was rewritten between the look and the lease
    connects: int  #: connections made: 1 plus the reconnects
    epoch: int  #: number of the current configuration; 0 while not connected
    leases: int  #: slots it holds in the current epoch
    lease_limit: int  #: slots that it may hold
    copied: int = 0  #: frames, of those received, that were copied for it
