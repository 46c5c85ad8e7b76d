"""Layers, their groups and what a request holds of them; windows against the grouped reference."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_capacity import KIB, MIB, STATED

from kvoracle.reference import capacity
from kvoracle.reference.group_records import Group
from kvoracle.reference.groups import GroupedKV
from kvoracle.reference.layers import Kind, Layer, Parallel, layout

GQA, LATENT = Layer(8, 256), Layer(1, 576)
LLAMA, DEEPSEEK = [GQA] * 32, [LATENT] * 61
GEMMA = [Layer(16, 256, 0 if (index + 1) % 6 == 0 else 1024) for index in range(62)]


def held(tokens, block_size, window, step):
    """The most blocks that the grouped reference holds of one request in one table."""
    pool = GroupedKV(200, [Group(block_size, window)], caching=False)
    pool.create("a")
    most = 0
    for begin in range(0, tokens, step):
        before = {block for block in pool.tables["a"][0] if block}
        pool.append("a", *range(begin, min(begin + step, tokens)))
        added = -(-min(begin + step, tokens) // block_size) - -(-begin // block_size)
        most = max(most, len(before) + added)
    return most


# Bytes


@pytest.mark.parametrize(
    ("layers", "ranks", "token"),
    [
        (LLAMA, 1, 128 * KIB),
        (LLAMA, 4, 32 * KIB),
        (LLAMA, 8, 16 * KIB),
        (LLAMA, 32, 16 * KIB),
        (DEEPSEEK, 1, 70_272),
        (DEEPSEEK, 16, 70_272),
        (GEMMA, 1, 496 * KIB),
        (GEMMA, 8, 62 * KIB),
    ],
)
def test_heads_are_dealt_out_and_the_last_one_is_copied(layers, ranks, token):
    assert layout(layers, 16, 2, Parallel(ranks)).token_bytes == token


def test_a_layer_is_what_token_bytes_says_of_it():
    assert layout(LLAMA, 16, 2).token_bytes == capacity.token_bytes(32, 8, 128, 2)
    assert layout(LLAMA, 16, 1).token_bytes == capacity.token_bytes(32, 8, 128, 1)


@pytest.mark.parametrize("ranks", [3, 12])
def test_heads_that_cannot_be_dealt_out_are_refused(ranks):
    with pytest.raises(ValueError, match=f"8 KV heads cannot be dealt out to {ranks} ranks"):
        layout(LLAMA, 16, 2, Parallel(ranks))


# Groups


def test_one_kind_is_one_group():
    shape = layout(LLAMA, 16, 2)
    assert [kind.tables for kind in shape.kinds] == [1]
    assert (shape.group_layers, shape.block_bytes, shape.padding_layers) == (32, 2 * MIB, 0)


def test_52_and_10_layers_are_six_groups_and_one_of_ten():
    shape = layout(GEMMA, 16, 2)
    assert [(kind.layers, kind.tables) for kind in shape.kinds] == [(52, 6), (10, 1)]
    assert (shape.group_layers, shape.padding_layers) == (10, 8)
    assert shape.block_bytes == 16 * 10 * 8 * KIB


def test_few_more_of_a_kind_make_the_larger_group():
    """12 and 13 layers: two groups of 13 with one place empty, and not three of 12."""
    shape = layout([Layer(8, 256, 128)] * 12 + [GQA] * 13, 16, 2)
    assert (shape.group_layers, shape.padding_layers) == (13, 1)
    assert [kind.tables for kind in shape.kinds] == [1, 1]
    assert layout([Layer(8, 256, 128)] * 12 + [GQA] * 18, 16, 2).group_layers == 12


def test_smaller_tokens_have_more_of_them_in_a_block():
    shape = layout([Layer(16, 512, 1024)] * 10 + [Layer(4, 1024)] * 10, 16, 2)
    assert [kind.block_size for kind in shape.kinds] == [16, 32]


def test_tokens_that_share_no_block_size_are_refused():
    with pytest.raises(ValueError, match="share no block size"):
        layout([Layer(2, 256), Layer(3, 256)], 16, 2)


@STATED
@given(st.lists(st.sampled_from([GQA, Layer(8, 256, 64), Layer(4, 256)]), min_size=1, max_size=40))
def test_groups_have_a_place_for_every_layer_and_waste_less_than_one_group_a_kind(layers):
    shape = layout(layers, 16, 2)
    assert Counter(layers) == Counter({kind.layer: kind.layers for kind in shape.kinds})
    for kind in shape.kinds:
        assert 0 <= kind.tables * shape.group_layers - kind.layers < shape.group_layers
        cost = kind.layer.kv_heads * kind.layer.head_elements * 2
        assert cost * kind.block_size * shape.group_layers == shape.block_bytes


# Windows


@STATED
@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 12), st.integers(1, 9))
def test_a_window_never_holds_more_than_is_said(tokens, block_size, window, step):
    kind = Kind(Layer(1, 2, window), 1, 1, block_size, block_size)
    assert held(tokens, block_size, window, step) <= kind.blocks(tokens, step)


@STATED
@given(st.integers(1, 5), st.integers(1, 12))
def test_a_long_request_that_grows_by_one_holds_exactly_as_much(block_size, window):
    kind = Kind(Layer(1, 2, window), 1, 1, block_size, block_size)
    tokens = window + 2 * block_size
    assert held(tokens, block_size, window, 1) == kind.blocks(tokens)


@STATED
@given(st.integers(1, 99), st.integers(1, 32))
def test_blocks_spanned_is_the_most_of_any_beginning(tokens, block_size):
    spans = [
        (begin + tokens - 1) // block_size - begin // block_size + 1 for begin in range(block_size)
    ]
    assert capacity.blocks_spanned(tokens, block_size) == max(spans)


# Requests


def test_a_request_of_612_tokens_holds_39_blocks_in_each_table():
    assert layout(LLAMA, 16, 2).request_blocks(612) == 39
    assert layout(GEMMA, 16, 2).request_blocks(612) == 7 * 39
    assert layout(GEMMA, 16, 2).request_blocks(32_768) == 2048 + 6 * 65


def test_context_parallel_ranks_hold_a_part_of_each_request():
    shape = layout(LLAMA, 16, 2, Parallel(1, 4))
    assert shape.request_blocks(612) == 10
    assert shape.request_blocks(64) == 1
    assert shape.reservation_bytes(613) == 154 * 128 * KIB
    assert shape.index_bytes(256, 32_768) == 256 * 512 * 4
    assert shape.worst_tail_bytes() == 63 * 128 * KIB


@STATED
@given(st.integers(1, 500), st.sampled_from([LLAMA, GEMMA]), st.sampled_from([1, 2, 4]))
def test_a_tail_is_what_the_blocks_have_and_the_tokens_do_not_need(tokens, layers, ranks):
    shape = layout(layers, 16, 2, Parallel(1, ranks))
    waste = Fraction(0)
    for kind in shape.kinds:
        slots = capacity.blocks_for(tokens, kind.positions) * kind.positions - tokens
        waste += Fraction(kind.tables * slots * shape.block_bytes, kind.block_size)
    assert shape.tail_bytes(tokens) == waste
    assert shape.tail_bytes(tokens) <= shape.worst_tail_bytes()
    assert shape.tail_bytes(1) == shape.worst_tail_bytes()


# Startup


def test_without_windows_startup_is_what_capacity_says():
    for length in (32_768, 131_072):
        assert layout(LLAMA, 16, 2).startup(length, 2048, 8192) == capacity.startup(
            length, 2048, 16
        )


@STATED
@given(st.integers(1, 2000), st.integers(1, 300), st.sampled_from([1, 64]))
def test_the_largest_length_fits_and_one_more_does_not(longest, blocks, step):
    shape = layout([Layer(8, 256, 64)] * 5 + [GQA], 16, 2)
    check = shape.startup(longest, blocks, step)
    assert shape.request_blocks(check.largest_len, step) <= blocks
    assert shape.request_blocks(check.largest_len + 1, step) > blocks
    assert check.fits == (longest <= check.largest_len)


def test_a_step_adds_to_what_a_window_holds():
    shape = layout([Layer(8, 256, 4096)] * 32, 16, 2)
    assert shape.startup(32_768, 800, 8192).needed_blocks == 769
    assert shape.startup(32_768, 800, 1).needed_blocks == 257
