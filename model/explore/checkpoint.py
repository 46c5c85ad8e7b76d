"""A search on file: how each state was first reached, which is all that is needed to go on.

States are not stored.  They are reached once more, each from the one before it, which takes a
fraction of the search: nothing is named and compared but what is new.
"""

from pathlib import Path

import msgspec

from kvoracle.model.errors import UsageError
from kvoracle.model.explore.clone import clone
from kvoracle.model.explore.scope import Scope
from kvoracle.model.explore.search import Found, Search, reference_of
from kvoracle.model.operations import AnyOperation

VERSION = 1


class _File(msgspec.Struct):
    version: int
    scope: Scope
    expanded: int
    transitions: int
    refusals: int
    most_out: int
    by_verb: dict[str, int]
    witnessed: dict[str, int]
    found: list[tuple[int, AnyOperation]]


def save(search: Search, path: Path) -> None:
    """Write a search, whole or not at all."""
    graph = search.graph
    file = _File(
        VERSION,
        search.scope,
        graph.expanded,
        graph.transitions,
        graph.refusals,
        graph.most_out,
        dict(graph.by_verb),
        graph.witnessed,
        [(found.before, found.operation) for found in graph.found if found is not None],  # type: ignore[misc]
    )
    unfinished = path.with_suffix(".tmp")
    try:
        unfinished.write_bytes(msgspec.json.encode(file))
        unfinished.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror}); choose another file."
        ) from error


def load(path: Path, scope: Scope) -> Search:
    """A search as it was saved; a file that is none, or of another scope, is a UsageError."""
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{path} is not a saved search ({error}); give a file that --checkpoint wrote."
        ) from error
    if file.version != VERSION or file.scope != scope:
        raise UsageError(
            f"{path} was saved for another scope or version; use the options that it was saved with."
        )
    return _restored(file)


def _restored(file: _File) -> Search:
    search = Search(file.scope)
    graph, states = search.graph, [reference_of(file.scope)]
    search.queue.clear()
    for before, operation in file.found:
        state = clone(states[before])
        operation.perform(state, operation.writes())
        graph.add(search.key(state), Found(before, operation))
        states.append(state)
    search.queue.extend(list(enumerate(states))[file.expanded :])
    graph.expanded, graph.transitions, graph.refusals = (
        file.expanded,
        file.transitions,
        file.refusals,
    )
    graph.most_out, graph.witnessed = file.most_out, file.witnessed
    graph.by_verb.update(file.by_verb)
    return search
