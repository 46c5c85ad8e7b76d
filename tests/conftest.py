"""The engines that are under test in every run: SGLang's allocator files, unmodified, on torch alone."""

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "engines"))

if importlib.util.find_spec("sglang") and importlib.util.find_spec("torch"):
    import light_sglang

    light_sglang.install()
