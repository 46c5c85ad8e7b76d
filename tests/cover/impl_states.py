"""What the tests of the optimized allocator share: all that it knows as plain data, and small pools."""

import copy

import numpy as np

from kvoracle.impl import PagedAllocator
from kvoracle.impl.pool import BlockPool


def ids(*blocks):
    return np.array(blocks, np.int32)


def numbers(count):
    """As many tokens, 0, 1, 2 ..."""
    return np.arange(count)


def allocator_with(blocks, block_size, **lengths):
    """An allocator without a prefix cache, and requests of so many tokens."""
    allocator = PagedAllocator(blocks, block_size)
    for request, length in lengths.items():
        allocator.create(request)
        if length:
            allocator.append(request, numbers(length))
    return allocator


def caching(blocks, block_size, **prompts):
    """An allocator that caches, and each prompt written by create and append, which hit nothing."""
    allocator = PagedAllocator(blocks, block_size, prefix_cache=True)
    for request, prompt in prompts.items():
        allocator.create(request)
        if len(prompt):
            allocator.append(request, prompt)
    return allocator


def state(allocator):
    """Everything the allocator knows, as copies; not how wide its tables have become, and not which
    partial tails it still has to look at before it writes them."""
    pool, requests, transfers = allocator.pool, allocator.requests, allocator.transfers
    return copy.deepcopy(
        {
            "owners": pool.owners.tolist(),
            "pins": pool.pins.tolist(),
            "holds": pool.holds.tolist(),
            "generations": pool.generations.tolist(),
            "published": pool.published.tolist(),
            "barred": pool.barred,
            "free": pool._stack[: pool._stacked].tolist(),
            "idle": pool.idle.ids().tolist(),
            "index": (allocator.index._blocks, entries(allocator.index)),
            "behind": allocator.chains.behind,
            "requests": {name: of_request(allocator, name) for name in requests.by_name},
            "unused": allocator.tables._unused,
            "lookups": {name: of_prompt(found) for name, found in requests.looked_up.items()},
            "preempted": {
                name: (old.length, old.tokens.tolist(), dict(old.extra_keys))
                for name, old in requests.preempted.items()
            },
            "steps": {
                name: [part.tolist() for part in (step.rows, step.lives, step.tokens, step.held)]
                for name, step in allocator.steps.in_flight.items()
            },
            "transfers": {
                name: (one.blocks.tolist(), one.generation, one.deadline, one.acknowledged)
                for name, one in transfers.by_name.items()
            },
            "given": transfers.generations._latest,
            "clock": transfers.clock,
            "epoch": allocator.chains.epoch,
            "statistics": allocator.statistics(),
        }
    )


def entries(index):
    """The keys of each block that is published."""
    return {block: {key, *index._earlier.get(block, ())} for block, key in index._keys.items()}


def of_request(allocator, name):
    """What is known of one live request."""
    tables, chains, row = allocator.tables, allocator.chains, allocator.requests.row(name)
    chain = chains.of_row.get(row)
    return {
        "row": row,
        "table": tables.table(row).tolist(),
        "length": int(tables.lengths[row]),
        "reserved": int(tables.reserved[row]),
        "in flight": int(tables.in_flight[row]),
        "waiting": bool(tables.waiting[row]),
        "written": chains.written(row).tolist(),
        "chain": chain and (dict(chain.extra_keys), chain.epoch, chain.parent, chain.inside),
    }


def of_prompt(prompt):
    """What is known of a prompt that was looked up."""
    return prompt.length, prompt.tokens.tolist(), prompt.keys, prompt.hit.tolist()


def assert_is_whole(allocator):
    """Counts, tables, holders, the free stack, the idle queue and the index agree."""
    now, size = state(allocator), allocator.block_size
    owners, pins, holds = np.zeros((3, allocator.pool.blocks), int)
    for request in now["requests"].values():
        table = request["table"]
        used = request["length"] + request["reserved"]
        assert request["in flight"] <= request["reserved"] <= len(table) * size - request["length"]
        assert len(table) == -(-used // size)
        assert len(set(table)) == len(table)
        owners[table] += 1
        if allocator.prefix_cache:
            assert len(request["written"]) == request["length"]
    for blocks, *_ in now["transfers"].values():
        pins[blocks] += 1
    for *_, held in (*now["lookups"].values(), *now["steps"].values()):
        holds[held] += 1
    assert now["owners"] == owners.tolist()
    assert now["pins"] == pins.tolist()
    assert now["holds"] == holds.tolist()
    free = np.flatnonzero(owners + pins + holds == 0).tolist()
    assert sorted(now["free"] + now["idle"]) == free
    assert not any(now["published"][block] for block in now["free"])
    assert all(now["published"][block] for block in now["idle"])
    blocks, keys = now["index"]
    assert sorted(keys) == np.flatnonzero(now["published"]).tolist()
    assert {(block, key) for key, held in blocks.items() for block in held} == {
        (block, key) for block, known in keys.items() for key in known
    }
    assert not now["barred"] & keys.keys()
    assert allocator.num_free == len(free)


def order_of_reuse(allocator):
    """The blocks that can be taken, in the order in which they will be: found by taking them from a
    pool of the same arrays."""
    old, new = allocator.pool, BlockPool(allocator.pool.blocks, lambda _: None)
    new.owners[:], new.published[:], new._stack[:] = old.owners, old.published, old._stack
    new._stacked, new.idle = old._stacked, copy.deepcopy(old.idle)
    taken = new.take(new.num_free).tolist()
    assert taken == old.takeable().tolist()
    return taken
