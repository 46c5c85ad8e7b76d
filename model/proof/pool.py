"""A small pool that does a trace's operations by the relations alone.

One operation of a trace is one or several of the relations: an append of three tokens is three
appends, an admission a hit and appends, a step is begun, joined, landed and ended.  Which form an
append takes, and what a prompt hits, is up to the guards.  Where a block is needed it is the smallest
that may be taken, as in the reference alone; with `takes_idle_last` the smallest free one if there is
one, as in allocators.
"""

from collections.abc import Callable, Mapping
from copy import copy
from itertools import product
from typing import Any

from kvoracle.model.operations import Operation
from kvoracle.model.proof.finite import Domains, carried_out, empty_pool
from kvoracle.model.proof.logic import Term
from kvoracle.model.proof.relation import Relation
from kvoracle.model.proof.relations import RELATIONS
from kvoracle.model.proof.state import State

BY_NAME = {relation.name: relation for relation in RELATIONS}
IS_FREE = "the block is free"


class Stuck(Exception):
    """No relation allows the operation in this state."""


class Pool:
    """A state, and what a caller remembers beside it: prompts of the preempted, leases, caching.

    `observe` is told of each relation that was carried out, with the states before and after it.
    """

    def __init__(
        self,
        size: int,
        domains: Domains,
        *,
        caching: bool,
        window: int = 0,
        takes_idle_last: bool = False,
        relations: Mapping[str, Relation] = BY_NAME,
    ) -> None:
        self.state = empty_pool(size, domains)
        self.domains = domains
        self.caching = caching
        self.window = window
        self.takes_idle_last = takes_idle_last
        self.relations = relations
        self.steps: dict[str, list[str]] = {}
        self.preempted: dict[str, tuple[tuple[int, ...], Term]] = {}
        self.barred: set[Term] = set()
        self.leases: dict[str, int] = {}
        self.observe: Callable[[Relation, State, State], None] = lambda *_: None

    def copy(self) -> "Pool":
        """The same pool, to go another way from here."""
        other = copy(self)
        other.steps, other.preempted = dict(self.steps), dict(self.preempted)
        other.barred, other.leases = set(self.barred), dict(self.leases)
        return other

    def perform(self, operation: Operation) -> None:
        """Do one operation of a trace, or be Stuck, at which the state is in the middle of it."""
        getattr(self, operation.verb)(*operation.arguments())
        if self.window:
            for request in filter(self.state.live, self.domains["request"]):
                self._slide(request)

    # core

    def create(self, request: str) -> None:
        self._do("create", request, ())

    def append(self, request: str, tokens: tuple[int, ...]) -> None:
        for token in tokens:
            self._append_one(request, token)

    def append_each(self, requests: tuple[str, ...], tokens: tuple[int, ...]) -> None:
        for request, token in zip(requests, tokens, strict=True):
            self._append_one(request, token)

    def fork(self, request: str, child: str) -> None:
        self._do("fork", request, child)

    def pin(self, request: str, transfer: str) -> None:
        self._do("pin", request, transfer)

    def unpin(self, transfer: str) -> None:
        self._must_be(self.state.outstanding(transfer))
        self._do("unpin", transfer)

    def release(self, request: str) -> None:
        if self.preempted.pop(request, None) is None:
            self.release_each((request,))

    def release_each(self, requests: tuple[str, ...]) -> None:
        for request in requests:
            self._must_be(self.state.live(request))
            self._do("release", request)

    # room

    def reserve(self, request: str, count: int) -> None:
        while self._distance(request, "room") < count:
            self._do_one_of("reserve_in_tail", "reserve_fresh", "reserve_copy", about=(request,))

    def commit(self, request: str, tokens: tuple[int, ...]) -> None:
        for token in tokens:
            self._do("commit", request, token)
            self._publish(request)

    def trim(self, request: str) -> None:
        self._must_be(self.state.live(request))
        self._do("trim", request)

    # prefix cache

    def admit(self, request: str, prompt: tuple[int, ...], extra_keys: dict[str, str]) -> None:
        self._begin(request, prompt, tuple(sorted((k, v) for k, v in extra_keys.items() if v)))

    def evict(self, request: str, first: int) -> None:
        for index in range(first, self.state.count(request)):
            block = self.state.table(request, index)
            self.barred.add(block)
            if self.state.published(block):
                self._do("withdraw", block)

    def reset(self) -> None:
        for block in self.domains["block"]:
            if self.state.published(block):
                self._do("withdraw", block)

    def change_weights(self) -> None:
        self._do("change_weights")

    # preemption

    def preempt(self, request: str) -> None:
        self.preempted[request] = (self.read(request), self.state.key(request))
        self._do("release", request)

    def resume(self, request: str) -> None:
        tokens, key = self.preempted.pop(request)
        self._begin(request, tokens, key)

    # steps

    def begin_step(self, step: str, requests: tuple[str, ...], tokens: tuple[int, ...]) -> None:
        self._do("begin_step", step)
        self.steps[step] = list(requests)
        for request, token in zip(requests, tokens, strict=True):
            self._join(step, request, token)

    def end_step(self, step: str) -> None:
        self._run_copies(step)
        for block, offset in product(self.domains["block"], self.domains["offset"]):
            if self.state.strays(step, block, offset):
                self._do("stray", step, block, offset, None)
        for request in self.steps.pop(step):
            if self.state.writes(step, request):
                self._do("land", step, request)
                self._publish(request)
        self._do("end_step", step)

    def fail_step(self, step: str) -> None:
        begun = list(self.steps)
        self._must_be(step in begun)
        for failed in reversed(begun[begun.index(step) :]):
            self._run_copies(failed)
            for request in self.steps.pop(failed):
                if self.state.writes(failed, request):
                    self._do("fail", failed, request, None)
            self._do("end_step", failed)

    # transfers

    def send(self, request: str, transfer: str, workers: int, lease: int) -> None:
        self._do("send", request, transfer, range(workers).__contains__)
        if lease:
            self.leases[transfer] = lease

    def acknowledge(self, transfer: str, worker: int, life: int) -> None:
        generation = self.state.generation(transfer) - life
        self._must_be(self.state.outstanding(transfer) and self.state.awaited(transfer, worker))
        if self.state.reading(transfer, generation, worker):
            self._do("finish", transfer, generation, worker)
        about = (transfer, generation, worker)
        self._do(
            "acknowledge_last" if self._can("acknowledge_last", about) else "acknowledge", *about
        )
        if not self.state.outstanding(transfer):
            self.leases.pop(transfer, None)

    def tick(self) -> None:
        self.leases = {transfer: lease - 1 for transfer, lease in self.leases.items()}
        for transfer in [name for name, lease in self.leases.items() if lease == 0]:
            del self.leases[transfer]
            self._do("expire", transfer)

    def read(self, request: str) -> tuple[int, ...]:
        """The tokens of a request, read through its table."""
        size, length = self.state.size(), self.state.length(request)
        return tuple(
            self.state.stored(self.state.table(request, place // size), place % size)
            for place in range(length.index * size + length.offset)
        )

    def _must_be(self, condition: bool) -> None:
        """What no guard asks for, since otherwise nothing would happen; but a caller may not do it."""
        if not condition:
            raise Stuck

    def _append_one(self, request: str, token: int) -> None:
        forms = ("append_in_place", "append_fresh", "append_copy", "commit")
        self._do_one_of(*forms, about=(request,), token=(token,))
        self._publish(request)

    def _begin(self, request: str, prompt: tuple[int, ...], key: Term) -> None:
        hits: list[Term] = []
        while (block := self._hit(request, hits, prompt, key)) is not None:
            hits.append(block)
        self._do("hit", request, len(hits), *_as_functions(hits, prompt, self.state.size()), key)
        for token in prompt[len(hits) * self.state.size() :]:
            self._append_one(request, token)

    def _hit(self, request: str, hits: list[Term], prompt: tuple[int, ...], key: Term) -> Term:
        """One more block that the guards allow as a hit, one in use if there is one."""
        size = self.state.size()
        if not self.caching or (len(hits) + 1) * size >= len(prompt):
            return None
        for block in sorted(
            self.domains["block"], key=lambda block: not self.state.is_in_use(block)
        ):
            functions = _as_functions([*hits, block], prompt, size)
            if self._can("hit", (request, len(hits) + 1, *functions, key)):
                return block
        return None

    def _join(self, step: str, request: str, token: int) -> None:
        """By a copy of the tail, or into room, which is there or is reserved."""
        try:
            self._do_one_of("join", "join_copy", about=(step, request), token=(token,))
        except Stuck:
            self._do_one_of("reserve_in_tail", "reserve_fresh", about=(request,))
            self._do("join", step, request, token)

    def _publish(self, request: str) -> None:
        """Blocks that have become full are published, if they may be."""
        for block in self.domains["block"]:
            may_be = self.caching and block not in self.barred and not self.state.published(block)
            if may_be and self._can("publish", (request, block)):
                self._do("publish", request, block)

    def _slide(self, request: str) -> None:
        """The next query sees `window` tokens, its own included; what lies before them goes."""
        written = self._distance(request, "length", since="horizon")
        for _ in range(written + 1 - self.window):
            self._do("slide", request)
        for block in sorted(self.domains["block"], key=self.state.depth):
            if self._can("reclaim", (request, block)):
                self._do("reclaim", request, block)

    def _run_copies(self, step: str) -> None:
        for block in self.domains["block"]:
            if self.state.pending(block) and self.state.copier(block) == step:
                self._do("run_copy", block)

    def _distance(self, request: str, end: str, since: str = "length") -> int:
        """How many tokens lie between what is written and what is promised or reserved."""
        start, until = getattr(self.state, since)(request), getattr(self.state, end)(request)
        size = self.state.size()
        distance: int = (until.index - start.index) * size + until.offset - start.offset
        return distance

    def _do_one_of(
        self, *names: str, about: tuple[Term, ...], token: tuple[Term, ...] = ()
    ) -> None:
        """The first of some relations whose guards hold, with a block where it needs one.

        At most one of them can be done, unless one is broken; that one is tried first.
        """
        for name in sorted(names, key=lambda name: not self.relations[name].left_out):
            needs_block = "fresh_block" in self.relations[name].arguments
            for block in self._takeable(self.relations[name]) if needs_block else [None]:
                arguments = (*about, *([block] if needs_block else []), *token)
                if self._can(name, arguments, taking=block):
                    self._make_free(name, block)
                    self._do(name, *arguments)
                    return
        raise Stuck

    def _can(self, name: str, arguments: tuple[Any, ...], taking: Term = None) -> bool:
        """Whether the guards hold; of a block that is to be taken it is enough that it is idle."""
        relation = self.relations[name]
        if taking is not None:
            relation = relation.without(IS_FREE)
        return all(relation.guards(self.state, *arguments))

    def _takeable(self, relation: Relation) -> list[Term]:
        """The block to take: the smallest that may be, or for a broken relation one that must not."""
        idle, blocks = self.relations["evict"], self.domains["block"]
        taken = [block for block in blocks if not self.state.free(block)]
        may_be = [
            block
            for block in blocks
            if self.state.free(block) or all(idle.guards(self.state, block))
        ]
        if self.takes_idle_last:
            may_be.sort(key=lambda block: not self.state.free(block))
        return (taken * (IS_FREE in relation.left_out) + may_be)[:1]

    def _make_free(self, name: str, block: Term) -> None:
        must_be_free = block is not None and IS_FREE not in self.relations[name].left_out
        if must_be_free and not self.state.free(block):
            self._do("evict", block)

    def _do(self, name: str, *arguments: Term) -> None:
        relation, before = self.relations[name], self.state
        if not all(relation.guards(before, *arguments)):
            raise Stuck
        self.state = carried_out(relation, before, *arguments)
        self.barred = {block for block in self.barred if not self.state.free(block)}
        self.observe(relation, before, self.state)


def _as_functions(hits: list[Term], prompt: tuple[int, ...], size: int) -> tuple[Any, Any]:
    """Lists as functions of an index, and of an index and an offset."""
    return (
        lambda index: hits[index] if 0 <= index < len(hits) else None,
        lambda index, offset: (
            prompt[index * size + offset] if index * size + offset < len(prompt) else None
        ),
    )
