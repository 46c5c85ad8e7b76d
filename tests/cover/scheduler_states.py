"""Every state of a small scheduler: what can happen in each, and the laws that hold after it."""

import copy
from collections import deque
from dataclasses import dataclass, field

from kvoracle.model.explore.clone import clone
from kvoracle.reference.admission import Credits

STATES_MAX = 20_000


class BrokenLaw(AssertionError):
    """A law of the scheduler does not hold; the way there is in the message."""


@dataclass
class Graph:
    """States by number, the first is 0; edges as (event, target)."""

    numbers: dict = field(default_factory=dict)
    edges: dict = field(default_factory=dict)
    live: dict = field(default_factory=dict)
    """Who waits, who runs, and who of those waits for a remote prompt, in each state."""
    seen: dict = field(default_factory=dict)
    """How often something happened: a preemption, a hit, a refusal, ..."""


def explore(new, jobs, *, transfers=1, judged=True):
    """All states that a scheduler of `new()` can reach when `jobs` may arrive, in order.

    Not `judged`, only what a scheduler does is looked at, and not what it promises.
    """
    graph = Graph()
    queue = deque([(new(), 0, ())])
    _number(graph, queue[0][0], 0)
    while queue:
        scheduler, arrived, way = queue.popleft()
        number = graph.numbers[_key(scheduler, arrived)]
        for event in events(scheduler, arrived, jobs, transfers):
            after = _clone(scheduler)
            arrived_after = arrived + (event[0] == "arrive")
            _judge(graph, after, event, jobs, (*way, event), judged)
            key = _key(after, arrived_after)
            if key not in graph.numbers:
                _number(graph, after, arrived_after)
                queue.append((after, arrived_after, (*way, event)))
            graph.edges[number].append((event, graph.numbers[key]))
    return graph


def stuck(graph):
    """States where somebody waits or runs and, though all that is on its way comes, stays so forever.

    Without arrivals, cancellations and new transfers there must be no way back to an earlier state;
    then every run ends, and in its last state nobody is left.
    """
    onward = {
        number: {
            target
            for event, target in edges
            if event[0] in ("step", "clean", "sent", "loaded") and target != number
        }
        for number, edges in graph.edges.items()
    }
    waits_for = {number: len(targets) for number, targets in onward.items()}
    sources = {number: [] for number in onward}
    for number, targets in onward.items():
        for target in targets:
            sources[target].append(number)
    ended = [number for number, count in waits_for.items() if count == 0]
    for number in ended:
        for source in sources[number]:
            waits_for[source] -= 1
            if waits_for[source] == 0:
                ended.append(source)
    circling = [number for number, count in waits_for.items() if count > 0]
    left_over = [n for n in onward if not onward[n] and graph.live[n] != ((), (), ())]
    return circling, left_over


def depends(graph):
    """States with a running request that does not end by steps alone: it needs others to let go.

    One that waits for its remote prompt is looked at when that has arrived.
    """
    steps = {
        number: target
        for number, edges in graph.edges.items()
        for event, target in edges
        if event == ("step",)
    }
    found = []
    for number, (_, running, loading) in graph.live.items():
        at, path = number, set()
        while at not in path:
            path.add(at)
            at = steps[at]
        if (set(running) - set(loading)) & set(graph.live[at][1]):
            found.append(number)
    return found


def events(scheduler, arrived, jobs, transfers):
    yield ("step",)
    if arrived < len(jobs):
        yield ("arrive", arrived)
    for name in (*scheduler.waiting, *scheduler.running):
        yield ("cancel", name)
    for name in scheduler.leaving:
        yield ("clean", name)
    for name, job in scheduler.jobs.items():
        if job.load in scheduler.pool.transfers:
            yield ("loaded", name)
    for transfer in scheduler.pool.transfers:
        if scheduler.pool.transfers[transfer].is_pin:
            yield ("sent", transfer)
    unused = [f"t{n}" for n in range(transfers) if f"t{n}" not in scheduler.pool.transfers]
    for name in scheduler.running if unused else ():
        yield ("send", name, unused[0])


def happen(scheduler, event, jobs):
    """Let one event happen; the result is the scheduler's answer."""
    verb, *arguments = event
    if verb == "arrive":
        return scheduler.arrive(jobs[arguments[0]])
    return getattr(scheduler, verb)(*arguments)


def ready(scheduler):
    """The running requests that wait for nothing."""
    return [name for name in scheduler.running if not scheduler.is_loading(name)]


def _judge(graph, scheduler, event, jobs, way, judged):
    runs = ready(scheduler)
    try:
        result = happen(scheduler, event, jobs)
        if judged:
            check(scheduler)
        if judged and event[0] == "step":
            check_step(scheduler, runs, result)
    except (AssertionError, MemoryError) as error:
        raise BrokenLaw(f"{type(error).__name__}: {error}, after {way}") from error
    if event[0] == "step":
        for what in ("admitted", "preempted", "waited"):
            _saw(graph, what, len(getattr(result, what)))
        _saw(graph, "hit", scheduler.pool.counted["hit_tokens"])
        _saw(graph, "copied", len(scheduler.pool.copied))
    elif result is False:
        _saw(graph, f"{event[0]} refused", 1)


def _saw(graph, what, count):
    graph.seen[what] = graph.seen.get(what, 0) + bool(count)


def check(scheduler):
    """Credits are what is reserved, and blocks enough for all of them are available."""
    scheduler.pool.check()
    needed = {name: scheduler.still_needed(name) for name in scheduler.running}
    assert scheduler.credits.of == needed, f"credits {scheduler.credits.of}, needed {needed}"
    if scheduler.credited:
        available = len(scheduler.pool.takeable())
        assert scheduler.credits.promised <= available, f"{needed} of {available}"


def check_step(scheduler, runs, done):
    """With credits everybody gets on as far as the budget goes; without, the first does or waits."""
    assert sum(done.wrote.values()) + done.left == scheduler.budget
    assert all(count > 0 for count in done.wrote.values())
    if scheduler.credited:
        assert not done.preempted, f"preempted {done.preempted}"
        assert not done.waited, f"waited {done.waited}"
        assert done.left == 0 or set(runs) <= set(done.wrote)
    if runs:
        assert runs[0] in done.wrote or runs[0] in done.waited
        assert runs[0] not in done.preempted


def _number(graph, scheduler, arrived):
    number = len(graph.numbers)
    assert number < STATES_MAX, "more states than a test should visit"
    graph.numbers[_key(scheduler, arrived)] = number
    graph.edges[number] = []
    loading = tuple(name for name in scheduler.running if scheduler.is_loading(name))
    graph.live[number] = (tuple(scheduler.waiting), tuple(scheduler.running), loading)


def _clone(scheduler):
    new = copy.copy(scheduler)
    new.pool = clone(scheduler.pool)
    new.pool.counted.clear()
    new.jobs, new.known = scheduler.jobs.copy(), scheduler.known.copy()
    new.waiting, new.running = scheduler.waiting.copy(), scheduler.running.copy()
    new.leaving, new.credits = scheduler.leaving.copy(), Credits(scheduler.credits.of.copy())
    return new


def _key(scheduler, arrived):
    """A state without the numbers of its blocks, and without what nothing depends on any more."""
    pool, labels = scheduler.pool, {}

    def labelled(pages):
        return tuple(labels.setdefault(page, len(labels)) for page in pages)

    names = [*scheduler.waiting, *scheduler.running, *sorted(scheduler.leaving)]
    tables = tuple(labelled(pool.tables.get(name, ())) for name in names)
    pins = tuple((name, labelled(one.pages)) for name, one in sorted(pool.transfers.items()))
    idle = labelled(pool.idle())
    known = tuple((scheduler.known[name], *_life(scheduler, name)) for name in names)
    entries = tuple(pool.index.get(page) for page in labels)
    who = (tuple(scheduler.waiting), tuple(scheduler.running), tuple(sorted(scheduler.leaving)))
    promised = tuple(sorted(scheduler.credits.of.items()))
    return (arrived, who, known, tables, pins, idle, entries, promised)


def _life(scheduler, name):
    """What a request has written, whether it waits for its prompt, and whether that ever began."""
    pool, began = scheduler.pool, scheduler.jobs[name].load in scheduler.pool.begun
    if name not in pool.tables:
        return 0, False, began
    return pool.length(name), scheduler.is_loading(name), began
