"""What a reader of the command line sees of a proof, or of one that fails on purpose."""

import time
from pathlib import Path

from rich.console import Console

from kvoracle import __version__
from kvoracle.model import found
from kvoracle.model.proof import prove
from kvoracle.model.proof.broken import Counterexample, counterexample, relation_without
from kvoracle.model.proof.invariants import INVARIANTS
from kvoracle.model.proof.logic import z3
from kvoracle.model.proof.relation import Relation
from kvoracle.model.proof.relations import RELATIONS
from kvoracle.model.proof.witnesses import witness

SIGNS = {"unsat": "+", "unchanged": ".", "sat": "X", "unknown": "?"}
NAME_WIDTH = 40


def proof(out: Console, without: str | None, folder: Path) -> bool:
    """Prove everything, or see it fail without a part of an operation; whether all is proven."""
    solver = z3().get_version_string()
    out.print(f"kvoracle {__version__} prove", style="bold")
    out.print(
        f"  z3 {solver}; blocks of any size, any number of blocks, requests, transfers, steps"
    )
    out.print()
    if without is not None:
        return _fails(out, relation_without(without), without, folder)
    started = time.monotonic()
    rows = _table(out, RELATIONS)
    rows += _properties(out)
    reached = _witnesses(out)
    is_proven = all(row.is_proof for row in rows) and reached
    out.print(
        f"{sum(map(_queries, rows))} queries, {'all' if is_proven else 'NOT ALL'} as they must be,"
        f" in {time.monotonic() - started:.1f} s"
    )
    return is_proven


def _table(out: Console, relations: tuple[Relation, ...]) -> list[prove.Row]:
    """Operations by invariants: one sign a query."""
    out.print("The invariants")
    for number, invariant in enumerate(INVARIANTS, start=1):
        out.print(f"  {number:>2}  {invariant.__name__.replace('_', ' ')}", markup=False)
    out.print()
    out.print("After each operation they hold: + proven, . not touched, X refuted, ? no answer")
    tens = "".join(f"{number // 10 or ' '}" for number in range(1, len(INVARIANTS) + 1))
    ones = "".join(f"{number % 10}" for number in range(1, len(INVARIANTS) + 1))
    out.print(f"  {'':<18}{tens}\n  {'':<18}{ones}   seconds")
    rows = [prove.empty_pool()]
    _show_row(out, rows[0])
    for row in prove.operations(relations):
        rows.append(row)
        _show_row(out, row)
    out.print()
    return rows


def _show_row(out: Console, row: prove.Row) -> None:
    signs = "".join(SIGNS[answer.verdict] for answer in row.answers)
    out.print(f"  {row.name:<18}{signs}  {row.seconds:>8.2f}", markup=False)


def _properties(out: Console) -> list[prove.Row]:
    out.print("From which follows")
    rows = []
    for row in prove.properties():
        rows.append(row)
        sign = SIGNS[row.answers[0].verdict]
        out.print(f"  {sign} {row.name.replace('_', ' '):<{NAME_WIDTH}}{row.seconds:>8.2f}")
    out.print()
    return rows


def _witnesses(out: Console) -> bool:
    """That the operations can happen, or else a proof about them would say nothing."""
    out.print("Each operation happens, for the first time after")
    all_found = True
    for relation in RELATIONS:
        trace = witness(relation)
        all_found = all_found and trace is not None
        steps = "; ".join(map(found.in_words, trace.operations)) if trace else "NEVER"
        out.print(f"  {relation.name:<18}{steps}", markup=False)
    out.print()
    return all_found


def _fails(out: Console, relation: Relation, without: str, folder: Path) -> bool:
    """The queries of an operation without one of its parts, and where that leads."""
    rows = _table(out, (relation,))
    out.print(f"{relation.name} without this: {without.partition(': ')[2]}", markup=False)
    if all(row.is_proof for row in rows):
        out.print("is still proven: the invariants do not need this part.")
        return True
    example = counterexample(relation)
    if example is None:
        out.print("is not proven, and no short trace shows why.")
        return False
    _show_counterexample(out, relation.name, example, folder)
    return False


def _show_counterexample(
    out: Console, operation_name: str, example: Counterexample, folder: Path
) -> None:
    for name in example.broken:
        out.print(f"breaks what holds otherwise: {name.replace('_', ' ')}", markup=False)
    out.print()
    out.print(f"The shortest way there, on {example.pool}:")
    for index, operation in enumerate(example.trace.operations):
        out.print(f"  {index:>3}  {found.in_words(operation)}", markup=False)
    if example.is_out_of_turn:
        out.print(
            f"       and then {operation_name}, which nothing holds back any more", markup=False
        )
    out.print()
    if example.failure is None or example.target is None:
        path = example.save(folder)
        out.print(f"Replay it on your allocator:\n  kvoracle replay {path} --allocator NAME")
        return
    out.print(f"{example.target.name} is broken in this way:\n")
    out.print(found.describe_found(example.failure, example.target, folder), markup=False)


def _queries(row: prove.Row) -> int:
    return sum(answer.verdict != "unchanged" for answer in row.answers)
