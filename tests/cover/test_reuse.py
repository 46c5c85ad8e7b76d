"""What a prefix cache could hit: against lists of tokens, a move-to-front list and a plain LRU."""

from collections import OrderedDict
from itertools import count, takewhile

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from test_capacity import STATED

from kvoracle.model.traffic.arrival import PREFIX_BLOCK, Arrival
from kvoracle.model.traffic.reuse import Hits, reuse_distances, unlimited

BLOCK_SIZES = (64, 100, 128, 200, 256, 384, 512, 700, 1024)

WHOLE, PART = Arrival(0, 1024, 0, (7, 8)), Arrival(0, 700, 0, (7, 8))


@st.composite
def traffics(draw):
    """Few requests whose prefixes branch and end anywhere; some have none."""
    identities: dict[tuple[int, ...], int] = {}
    arrivals = []
    for path in draw(st.lists(st.lists(st.integers(0, 1), max_size=4), max_size=10)):
        paths = [tuple(path[: end + 1]) for end in range(len(path))]
        prefixes = tuple(identities.setdefault(each, len(identities)) for each in paths)
        last = draw(st.integers(1, PREFIX_BLOCK) | st.just(PREFIX_BLOCK))
        prompt = PREFIX_BLOCK * (len(path) - 1) + last if path else last
        arrivals.append(Arrival(0, prompt, draw(st.integers(0, 600)), prefixes))
    return arrivals


class Contents:
    """A number for the block that ends a sequence of tokens: the same where the sequence is."""

    def __init__(self, block_size):
        self.block_size = block_size
        self.numbers = {}
        self.unique = count()

    def table(self, arrival):
        """Of the full blocks of prompt and answer."""
        tokens = self.prompt(arrival)
        tokens += [("unique", next(self.unique)) for _ in range(arrival.tokens - len(tokens))]
        ends = range(self.block_size, len(tokens) + 1, self.block_size)
        return [self.numbers.setdefault(tuple(tokens[:e]), len(self.numbers)) for e in ends]

    def prompt(self, arrival):
        tokens = [(prefix, offset) for prefix in arrival.prefixes for offset in range(PREFIX_BLOCK)]
        return tokens[: arrival.prompt]

    def findable(self, arrival, table):
        """The prompt's, but not with its last token."""
        return [
            block
            for index, block in enumerate(table)
            if (index + 1) * self.block_size < arrival.prompt
        ]


def found_by_tokens(arrivals, block_size):
    """Hit tokens with unlimited memory: the longest start that an earlier prompt has too."""
    contents = Contents(block_size)
    earlier, hit = [], 0
    for arrival in arrivals:
        prompt = contents.prompt(arrival)
        ends = range(0, arrival.prompt, block_size)
        hit += max(
            end
            for end in ends
            if end == 0
            or any(prompt[:end] == other[:end] for other in earlier if len(other) >= end)
        )
        earlier.append(prompt)
    return hit


def distances_by_list(arrivals, block_size):
    """Of every block of the prompts that may be hit, one by one; None for a first use."""
    contents = Contents(block_size)
    stack, distances = [], []
    for arrival in arrivals:
        table = contents.table(arrival)
        for block in contents.findable(arrival, table):
            distances.append(stack.index(block) + 1 if block in stack else None)
        for block in reversed(table):
            if block in stack:
                stack.remove(block)
            stack.insert(0, block)
    return distances


def found_by_lru(arrivals, block_size, capacity):
    """Hit blocks of a cache of so many blocks, which are looked up from the first on."""
    contents = Contents(block_size)
    cache, hit = OrderedDict(), 0
    for arrival in arrivals:
        table = contents.table(arrival)
        hit += sum(1 for _ in takewhile(cache.__contains__, contents.findable(arrival, table)))
        for block in reversed(table):
            cache[block] = None
            cache.move_to_end(block)
            if len(cache) > capacity:
                cache.popitem(last=False)
    return hit


# Against something plainer


@STATED
@given(traffics(), st.sampled_from(BLOCK_SIZES))
def test_unlimited_memory_hits_what_an_earlier_prompt_has(arrivals, block_size):
    expected = found_by_tokens(arrivals, block_size), sum(each.prompt for each in arrivals)

    assert unlimited(arrivals, block_size) == expected
    reuse = reuse_distances(arrivals, block_size)
    assert (reuse.unlimited, reuse.prompt_tokens) == expected


@STATED
@given(traffics(), st.sampled_from(BLOCK_SIZES))
@example([WHOLE, PART, PART, WHOLE, PART], 64)
@example([WHOLE, PART, WHOLE, WHOLE], 100)
def test_every_capacity_hits_the_distances_of_a_list_of_blocks(arrivals, block_size):
    distances = distances_by_list(arrivals, block_size)
    reuse = reuse_distances(arrivals, block_size)

    for capacity in range(sum(each.tokens for each in arrivals) // block_size + 2):
        hit = sum(1 for distance in distances if distance and distance <= capacity)
        assert reuse.hit_tokens(capacity) == hit * block_size


@STATED
@given(traffics(), st.sampled_from(BLOCK_SIZES), st.integers(0, 100))
def test_a_capacity_hits_what_a_plain_lru_does(arrivals, block_size, capacity):
    hit = found_by_lru(arrivals, block_size, capacity)

    assert reuse_distances(arrivals, block_size).hit_tokens(capacity) == hit * block_size


# By hand


def test_the_last_token_of_a_prompt_is_never_hit():
    twice = [Arrival(0, 512, 0, (7,))] * 2

    assert unlimited(twice, 512) == Hits(0, 1024)
    assert unlimited(twice, 256) == Hits(256, 1024)
    assert unlimited(twice, 1) == Hits(511, 1024)


def test_a_block_across_two_prefix_identities_belongs_to_the_second():
    one, other = Arrival(0, 1024, 0, (7, 8)), Arrival(0, 1024, 0, (7, 9))

    assert unlimited([one, other], 384).hit_tokens == 384
    assert unlimited([one, other], 500).hit_tokens == 500
    assert unlimited([one, other], 600).hit_tokens == 0


def test_tails_are_evicted_first_and_answers_before_prompts():
    arrivals = [Arrival(0, 512, 256, (7,)), Arrival(0, 513, 0, (7, 8))]
    reuse = reuse_distances(arrivals, 128)

    assert [reuse.hit_tokens(blocks) // 128 for blocks in range(8)] == [0, 1, 2, 3, 4, 4, 4, 4]


def test_a_run_of_which_a_shorter_prompt_used_a_part_is_split():
    shorter, stranger = Arrival(0, 257, 0, (7,)), Arrival(0, 128 * 3, 0)
    whole = Arrival(0, 513, 0, (7, 8))
    reuse = reuse_distances([whole, stranger, shorter, whole], 128)

    # The shorter finds 2 blocks behind 3 strange ones: 4 and 5; the whole 1, 2 and then 6, 7.
    assert [reuse.hit_tokens(blocks) // 128 for blocks in range(9)] == [0, 1, 2, 2, 3, 4, 5, 6, 6]


def test_traffic_without_prefixes_or_requests_hits_nothing():
    for arrivals in ([], [Arrival(0, 1000, 10)] * 3):
        prompts = 1000 * len(arrivals)

        assert unlimited(iter(arrivals), 16) == Hits(0, prompts)
        reuse = reuse_distances(iter(arrivals), 16)
        assert (reuse.unlimited, reuse.hit_tokens(10**9), reuse.prompt_tokens) == (0, 0, prompts)


# Bad arguments


@pytest.mark.parametrize("count", [unlimited, reuse_distances])
def test_a_block_size_below_1_is_refused(count):
    with pytest.raises(ValueError, match=r"^a block cannot have 0 tokens; give 1 or more\.$"):
        count([], 0)


def test_a_negative_memory_is_refused():
    with pytest.raises(ValueError, match=r"^a memory cannot have -1 blocks; give 0 or more\.$"):
        reuse_distances([], 16).hit_tokens(-1)
