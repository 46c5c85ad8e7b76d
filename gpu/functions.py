"""The kernels' functions and their torch twins, by name."""

from collections.abc import Callable, Mapping

from kvoracle.gpu import block_copy, kv_write, page_alloc, paged_gather, slot_mapping

Functions = Mapping[str, Callable[..., None]]

MODULE_OF = {
    "slot_mapping": slot_mapping,
    "copy_blocks": block_copy,
    "kv_write": kv_write,
    "paged_gather": paged_gather,
    "alloc_extend": page_alloc,
    "alloc_decode": page_alloc,
}

KERNELS: Functions = {name: getattr(module, name) for name, module in MODULE_OF.items()}
TWINS: Functions = {name: getattr(module, f"{name}_torch") for name, module in MODULE_OF.items()}
