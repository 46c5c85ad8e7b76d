"""Mooncake's traces (FAST'25): an object a line, `timestamp` in milliseconds and `hash_ids`."""

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from kvoracle.model.traffic.arrival import PREFIX_BLOCK, TOKENS_MAX, Arrival
from kvoracle.model.traffic.lines import Line

Tokens = Annotated[int, Meta(ge=0, le=TOKENS_MAX)]


class Request(msgspec.Struct):
    """As the line has it; further fields are left alone."""

    timestamp: Annotated[float, Meta(ge=0, le=1e15)]
    input_length: Annotated[int, Meta(ge=1, le=TOKENS_MAX)]
    output_length: Tokens
    hash_ids: tuple[Annotated[int, Meta(ge=0)], ...]


def mooncake(lines: Iterable[Line]) -> Iterator[Arrival]:
    """The requests of a trace, with the identities of their prefixes."""
    decode = msgspec.json.Decoder(Request).decode
    before: dict[int, int | None] = {}
    for line in lines:
        try:
            request = decode(line.text)
        except msgspec.MsgspecError as error:
            raise line.wrong(f"{error}; a request of a Mooncake trace is wanted") from error
        wanted = -(-request.input_length // PREFIX_BLOCK)
        if len(request.hash_ids) != wanted:
            raise line.wrong(
                f"{request.input_length} tokens have {wanted} blocks of {PREFIX_BLOCK} and not"
                f" {len(request.hash_ids)} hash_ids; correct one of them"
            )
        _check_chain(line, request.hash_ids, before)
        yield Arrival(
            round(request.timestamp * 1000),
            request.input_length,
            request.output_length,
            request.hash_ids,
        )


def _check_chain(line: Line, ids: tuple[int, ...], before: dict[int, int | None]) -> None:
    """Equal ids mean equal prefixes, so what comes before an id is always the same."""
    previous = None
    for one in ids:
        if before.setdefault(one, previous) != previous:
            raise line.wrong(
                f"hash id {one} follows {_in_words(previous)} here and {_in_words(before[one])} on"
                " a line above, and equal ids mean equal prefixes; correct one of them"
            )
        previous = one


def _in_words(identity: int | None) -> str:
    return "nothing" if identity is None else str(identity)
