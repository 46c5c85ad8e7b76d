"""The kernels on a GPU: a whole large pool compared in every dtype, then times.

    python -m kvoracle.gpu.bench [--rehearse] [--json FILE]

Where there is no GPU it says so and ends well; `--rehearse` does everything in small on the CPU.
`kvoracle.model.adapters.gpu_times` is the same command with the installed engines' kernels beside ours.
"""

import argparse
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch

from kvoracle.gpu.bench_compare import compare_whole_pool
from kvoracle.gpu.bench_pool import DOCUMENT, REHEARSAL, Size
from kvoracle.gpu.bench_times import PAIRS, Rival, measure
from kvoracle.gpu.block_copy import as_pool, copy_prepared, upload
from kvoracle.gpu.kernel import HAS_TRITON, launching_with
from kvoracle.gpu.sanitizer import Sanitizer, first_of_each

GIB = 2**30
BLOCKS_MIN = 4608
"""9 GiB: fewer blocks do not rotate."""


class Goal(NamedTuple):
    """A ratio, and the most that it should be."""

    name: str
    ratio: float
    most: float

    @property
    def is_met(self) -> bool:
        """Whether it is."""
        return self.ratio <= self.most


def goals(times: dict[str, float]) -> list[Goal]:
    """What the kernels are to reach, as ratios within one run on the document's pool."""
    found = []
    smallest = times["smallest kernel"]
    for count in PAIRS:
        ours = times[f"disjoint, {count} pairs"]
        if count >= 64:
            found.append(Goal(f"copy_, {count} pairs", ours / times[f"copy_, {count} pairs"], 1.10))
            fancy = times[f"fancy index, {count} pairs"]
            found.append(Goal(f"fancy index, {count} pairs", ours / fancy, 1 / 1.7))
        else:
            loop = times[f"layer loop, {count} pairs"]
            found.append(Goal(f"layer loop, {count} pairs", ours / loop, 1 / 10))
            floor = times[f"copy_, {PAIRS[-1]} pairs"] * count / PAIRS[-1]
            most = floor + 2 * smallest
            found.append(Goal(f"floor and 2 smallest kernels, {count} pairs", ours / most, 1.0))
        any_pairs = times[f"any pairs, {count} pairs"]
        found.append(Goal(f"any pairs, {count} pairs", any_pairs / ours, 1.15))
    mapping = times[f"slot_mapping, {DOCUMENT.tokens} tokens"] / smallest
    return [*found, Goal("slot_mapping, of the smallest kernel", mapping, 2.0)]


def memory_allocated(storage: torch.Tensor) -> int:
    """Bytes that a prepared copy allocates at its peak; 0 where nobody counts them."""
    pool, copies = as_pool([storage]), upload([(0, 1), (1, 2)], storage.device)
    if storage.device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    copy_prepared(pool, copies)
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


def report(device: str, size: Size, rivals: Sequence[Rival], json_file: Path | None) -> bool:
    """Do everything and print it; whether every byte was right and no memory allocated."""
    storage = size.make(device)
    is_rehearsal = device != "cuda"
    named = "CPU, interpreted: a rehearsal" if is_rehearsal else torch.cuda.get_device_name()
    print(f"device     {named}\npool       {storage.nbytes / GIB:.2f} GiB in {size.blocks} blocks")
    wrong = compared(storage, size)
    result = {"device": named, "blocks": size.blocks, "wrong": wrong}
    is_right = not any(wrong.values())
    if is_right:
        result |= timed(storage, size, rivals)
    else:
        print("times      none: what is wrong is not timed")
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return is_right and result["allocated_bytes"] == 0


def compared(storage: torch.Tensor, size: Size) -> dict[str, list[str]]:
    """What was wrong in each dtype, printed as it is found.  On the CPU the sanitizer carries out."""
    sanitizer, wrong = Sanitizer(0), {}
    is_watched = HAS_TRITON and storage.device.type == "cpu"
    with launching_with(sanitizer.carry_out) if is_watched else nullcontext():
        for dtype, said in compare_whole_pool(storage, size):
            reports = first_of_each(sanitizer.reports)
            wrong[dtype] = [*said, *(one for one in reports if f"Stopped: {one}" not in said)]
            sanitizer.reports.clear()
            state = "WRONG" if wrong[dtype] else "every word is right"
            print("\n".join([f"compared   {dtype}: {state}", *wrong[dtype]]), flush=True)
    return wrong


def timed(storage: torch.Tensor, size: Size, rivals: Sequence[Rival]) -> dict[str, Any]:
    """The memory that a copy allocates, the times and the goals, printed and by name."""
    is_rehearsal = storage.device.type != "cuda"
    allocated = memory_allocated(storage)
    print(f"allocated  {allocated} bytes by a copy")
    skipped = {rival.name: rival.why_not for rival in rivals if rival.why_not}
    for name, why in skipped.items():
        print(f"skipped    {name}: {why}")
    print(
        f"times      {'of a rehearsal: they mean nothing' if is_rehearsal else 'of one call each'}"
    )
    times = measure(storage, size, rivals)
    for name, microseconds in times.items():
        print(f"{microseconds:>12.2f} us  {name}")
    reached = [] if is_rehearsal else goals(times)
    for goal in reached:
        state = "met" if goal.is_met else "missed"
        print(f"{goal.ratio:>12.2f}     {goal.name}: at most {goal.most:.2f}, {state}")
    return {
        "allocated_bytes": allocated,
        "skipped": skipped,
        "microseconds": times,
        "goals": [{**goal._asdict(), "is_met": goal.is_met} for goal in reached],
    }


def main(rivals: Sequence[Rival] = ()) -> int:
    """The command line; rivals are timed beside our kernels."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rehearse", action="store_true", help="small, on the CPU")
    parser.add_argument("--json", type=_writable, help="a file for the numbers")
    options = parser.parse_args()
    if options.rehearse:
        return 0 if report("cpu", REHEARSAL, rivals, options.json) else 1
    if not torch.cuda.is_available():
        print("skipped: no CUDA device is here (--rehearse runs small on the CPU)")
        return 0
    fits = int(torch.cuda.mem_get_info()[0] * 0.9) // (DOCUMENT.words * 8)
    if fits < BLOCKS_MIN:
        print(f"skipped: {fits} blocks of 2 MiB fit in what is free, and {BLOCKS_MIN} are needed")
        return 0
    size = DOCUMENT._replace(blocks=min(DOCUMENT.blocks, fits))
    return 0 if report("cuda", size, rivals, options.json) else 1


def _writable(name: str) -> Path:
    """A file, refused before the work rather than after it where it cannot be written."""
    file = Path(name)
    try:
        is_new = not file.exists()
        file.open("a", encoding="utf-8").close()
    except OSError as error:
        said = f"{name} cannot be written ({error.strerror}); choose another file"
        raise argparse.ArgumentTypeError(said) from error
    if is_new:
        file.unlink()
    return file


if __name__ == "__main__":
    raise SystemExit(main())
