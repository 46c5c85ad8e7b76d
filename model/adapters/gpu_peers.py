"""The kernels of the installed engines, unmodified, called as ours are and put under the same layers.

Each kernel is taken from the engine's own file, without importing the engine.  What is seen is shown
and fails nothing: these kernels are not ours.
"""

import ast
import importlib.metadata
import importlib.util
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from kvoracle.gpu.ahead import measure
from kvoracle.gpu.block_copy import as_words
from kvoracle.gpu.checks import in_one_line
from kvoracle.gpu.copy_plan import plan_copies
from kvoracle.gpu.kernel import Kernel, Launch, ceil_div, launching_with, power_of_two
from kvoracle.gpu.production import launches_of
from kvoracle.gpu.sanitizer import Sanitizer
from kvoracle.model.adapters.gpu_case import Case, wrong_calls
from kvoracle.model.adapters.gpu_cases import edge_cases, random_cases

ROUNDS = 12
COPY_WORDS = 2048
"""Of a tile of SGLang's page copy."""


class Peer(NamedTuple):
    """A kernel of an engine: which of our functions it is like, and the cases that are its contract."""

    engine: str
    kernel: str
    function: str
    call: Callable[..., None]
    takes: Callable[[Case], bool]


class Seen(NamedTuple):
    """What the layers saw of a peer's kernel."""

    calls: int
    differences: list[str]
    reports: list[str]
    machine: str


def sglang_alloc_extend(
    before: torch.Tensor,
    after: torch.Tensor,
    last: torch.Tensor,
    free_pages: torch.Tensor,
    slots: torch.Tensor,
    page_size: int,
) -> None:
    """SGLang's kernel, called as `alloc_extend`."""
    kernel = _kernel("sglang", "kernels/ops/memory/allocator.py", "alloc_extend_kernel")
    bs_upper = power_of_two(len(before), 2**20)
    arguments = (before, after, last, free_pages, slots)
    kernel.launch(len(before), *arguments, bs_upper=bs_upper, page_size=page_size)


def sglang_alloc_decode(
    lengths: torch.Tensor,
    last: torch.Tensor,
    free_pages: torch.Tensor,
    slots: torch.Tensor,
    page_size: int,
) -> None:
    """SGLang's kernel, called as `alloc_decode`."""
    kernel = _kernel("sglang", "kernels/ops/memory/allocator.py", "alloc_decode_kernel")
    bs_upper = power_of_two(len(lengths), 2**20)
    arguments = (lengths + 1, last, free_pages, slots)
    kernel.launch(len(lengths), *arguments, bs_upper=bs_upper, page_size=page_size)


def sglang_copy_pages(planes: Sequence[torch.Tensor], pairs: Sequence[tuple[int, int]]) -> None:
    """SGLang's kernel, called as `copy_blocks`."""
    kernel = _kernel("sglang", "kernels/ops/kvcache/copy_pages.py", "_copy_pages_kernel")
    words = as_words(planes)[0]
    sources, destinations = (
        torch.tensor(ids, device=words.device) for ids in zip(*pairs, strict=True)
    )
    kernel.launch(
        len(pairs),
        *(words, sources, destinations, words.shape[1]),
        second_axis=ceil_div(words.shape[1], COPY_WORDS),
        SRC_STRIDE=1,
        DST_STRIDE=1,
        BLOCK=COPY_WORDS,
    )


def vllm_slot_mapping(
    block_table: torch.Tensor,
    query_starts: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    block_size: int,
    *,
    ratio: int = 1,
    world: int = 1,
    rank: int = 0,
    interleave: int = 1,
) -> None:
    """vLLM's kernel, called as `slot_mapping`."""
    kernel = _kernel("vllm", "v1/worker/block_table.py", "kernel")
    arguments = (int(query_starts[-1]), len(slots), query_starts, positions)
    kernel.launch(
        len(block_table) + 1,
        *(*arguments, block_table, block_table.stride(0), slots),
        KV_CACHE_BLOCK_SIZE=block_size // ratio,
        TOTAL_CP_WORLD_SIZE=world,
        TOTAL_CP_RANK=rank,
        CP_KV_CACHE_INTERLEAVE_SIZE=interleave,
        PAD_ID=-1,
        BLOCK_SIZE=1024,
    )


def _any_case(_case: Case) -> bool:
    return True


def _pages_fit(case: Case) -> bool:
    """Pages of a power of two."""
    return int(case.arguments[-1]).bit_count() == 1


def _is_disjoint_and_one_plane(case: Case) -> bool:
    """What the page copy asks for: disjoint sets, one contiguous storage."""
    planes, pairs = case.arguments
    is_whole = len(planes) == 1 and planes[0].is_contiguous()
    return bool(pairs) and is_whole and _is_disjoint(pairs)


def _is_disjoint(pairs: Sequence[tuple[int, int]]) -> bool:
    return plan_copies(pairs).is_disjoint and all(a != b for a, b in pairs)


def _is_inside_the_table(case: Case) -> bool:
    """What the slot kernel asks for: positions that have a block; a split only without ranks."""
    table, _, positions, _, block_size = case.arguments
    ratio, world = case.keywords.get("ratio", 1), case.keywords.get("world", 1)
    reach = table.shape[1] * block_size // ratio * world
    is_inside = bool((positions < reach).all())
    return len(table) > 0 and is_inside and (ratio == 1 or world == 1)


PEERS = (
    Peer("sglang", "alloc_extend_kernel", "alloc_extend", sglang_alloc_extend, _pages_fit),
    Peer("sglang", "alloc_decode_kernel", "alloc_decode", sglang_alloc_decode, _any_case),
    Peer("sglang", "copy_pages", "copy_blocks", sglang_copy_pages, _is_disjoint_and_one_plane),
    Peer("vllm", "slot mapping", "slot_mapping", vllm_slot_mapping, _is_inside_the_table),
)


def version_of(engine: str) -> str | None:
    """The version of an engine that is installed; None where it is not."""
    try:
        return importlib.metadata.version(engine)
    except importlib.metadata.PackageNotFoundError:
        return None


def look_at(peer: Peer) -> Seen:
    """A peer's kernel under layers A, B and C; masked lanes hold 0 here, as they mostly do on a GPU."""
    sanitizer = Sanitizer(ROUNDS, poisons=(0,))
    with launching_with(sanitizer.carry_out):
        calls, differences = _run(peer)
    reports = list(dict.fromkeys(f"{report.kind}: {report.what}" for report in sanitizer.reports))
    return Seen(calls, differences, reports, _machine(peer))


def in_lines(peer: Peer) -> list[str]:
    """What was seen of a peer's kernel, or that its engine is not here."""
    version = version_of(peer.engine)
    if version is None:
        return [f"{peer.engine}, {peer.kernel}: skipped, {peer.engine} is not installed"]
    try:
        seen = look_at(peer)
    except Exception as error:
        return [f"{peer.engine} {version}, {peer.kernel}: not to be seen: {in_one_line(error)}"]
    said = [*seen.differences, *seen.reports] or ["nothing to report"]
    head = f"{peer.engine} {version}, {peer.kernel}: {seen.calls} calls; {seen.machine}"
    return [head, *(f"    {one}" for one in said)]


def launch_of(peer: Peer) -> Launch:
    """A launch of a peer's kernel with an engine's shapes.

    An engine whose file or kernel is not where it was is an OSError or a LookupError.
    """
    return launches_of(peer.function, peer.call)[0]


def _run(peer: Peer) -> tuple[int, list[str]]:
    cases = [case for seed in range(ROUNDS) for case in random_cases(seed)]
    cases = [one for one in [*cases, *edge_cases(ROUNDS)] if one.function == peer.function]
    taken = [case for case in cases if peer.takes(case)]
    return len(taken), list(wrong_calls(taken, {peer.function: peer.call}))


def _machine(peer: Peer) -> str:
    """What the compiled kernel takes on sm_90."""
    one = measure(launch_of(peer), 90)
    return (
        f"{one.registers} registers, {one.wide_stores} of {one.stores} stores of 16 bytes,"
        f" {one.local} local"
    )


@cache
def _kernel(engine: str, file: str, name: str) -> Kernel:
    """A kernel from the engine's own file, its decorator with it."""
    found = importlib.util.find_spec(engine)
    assert found is not None
    assert found.origin is not None
    source = (Path(found.origin).parent / file).read_text(encoding="utf-8")
    compiled = getattr(_module_of(_function_in(source, name), f"{engine}_{name}"), name)
    kernel = _PeerKernel(compiled.fn)
    kernel.compiled = compiled
    return kernel


def _function_in(source: str, name: str) -> str:
    """The text of one function and of its triton.jit decorator."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            decorator = node.decorator_list[-1]
            lines = source.splitlines()[decorator.lineno - 1 : node.end_lineno]
            return textwrap.dedent("\n".join(lines))
    raise LookupError(f"there is no function {name} any more")


def _module_of(function: str, name: str) -> ModuleType:
    """A module with one function; its file stays, since Triton reads sources late."""
    path = Path(tempfile.mkdtemp()) / f"{name}.py"
    imports = "import triton\nimport triton.language as tl\n\n\n"
    path.write_text(imports + function + "\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class _PeerKernel(Kernel):
    """A kernel that may call Triton's own functions, such as tl.sum."""

    @cached_property
    def interpreted(self) -> Any:
        return _Interpreted(self.function)


class _Interpreted(interpreter.InterpretedFunction):  # type: ignore[misc]
    """An interpreted kernel, with Triton's own functions interpreted while it runs."""

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return _interpretable_library()(super().__getitem__(grid))


class _LibraryFunction(interpreter.InterpretedFunction):  # type: ignore[misc]
    """An interpreted function that, once called, leaves Triton's language as it found it."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        scope = interpreter._patch_lang(self.fn)
        try:
            return self.rewrite()(*arguments, **options)
        finally:
            scope.restore()


@contextmanager
def _interpretable_library() -> Iterator[None]:
    """Triton's own functions, such as tl.sum, interpreted: else that takes TRITON_INTERPRET."""
    own = {name: f for name, f in vars(tl).items() if isinstance(f, triton.JITFunction)}
    for name, function in own.items():
        setattr(tl, name, _LibraryFunction(function.fn))
    try:
        yield
    finally:
        for name, function in own.items():
            setattr(tl, name, function)
