"""The source document's figures, each computed anew: which follow exactly, and which when rounded."""

from dataclasses import dataclass
from fractions import Fraction

from rich.console import Console

from kvoracle import __version__
from kvoracle.model.capacity.models import model_named
from kvoracle.model.capacity.sizes import number
from kvoracle.model.columns import show_columns
from kvoracle.reference import capacity, slots
from kvoracle.reference.layers import layout

KIB, MIB, GIB = 2**10, 2**20, 2**30
BLOCKS, BLOCK_SIZE, LARGE_BLOCK_SIZE = 26_785, 16, 128
LONGEST, TOKENS, ROWS = 32_768, 512 + 100, 256
SMALL_POOL, TOO_LONG, PROMPT = 2048, 131_072, 4000
STEP_BLOCK, STEP_POSITION = 1913, 4096
TAILS = {1: 1, 15: 1, 16: 1, 17: 1}


@dataclass(frozen=True)
class Figure:
    """What the document says, and what arithmetic says of the same."""

    name: str
    stated: str
    """A number, then its unit."""
    computed: Fraction | int
    how: str
    rounding: str = ""
    """Where not even its digits follow: how it does."""

    @property
    def follows(self) -> str:
        """In which way the document's figure follows."""
        digits = self.stated.split()[0].replace(",", "")
        if Fraction(digits) == self.computed:
            return "exactly"
        decimals = len(digits.partition(".")[2])
        if round(Fraction(self.computed), decimals) == Fraction(digits):
            return "rounded"
        return self.rounding or "NO"


def figures() -> list[Figure]:
    """In the order of the document."""
    token = layout(model_named("Llama-3-8B").layers, 1, 2).token_bytes
    return [*_pool(token), *_requests(token), *_step(), *_tails(token), *_experiments()]


def show_document(out: Console) -> None:
    """A row a figure."""
    out.print(f"kvoracle {__version__} capacity --document", style="bold")
    out.print("  Llama-3-8B in bfloat16 on one H100, max_model_len 32,768, blocks of 16\n")
    found = figures()
    rows = [(f.name, f.stated, number(f.computed, 4), f.follows, f.how) for f in found]
    heads = ("figure", "document", "computed", "follows", "how")
    show_columns(out, heads, rows, left=(0, 3, 4))
    exact = sum(figure.follows == "exactly" for figure in found)
    rounded = sum(figure.follows == "rounded" for figure in found)
    out.print(
        f"{exact} figures follow exactly, {rounded} when rounded as the document rounds them,"
        f" {len(found) - exact - rounded} only within the rounding of what it was made from:"
    )
    out.print(_of_the_pool())


def _of_the_pool() -> str:
    block = 2 * MIB
    low, high = Fraction("52.315") * GIB, Fraction("52.325") * GIB
    return (
        f"52.32 GiB to the byte is {int(Fraction('52.32') * GIB) // block:,} blocks, the budget above"
        f" it {int(_budget()) // block:,}; what prints as 52.32 GiB is {int(low) // block:,} to"
        f" {int(high) // block:,}.\nAn H100 of 81,559 MiB, which prints as 79.65 GiB, gives"
        f" {int(_budget(Fraction(81_559, 1024))) // block:,}.  Every later figure is of 26,785 blocks;"
        " 13 and 686 hold for 26,787 as well."
    )


def _budget(memory_gib: Fraction = Fraction("79.65")) -> Fraction:
    rest = memory_gib * Fraction("0.92") - Fraction("14.96") - 6
    return rest * GIB


def _pool(token: int) -> list[Figure]:
    pool = Fraction("52.32") * GIB
    return [
        Figure("pool", "52.32 GiB", _budget() / GIB, "79.65 x 0.92 - 14.96 - 6.0"),
        Figure(
            "KV of a token", "128 KiB", Fraction(token, KIB), "32 layers x 8 heads x 256 x 2 bytes"
        ),
        Figure("KV of a block", "2 MiB", Fraction(BLOCK_SIZE * token, MIB), "16 x 128 KiB"),
        Figure(
            "blocks",
            "26,785",
            capacity.blocks_in(int(pool), BLOCK_SIZE, token),
            "52.32 GiB / 2 MiB, rounded down",
            "within rounding",
        ),
        Figure("slots", "428,560", BLOCKS * BLOCK_SIZE, "26,785 x 16"),
    ]


def _requests(token: int) -> list[Figure]:
    admitted = capacity.contiguous_admissions(BLOCKS * BLOCK_SIZE, LONGEST)
    live = Fraction(admitted * TOKENS * token, GIB)
    unused = Fraction(100 * capacity.unused_slots(LONGEST, TOKENS), LONGEST)
    paged = capacity.paged_admissions(BLOCKS, BLOCK_SIZE, TOKENS)
    return [
        Figure("reservation", "4 GiB", Fraction(LONGEST * token, GIB), "32,768 x 128 KiB"),
        Figure("reservations", "13", admitted, "428,560 / 32,768, rounded down"),
        Figure("a request of 612", "76.5 MiB", Fraction(TOKENS * token, MIB), "612 x 128 KiB"),
        Figure("13 of them", "0.97 GiB", live, "13 x 76.5 MiB"),
        Figure("waste", "98.13 %", unused, "1 - 612 / 32,768"),
        Figure(
            "blocks of 612", "39", capacity.blocks_for(TOKENS, BLOCK_SIZE), "612 / 16, rounded up"
        ),
        Figure("paged requests", "686", paged, "26,785 / 39, rounded down"),
    ]


def _step() -> list[Figure]:
    table = [0] * 256 + [STEP_BLOCK]
    slot = slots.slot_of(table, STEP_POSITION, BLOCK_SIZE)
    block_index = capacity.block_table_bytes(ROWS, LONGEST, BLOCK_SIZE)
    token_index = capacity.token_table_bytes(ROWS, LONGEST)
    return [
        Figure("row of a table", "2,048", capacity.blocks_for(LONGEST, BLOCK_SIZE), "32,768 / 16"),
        Figure("block table", "2 MiB", Fraction(block_index, MIB), "256 x 2,048 x 4 bytes"),
        Figure("token table", "32.1 MiB", Fraction(token_index, MIB), "257 x 32,768 x 4 bytes"),
        Figure("its ratio", "16", Fraction(token_index, block_index), "32.125 MiB / 2 MiB"),
        Figure(
            "blocks of 4,097",
            "257",
            capacity.blocks_for(4097, BLOCK_SIZE),
            "4,097 / 16, rounded up",
        ),
        Figure("slot", "30,608", slot, "block 1913, position 4,096: 1913 x 16 + 4,096 % 16"),
    ]


def _tails(token: int) -> list[Figure]:
    sequences = capacity.paged_admissions(BLOCKS, BLOCK_SIZE, TOKENS)
    small = Fraction(capacity.worst_tail(BLOCK_SIZE) * token)
    large = Fraction(capacity.worst_tail(LARGE_BLOCK_SIZE) * token)
    pool = BLOCKS * BLOCK_SIZE * token
    blocks_of_128 = pool // (LARGE_BLOCK_SIZE * token)
    fit = capacity.paged_admissions(blocks_of_128, LARGE_BLOCK_SIZE, TOKENS)
    expected = slots.expected_tail_waste(TAILS, BLOCK_SIZE)
    twice = Fraction(capacity.worst_tail(32), capacity.worst_tail(BLOCK_SIZE))
    one = Fraction(slots.tail_waste(1, BLOCK_SIZE), BLOCK_SIZE)
    return [
        Figure("worst tail at 16", "1.875 MiB", small / MIB, "15 x 128 KiB"),
        Figure("worst tail at 128", "15.875 MiB", large / MIB, "127 x 128 KiB"),
        Figure("686 tails at 16", "1.3 GiB", sequences * small / GIB, "686 x 1.875 MiB"),
        Figure(
            "686 tails at 128",
            "10.6 GiB",
            sequences * large / GIB,
            f"686 x 15.875 MiB, though blocks of 128 admit {fit} of 612 tokens",
        ),
        Figure("share at 16", "2.4 %", 100 * sequences * small / pool, "of 26,785 blocks"),
        Figure("share at 128", "20 %", 100 * sequences * large / pool, "of 26,785 blocks"),
        Figure("one token's tail", "0.9375", one, "15/16 of a block of 16"),
        Figure("block size 32", "2", twice, "worst tails of 31 and 15 slots"),
        Figure("mean tail", "7.75", expected, "lengths 1, 15, 16, 17: (15 + 1 + 0 + 15) / 4"),
        Figure("uniform tail", "7.5", capacity.uniform_tail(BLOCK_SIZE), "(16 - 1) / 2"),
    ]


def _experiments() -> list[Figure]:
    check = capacity.startup(TOO_LONG, SMALL_POOL, BLOCK_SIZE)
    contiguous = capacity.contiguous_admissions(SMALL_POOL * BLOCK_SIZE, LONGEST)
    needed = f"needs {check.needed_blocks:,} blocks and is refused"
    return [
        Figure(
            "2,048 blocks",
            "32,768",
            SMALL_POOL * BLOCK_SIZE,
            "slots, where no block is a null block",
        ),
        Figure("blocks of 4,000", "250", capacity.blocks_for(PROMPT, BLOCK_SIZE), "4,000 / 16"),
        Figure("contiguous", "1", contiguous, "32,768 / 32,768"),
        Figure("startup's limit", "32,768", check.largest_len, f"131,072 {needed}"),
    ]
