"""A request of a trace, whatever its format."""

from dataclasses import dataclass, replace

PREFIX_BLOCK = 512
"""Tokens of one block of Mooncake's prefix identities."""

TOKENS_MAX = 10**8


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a request arrived, how long it and its answer were, and which prefixes it shares."""

    microseconds: int
    """Since the trace began, or since whenever its clock did."""
    prompt: int
    output: int
    prefixes: tuple[int, ...] = ()
    """An identity for each `prefix_block` tokens of the prompt, the last perhaps fewer: where two
    requests have the same one, their prompts are equal up to there."""
    prefix_block: int = PREFIX_BLOCK

    @property
    def tokens(self) -> int:
        """What it has at its end."""
        return self.prompt + self.output


def scaled_down(arrival: Arrival, scale: int) -> Arrival:
    """The same request with lengths of one in `scale`, a power of 2; they are rounded up."""
    return replace(
        arrival,
        prompt=-(-arrival.prompt // scale),
        output=-(-arrival.output // scale),
        prefix_block=arrival.prefix_block // scale,
    )
