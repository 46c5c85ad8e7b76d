"""vLLM's allocator files alone, with torch, msgspec, pyzmq, cbor2 and vLLM's wheel.

The files in `REAL` run as released.  Every other vLLM module that they import, for unrelated
reasons, is a stand-in: each name in it is an empty class, each member of that a function that
returns None.  `USED` has what must do more.  When the engine moves a file, the import fails and
these two must be looked at again.
"""

import importlib.util
import logging
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

REAL = [
    "distributed.kv_events",
    "lora",
    "lora.request",
    "utils",
    "utils.hashing",
    "utils.math_utils",
    "v1",
    "v1.core",
    "v1.core.block_pool",
    "v1.core.kv_cache_coordinator",
    "v1.core.kv_cache_manager",
    "v1.core.kv_cache_metrics",
    "v1.core.kv_cache_utils",
    "v1.core.single_type_kv_cache_manager",
    "v1.hisparse",
    "v1.hisparse.block_pool",
    "v1.kv_cache_interface",
    "v1.kv_cache_layout",
    "v1.kv_cache_spec_registry",
    "v1.metrics.stats",
    "v1.request",
]
SAMPLING = {"max_tokens": 16, "extra_args": None, "skip_reading_prefix_cache": None}


class _SamplingParams(SimpleNamespace):
    def __init__(self, **chosen: Any) -> None:
        super().__init__(**SAMPLING | chosen)


class _PlaceholderRange(NamedTuple):
    offset: int
    length: int


class _MultiModalFeatureSpec(NamedTuple):
    data: Any
    modality: str
    identifier: str
    mm_position: _PlaceholderRange


USED: dict[str, dict[str, Any]] = {
    "logger": {"init_logger": logging.getLogger},
    "multimodal.inputs": {
        "MultiModalFeatureSpec": _MultiModalFeatureSpec,
        "PlaceholderRange": _PlaceholderRange,
    },
    "sampling_params": {"SamplingParams": _SamplingParams},
    "v1.utils": {"ConstantList": lambda tokens: tokens},
}


def install() -> None:
    """Make vLLM's allocators importable; nothing to do where vllm is imported already."""
    if "vllm" in sys.modules:
        return
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        raise ImportError("pip install --no-deps vllm==0.33.0")
    sys.modules["vllm"] = package = ModuleType("vllm", "A stand-in by kvoracle's tests.")
    package.__path__ = [str(Path(found.origin).parent)]
    package.__spec__ = found
    sys.meta_path.insert(0, _StandIns())


class _StandIns:
    """Finds each module of vLLM: the real file or a stand-in."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("vllm."):
            return None
        if name.removeprefix("vllm.") in REAL:
            return PathFinder.find_spec(name, path, target)
        module = name.rpartition(".")[2]
        spec = ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        spec.submodule_search_locations = [f"{parent}/{module}" for parent in path or ()]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name, "A stand-in by kvoracle's tests.")

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(USED.get(module.__name__.removeprefix("vllm."), {}))


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> type:
        return _Empty(_public(name), (), {})


class _Empty(type):
    def __getattr__(cls, name: str) -> Callable[..., None]:
        return {_public(name): lambda *_: None}[name]


def _public(name: str) -> str:
    if name.startswith("__"):
        raise AttributeError(name)
    return name
