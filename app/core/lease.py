"""Who leads, and what its followers take from it. Pure: the store's answers and the time come in.

One gateway of those on a store plans for all. It leads while the store renews its lease, and it stops by its own clock
before the lease can end there, so that nobody else has begun. What it publishes carries its *epoch*, a number that only
rises (the ms of the store's clock when it was elected, or more): who led before and does not know that it is over is
refused by it, in the store and by every follower. A store that lost its data has forgotten the number, so whoever asks
tells the highest that it knows of.

Source: Kleppmann, "How to do distributed locking" (fencing); Kubernetes' leader election (lease, renew, stop).
"""

from typing import NamedTuple

LEASE_S = 5.0
"""Life of the lease in the store."""

RENEW_S = 1.5
"""How often it is renewed, or asked for."""

STOP_S = 3.5
"""Without a renewal that began within this, a leader stops by itself."""

MAX_EPOCH = 2**53 - 1
"""The store counts in doubles."""


class Place(NamedTuple):
    """The order of what is published. Tuples compare as it is meant: a later leader's comes after all of an earlier's.

    seq: counts what one leader published.
    """

    epoch: int
    seq: int


NOWHERE = Place(0, 0)


class Election(NamedTuple):
    """The store's answer to one that asked to lead. leader: who does, which may be who asked."""

    leader: str
    epoch: int


class Lease:
    """What one gateway knows of who leads.

    known_epoch: the highest that it ever heard of. epoch: that of its own leadership, 0 while it never led.
    leader: who leads as the store last said, "" while that is not known.
    """

    __slots__ = ("_holds_until", "_name", "epoch", "known_epoch", "leader")

    def __init__(self, name: str) -> None:
        self._name = name
        self._holds_until = float("-inf")
        self.known_epoch = 0
        self.epoch = 0
        self.leader = ""

    def answered(self, election: Election, asked_at: float) -> None:
        """The store's answer to what was asked at `asked_at`, monotonic seconds.

        Counted from when it was asked: the lease cannot have begun earlier in the store.
        """
        self.leader = election.leader
        if election.leader == self._name and election.epoch >= self.known_epoch:
            self.epoch = election.epoch
            self._holds_until = asked_at + STOP_S
        else:
            self.stop()
        self.heard_of(election.epoch)

    def heard_of(self, epoch: int) -> None:
        """Somebody led with this epoch. Who leads with a lower one does not any more."""
        self.known_epoch = max(self.known_epoch, epoch)
        if epoch > self.epoch:
            self.stop()

    def stop(self) -> None:
        """Lead no longer, whatever the store says."""
        self._holds_until = float("-inf")

    def leads(self, now: float) -> bool:
        return now < self._holds_until


class Inbox:
    """What a follower has applied. last: its place, which only rises."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = NOWHERE

    def takes(self, place: Place) -> bool:
        """Whether to apply what stands at `place`. What comes late, twice or from a deposed leader is not."""
        if place <= self.last:
            return False
        self.last = place
        return True
