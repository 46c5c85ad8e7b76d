"""The check of an engine's start: one request of `max_model_len` tokens must fit into the empty pool.

After vLLM 0.33.0, v1/core/kv_cache_utils.py, `_check_enough_kv_cache_memory`.
"""

from kvoracle.impl.errors import BadCall


class TooLittleMemory(BadCall):
    """The pool could never serve a request of `max_model_len` tokens.

    `needed` and `available` are blocks; `largest` is the most tokens that would fit.
    """

    def __init__(self, max_model_len: int, needed: int, available: int, largest: int) -> None:
        super().__init__("max_model_len does not fit", str(max_model_len))
        self.needed = needed
        self.available = available
        self.largest = largest
        self.args = (
            f"one request of max_model_len {max_model_len} needs {needed} blocks, and the pool has"
            f" {available}: lower max_model_len to {largest} or give the pool more memory",
        )


def check_startup(max_model_len: int, blocks: int, block_size: int) -> None:
    """TooLittleMemory where `blocks` usable blocks of `block_size` slots are too few.

    ValueError for a number below 1.
    """
    if min(max_model_len, blocks, block_size) < 1:
        raise ValueError("max_model_len, blocks and block_size must be at least 1")
    largest = blocks * block_size
    if max_model_len > largest:
        whole, part = divmod(max_model_len, block_size)
        raise TooLittleMemory(max_model_len, whole + (part > 0), blocks, largest)
