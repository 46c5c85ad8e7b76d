"""A request that is served, and the text that it writes."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

Text = array  # of type code "q"
"""Identities of tokens (`texts`), or tokens: whole numbers that numpy reads without copying them."""


@dataclass(slots=True, eq=False)
class Request:
    """One request, from its arrival until it is cleaned up; lengths are in tokens."""

    name: str
    number: int
    """In the order of arrival."""
    prompt: int
    output: int
    make_text: Callable[[], "Text[int]"]
    """The identities of the prompt's tokens, and then those of the answer's."""
    remote: bool = False
    """Whether its prompt is transferred in; once preempted, it is computed here all the same."""
    known: int = 0
    """Of its text, written or not."""
    length: int = 0
    """Of its text, written, or being loaded."""
    blocks: int = 0
    credit: int = 0
    """The blocks that it may still take."""
    is_loading: bool = False
    has_loaded: bool = False
    tail_pins: set[str] = field(default_factory=set)
    """The transfers that read its last block, which is not full: to grow, it has to be copied."""
    _text: "Text[int] | None" = None

    @property
    def longest(self) -> int:
        """What it has at its end."""
        return self.prompt + self.output

    @property
    def text(self) -> "Text[int]":
        """Made when first asked for."""
        if self._text is None:
            self._text = self.make_text()
        return self._text

    @property
    def load(self) -> str:
        """The transfer of its prompt."""
        return f"load of {self.name}"

    def leave_pool(self) -> None:
        """It has nothing written."""
        self.length = self.blocks = self.credit = 0
        self.is_loading = False
        self.tail_pins.clear()
