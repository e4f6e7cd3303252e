"""Places for runs that work at the same time, and each principal's share. Contract: runs 1."""

import asyncio
from collections import Counter
from collections.abc import Callable

from antiphon.domain.actor import Asker
from antiphon.policy.shares import most_of_one, reserve_of


class Slots:
    """At most `count` places, some only for the owner's runs; one guest holds at most half of the others.

    A holder is the asker of the run, None if not known yet; its role is that of the time when the run was queued. A
    place of an unknown holder counts in every guest's share until its run is claimed. A run that takes its place again
    comes before runs that have not begun.
    """

    def __init__(self, count: int, on_free: Callable[[], None]) -> None:
        self.count = count
        self._free = count
        self._guest_places = count - reserve_of(count)
        self._most_of_one = most_of_one(count)
        self._on_free = on_free
        self._guests: Counter[Asker | None] = Counter()
        """Places held by guests, and by runs whose principal is not known yet."""
        self._resuming: dict[asyncio.Future[None], Asker | None] = {}

    @property
    def free(self) -> int:
        return self._free

    @property
    def free_for_guests(self) -> int:
        return min(self._free, self._guest_places - self._guests.total())

    @property
    def has_room_for_any(self) -> bool:
        """Whether a run may take a place, whatever its principal."""
        return self.free_for_guests > 0 and self._guests.total() < self._most_of_one

    def may_take(self, holder: Asker) -> bool:
        return self._has_share(holder, self._guests[None])

    def may_take_if_others_are_not_theirs(self, holder: Asker) -> bool:
        """Whether the holder may take a place, should no unknown holder turn out to be the same."""
        return self._has_share(holder, 0)

    def _has_share(self, holder: Asker, unknown: int) -> bool:
        if holder.is_favoured:
            return self._free > 0
        return self.free_for_guests > 0 and self._guests[holder] + unknown < self._most_of_one

    def try_take(self, holder: Asker | None) -> bool:
        """Takes a free place for a run that has not begun; False if there is none for the holder."""
        if not (self.has_room_for_any if holder is None else self.may_take(holder)):
            return False
        self._count(holder)
        return True

    def reassign(self, holder: Asker | None, other: Asker) -> None:
        """Gives the place to another holder, even beyond its share; the first may then take another place."""
        self._uncount(holder)
        self._count(other)
        self._resume()
        self._on_free()

    def give_back(self, holder: Asker | None) -> None:
        self._uncount(holder)
        self._resume()
        if self._free:
            self._on_free()

    async def take_again(self, holder: Asker) -> None:
        if self.may_take(holder):
            self._count(holder)
            return
        resuming = asyncio.get_running_loop().create_future()
        self._resuming[resuming] = holder
        try:
            await resuming
        except asyncio.CancelledError:
            if self._resuming.pop(resuming, None) is None:
                self.give_back(holder)
            raise

    def _resume(self) -> None:
        """Gives free places to runs that had one before, oldest first."""
        for resuming, holder in tuple(self._resuming.items()):
            if not self._free:
                return
            if resuming.done():  # its run was cancelled, and takes itself out once it wakes
                continue
            if holder is not None and self.may_take(holder):
                del self._resuming[resuming]
                self._count(holder)
                resuming.set_result(None)

    def _count(self, holder: Asker | None) -> None:
        self._free -= 1
        if holder is None or not holder.is_favoured:
            self._guests[holder] += 1

    def _uncount(self, holder: Asker | None) -> None:
        self._free += 1
        if holder is None or not holder.is_favoured:
            self._guests[holder] -= 1
            if not self._guests[holder]:
                del self._guests[holder]
