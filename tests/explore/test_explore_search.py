"""The state graph: pinned counts, the reduction cross-checked, paths that lead where they say."""

import pytest

from kvoracle.model.errors import UsageError
from kvoracle.model.explore.canonical import canonical, plain
from kvoracle.model.explore.checkpoint import load, save
from kvoracle.model.explore.scope import Scope
from kvoracle.model.explore.search import Search, reference_of
from kvoracle.reference import PagedKV
from kvoracle.reference.invariants import every_page_is_held

CORE = Scope(blocks=2, requests=2, transfers=1, tokens=3)
PINNED = {
    CORE: ((49, 194, 31), (156, 627, 104)),
    Scope(blocks=3, block_size=1, requests=2, transfers=1, tokens=2): (
        (55, 217, 17),
        (478, 1885, 180),
    ),
    Scope(blocks=3, requests=2, transfers=0, tokens=4, features=("core", "reserve")): (
        (91, 722, 117),
        (962, 7465, 1404),
    ),
    Scope(
        blocks=2,
        block_size=1,
        requests=2,
        transfers=0,
        tokens=2,
        values=2,
        features=("core", "cache"),
    ): ((345, 2223, 108), (1220, 7949, 416)),
    Scope(blocks=2, requests=2, transfers=0, tokens=2, steps=2, features=("core", "steps")): (
        (313, 1794, 94),
        (1162, 6678, 336),
    ),
    Scope(blocks=2, requests=2, transfers=0, tokens=3, match_unit=1, features=("core", "cache")): (
        (141, 735, 33),
        (483, 2558, 124),
    ),
    Scope(blocks=2, requests=2, transfers=1, tokens=3, features=("core", "transfers")): (
        (78, 300, 49),
        (276, 1079, 180),
    ),
}
"""States, transitions and refusals: names interchangeable, and names as they are."""


def searched(scope, name_states=canonical):
    search = Search(scope, name_states)
    while not search.is_complete:
        search.expand()
    return search


def counts(search):
    return len(search.graph.found), search.graph.transitions, search.graph.refusals


@pytest.mark.parametrize("scope", PINNED, ids=lambda scope: "+".join(scope.features))
def test_states_and_transitions_are_those_counted_before(scope):
    with_symmetry, without = PINNED[scope]
    assert counts(searched(scope)) == with_symmetry
    assert counts(searched(scope, plain)) == without


def test_the_default_scope_has_as_many_states_as_an_independent_prototype():
    states, transitions, _ = counts(searched(Scope()))
    assert (states, transitions) == (4084, 28177)


@pytest.mark.parametrize("scope", PINNED, ids=lambda scope: "+".join(scope.features))
def test_the_reduction_loses_no_state_and_adds_none(scope):
    reduced = set(searched(scope).graph.numbers)
    every = Search(scope, plain)
    met = set()
    while not every.is_complete:
        met.add(canonical(every.queue[0][1], scope.caches).key)
        every.expand()
    assert met == reduced


def test_a_path_leads_to_its_state():
    search = searched(CORE)
    for key, number in search.graph.numbers.items():
        kv = reference_of(CORE)
        path = search.graph.path(number)
        for operation in path:
            operation.perform(kv, operation.writes())
        assert search.key(kv) == key
        assert len(path) == search.graph.depths[number]


def test_a_broken_invariant_is_found_with_a_shortest_path(monkeypatch):
    monkeypatch.setattr(PagedKV, "_give_back", lambda *_: None)
    search = Search(CORE)
    while search.graph.broken is None:
        search.expand()
    verbs = [operation.verb for operation in search.graph.broken.path]
    assert verbs == ["create", "append", "release"]
    assert every_page_is_held.__name__ in search.graph.broken.message


def test_a_search_goes_on_from_a_file(tmp_path):
    whole, half = searched(CORE), Search(CORE)
    for _ in range(20):
        half.expand()
    save(half, tmp_path / "search.json")
    resumed = load(tmp_path / "search.json", CORE)
    while not resumed.is_complete:
        resumed.expand()
    assert counts(resumed) == counts(whole)
    assert resumed.graph.numbers == whole.graph.numbers
    assert resumed.graph.witnessed == whole.graph.witnessed
    assert resumed.graph.by_verb == whole.graph.by_verb


def test_a_file_of_another_scope_or_of_no_search_is_refused(tmp_path):
    path = tmp_path / "search.json"
    save(Search(CORE), path)
    with pytest.raises(UsageError, match="another scope"):
        load(path, Scope())
    path.write_text("{}")
    with pytest.raises(UsageError, match="not a saved search"):
        load(path, CORE)
