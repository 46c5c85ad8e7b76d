"""A decode step: every running request grows by a token and is given the slot to write it to.

The requests are staggered: in every step one of 16 begins a block.  vLLM answers with the new
blocks, and its worker works out the slots later; ours are worked out here.
"""

from typing import Any

import numpy as np

from kvoracle.model.bench.row import Race
from kvoracle.model.bench.side import BLOCK_SIZE, BLOCKS, VOCABULARY, new_impl, prompts
from kvoracle.model.bench.vllm import Manager

STEPS = BLOCK_SIZE


class Batch:
    """Running requests by name, their prompts, and a new token for each of them in every step."""

    def __init__(self, requests: int, prompt_blocks: int) -> None:
        self.names = [f"request {number}" for number in range(requests)]
        longest = prompts(requests, (prompt_blocks + 1) * BLOCK_SIZE)
        self.prompts = [
            prompt[: prompt_blocks * BLOCK_SIZE + number % BLOCK_SIZE]
            for number, prompt in enumerate(longest)
        ]
        self.tokens = np.random.default_rng(2).integers(0, VOCABULARY, (STEPS, requests))


class ImplDecode:
    """The whole batch in one call."""

    units = STEPS

    def __init__(self, batch: Batch, prefix_cache: bool, blocks: int = BLOCKS) -> None:
        self.batch = batch
        self.prefix_cache = prefix_cache
        self.allocator = new_impl(blocks, BLOCK_SIZE, prefix_cache=prefix_cache)
        self.running: list[str] = []
        self.one_each = np.ones(len(batch.names), np.int64)

    def begin(self) -> None:
        if self.running:
            self.allocator.release_batch(self.running)
            self.allocator.reset_prefix_cache()
        self.running = self.batch.names
        for name, prompt in zip(self.running, self.batch.prompts, strict=True):
            self.allocator.admit(name, prompt)
        self.rows = self.allocator.rows(self.running)

    def work(self) -> None:
        for tokens in self.batch.tokens:
            self.allocator.grow(self.rows, self.one_each, tokens if self.prefix_cache else None)

    def num_free(self) -> int:
        return self.allocator.num_free


class VllmDecode:
    """One request after the other, as its scheduler does; a request hashes the blocks it fills."""

    units = STEPS

    def __init__(self, batch: Batch, prefix_cache: bool) -> None:
        self.names = batch.names
        self.prompts = [prompt.tolist() for prompt in batch.prompts]
        self.tokens = batch.tokens.tolist()
        self.prefix_cache = prefix_cache
        self.vllm = Manager(prefix_cache=prefix_cache)
        self.running: list[Any] = []

    def begin(self) -> None:
        self.vllm.free(self.running)
        self.vllm.forget()
        self.running = list(map(self.vllm.admit, self.names, self.prompts))

    def work(self) -> None:
        for tokens in self.tokens:
            if self.prefix_cache:
                self._write(tokens)
            self._schedule()

    def num_free(self) -> int:
        return self.vllm.num_free()

    def _write(self, tokens: list[int]) -> None:
        for request, token in zip(self.running, tokens, strict=True):
            request.append_output_token_ids(token)

    def _schedule(self) -> None:
        allocate_slots = self.vllm.manager.allocate_slots
        for request in self.running:
            allocate_slots(request, 1)
            request.num_computed_tokens += 1


def _race(name: str, requests: int, prompt_blocks: int, caching: bool, goal: float) -> Race:
    state = "on" if caching else "off"

    def batch() -> Batch:
        return Batch(requests, prompt_blocks)

    return Race(
        name,
        f"decode step of {requests:,} requests, caching {state}",
        "vllm",
        lambda: ImplDecode(batch(), caching),
        lambda: VllmDecode(batch(), caching),
        goal,
    )


ROWS = (
    _race("decode-256", 256, 32, caching=False, goal=50),
    _race("decode-256-cached", 256, 32, caching=True, goal=30),
    _race("decode-4096", 4_096, 4, caching=False, goal=150),
)
