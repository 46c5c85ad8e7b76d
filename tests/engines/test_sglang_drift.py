"""The SGLang methods that the adapter calls still take what they took in 0.5.23."""

import importlib.util
import inspect
from importlib.metadata import version

import pytest

if any(importlib.util.find_spec(module) is None for module in ("torch", "sglang")):
    install = "pip install torch==2.13.0 && pip install --no-deps sglang==0.5.23"
    pytest.skip(f"SGLang is absent: {install}", allow_module_level=True)

import light_sglang

light_sglang.install()

from kvoracle.model.adapters import sglang as adapter  # noqa: E402

TOKEN = {
    "__init__": "(self, size, dtype, device, kvcache, need_sort)",
    "alloc": "(self, need_size)",
    "available_size": "(self)",
    "free": "(self, free_index)",
    "free_group_begin": "(self)",
    "free_group_end": "(self)",
    "free_segment": "(self, free_index, *, start_pos)",
    "free_segments": "(self, segments)",
}
PAGED = TOKEN | {
    "__init__": "(self, size, page_size, dtype, device, kvcache, need_sort)",
    "alloc_decode": "(self, seq_lens, seq_lens_cpu, last_loc)",
    "alloc_extend": (
        "(self, prefix_lens, prefix_lens_cpu, seq_lens, seq_lens_cpu, last_loc, extend_num_tokens,"
        " num_new_pages=None)"
    ),
}
CALLS = [
    (allocator, method, signature)
    for allocator, methods in (
        (adapter.TokenToKVPoolAllocator, TOKEN),
        (adapter.PagedTokenToKVPoolAllocator, PAGED),
    )
    for method, signature in methods.items()
]


@pytest.mark.parametrize(("allocator", "method", "expected"), CALLS)
def test_signatures_are_those_of_0_5_23(allocator, method, expected):
    function = getattr(allocator, method, None)
    found = "gone" if function is None else signature_of(function)
    assert found == expected, (
        f"{allocator.__name__}.{method} of SGLang {version('sglang')} is {found}, where it was "
        f"{expected}: look at kvoracle/model/adapters/sglang.py again"
    )


def signature_of(function):
    """Names, kinds and defaults, without annotations."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))
