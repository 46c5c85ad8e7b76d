"""Ahead-of-time compilation for GPUs that are not here, and a gate on the machine code.

A launch is compiled with the specialization that the JIT would choose for its arguments.  The
interfaces of Triton used here are private; a test compiles every kernel through them.
"""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from kvoracle.gpu.kernel import HAS_TRITON, Launch, triton

if HAS_TRITON:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    from triton.runtime.jit import create_function_from_signature

ARCHITECTURES = (90, 100)


class Machine(NamedTuple):
    """What became of a kernel on one architecture; counts are of machine instructions."""

    kernel: str
    architecture: int
    registers: int
    wide_loads: int
    loads: int
    wide_stores: int
    stores: int
    local: int
    """Bytes of local memory and stack, and loads and stores of them: spills."""


class Limit(NamedTuple):
    """What a kernel must keep to.  `wide`: every store of 16 bytes, and as many such loads at the least."""

    registers: int
    wide: bool = True
    copies: bool = True
    """Whether what it stores it has loaded."""


LIMITS = {
    "slot_mapping": Limit(64, copies=False),
    "kv_write": Limit(64),
    "paged_gather": Limit(64),
    "copy_disjoint": Limit(40),
    "copy_chains": Limit(64),
    "alloc_extend": Limit(64, wide=False),
    "alloc_decode": Limit(48, wide=False),
}


def compile_ahead(launch: Launch, architecture: int) -> Any:
    """Triton's compiled kernel of one launch for sm_90 or sm_100."""
    target = GPUTarget("cuda", architecture, 32)
    backend = make_backend(target)
    function = launch.kernel.compiled
    bind = create_function_from_signature(function.signature, function.params, backend)
    keywords = {**launch.constants, "num_warps": launch.warps, "enable_fp_fusion": False}
    bound, specialization, _ = bind(*launch.arguments, **keywords)
    options, signature, constants, attributes = function._pack_args(
        backend, keywords, bound, specialization, None
    )
    source = ASTSource(function, signature, constants, attributes)
    return triton.compile(source, target=target, options=options.__dict__)


def measure(launch: Launch, architecture: int) -> Machine:
    """Compile one launch and count."""
    compiled = compile_ahead(launch, architecture)
    sass, usage = compiled.asm["sass"], _resource_usage(compiled.asm["cubin"])
    wide_loads, loads = _count(sass, r"LDG\.\S*128"), _count(sass, "LDG")
    wide_stores, stores = _count(sass, r"STG\.\S*128"), _count(sass, "STG")
    local = usage["STACK"] + usage["LOCAL"] + _count(sass, "LDL") + _count(sass, "STL")
    return Machine(
        launch.kernel.name,
        architecture,
        usage["REG"],
        *(wide_loads, loads, wide_stores, stores, local),
    )


def beyond_limits(machine: Machine) -> list[str]:
    """What the gate refuses."""
    limit = LIMITS[machine.kernel]
    where = f"{machine.kernel} on sm_{machine.architecture}"
    refused = []
    if machine.registers > limit.registers:
        refused.append(f"{where} takes {machine.registers} registers, more than {limit.registers}")
    if machine.local:
        refused.append(f"{where} spills: local memory or stack is used")
    if limit.wide and machine.wide_stores < machine.stores:
        narrow = machine.stores - machine.wide_stores
        refused.append(f"{where} has {narrow} stores of less than 16 bytes")
    if limit.wide and limit.copies and machine.wide_loads < machine.wide_stores:
        refused.append(f"{where} loads what it stores in less than 16 bytes at a time")
    return refused


def table(machines: list[Machine]) -> list[str]:
    """A line for each, and one of titles."""
    lines = [f"{'kernel':<14} {'arch':<7} {'registers':>9}  16-byte loads  16-byte stores  local"]
    for one in machines:
        loads, stores = f"{one.wide_loads}/{one.loads}", f"{one.wide_stores}/{one.stores}"
        arch = f"sm_{one.architecture}"
        lines.append(
            f"{one.kernel:<14} {arch:<7} {one.registers:>9}  {loads:>13}  {stores:>14}  {one.local:>5}"
        )
    return lines


def _count(sass: str, instruction: str) -> int:
    return len(re.findall(rf"\t(?:@!?\S+ )?{instruction}", sass))


def _resource_usage(cubin: bytes) -> dict[str, int]:
    """REG, STACK, SHARED, LOCAL in bytes, from the cuobjdump of Triton's wheel."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "-res-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(number) for name, number in re.findall(r"([A-Z]+):(\d+)", said)}
