"""Launches as an engine serving Llama-3-8B makes them: what ahead-of-time compilation compiles.

The tensors are small, on the CPU and never moved; shapes, strides and alignment are the real ones, since
those are what the JIT specializes on.
"""

import torch

from kvoracle.gpu.functions import KERNELS, Functions
from kvoracle.gpu.kernel import Launch, launching_with

LAYERS, HEADS, HEAD_SIZE, BLOCK_SIZE = 32, 8, 128, 16
REQUESTS, TOKENS, WIDTH = 256, 8192, 2048


def production_launches(functions: Functions = KERNELS) -> list[Launch]:
    """One launch of every kernel."""
    launches: list[Launch] = []
    with launching_with(launches.append):
        _write_and_read(functions)
        _copy(functions)
        _allocate(functions)
    return launches


def _write_and_read(functions: Functions) -> None:
    table = torch.zeros((REQUESTS, WIDTH), dtype=torch.int32)
    starts = torch.zeros(REQUESTS + 1, dtype=torch.int32)
    slots = torch.arange(TOKENS)
    functions["slot_mapping"](table, starts, slots, slots.clone(), BLOCK_SIZE)
    cache = torch.empty((4, 2, BLOCK_SIZE, HEADS, HEAD_SIZE), dtype=torch.bfloat16)
    new = torch.empty((64, 2, HEADS, HEAD_SIZE), dtype=torch.bfloat16)
    functions["kv_write"](new[:, 0], new[:, 1], cache[:, 0], cache[:, 1], slots[:64])
    blocks = torch.zeros(4, dtype=torch.int32)
    functions["paged_gather"](cache[:, 0], cache[:, 1], blocks, new[:, 0], new[:, 1])


def _copy(functions: Functions) -> None:
    layers = [
        torch.empty((4, 2 * BLOCK_SIZE * HEADS * HEAD_SIZE), dtype=torch.bfloat16)
        for _ in range(LAYERS)
    ]
    functions["copy_blocks"](layers, [(0, 1)])
    functions["copy_blocks"](layers, [(0, 1), (1, 2)])


def _allocate(functions: Functions) -> None:
    lengths = torch.zeros(REQUESTS, dtype=torch.int64)
    free, slots = torch.arange(TOKENS), torch.arange(TOKENS)
    grown = TOKENS // REQUESTS
    functions["alloc_extend"](lengths, lengths + grown, lengths, free, slots, BLOCK_SIZE)
    functions["alloc_decode"](lengths, lengths, free, slots[:REQUESTS], BLOCK_SIZE)
