"""The block pool: struct-of-arrays, taken and given back in batches.

Per block three int32 counts (owners, pins and holds), an int64 generation, an int32 cell of the free
stack, a flag, and 12 bytes of the idle queue: 37 bytes.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kvoracle.impl.errors import OutOfBlocks
from kvoracle.impl.idle_queue import IdleQueue
from kvoracle.impl.ids import ONE, Ids, Rows

ONE_OWNER = ONE.astype(np.int32)


class BlockPool:
    """`blocks` blocks named 0 .. blocks - 1, each held while it has an owner, a pin or a hold.

    Owners are requests, pins are transfers, holds are lookups and steps.  A block that nothing holds
    is taken again: those that are not published first, last in first out; then the idle ones
    (published, held by nothing), which became idle first.  Of a batch that is given back, the last
    goes before the first, so a sequence's tail before its head.  `forget` is told which blocks lose
    their entries.  Every id array holds distinct ids unless a method says otherwise.

    Single blocks go through memoryviews of the same arrays, several times as fast as numpy's own.
    """

    def __init__(self, blocks: int, forget: Callable[[Ids], None]) -> None:
        self.blocks = blocks
        self.owners = np.zeros(blocks, np.int32)
        self.pins = np.zeros(blocks, np.int32)
        self.holds = np.zeros(blocks, np.int32)
        self.generations = np.zeros(blocks, np.int64)
        self.published = np.zeros(blocks, np.bool_)
        self.barred: set[int] = set()
        self.idle = IdleQueue(blocks)
        self.evictions = 0
        self._forget = forget
        self._pinned_or_held = 0
        self._stack = np.arange(blocks - 1, -1, -1, dtype=np.int32)
        self._stacked = blocks
        self._owners, self._pins, self._holds = self.owners.data, self.pins.data, self.holds.data
        self._generations, self._published = self.generations.data, self.published.data
        self._cells = self._stack.data

    @property
    def num_free(self) -> int:
        """How many blocks can be taken."""
        return self._stacked + len(self.idle)

    def take(self, count: int) -> Ids:
        """Take `count` blocks with one owner each; OutOfBlocks, and none, when there are fewer.

        Returns int32 [count], in the order of taking.
        """
        if count > self.num_free:
            raise OutOfBlocks(count, self.num_free)
        return np.array([self.take_one()], np.int32) if count == 1 else self._take(count)

    def use_and_take(self, hit: Ids, count: int, spare: int, read: Ids | None = None) -> Ids:
        """`use` and `take`, after which at least `spare` blocks are left; or OutOfBlocks.

        None of `read` is taken, and those that nothing holds are given back.  Returns int32, the hits
        and then what was taken.
        """
        kept = hit if read is None else np.concatenate([hit, read])
        room = self.room_beside(kept)
        if count + spare > room:
            raise OutOfBlocks(count + spare, room)
        self.use(kept)
        taken = self._take(count)
        if read is not None and len(read):
            self.drop_owner(read)
        return np.concatenate([hit, taken])

    def room_beside(self, kept: Ids) -> int:
        """How many blocks can be taken that are none of these."""
        return self.num_free - int(np.count_nonzero(self._unheld(kept)))

    def take_one(self) -> int:
        """As `take(1)`, without an array."""
        if self._stacked:
            self._stacked -= 1
            block: int = self._cells[self._stacked]
        elif len(self.idle):
            block = int(self._evict(1)[0])
        else:
            raise OutOfBlocks(1, 0)
        self._owners[block] = 1
        self._generations[block] += 1
        if self.barred:
            self.barred.discard(block)
        return block

    def use(self, ids: Ids) -> None:
        """Count one more owner for each block, idle or held."""
        self.idle.remove(ids[self._unheld(ids)])
        self.owners[ids] += 1

    def hold(self, ids: Ids) -> None:
        """Count one more hold for each block, idle or held."""
        self.idle.remove(ids[self._unheld(ids)])
        self.add_hold(ids)

    def add_hold(self, ids: Ids | Rows) -> None:
        """Count one more hold for each block, all of which are held."""
        self._pinned_or_held += len(ids)
        self.holds[ids] += 1

    def drop_hold(self, ids: Ids | Rows) -> None:
        """Count one hold less for each block and give back those that nothing holds."""
        self._pinned_or_held -= len(ids)
        self.holds[ids] -= 1
        self._give_back_unheld(ids)

    def publish(self, ids: Ids) -> None:
        """Mark held blocks as findable by their content: idle, not free, once nothing holds them."""
        self.published[ids] = True

    def unpublish(self, ids: Ids) -> None:
        """Drop the entries of held blocks, and publish none of these while they are allocated."""
        entries = ids[self.published[ids]]
        self.published[entries] = False
        self._forget(entries)
        self.barred.update(ids.tolist())

    def forget_idle(self) -> None:
        """Drop the entries of all idle blocks and make them plain free ones."""
        self._stack_up(self._forget_oldest(len(self.idle)))

    def add_owner(self, ids: Ids) -> None:
        """Count one more owner for each block."""
        self.owners[ids] += 1

    def drop_owner(self, ids: Ids) -> None:
        """Count one owner less for each block and give back those that nothing holds."""
        if len(ids) == 1:
            self.drop_owner_of(int(ids[0]))
            return
        places = ids.astype(np.intp)
        left = self.owners[places] - ONE_OWNER
        self.owners[places] = left
        if self._pinned_or_held or np.count_nonzero(left):
            self._give_back_unheld(places)
        else:
            self._give_back(places)

    def drop_owner_of(self, block: int) -> None:
        """As `drop_owner` for one block, without an array."""
        self._owners[block] -= 1
        if self.is_held(block):
            return
        if self._published[block]:
            self.idle.append(np.array([block], np.int32))
        else:
            self._cells[self._stacked] = block
            self._stacked += 1

    def drop_owners(self, ids: Ids) -> None:
        """As `drop_owner` for ids that may repeat: each occurrence drops one owner."""
        np.subtract.at(self.owners, ids, 1)
        self._give_back_unheld(self.last_mentions(ids))

    def last_mentions(self, ids: Ids) -> Rows:
        """Ids that may repeat, each once, in the order in which they are last mentioned; intp, which
        numpy looks up several times as fast."""
        places, order = ids.astype(np.intp), np.arange(len(ids), dtype=np.int32)
        last = np.empty(self.blocks, np.int32)
        last[places] = -1
        np.maximum.at(last, places, order)
        mentions: Rows = places[last[places] == order]
        return mentions

    def add_pin(self, ids: Ids) -> None:
        """Count one more pin for each block."""
        self._pinned_or_held += len(ids)
        self.pins[ids] += 1

    def drop_pin(self, ids: Ids) -> None:
        """Count one pin less for each block and give back those that nothing holds."""
        self._pinned_or_held -= len(ids)
        self.pins[ids] -= 1
        self._give_back_unheld(ids)

    def is_exclusive(self, block: int) -> bool:
        """Whether a block may be written in place: one owner, no pin."""
        return bool(self._owners[block] == 1 and self._pins[block] == 0)

    def is_held(self, block: int) -> bool:
        """Whether anything but its entries keeps a block."""
        return bool(self._owners[block] or self._pins[block] or self._holds[block])

    def are_exclusive(self, ids: Ids) -> NDArray[np.bool_]:
        """`is_exclusive` for many blocks; ids may repeat."""
        exclusive: NDArray[np.bool_] = (self.owners[ids] == 1) & (self.pins[ids] == 0)
        return exclusive

    def takeable(self) -> Ids:
        """The blocks that can be taken, in the order in which they will be: int32 [num_free]."""
        return np.concatenate([self._stack[: self._stacked][::-1], self.idle.ids()])

    def _take(self, count: int) -> Ids:
        plain = min(count, self._stacked)
        top = self._stacked
        self._stacked = top - plain
        taken: Ids = self._stack[top - plain : top][::-1].copy()
        if plain < count:
            taken = np.concatenate([taken, self._evict(count - plain)])
        places = taken.astype(np.intp)
        self.owners[places] = ONE_OWNER
        self.generations[places] += ONE
        if self.barred:
            self.barred.difference_update(taken.tolist())
        return taken

    def _evict(self, count: int) -> Ids:
        self.evictions += count
        return self._forget_oldest(count)

    def _forget_oldest(self, count: int) -> Ids:
        forgotten = self.idle.pop(count)
        self.published[forgotten] = False
        self._forget(forgotten)
        return forgotten

    def _give_back_unheld(self, ids: Ids | Rows) -> None:
        unheld = self._unheld(ids)
        self._give_back(ids if np.count_nonzero(unheld) == len(ids) else ids[unheld])

    def _give_back(self, ids: Ids | Rows) -> None:
        """Give back blocks that nothing holds."""
        published = self.published[ids]
        idle = np.count_nonzero(published)
        if idle == 0:
            self._stack_up(ids)
        elif idle == len(ids):
            self.idle.append(ids[::-1])
        else:
            self.idle.append(ids[published][::-1])
            self._stack_up(ids[~published])

    def _stack_up(self, ids: Ids | Rows) -> None:
        first = self._stacked
        self._stacked = end = first + len(ids)
        self._stack[first:end] = ids

    def _unheld(self, ids: Ids | Rows) -> NDArray[np.bool_]:
        counts = self.owners[ids]
        if self._pinned_or_held:
            counts |= self.pins[ids] | self.holds[ids]
        unheld: NDArray[np.bool_] = counts == 0
        return unheld
