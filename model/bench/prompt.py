"""Requests with long prompts in a pool that caches prefixes: admitted cold, admitted on a whole hit,
freed.

A side takes the prompt as its engine does: ours as an int32 array, vLLM as a list, from which the
measured work makes the `Request`, its hashes included.
"""

from operator import methodcaller
from typing import Any, Protocol

from kvoracle.model.bench.row import Race
from kvoracle.model.bench.side import BLOCK_SIZE, BLOCKS, Prompt, new_impl, prompts
from kvoracle.model.bench.vllm import Manager

REQUESTS = 8
TOKENS = 4_096

ADMIT_COLD = ("free", "forget", "admit")
ADMIT_HIT = ("free", "forget", "admit", "free", "admit")
FREE = ("free", "forget", "admit", "free")


class Desk(Protocol):
    """An allocator with verbs for all the requests at once."""

    def admit(self) -> None:
        """Begin every request with its prompt."""

    def free(self) -> None:
        """End every request that runs."""

    def forget(self) -> None:
        """Drop every entry of the prefix cache."""

    def num_free(self) -> int:
        """How many blocks can be taken."""


class ImplDesk:
    """`PagedAllocator`."""

    units = REQUESTS

    def __init__(self, blocks: int = BLOCKS) -> None:
        self.allocator = new_impl(blocks, BLOCK_SIZE, prefix_cache=True)
        self.prompts = _named_prompts()
        self.running: list[str] = []

    def admit(self) -> None:
        for name, prompt in self.prompts.items():
            self.allocator.admit(name, prompt)
        self.running = list(self.prompts)

    def free(self) -> None:
        for name in self.running:
            self.allocator.release(name)
        self.running = []

    def forget(self) -> None:
        self.allocator.reset_prefix_cache()

    def num_free(self) -> int:
        return self.allocator.num_free


class VllmDesk:
    """`KVCacheManager`."""

    def __init__(self) -> None:
        self.vllm = Manager(prefix_cache=True)
        self.prompts = {name: prompt.tolist() for name, prompt in _named_prompts().items()}
        self.running: list[Any] = []

    def admit(self) -> None:
        self.running = [self.vllm.admit(name, prompt) for name, prompt in self.prompts.items()]

    def free(self) -> None:
        self.vllm.free(self.running)
        self.running = []

    def forget(self) -> None:
        self.vllm.forget()

    def num_free(self) -> int:
        return self.vllm.num_free()


class Job:
    """Verbs of a desk: the last one is timed, those before it lead up to it."""

    units = REQUESTS

    def __init__(self, desk: Desk, verbs: tuple[str, ...]) -> None:
        self.desk = desk
        *self.before, self.timed = map(methodcaller, verbs)

    def begin(self) -> None:
        for verb in self.before:
            verb(self.desk)

    def work(self) -> None:
        self.timed(self.desk)

    def num_free(self) -> int:
        return self.desk.num_free()


def _named_prompts() -> dict[str, Prompt]:
    return {f"request {number}": drawn for number, drawn in enumerate(prompts(REQUESTS, TOKENS))}


def _race(name: str, work: str, verbs: tuple[str, ...], goal: float) -> Race:
    return Race(
        name, work, "vllm", lambda: Job(ImplDesk(), verbs), lambda: Job(VllmDesk(), verbs), goal
    )


ROWS = (
    _race("admit-cold", "admit a prompt of 4,096 tokens, nothing cached", ADMIT_COLD, 3),
    _race("admit-hit", "admit a prompt of 4,096 tokens, all of it cached and idle", ADMIT_HIT, 3),
    _race("free-cached", "free a request of 4,096 tokens, caching on", FREE, 3),
)
