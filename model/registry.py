"""The allocators that can be named on the command line, and how to get the engine each needs."""

import importlib
from typing import NamedTuple

from kvoracle.model.adapters.base import Adapter, operations_of
from kvoracle.model.errors import UsageError
from kvoracle.model.lockstep import Factory
from kvoracle.model.operations import OPERATIONS, REASONS, Operation
from kvoracle.model.trace import Configuration

MUTANT_PREFIX = "mutant:"


class Known(NamedTuple):
    """An allocator that has an adapter here.  `install` is a tested way to get what it imports."""

    path: str
    about: str
    install: str = ""


SGLANG = (
    "pip install torch==2.13.0 && pip install --no-deps sglang==0.5.23 && pip install orjson"
    " psutil pybase64 requests triton packaging pillow starlette pyzmq tqdm ipython aiohttp"
)
VLLM = (
    "pip install torch==2.13.0 && pip install --no-deps vllm==0.33.0 xgrammar==0.2.8 && pip install"
    " 'transformers>=5.16.1,<5.21' 'fastapi>=0.133,<0.137' 'llguidance>=1.7,<1.8'"
    " apache-tvm-ffi==0.1.11 aiohttp cachetools cbor2 cloudpickle openai openai_harmony"
    " partial-json-parser pillow prometheus_client psutil py-cpuinfo pybase64 pyzmq requests uvloop"
)

ALLOCATORS = {
    "impl": Known("kvoracle.model.adapters.impl:ImplAdapter", "this project's own allocator"),
    "impl-batch": Known(
        "kvoracle.model.adapters.impl_batch:ImplBatchAdapter", "the same, one batch call a step"
    ),
    "impl-groups": Known(
        "kvoracle.model.adapters.impl_groups:ImplGroupsAdapter",
        "this project's own allocator for groups of layers: windows, several block sizes",
    ),
    "impl-token": Known(
        "kvoracle.model.adapters.impl_token:ImplTokenAdapter",
        "this project's own token pool, as in SGLang",
    ),
    "contiguous": Known(
        "kvoracle.model.adapters.contiguous:ContiguousAdapter",
        "the baseline: max_model_len slots reserved a request",
    ),
    "vllm": Known("kvoracle.model.adapters.vllm:VllmAdapter", "vLLM's KVCacheManager", VLLM),
    "vllm-in-order": Known(
        "kvoracle.model.adapters.vllm:VllmInOrderAdapter",
        "vLLM's KVCacheManager, and the order in which it reuses blocks",
        VLLM,
    ),
    "vllm-groups": Known(
        "kvoracle.model.adapters.vllm_groups:VllmGroupsAdapter",
        "vLLM's KVCacheManager for groups of layers: windows, several block sizes",
        VLLM,
    ),
    "vllm-groups-dense": Known(
        "kvoracle.model.adapters.vllm_groups:VllmDenseGroupsAdapter",
        "the same, keeping what every possible hit in a window needs",
        VLLM,
    ),
    "vllm-blockpool": Known(
        "kvoracle.model.adapters.vllm_blockpool:VllmBlockPoolAdapter",
        "vLLM's BlockPool alone",
        VLLM,
    ),
    "sglang": Known(
        "kvoracle.model.adapters.sglang:SGLangPagedAdapter",
        "SGLang's PagedTokenToKVPoolAllocator",
        SGLANG,
    ),
    "sglang-token": Known(
        "kvoracle.model.adapters.sglang:SGLangTokenAdapter",
        "SGLang's TokenToKVPoolAllocator, page size 1",
        SGLANG,
    ),
}


class Target(NamedTuple):
    """An allocator to test: its name, how to make an empty pool of it, and what it can do."""

    name: str
    factory: Factory
    operations: tuple[type[Operation], ...]
    block_sizes: range
    extra_keys: frozenset[str] = frozenset()
    options: frozenset[str] = frozenset()
    unreachable: frozenset[str] = frozenset()
    refuses: frozenset[str] = frozenset()

    @property
    def left_out(self) -> list[str]:
        """The verbs that the allocator cannot do."""
        return [operation.verb for operation in OPERATIONS if operation not in self.operations]


def target_of(name: str, adapter: type[Adapter], factory: Factory | None = None) -> Target:
    """A target from an adapter class, or from a factory of such adapters."""
    lacking = [verb for verb in ("create", "append", "release") if not hasattr(adapter, verb)]
    if lacking:
        raise UsageError(
            f"{name} has no {', '.join(lacking)}; an adapter must have at least these."
        )
    _check_declarations(name, adapter)
    return Target(
        name,
        factory or adapter,
        operations_of(adapter),
        adapter.block_sizes,
        adapter.extra_keys,
        adapter.options,
        adapter.unreachable,
        frozenset(adapter.refuses),
    )


def _check_declarations(name: str, adapter: type[Adapter]) -> None:
    refuses, sizes = adapter.refuses, adapter.block_sizes
    if not isinstance(refuses, frozenset | set) or not refuses <= REASONS:
        reasons = ", ".join(sorted(REASONS))
        raise UsageError(f"{name} refuses {refuses!r}; give a set of reasons from {reasons}.")
    if not isinstance(sizes, range) or not sizes or sizes[0] < 1:
        raise UsageError(f"{name} has block_sizes {sizes!r}; give a range of positive numbers.")
    for attribute in ("first_block", "headroom"):
        value = getattr(adapter, attribute)
        if not isinstance(value, int) or value < 0:
            raise UsageError(f"{name} has {attribute} {value!r}; give a whole number from 0 on.")


def resolve(name: str) -> Target:
    """The target of a known name, `mutant:NAME` or `package.module:factory`; or a UsageError."""
    if name.startswith(MUTANT_PREFIX):
        return _mutant(name.removeprefix(MUTANT_PREFIX))
    path = ALLOCATORS[name].path if name in ALLOCATORS else name
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise UsageError(
            f"There is no allocator {name!r}; give one of {', '.join(ALLOCATORS)},"
            " or package.module:factory, or mutant:NAME."
        )
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except AttributeError as error:
        raise UsageError(
            f"{module_name} has no {attribute!r} ({error}); name a factory."
        ) from error
    except (Exception, SystemExit) as error:
        raise UsageError(_why_missing(name, module_name, error)) from error
    return _target_from(name, factory)


def missing(name: str) -> str | None:
    """Why a known allocator cannot be tested here; None when it can."""
    try:
        resolve(name)
    except UsageError as error:
        return str(error)
    return None


def _mutant(name: str) -> Target:
    mutants = importlib.import_module("kvoracle.model.mutants").MUTANTS
    for mutant in mutants:
        if mutant.name == name:
            target: Target = mutant.target
            return target
    known = ", ".join(mutant.name for mutant in mutants)
    raise UsageError(f"There is no mutant {name!r}; give one of {known}.")


def _why_missing(name: str, module_name: str, error: BaseException) -> str:
    if name in ALLOCATORS and ALLOCATORS[name].install:
        return f"{name} needs an engine that is not here ({error}); {ALLOCATORS[name].install}"
    said = f"{type(error).__name__}: {error}"
    return f"{module_name} cannot be imported ({said}); run where it is installed or on sys.path."


def _target_from(name: str, factory: object) -> Target:
    if isinstance(factory, type) and issubclass(factory, Adapter):
        return target_of(name, factory)
    if not callable(factory):
        raise UsageError(f"{name} is not callable; name an Adapter class or a function making one.")
    try:
        probe = factory(Configuration(blocks=8, block_size=4))
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {error}"
        raise UsageError(f"{name} makes no adapter for 8 blocks of 4 slots ({said}).") from error
    if not isinstance(probe, Adapter):
        raise UsageError(f"{name} makes a {type(probe).__name__}; it must make a kvoracle Adapter.")
    return target_of(name, type(probe), factory)
