"""What an allocator says beforehand that a prompt would hit, held against what it then hits."""

import pytest

from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.operations import Admit, Release
from kvoracle.model.run import run
from kvoracle.model.trace import Configuration, Trace

TURNS = [
    Admit("a", (1, 2, 3)),
    Admit("b", (1, 2, 4)),
    Release("a"),
    Release("b"),
    Admit("c", (1, 2, 5)),
]


class SaysNothing(ImplAdapter):
    def would_hit(self, request, prompt, extra_keys):
        return None


class PromisesALastToken(ImplAdapter):
    def would_hit(self, request, prompt, extra_keys):
        hit, idle = super().would_hit(request, prompt, extra_keys)
        return hit + 1, idle


class CountsHeldBlocks(ImplAdapter):
    """As if every block that is hit had been idle."""

    def would_hit(self, request, prompt, extra_keys):
        hit, _ = super().would_hit(request, prompt, extra_keys)
        return hit, hit // 2


class ForgetsIdleBlocks(ImplAdapter):
    def would_hit(self, request, prompt, extra_keys):
        return super().would_hit(request, prompt, extra_keys)[0], 0


class SaysSomethingElse(ImplAdapter):
    def would_hit(self, request, prompt, extra_keys):
        return "much"


def said_of(adapter):
    return run(Trace(Configuration(8, 2, prefix_cache=True), TURNS), adapter)


@pytest.mark.parametrize("adapter", [ImplAdapter, SaysNothing])
def test_what_comes_true_is_no_failure(adapter):
    assert said_of(adapter) is None


@pytest.mark.parametrize(
    ("adapter", "index", "said"),
    [
        (PromisesALastToken, 0, "(1, 0), yet: (0, 0)"),
        (CountsHeldBlocks, 1, "(2, 1), yet: (2, 0)"),
        (ForgetsIdleBlocks, 4, "(2, 0), yet: (2, 1)"),
    ],
)
def test_what_comes_otherwise_is_a_violation(adapter, index, said):
    failure = said_of(adapter)

    assert (failure.rule, failure.index) == ("predicate", index)
    assert failure.message.endswith(said)


def test_an_answer_of_another_shape_is_a_violation():
    failure = said_of(SaysSomethingElse)

    assert failure.rule == "report"
    assert "two whole numbers" in failure.message
