"""How many requests a pool holds, and whether it holds one of the longest: whole-number arithmetic.

All sizes are at least 1 and all counts at least 0; a call's unit is named last.  After the source
document's own figures (Llama-3-8B, 52.32 GiB) and vLLM's startup check.
"""

from dataclasses import dataclass


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


def blocks_for(tokens: int, block_size: int) -> int:
    """The blocks that hold so many tokens of one request; the last may be partly filled."""
    return -(-tokens // block_size)


def token_bytes(layers: int, kv_heads: int, head_dim: int, element_bytes: int) -> int:
    """The keys and values of one token in every layer."""
    return 2 * layers * kv_heads * head_dim * element_bytes


def blocks_in(pool_bytes: int, block_size: int, bytes_per_token: int) -> int:
    """The whole blocks that a pool has room for."""
    return pool_bytes // (block_size * bytes_per_token)


def contiguous_admissions(slots: int, max_model_len: int) -> int:
    """How many requests are admitted when each reserves `max_model_len` slots."""
    return slots // max_model_len


def paged_admissions(blocks: int, block_size: int, tokens: int) -> int:
    """How many requests of so many tokens hold blocks at once; `tokens` is at least 1."""
    return blocks // blocks_for(tokens, block_size)


def unused_slots(max_model_len: int, tokens: int) -> int:
    """The slots that a request of so many tokens reserves and does not use, contiguously."""
    return max_model_len - tokens
