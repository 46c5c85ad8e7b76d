"""The source document's capacity figures, each by name, and the fast startup check against them."""

import pytest
from hypothesis import Phase, Verbosity, given, settings
from hypothesis import strategies as st

from kvoracle.impl.errors import BadCall
from kvoracle.impl.startup import TooLittleMemory, check_startup
from kvoracle.reference import capacity

KIB, MIB, GIB = 2**10, 2**20, 2**30
BLOCKS, BLOCK_SIZE = 26_785, 16
MAX_MODEL_LEN = 32_768
REQUEST = 512 + 100
TOKEN_BYTES = 128 * KIB

STATED = settings(
    backend="hypothesis",
    database=None,
    deadline=None,
    derandomize=True,
    max_examples=200,
    phases=(Phase.generate, Phase.shrink),
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=(),
    verbosity=Verbosity.normal,
)


# The document's machine: Llama-3-8B on a 52.32 GiB pool


def test_one_token_costs_128_kib():
    assert capacity.token_bytes(32, 8, 128, 2) == TOKEN_BYTES


def test_a_block_of_16_tokens_is_2_mib():
    assert BLOCK_SIZE * TOKEN_BYTES == 2 * MIB


def test_26785_blocks_are_428560_slots():
    assert BLOCKS * BLOCK_SIZE == 428_560


@pytest.mark.parametrize("pool_gib", [52.3150, 52.3155, 52.3160])
def test_a_pool_that_prints_as_52_32_gib_has_26785_blocks(pool_gib):
    assert f"{pool_gib:.2f}" in ("52.31", "52.32")
    assert capacity.blocks_in(int(pool_gib * GIB), BLOCK_SIZE, TOKEN_BYTES) == BLOCKS


def test_52_32_gib_to_the_byte_would_have_two_blocks_more():
    """The document's figure is rounded up: its 26,785 blocks are of 52.316 GiB at the most."""
    assert capacity.blocks_in(int(52.32 * GIB), BLOCK_SIZE, TOKEN_BYTES) == BLOCKS + 2


def test_the_budget_of_2_1_is_52_32_gib():
    assert f"{79.65 * 0.92 - 14.96 - 6.0:.2f}" == "52.32"


# Contiguous reservation


def test_a_reservation_of_32768_tokens_is_4_gib():
    assert MAX_MODEL_LEN * TOKEN_BYTES == 4 * GIB


def test_13_reservations_fit():
    assert capacity.contiguous_admissions(BLOCKS * BLOCK_SIZE, MAX_MODEL_LEN) == 13


def test_13_requests_of_612_tokens_are_0_97_gib_of_live_kv():
    assert REQUEST * TOKEN_BYTES / MIB == 76.5
    assert f"{13 * REQUEST * TOKEN_BYTES / GIB:.2f}" == "0.97"


def test_98_13_percent_of_a_reservation_is_waste():
    unused = capacity.unused_slots(MAX_MODEL_LEN, REQUEST)
    assert f"{100 * unused / MAX_MODEL_LEN:.2f}" == "98.13"


# Paged


def test_612_tokens_take_39_blocks():
    assert capacity.blocks_for(REQUEST, BLOCK_SIZE) == 39


def test_686_requests_of_612_tokens_fit():
    assert capacity.paged_admissions(BLOCKS, BLOCK_SIZE, REQUEST) == 686


def test_token_4097_takes_block_257():
    assert capacity.blocks_for(4096, BLOCK_SIZE) == 256
    assert capacity.blocks_for(4097, BLOCK_SIZE) == 257


def test_a_table_row_of_32768_tokens_is_2048_blocks_wide_and_256_rows_are_2_mib():
    assert capacity.blocks_for(MAX_MODEL_LEN, BLOCK_SIZE) == 2048
    assert 2 * MIB == 256 * 2048 * 4


# The document's experiments with 2,048 blocks


def test_2048_blocks_hold_exactly_one_request_of_full_length():
    assert capacity.startup(32_768, 2048, 16) == capacity.Startup(2048, 2048, 32_768)
    assert capacity.startup(32_768, 2048, 16).fits
    assert not capacity.startup(32_769, 2048, 16).fits


def test_two_prompts_of_4000_tokens_take_250_blocks_each_where_contiguous_admits_one():
    assert capacity.blocks_for(4000, 16) == 250
    assert capacity.paged_admissions(2048, 16, 4000) == 8
    assert capacity.contiguous_admissions(2048 * 16, 32_768) == 1


def test_half_the_blocks_of_twice_the_size_hold_as_long_a_request():
    assert capacity.startup(32_768, 1024, 32) == capacity.Startup(1024, 1024, 32_768)


def test_max_model_len_131072_does_not_fit_2048_blocks():
    assert capacity.startup(131_072, 2048, 16) == capacity.Startup(8192, 2048, 32_768)
    assert not capacity.startup(131_072, 2048, 16).fits


# What holds of all numbers

SIZES = st.integers(1, 4096)
COUNTS = st.integers(1, 10**6)


@STATED
@given(COUNTS, SIZES)
def test_blocks_for_is_the_least_number_that_is_enough(tokens, block_size):
    blocks = capacity.blocks_for(tokens, block_size)
    assert (blocks - 1) * block_size < tokens <= blocks * block_size


@STATED
@given(COUNTS, SIZES, COUNTS)
def test_admissions_are_the_most_that_fit(blocks, block_size, tokens):
    paged = capacity.paged_admissions(blocks, block_size, tokens)
    each = capacity.blocks_for(tokens, block_size)
    assert paged * each <= blocks < (paged + 1) * each
    slots = blocks * block_size
    contiguous = capacity.contiguous_admissions(slots, tokens)
    assert contiguous * tokens <= slots < (contiguous + 1) * tokens


@STATED
@given(COUNTS, SIZES)
def test_the_largest_length_fits_and_one_token_more_does_not(blocks, block_size):
    largest = capacity.startup(1, blocks, block_size).largest_len
    assert capacity.startup(largest, blocks, block_size).fits
    assert not capacity.startup(largest + 1, blocks, block_size).fits


# The startup check


@STATED
@given(COUNTS, st.integers(1, 2000), SIZES)
def test_the_fast_check_says_what_the_reference_says(max_model_len, blocks, block_size):
    expected = capacity.startup(max_model_len, blocks, block_size)
    if expected.fits:
        check_startup(max_model_len, blocks, block_size)
        return
    with pytest.raises(TooLittleMemory) as error:
        check_startup(max_model_len, blocks, block_size)
    actual = error.value
    assert (actual.needed, actual.available, actual.largest) == (
        expected.needed_blocks,
        expected.available_blocks,
        expected.largest_len,
    )
    check_startup(actual.largest, blocks, block_size)


def test_the_message_says_what_is_needed_what_there_is_and_what_would_fit():
    with pytest.raises(BadCall) as error:
        check_startup(131_072, 2048, 16)
    assert str(error.value) == (
        "one request of max_model_len 131072 needs 8192 blocks, and the pool has 2048:"
        " lower max_model_len to 32768 or give the pool more memory"
    )


@pytest.mark.parametrize("numbers", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (-5, 4, 4)])
def test_numbers_are_at_least_1(numbers):
    with pytest.raises(ValueError, match="at least 1"):
        check_startup(*numbers)
