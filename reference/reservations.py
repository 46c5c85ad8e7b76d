"""Reservations: room that is there before the tokens are, as for speculative tokens.

Reserved room is allocated and empty.  Committing writes into it; what is rejected is trimmed, or
stays as room.  So what is committed never exceeds what is allocated.
"""

from kvoracle.reference.lookups import LookUpKV
from kvoracle.reference.records import Rejected


class ReservingKV(LookUpKV):
    """A `LookUpKV` in which room is reserved, committed and trimmed."""

    def reserve(self, request: str, count: int) -> None:
        """Have room for `count` tokens beyond those written, or MemoryError."""
        # check
        self._check_settled(request)
        if count < 1:
            raise Rejected("no tokens", request)
        self._check_length(request, self.length(request) + count)
        # take
        self._make_room(request, count)

    def commit(self, request: str, *tokens: object) -> None:
        """Write tokens into the room that is reserved for them."""
        # check
        self._check_settled(request)
        if not tokens:
            raise Rejected("no tokens", request)
        if len(tokens) > self.lives[request].reserved:
            raise Rejected("more than reserved", request)
        # record
        self._write(request, tokens)

    def trim(self, request: str) -> None:
        """Give the room back that no token needs."""
        # check
        self._check_settled(request)
        # record
        table = self.tables[request]
        needed = -(-self.length(request) // self.block_size)
        spare, table[needed:] = table[needed:], []
        for page in spare:
            self.pages[page].owners.remove(request)
        self.lives[request].reserved = 0
        self._give_back(spare)
