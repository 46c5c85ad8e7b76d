"""Our token pool lays pages out as SGLang's own functions without Triton do, page for page."""

import random

import pytest

INSTALL = "pip install torch==2.13.0 && pip install --no-deps sglang==0.5.23"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("sglang", reason=INSTALL)

from kvoracle.impl.token_pool import TokenPool  # noqa: E402


@pytest.mark.parametrize("page_size", [2, 3, 16])
@pytest.mark.parametrize("seed", range(5))
def test_extend_and_decode_give_the_slots_that_sglang_gives(seed, page_size):
    from sglang.srt.mem_cache.allocator.paged import alloc_decode_naive, alloc_extend_naive

    chance = random.Random(seed)
    pool = TokenPool(5_000, page_size)
    lengths, last = [0] * 7, [-1] * 7
    for _ in range(30):
        after = [length + chance.choice((0, 1, chance.randint(0, 50))) for length in lengths]
        free = torch.arange(pool.pages + 1 - pool.available // page_size, pool.pages + 1)
        expected = torch.empty(sum(after) - sum(lengths), dtype=torch.int64)
        alloc_extend_naive(
            *map(torch.tensor, (lengths, after, last)), free, expected, page_size, "cpu"
        )
        actual = pool.alloc_extend(lengths, after, last).tolist()
        assert actual == expected.tolist()

        grown = iter(actual)
        for index, (before, now) in enumerate(zip(lengths, after, strict=True)):
            for _ in range(now - before):
                last[index] = next(grown)

        free = torch.arange(pool.pages + 1 - pool.available // page_size, pool.pages + 1)
        expected = torch.empty(len(after), dtype=torch.int64)
        fresh = sum(length % page_size == 0 for length in after)
        decoded = torch.tensor(after) + 1
        alloc_decode_naive(decoded, torch.tensor(last), free, expected, page_size, fresh)
        last = pool.alloc_decode(after, last).tolist()
        assert last == expected.tolist()
        lengths = [length + 1 for length in after]
