"""Allocators broken on purpose, each in one way that really happened; every engine must catch all.

A mutant is a few lines over `impl`, decorated with the bugs it stands for (their threads are in
docs/bugs.md) and one sentence that says what it does wrong.
"""

from kvoracle.model.mutants import (
    core,
    groups,
    keys,
    lookup,
    preempt,
    prefix,
    reserve,
    steps,
    token,
    transfers,
)
from kvoracle.model.mutants.base import MUTANTS, Mutant

__all__ = [
    "MUTANTS",
    "Mutant",
    "core",
    "groups",
    "keys",
    "lookup",
    "preempt",
    "prefix",
    "reserve",
    "steps",
    "token",
    "transfers",
]
