"""The command `kvoracle gpu`, and the memories that `fuzz` can run on."""

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from kvoracle import __version__
from kvoracle.model import exits, found, report
from kvoracle.model.check import unfit
from kvoracle.model.errors import UsageError
from kvoracle.model.registry import Target, resolve
from kvoracle.model.trace import Trace, read, trace_files

MEMORIES = ("list", "device")
DEVICES = ("cpu", "cuda")
INSTALL = "pip install 'kvoracle[gpu]'"


def _file(name: str) -> Path:
    if not name:
        raise UsageError("A file has an empty name; give traces, or folders of them.")
    return Path(name)


def gpu(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            parser=_file,
            help="Traces, or folders of them, to run on device memory.",
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(help="cpu, where the kernels are interpreted, or cuda.")
    ] = "cpu",
    allocator: Annotated[str, typer.Option(help="As in fuzz.")] = "impl",
    check: Annotated[
        bool, typer.Option(help="Check the kernels themselves, layer by layer.")
    ] = False,
) -> None:
    """Run traces with keys and values on a device, moved by the kernels; or check the kernels."""
    if not files and not check:
        raise UsageError("There is nothing to do; give traces, or --check.")
    _check_device(device)
    target = resolve(allocator)
    traces = [(path, read(path)) for path in trace_files(files or [])]
    out = report.console()
    out.print(f"kvoracle {__version__} gpu", style="bold")
    is_right = _check_kernels(out) if check else True
    is_right &= _run_traces(out, traces, target, device) if traces else True
    raise typer.Exit(exits.NOTHING_FOUND if is_right else exits.VIOLATION)


def on_memory(target: Target, memory: str) -> Target:
    """The same allocator, whose lockstep is on a memory of this name."""
    if memory not in MEMORIES:
        raise UsageError(f"There is no memory {memory!r}; give {' or '.join(MEMORIES)}.")
    if memory == "list":
        return target
    return target._replace(factory=_adapter("device_memory").OnDeviceMemory(target.factory))


def _check_device(device: str) -> None:
    if device not in DEVICES:
        raise UsageError(f"There is no device {device!r}; give {' or '.join(DEVICES)}.")
    _adapter("device_memory")
    if device == "cuda" and not importlib.import_module("torch").cuda.is_available():
        raise UsageError("There is no CUDA device here; give --device cpu.")


def _run_traces(
    out: Console, traces: list[tuple[Path, Trace]], target: Target, device: str
) -> bool:
    """Whether every trace that the allocator can do leaves the pool as the plain memory has it."""
    run_on_device: Callable[..., Any] = _adapter("device_memory").run_on_device
    passed = failed = skipped = 0
    for path, trace in traces:
        obstacle = unfit(trace, target)
        if obstacle is not None:
            out.print(f"skipped  {path}: {target.name} {obstacle}", markup=False)
            skipped += 1
            continue
        failure, moved = run_on_device(trace, target.factory, device)
        passed, failed = passed + (failure is None), failed + (failure is not None)
        did = f"{moved.tokens} tokens, {moved.copies} copies, {moved.comparisons} whole-pool comparisons"
        out.print(
            f"{'passed' if failure is None else 'FAILED'}   {path} on {device}: {did}", markup=False
        )
        if failure is not None:
            out.print(found.describe(failure, target) + "\n", markup=False)
    out.print(f"{passed} passed, {failed} failed, {skipped} skipped")
    if skipped and not passed + failed:
        raise UsageError("None of the traces could be run; give traces that the allocator can do.")
    return failed == 0


def _check_kernels(out: Console) -> bool:
    """Whether every layer found the kernels right; one that could not be run is said, and no success."""
    layers = _adapter("gpu_layers")
    is_right = True
    for layer in layers.LAYERS:
        if layer.needs_triton and not layers.HAS_TRITON:
            out.print(f"NOT RUN  {layer.name:<8} {layer.about}: Triton is not here; {INSTALL}")
            is_right = False
            continue
        finding = layers.found_by(layer)
        state = "FAILED" if finding.problems else "passed"
        out.print(f"{state:<8} {layer.name:<8} {layer.about}: {finding.did}", markup=False)
        for line in [*finding.lines, *finding.problems]:
            out.print(f"    {line}", markup=False)
        is_right &= not finding.problems
    out.print("NOT SHOWN here: speed, and what only a GPU does wrong (make gpu).")
    return is_right


def _adapter(name: str) -> Any:
    if importlib.util.find_spec("torch") is None:
        raise UsageError(f"Device memory needs torch, which is not here; {INSTALL}.")
    return importlib.import_module(f"kvoracle.model.adapters.{name}")
