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
        yield Arrival(
            round(request.timestamp * 1000),
            request.input_length,
            request.output_length,
            request.hash_ids,
        )
