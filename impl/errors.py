"""What the allocator raises.  Either way nothing was changed."""


class OutOfBlocks(MemoryError):
    """There are not enough free blocks for this call."""

    def __init__(self, need: int, free: int) -> None:
        super().__init__(f"{need} blocks needed, {free} free")
        self.need = need
        self.free = free


class BadCall(ValueError):
    """The call itself is wrong: an unknown or duplicate name, no tokens.  `reason` says which."""

    def __init__(self, reason: str, name: str) -> None:
        super().__init__(f"{reason}: {name!r}")
        self.reason = reason
