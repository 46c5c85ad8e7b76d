"""The frozen random source and the seeded walk: golden values that no release may change.

`python tests/cover/test_random64_and_walk.py` prints the dict below as it is now.
"""

import contextlib
import hashlib
import os
import subprocess
import sys
from collections import Counter

import pytest

from kvoracle.model.fields import kinds
from kvoracle.model.operations import (
    OPERATIONS,
    Acknowledge,
    Admit,
    Append,
    AppendEach,
    BeginStep,
    Cancel,
    Commit,
    Create,
    EndStep,
    FailStep,
    Fork,
    LookUp,
    Pin,
    Preempt,
    Receive,
    Release,
    ReleaseEach,
    Reserve,
    Resume,
    Send,
    Trim,
    Unpin,
    Use,
)
from kvoracle.model.random64 import Random64, combine, parse_seed
from kvoracle.model.seeds import DOCUMENT_OPERATIONS
from kvoracle.model.trace import OPTIONS, parse, render
from kvoracle.model.walk import (
    ANY_EXTRA_KEYS,
    MANY_REQUEST_NAMES,
    MANY_TRANSFER_NAMES,
    RARE,
    REQUEST_NAMES,
    STEP_NAMES,
    TARGETS,
    TOGETHER,
    TRANSFER_NAMES,
    _weights,
    walk,
)
from kvoracle.reference import Oracle, Rejected

WALK_DIGESTS = {
    0: "6aefe962795553f7443b4f2d14b8762f8a6f72165e6c1bcf613807a520c76682",
    1: "58c473fcfe9f8d76954831b0d014d4789c937885b6d31d60dc2ee2f5f31a9a4a",
    2: "639376d837b7e4f948dc960091727ff274db44410c64bcd0b799c344187e3fd5",
    3: "c0a03e56267db40b34c0be455d4aff3fbcbb5f9de8759db08c2db82a02192ebe",
    1234567: "981257c0af9475b1aed95b8148a4bdca547abf510c23e899cb1f2cb562cfb32c",
    18446744073709551615: "0e36f03027c9a4f729d01885da155b48bec39c3806c29bdc811b72a232a899a1",
}
"""Seed to the SHA-256 of its walk as a file."""

SPLITMIX64 = {
    0: [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
        0xF88BB8A8724C81EC,
        0x1B39896A51A8749B,
    ],
    1234567: [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ],
}
"""Published: Vigna's splitmix64.c for both seeds; the second is also Rosetta Code's."""

SEEDS = range(200)
WITHOUT_CACHE = (Create, Append, AppendEach, Fork, Pin, Unpin, Release, ReleaseEach)


def drawn_in(seed, *arguments, **options):
    """How often each operation is in a walk."""
    return Counter(type(o) for o in walk(seed, *arguments, **options).operations)


def digest(seed):
    return hashlib.sha256(render(walk(seed)).encode()).hexdigest()


# Random64


@pytest.mark.parametrize("seed", SPLITMIX64)
def test_the_numbers_are_those_of_splitmix64(seed):
    random = Random64(seed)

    assert [random.next() for _ in range(5)] == SPLITMIX64[seed]


def test_only_the_low_64_bits_of_a_seed_count():
    assert Random64(2**64 + 5).next() == Random64(5).next()
    assert Random64(-1).next() == Random64(2**64 - 1).next()


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 2**64])
def test_below_stays_below(bound):
    random = Random64(1)

    assert all(0 <= random.below(bound) < bound for _ in range(100))


def test_below_is_the_next_number_modulo_the_bound():
    random = Random64(0)

    assert [random.below(100) for _ in range(5)] == [value % 100 for value in SPLITMIX64[0]]


def test_below_reaches_every_value_about_equally():
    random = Random64(3)
    counts = Counter(random.below(8) for _ in range(8000))

    assert set(counts) == set(range(8))
    assert all(900 < count < 1100 for count in counts.values())


def test_combine_is_what_its_definition_says():
    first = SPLITMIX64[0][0]

    assert [combine(0, index) for index in range(3)] == [
        Random64(first + index).next() for index in range(3)
    ]


def test_runs_of_one_campaign_and_of_neighbouring_seeds_have_different_seeds():
    assert len({combine(seed, index) for seed in range(50) for index in range(200)}) == 10_000


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        ("0", 0),
        ("1", 1),
        ("007", 7),
        (" 42\n", 42),
        ("12345678", 12345678),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 0),
        ("0x0", 0),
        ("0xFF", 255),
        ("0XfF", 255),
        ("0xffffffffffffffff", 2**64 - 1),
        ("854d1d8", 0x854D1D8),
        ("ABCDEF1", 0xABCDEF1),
        ("0b10101", 0x0B10101),
        ("9d2f1c0e5b7a46839d2f1c0e5b7a46839d2f1c0e", 0x5B7A46839D2F1C0E),
    ],
)
def test_a_seed_is_decimal_or_hexadecimal_or_a_git_hash(text, seed):
    assert parse_seed(text) == seed


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "x", "abc", "abcdef", "-1", "+1", "1.5", "1e3", "0x", "0xg", "seed-one", "²"),
        *("abcdefg", "1 2 3 4 5 6 7", "a" * 41, "nonhex0"),
    ],
)
def test_anything_else_is_no_seed(text):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_seed(text)


@pytest.mark.parametrize(
    "text",
    [
        *("1_000_000", "abc_def_1", "+1234567", "-abcdef1", "0x-1", "0x+1", "0x 1", "0x0xff"),
        *("0x1_0", "0x" + "f" * 41, "\uff11\uff12"),
    ],
)
def test_what_only_int_takes_for_a_number_is_no_seed(text):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_seed(text)


# The walk


@pytest.mark.parametrize("seed", WALK_DIGESTS)
def test_a_seed_means_the_same_walk_for_ever(seed):
    assert digest(seed) == WALK_DIGESTS[seed]


def test_a_walk_is_the_same_under_another_hash_seed():
    program = (
        "import hashlib; from kvoracle.model.trace import render; from kvoracle.model.walk import walk;"
        "print(*(hashlib.sha256(render(walk(s)).encode()).hexdigest() for s in range(20)))"
    )
    printed = {
        hash_seed: subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for hash_seed in ("1", "4242")
    }

    assert printed["1"] == printed["4242"] == [digest(seed) for seed in range(20)]


def test_two_walks_of_one_seed_are_equal_and_those_of_two_seeds_are_not():
    assert walk(5) == walk(5)
    assert len({render(walk(seed)) for seed in SEEDS}) == len(SEEDS)


def test_geometry_is_small_with_some_large_and_few_huge():
    configs = [walk(seed, steps=0).config for seed in range(4000)]
    small = [c for c in configs if c.blocks <= 8]
    large = [c for c in configs if 8 < c.blocks < 300]
    huge = [c for c in configs if c.blocks >= 300]

    assert {c.blocks for c in small} == set(range(2, 9))
    assert {c.block_size for c in small} == {1, 2, 3, 4}
    assert {c.blocks for c in large} <= set(range(9, 73))
    assert {c.block_size for c in large} == {1, 2, 3, 16}
    assert {c.blocks for c in huge} <= set(range(300, 1000))
    assert {c.block_size for c in huge} == {33, 64, 256}
    assert 350 < len(large) < 600
    assert 10 < len(huge) < 60


def test_the_length_of_a_walk_is_drawn_or_given():
    lengths = Counter(len(walk(seed).operations) for seed in SEEDS)

    assert all(20 <= length <= 199 or length == 2000 for length in lengths)
    assert 0 < lengths[2000] < 10
    assert [len(walk(seed, steps=7).operations) for seed in range(3)] == [7, 7, 7]


def test_steps_cut_or_prolong_a_walk_and_change_nothing_else():
    drawn = walk(3)

    assert walk(3, steps=10).operations == drawn.operations[:10]
    assert walk(3, steps=500).operations[: len(drawn.operations)] == drawn.operations


@pytest.mark.parametrize(
    "sizes", [range(1, 2), range(2, 3), range(2, 4097), range(16, 17), range(3, 6)], ids=str
)
def test_the_block_sizes_of_an_allocator_are_honoured(sizes):
    assert {walk(seed, block_sizes=sizes, steps=0).config.block_size for seed in range(500)} <= set(
        sizes
    )


def test_block_sizes_with_a_step_are_honoured():
    sizes = range(16, 129, 16)

    assert {walk(seed, block_sizes=sizes, steps=0).config.block_size for seed in range(500)} <= set(
        sizes
    )


@pytest.mark.parametrize(
    "operations",
    [
        (Create, Append, Release),
        (Create, Append),
        (Create, Append, AppendEach, Release),
        (Create, Append, Fork, Release),
        (Create, Append, Pin, Unpin, Release),
        (Create, Admit, Append, Release),
        (Create, Append, Release, Reserve, Commit, Trim),
        (Create, Append, Release, BeginStep, EndStep, FailStep),
        (Create, Append, Release, Preempt, Resume),
        (Create, Append, Release, Send, Acknowledge),
        (Create, Admit, Append, Release, LookUp, Use),
        OPERATIONS,
    ],
)
def test_only_the_operations_of_an_allocator_are_drawn(operations):
    drawn = Counter(type(o) for seed in SEEDS for o in walk(seed, operations).operations)

    assert set(drawn) == set(operations)


def switched_on(seed):
    return {operation for operation, _ in _weights(Random64(seed), OPERATIONS)}


def test_create_admit_and_append_are_never_switched_off():
    assert all({Create, Admit, Append} <= switched_on(seed) for seed in SEEDS)


def test_every_other_operation_is_switched_off_in_some_walks():
    missing = Counter(kind for seed in SEEDS for kind in set(OPERATIONS) - switched_on(seed))

    assert set(missing) == set(OPERATIONS) - {Create, Admit, Append}
    assert all(count > len(SEEDS) / 10 for count in missing.values())


def test_what_is_switched_off_is_not_drawn():
    for seed in range(20):
        drawn = drawn_in(seed, (Create, Append, Release, Preempt, Resume), steps=200)
        assert (Preempt in drawn) == (Resume in drawn)


# Operations that make sense together


@pytest.mark.parametrize("together", TOGETHER, ids=lambda ops: min(o.verb for o in ops))
def test_operations_that_make_sense_together_are_switched_on_and_off_together(together):
    on = [together & switched_on(seed) for seed in range(400)]

    assert set(on) == {together, frozenset()}
    assert 150 < on.count(together) < 250


def test_two_groups_are_switched_independently():
    on = Counter(tuple(group <= switched_on(seed) for group in TOGETHER) for seed in range(2000))

    assert len(on) == 2 ** len(TOGETHER)


def test_what_an_allocator_lacks_of_a_group_is_not_drawn_and_the_rest_is():
    lacking = tuple(operation for operation in OPERATIONS if operation is not Trim)
    drawn = [drawn_in(seed, lacking, steps=200) for seed in range(40)]

    assert {Reserve in kinds for kinds in drawn} == {True, False}
    assert not any(Trim in kinds for kinds in drawn)


def test_what_undoes_much_at_once_is_rare():
    weights = Counter()
    for seed in range(1000):
        weights.update(dict(_weights(Random64(seed), OPERATIONS)))
    common = min(weights[operation] for operation in set(OPERATIONS) - RARE)

    assert all(0 < weights[operation] < common / 2 for operation in RARE)


def test_operations_mostly_have_something_to_be_about():
    """What names no step, lookup, reservation or preempted request is misuse, and misuse is rare."""
    about, total = Counter(), Counter()
    for seed in range(60):
        trace = walk(seed)
        config = trace.config
        kv = Oracle(
            *(config.blocks, config.block_size),
            caching=config.prefix_cache,
            watermark=config.watermark,
            max_length=config.max_model_len or None,
            match_unit=config.match_unit,
        )
        for operation in trace.operations:
            total[type(operation)] += 1
            about[type(operation)] += names_something(kv, operation)
            with contextlib.suppress(MemoryError, Rejected):
                operation.perform(kv, operation.writes())

    needy = {o for o in OPERATIONS if TARGETS & set(kinds(o).values())}
    assert needy >= {Commit, Trim, Use, Cancel, Resume, EndStep, FailStep, Acknowledge}
    for operation in needy:
        assert about[operation] > total[operation] / 2 > 0, operation


def names_something(kv, operation):
    """Whether the reservation, lookup, preempted request, step or transfer that it names is there."""
    known = {
        "reserving": [request for request, life in kv.lives.items() if life.reserved],
        "looked up": kv.lookups,
        "preempted": kv.preempted,
        "step": kv.steps,
        "transfer": kv.transfers,
    }
    fields = kinds(type(operation)).items()
    return all(
        getattr(operation, name) in known.get(kind, [getattr(operation, name)])
        for name, kind in fields
    )


def test_numbers_are_small_and_reach_their_edges():
    seen = {name: set() for name in ("count", "first", "workers", "worker", "lease", "life")}
    for seed in SEEDS:
        trace = walk(seed)
        for operation in trace.operations:
            for name in seen.keys() & set(operation.__struct_fields__):
                seen[name].add(getattr(operation, name))
            if isinstance(operation, Reserve):
                assert 0 <= operation.count <= 2 * trace.config.block_size + 1

    assert seen["workers"] == {1, 2, 3}
    assert seen["worker"] == {0, 1, 2, 3}
    assert seen["lease"] == {0, 1, 2, 3, 4}
    assert seen["life"] == {0, 1}
    assert {0, 1, 2} <= seen["count"] & seen["first"]


def test_steps_are_named_s1_to_s4():
    names = {getattr(o, "step", "s1") for seed in SEEDS for o in walk(seed).operations}

    assert names == set(STEP_NAMES)


# What only some allocators have


@pytest.mark.parametrize("known", [(), ("salt",), ("adapter", "salt"), tuple(ANY_EXTRA_KEYS)])
def test_extra_keys_are_only_those_that_an_allocator_tells_apart(known):
    drawn, keyed, prompts = set(), 0, 0
    for seed in range(100):
        for operation in walk(seed, extra_keys=frozenset(known)).operations:
            if isinstance(operation, Admit | LookUp | Receive):
                drawn |= operation.extra_keys.keys()
                keyed, prompts = keyed + bool(operation.extra_keys), prompts + 1

    assert drawn == set(known)
    assert 0 < keyed < prompts / 3 or not known


@pytest.mark.parametrize("names", [(), *((name,) for name in OPTIONS), OPTIONS], ids=str)
def test_options_are_only_those_that_an_allocator_honours(names):
    configs = [walk(seed, steps=0, options=frozenset(names)).config for seed in range(800)]
    given = Counter(name for config in configs for name in OPTIONS if getattr(config, name))

    assert set(given) == set(names)
    assert all(20 < count < 400 for count in given.values())


def test_walks_without_the_new_operations_draw_nothing_for_them():
    """The document's seeds mean what they always meant, whatever an allocator could do besides."""
    for seed in SEEDS:
        plain = walk(seed, DOCUMENT_OPERATIONS, extra_keys=frozenset(), options=frozenset())
        assert walk(seed, DOCUMENT_OPERATIONS, options=frozenset()) == plain


@pytest.mark.parametrize("operations", [WITHOUT_CACHE, OPERATIONS], ids=["without cache", "all"])
def test_names_are_those_of_the_walk(operations):
    few = many = 0
    for seed in range(50):
        requests, transfers = set(), set()
        for operation in walk(seed, operations).operations:
            requests |= {getattr(operation, name, "a") for name in ("request", "parent", "child")}
            requests |= set(getattr(operation, "requests", ()))
            transfers.add(getattr(operation, "transfer", "t1"))
        assert requests <= set(MANY_REQUEST_NAMES)
        assert transfers <= set(MANY_TRANSFER_NAMES)
        is_few = requests <= set(REQUEST_NAMES)
        assert not is_few or transfers <= set(TRANSFER_NAMES)
        few, many = few + is_few, many + (not is_few)
    assert few > many > 0


def test_without_prompts_every_token_is_new():
    for seed in range(50):
        tokens = []
        for operation in walk(seed, WITHOUT_CACHE).operations:
            tokens += getattr(operation, "tokens", ())
        assert tokens == list(range(1, len(tokens) + 1))


def test_with_prompts_every_token_is_new_or_an_earlier_one_or_a_disguised_one():
    repeated = 0
    for seed in range(50):
        newest, seen = 0, set()
        for operation in walk(seed).operations:
            if newest > 150:
                break  # soon a new token may equal a disguised one
            appended, prompt = getattr(operation, "tokens", ()), getattr(operation, "prompt", ())
            tokens = appended + prompt
            if len(tokens) > 100:
                break
            new = [token for token in tokens if token not in seen and token - 256 not in seen]
            assert not new or new == list(range(max(newest + 1, new[0]), new[0] + len(new)))
            assert not appended or set(appended) <= seen or list(appended) == new
            repeated += bool(appended) and not new
            newest = new[-1] if new else newest
            seen |= set(tokens)
    assert repeated > 0


def test_prompts_repeat_prefixes_and_disguise_them():
    longest, disguised = Counter(), 0
    for seed in SEEDS:
        earlier = []
        for operation in walk(seed).operations:
            prompt = getattr(operation, "prompt", ())
            for other in earlier:
                longest[prompt == other, prompt[: len(other)] == other] += 1
                disguised += any(token - 256 in other for token in prompt)
            earlier = [prompt, *earlier[:3]] if prompt else earlier

    assert longest[True, True] > 100
    assert longest[False, True] > 100
    assert disguised > 100


def test_a_pool_caches_in_three_walks_of_four_that_admit_and_in_no_other():
    caching = [walk(seed, steps=0).config.prefix_cache for seed in range(2000)]

    assert 1400 < sum(caching) < 1600
    assert not any(walk(seed, WITHOUT_CACHE, steps=0).config.prefix_cache for seed in SEEDS)


def test_a_walk_says_where_it_came_from_and_is_read_back_from_its_file():
    for seed in (0, 7, 2**64 - 1):
        trace = walk(seed)
        assert trace.origin == {"engine": "walk", "seed": seed}
        assert parse(render(trace).encode(), "here") == trace


def test_sequences_end_around_the_edges_of_blocks():
    ends = Counter()
    for seed in SEEDS:
        trace = walk(seed, (Create, Append), steps=30)
        if trace.config.block_size == 4:
            lengths = Counter()
            for operation in trace.operations:
                for request, tokens in operation.writes().items():
                    lengths[request] += len(tokens)
                    ends[lengths[request] % 4] += 1

    assert set(ends) == {0, 1, 2, 3}


if __name__ == "__main__":
    for _seed in (0, 1, 2, 3, 1234567, 2**64 - 1):
        print(f'    {_seed}: "{digest(_seed)}",')
