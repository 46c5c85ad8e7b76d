"""Launches as an engine serving Llama-3-8B makes them: what ahead-of-time compilation compiles.

The tensors are small, on the CPU and never moved; shapes, strides and alignment are the real ones, since
those are what the JIT specializes on.
"""

from collections.abc import Callable
from typing import Any

import torch

from kvoracle.gpu.functions import KERNELS, Functions
from kvoracle.gpu.kernel import Launch, launching_with

LAYERS, HEADS, HEAD_SIZE, BLOCK_SIZE = 32, 8, 128, 16
REQUESTS, TOKENS, WIDTH = 256, 8192, 2048


def production_launches(functions: Functions = KERNELS) -> list[Launch]:
    """One launch of every kernel."""
    return [one for name, function in functions.items() for one in launches_of(name, function)]


def launches_of(name: str, function: Callable[..., None]) -> list[Launch]:
    """The launches that a function of this name makes."""
    launches: list[Launch] = []
    with launching_with(launches.append):
        for arguments in _calls()[name]:
            function(*arguments)
    return launches


def _calls() -> dict[str, list[tuple[Any, ...]]]:
    """The arguments of each function's calls."""
    table = torch.zeros((REQUESTS, WIDTH), dtype=torch.int32)
    starts = torch.zeros(REQUESTS + 1, dtype=torch.int32)
    free, slots = torch.arange(TOKENS), torch.arange(TOKENS)
    cache = torch.empty((4, 2, BLOCK_SIZE, HEADS, HEAD_SIZE), dtype=torch.bfloat16)
    new = torch.empty((64, 2, HEADS, HEAD_SIZE), dtype=torch.bfloat16)
    caches, news = (cache[:, 0], cache[:, 1]), (new[:, 0], new[:, 1])
    width = 2 * BLOCK_SIZE * HEADS * HEAD_SIZE
    layers = [torch.empty((4, width), dtype=torch.bfloat16) for _ in range(LAYERS)]
    lengths = torch.zeros(REQUESTS, dtype=torch.int64)
    grown = lengths + TOKENS // REQUESTS
    return {
        "slot_mapping": [(table, starts, slots, slots.clone(), BLOCK_SIZE)],
        "copy_blocks": [(layers, [(0, 1)]), (layers, [(0, 1), (1, 2)])],
        "kv_write": [(*news, *caches, slots[:64])],
        "paged_gather": [(*caches, torch.zeros(4, dtype=torch.int32), *news)],
        "alloc_extend": [(lengths, grown, lengths, free, slots, BLOCK_SIZE)],
        "alloc_decode": [(lengths, lengths, free, slots[:REQUESTS], BLOCK_SIZE)],
    }
