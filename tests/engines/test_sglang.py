"""SGLang's real allocators, run as released, in lockstep with the reference."""

import importlib

import pytest

pytest.importorskip(
    "sglang", reason="pip install torch==2.13.0 && pip install --no-deps sglang==0.5.23"
)

ADAPTERS = (
    "SGLangTokenAdapter",
    "SGLangPagedAdapter",
    "SGLangSortedTokenAdapter",
    "SGLangSortedPagedAdapter",
)


def adapter_named(name):
    return getattr(importlib.import_module("kvoracle.model.adapters.sglang"), name)


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("engine", ["walk", "hypothesis"])
def test_sglang_keeps_every_rule(name, engine):
    from kvoracle.model.check import as_target
    from kvoracle.model.engines import hunt

    failure, tally = hunt(
        engine,
        as_target(adapter_named(name)),
        seed=1,
        operations_max=4_000 if engine == "walk" else 1_500,
    )

    assert failure is None
    assert tally.outcomes["append", "ok"] > 50
    assert tally.outcomes["append", "out of blocks"] > 50


def test_a_double_free_inside_sglang_is_caught():
    from kvoracle.model.check import as_target
    from kvoracle.model.engines import hunt

    class FreesTwice(adapter_named("SGLangPagedAdapter")):
        def release(self, request):
            slots = list(self.slots[request])
            super().release(request)
            self.slots[request] = slots
            super().release(request)

    failure, _ = hunt("walk", as_target(FreesTwice), seed=1, operations_max=20_000)

    assert failure is not None
    assert failure.rule in ("free count", "choice")
