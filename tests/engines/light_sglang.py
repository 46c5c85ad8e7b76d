"""SGLang's allocator files alone, with torch and the sglang wheel and nothing else installed.

The files run as released.  What they import for unrelated reasons (`sglang/__init__.py`, its
utilities and their fifty imports, the platform, the Triton kernels) is replaced by stand-ins in
`sys.modules`.  One function of the utilities is part of the allocation, `get_num_new_pages`: it is
compiled from the engine's own source.  When the engine moves a file, `install` or the import after
it fails, and the names below must be looked at again.
"""

import ast
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Optional

import torch


def install() -> None:
    """Make `sglang.srt.mem_cache.allocator` importable; nothing to do where sglang is imported."""
    if "sglang" in sys.modules:
        return
    found = importlib.util.find_spec("sglang")
    if found is None or found.origin is None:
        raise ImportError("pip install --no-deps sglang==0.5.23")
    home = Path(found.origin).parent
    utilities = home / "srt" / "utils" / "common.py"
    no_triton = SimpleNamespace(capabilities=SimpleNamespace(supports_triton=False))
    _stand_in("sglang", __path__=[str(home)], __spec__=found)
    _stand_in("sglang.srt.platforms", current_platform=no_triton)
    _stand_in(
        "sglang.kernels.ops.memory.allocator", alloc_decode_kernel=None, alloc_extend_kernel=None
    )
    _stand_in(
        "sglang.srt.utils",
        get_bool_env_var=lambda name: os.environ.get(name, "").lower() in ("true", "1"),
        get_num_new_pages=_function_of(utilities, "get_num_new_pages"),
        is_hip=lambda: False,
        next_power_of_2=None,
    )


def _stand_in(name: str, **contents: Any) -> None:
    module = ModuleType(name, "A stand-in by kvoracle's tests.")
    vars(module).update(contents)
    sys.modules[name] = module


def _function_of(file: Path, name: str) -> Callable[..., Any]:
    """One function of a file, without running the rest of the file."""
    definitions = ast.parse(file.read_text(encoding="utf-8")).body
    wanted = [d for d in definitions if isinstance(d, ast.FunctionDef) and d.name == name]
    if not wanted:
        raise ImportError(f"{file} has no function {name} any more")
    names: dict[str, Any] = {"torch": torch, "Optional": Optional}
    exec(compile(ast.Module(wanted, []), str(file), "exec"), names)
    function: Callable[..., Any] = names[name]
    return function
