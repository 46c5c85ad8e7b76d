"""The source document's experiments: every prediction holds, and a broken allocator is told so."""

import io

import pytest
from rich.console import Console

from kvoracle import impl
from kvoracle.impl.startup import TooLittleMemory, check_startup
from kvoracle.model.adapters.base import Adapter
from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.errors import UsageError
from kvoracle.model.operations import OutOfBlocks
from kvoracle.model.registry import resolve, target_of
from kvoracle.model.serving import experiments as document
from kvoracle.model.serving.experiments import Experiment, experiments, show_experiments


@pytest.fixture(scope="module")
def on_impl():
    return {experiment.name: experiment for experiment in experiments(resolve("impl"))}


@pytest.fixture
def only(monkeypatch):
    """Leaves all experiments out but for those named."""

    def leave_out(*names):
        kept = {name: document.EXPERIMENTS[name] for name in names}
        monkeypatch.setattr(document, "EXPERIMENTS", kept)

    return leave_out


def predicted(experiment):
    return {row.what: row.predicted for row in experiment.rows}


def that_differ(experiment):
    return {row.what: row.observed for row in experiment.rows if not row.holds}


def shown(target, found):
    text = io.StringIO()
    return show_experiments(Console(file=text, width=200), target, found), text.getvalue()


@pytest.mark.parametrize("name", document.EXPERIMENTS)
def test_everything_is_observed_as_predicted(on_impl, name):
    assert on_impl[name].rows
    assert that_differ(on_impl[name]) == {}
    assert on_impl[name].notes == []


def test_the_predictions_are_the_documents(on_impl):
    two, twice, startup = (on_impl[n] for n in ("two prompts", "prompt twice", "startup"))

    assert predicted(two)["paged: slots held by prompts"] == 2 * 250 * 16
    assert predicted(two)["contiguous: admitted at once"] == 1
    assert predicted(twice)["cache on: tokens hit"] == 249 * 16
    assert predicted(twice)["cache on: blocks that the second takes"] == 1 + 1
    assert predicted(startup)["blocks of 131,072 tokens"] == 8_192
    assert predicted(startup)["most tokens that fit"] == 32_768


def test_blocks_of_32_halve_what_is_taken_and_double_the_tails(on_impl):
    rows = predicted(on_impl["block size"])

    assert rows["blocks of 16: taken by their prompts"] == 8 * 250
    assert rows["blocks of 32: taken by their prompts"] == 8 * 125
    assert rows["blocks of 16: worst tail, in slots"] == 15
    assert rows["blocks of 32: worst tail, in slots"] == 31
    assert (
        rows["blocks of 16: tokens hit of 720 shared"] == 16 + 32 + 48 + 80 + 96 + 112 + 128 + 160
    )
    assert rows["blocks of 32: tokens hit of 720 shared"] == 0 + 32 + 32 + 64 + 96 + 96 + 128 + 160


def test_the_series_begin_where_nobody_is_preempted(on_impl):
    series = on_impl["concurrency"].series

    assert series["requests"] == list(document.COUNTS)
    assert series["preemptions"][:8] == [0, 0, 0, 0, 0, 0, 1, 2]
    assert set(series["preemptions with credits"]) == {0}
    assert on_impl["two prompts"].series["paged"] == [min(n, 8) for n in document.COUNTS]
    assert on_impl["two prompts"].series["contiguous"] == [1] * len(document.COUNTS)


def test_the_check_of_a_start_says_the_same():
    with pytest.raises(TooLittleMemory) as refused:
        check_startup(document.TOO_LONG, document.BLOCKS, document.BLOCK_SIZE)

    assert (refused.value.needed, refused.value.largest) == (8_192, 32_768)


def test_the_table_says_that_all_is_as_predicted(on_impl):
    held, text = shown(resolve("impl"), list(on_impl.values()))

    assert held
    assert "35 of 35 as predicted" in text
    assert "DIFFERS" not in text


class Leaks(ImplAdapter):
    """A request that ends leaves a block behind."""

    def release(self, request):
        super().release(request)
        self.allocator.create(f"left by {request}")
        self.allocator.append(f"left by {request}", [0])


class NeverAdmits(ImplAdapter):
    """No request finds room."""

    def append(self, request, tokens):
        return OutOfBlocks()

    def admit(self, request, prompt, extra_keys):
        return OutOfBlocks()


class MixesUp(ImplAdapter):
    """A request reads its blocks in another order than they were written."""

    def table(self, request):
        return super().table(request)[::-1]


class TakesOneMore(ImplAdapter):
    """Who grows is given a block for tokens to come."""

    def append(self, request, tokens):
        outcome = super().append(request, tokens)
        self.allocator.reserve(request, self.config.block_size)
        return outcome


class Forgets(ImplAdapter):
    """Nothing is found once everybody has left."""

    def admit(self, request, prompt, extra_keys):
        if self.allocator.num_free == self.config.blocks:
            self.allocator.reset_prefix_cache()
        return super().admit(request, prompt, extra_keys)


class OneSlotBlocks(ImplAdapter):
    """Only the smallest blocks."""

    block_sizes = range(1, 2)


class Uncached(Adapter):
    """The least that an adapter can be."""

    def __init__(self, config):
        super().__init__(config)
        self.allocator = impl.PagedAllocator(config.blocks, config.block_size)

    def create(self, request):
        self.allocator.create(request)

    def append(self, request, tokens):
        try:
            self.allocator.append(request, tokens)
        except impl.OutOfBlocks:
            return OutOfBlocks()

    def release(self, request):
        self.allocator.release(request)

    def table(self, request):
        return self.allocator.table(request).tolist()

    def free_blocks(self):
        return self.allocator.num_free


@pytest.mark.parametrize(
    ("adapter", "rules"),
    [(Leaks, {"leak"}), (NeverAdmits, {"outcome", "stuck"}), (MixesUp, {"contents"})],
)
def test_a_violation_is_a_row_that_differs(adapter, rules):
    target = target_of(adapter.__name__, adapter)
    found = experiments(target)
    held, text = shown(target, found)

    assert not held
    assert "DIFFERS" in text
    for experiment in found:
        assert experiment.rows[-1].observed in rules
        (message,) = experiment.notes
        assert f"{experiment.name}: {message}" in text


@pytest.mark.parametrize(
    ("adapter", "name", "differs"),
    [
        (TakesOneMore, "two prompts", {"paged: slots held by prompts": 2 * 251 * 16}),
        (Forgets, "prompt twice", {"cache on: tokens hit once the first has ended": 0}),
    ],
)
def test_a_number_that_differs_is_said(only, adapter, name, differs):
    only(name)
    target = target_of(adapter.__name__, adapter)
    found = experiments(target)
    held, text = shown(target, found)

    assert not held
    assert differs.items() <= that_differ(found[0]).items()
    assert text.count("DIFFERS") == len(that_differ(found[0]))


def test_hits_are_left_out_where_there_is_no_prefix_cache_and_that_is_said(only):
    only("block size", "prompt twice")
    target = target_of("uncached", Uncached)
    found = experiments(target)
    held, text = shown(target, found)

    assert held
    assert not any("hit" in row.what for experiment in found for row in experiment.rows)
    for experiment in found:
        assert experiment.notes == ["uncached has no prefix cache, so hits are left out"]
        assert f"{experiment.name}: uncached has no prefix cache" in text


def test_never_preempted_is_a_number_that_differs():
    experiment = Experiment("concurrency", "")
    experiment.compare("fewest requests with a preemption", 7, "none")

    held, text = shown(resolve("impl"), [experiment])

    assert not held
    assert "0 of 1 as predicted" in text


@pytest.mark.parametrize(
    "target",
    [resolve("contiguous"), resolve("impl-groups"), target_of("one-slot", OneSlotBlocks)],
    ids=lambda target: target.name,
)
def test_what_they_are_not_for_is_refused_in_a_sentence(target):
    with pytest.raises(UsageError, match=target.name):
        experiments(target)
