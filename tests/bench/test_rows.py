"""The rows of `kvoracle bench`, a group each; nothing here asserts on wall time."""

import pytest

from kvoracle.model.bench.catalogue import ROWS, absent
from kvoracle.model.bench.heap import keep_freed_memory
from kvoracle.model.bench.prompt import ImplDesk, VllmDesk
from kvoracle.model.bench.row import Race

SIDES = [(row, name) for row in ROWS.values() for name in row.sides]
RACES = [row for row in ROWS.values() if isinstance(row, Race)]


def skip_without_its_engine(row):
    for one in absent([row]):
        pytest.skip(str(one))


@pytest.mark.parametrize(("row", "name"), SIDES, ids=lambda value: getattr(value, "name", value))
def test_row(row, name, benchmark):
    if name != "impl":
        skip_without_its_engine(row)
    side = row.sides[name]()
    benchmark.group = f"{row.name}: {side.units:,} times, {row.work}"
    keep_freed_memory()

    benchmark.pedantic(side.work, setup=side.begin, rounds=9, warmup_rounds=1)


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_both_sides_take_and_give_back_as_much(race):
    skip_without_its_engine(race)
    ours, peer = race.ours(), race.peer()
    assert ours.units == peer.units

    for _ in range(2):
        ours.begin()
        peer.begin()
        assert ours.num_free() == peer.num_free()
        ours.work()
        peer.work()
        assert ours.num_free() == peer.num_free()


@pytest.mark.parametrize("new_desk", [ImplDesk, VllmDesk])
def test_a_whole_hit_is_one(new_desk):
    if new_desk is VllmDesk:
        skip_without_its_engine(ROWS["admit-hit"])
    desk = new_desk()
    tables = []

    for _ in range(2):
        desk.admit()
        tables.append(table(desk, "request 1"))
        desk.free()

    assert tables[0][:255] == tables[1][:255]
    assert tables[0][255] != tables[1][255]


def table(desk, request):
    if isinstance(desk, ImplDesk):
        return desk.allocator.table(request).tolist()
    return desk.vllm.manager.get_block_ids(request)[0]
