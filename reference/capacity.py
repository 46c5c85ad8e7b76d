"""How many requests a pool holds, and whether it holds one of the longest: whole-number arithmetic.

All sizes are at least 1 and all counts at least 0; a call's unit is named last.  After the source
document's own figures (Llama-3-8B, 52.32 GiB) and vLLM's startup check.
"""

from dataclasses import dataclass
from fractions import Fraction

INDEX_ENTRY_BYTES = 4
"""An int32: what both kinds of table hold."""


@dataclass(frozen=True)
class Startup:
    """Whether a pool can serve one request of `max_model_len` tokens, which engines ask at startup."""

    needed_blocks: int
    available_blocks: int
    largest_len: int
    """The most tokens that one request could have."""

    @property
    def fits(self) -> bool:
        """Whether the engine may start."""
        return self.needed_blocks <= self.available_blocks


def startup(max_model_len: int, blocks: int, block_size: int) -> Startup:
    """What one request of `max_model_len` tokens needs, and what an empty pool has."""
    return Startup(blocks_for(max_model_len, block_size), blocks, blocks * block_size)


def pool_bytes(
    memory: Fraction, utilization: Fraction, weights: Fraction, overhead: Fraction
) -> int:
    """What an engine leaves for its pool, in whole bytes; negative where there is nothing left."""
    return int((memory * utilization - weights - overhead) // 1)


def blocks_for(tokens: int, block_size: int) -> int:
    """The blocks that hold so many tokens of one request; the last may be partly filled.

    pre: tokens >= 0
    pre: block_size >= 1
    post: (__return__ - 1) * block_size < tokens <= __return__ * block_size
    """
    return -(-tokens // block_size)


def blocks_spanned(tokens: int, block_size: int) -> int:
    """The most blocks that so many successive tokens lie in, wherever they begin."""
    return (tokens + block_size - 2) // block_size + 1


def token_bytes(layers: int, kv_heads: int, head_dim: int, element_bytes: int) -> int:
    """The keys and values of one token in every layer."""
    return 2 * layers * kv_heads * head_dim * element_bytes


def blocks_in(pool_bytes: int, block_size: int, bytes_per_token: int) -> int:
    """The whole blocks that a pool has room for.

    pre: pool_bytes >= 0
    pre: block_size >= 1 and bytes_per_token >= 1
    post: __return__ * (block_size * bytes_per_token) <= pool_bytes
    post: pool_bytes < (__return__ + 1) * (block_size * bytes_per_token)
    """
    return pool_bytes // (block_size * bytes_per_token)


def contiguous_admissions(slots: int, max_model_len: int) -> int:
    """How many requests are admitted when each reserves `max_model_len` slots.

    pre: slots >= 0
    pre: max_model_len >= 1
    post: __return__ * max_model_len <= slots < (__return__ + 1) * max_model_len
    """
    return slots // max_model_len


def paged_admissions(blocks: int, block_size: int, tokens: int) -> int:
    """How many requests of so many tokens hold blocks at once; `tokens` is at least 1."""
    return blocks // blocks_for(tokens, block_size)


def unused_slots(max_model_len: int, tokens: int) -> int:
    """The slots that a request of so many tokens reserves and does not use, contiguously.

    pre: 0 <= tokens <= max_model_len
    post: __return__ >= 0 and __return__ + tokens == max_model_len
    """
    return max_model_len - tokens


def block_table_bytes(requests: int, max_model_len: int, block_size: int) -> int:
    """An index with an entry a block and a row a request, as vLLM has it."""
    return requests * blocks_for(max_model_len, block_size) * INDEX_ENTRY_BYTES


def token_table_bytes(requests: int, max_model_len: int) -> int:
    """An index with an entry a token and a row a request and one for padding, as SGLang has it."""
    return (requests + 1) * max_model_len * INDEX_ENTRY_BYTES


def worst_tail(block_size: int) -> int:
    """The most slots of a last block that hold no token."""
    return block_size - 1


def uniform_tail(block_size: int) -> Fraction:
    """The mean of those slots if all remainders of lengths were equally frequent."""
    return Fraction(block_size - 1, 2)
