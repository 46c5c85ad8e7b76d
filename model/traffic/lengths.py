"""A list of lengths: whole numbers with spaces, commas or line ends between them; # begins a comment."""

import re
from collections.abc import Iterable, Iterator

from kvoracle.model.errors import UsageError
from kvoracle.model.traffic.arrival import TOKENS_MAX, Arrival
from kvoracle.model.traffic.lines import Line


def lengths(lines: Iterable[Line]) -> Iterator[Arrival]:
    """A request a length, which is that of prompt and answer together."""
    for line in lines:
        for text in line.text.partition("#")[0].replace(",", " ").split():
            if not is_length(text):
                raise line.wrong(f"{text[:60]!r} is not a length; give whole numbers from 1 on")
            yield Arrival(0, int(text), 0)


def lengths_of(texts: Iterable[str]) -> Iterator[Arrival]:
    """The same from arguments."""
    for text in texts:
        if not is_length(text):
            raise UsageError(
                f"{text[:60]!r} is not a length; give whole numbers from 1 on, or one file."
            )
        yield Arrival(0, int(text), 0)


def is_length(text: str) -> bool:
    """Whether a text is the length of a request."""
    return bool(re.fullmatch(r"[0-9]{1,15}", text)) and 1 <= int(text) <= TOKENS_MAX
