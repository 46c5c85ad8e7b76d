"""The command `kvoracle capacity`."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

import typer
from rich.console import Console

from kvoracle import __version__
from kvoracle.model import report
from kvoracle.model.capacity.document import show_document
from kvoracle.model.capacity.models import CONFIGS, Model, model_named
from kvoracle.model.capacity.sizes import (
    number,
    parse_number,
    parse_size,
    percent,
    rounded_down,
    size,
)
from kvoracle.model.columns import show_columns
from kvoracle.model.errors import UsageError
from kvoracle.reference import capacity as arithmetic
from kvoracle.reference.layers import Kind, Layout, Parallel, layout

ELEMENT_BYTES = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "int8": 1,
}
BLOCK_SIZES = (1, 8, 16, 32, 64, 128)
MOST = {
    "--max-model-len": 10**9,
    "--tokens": 10**9,
    "--block-size": 65_536,
    "--requests": 10**6,
    "--batch-tokens": 10**9,
    "--tensor-parallel": 4096,
    "--context-parallel": 4096,
    "--blocks": 10**12,
}

Row = tuple[str, str, str]


@dataclass(frozen=True)
class Question:
    """What is asked of which model: everything but the pool."""

    model: Model
    dtype: str
    layout: Layout
    block_size: int
    max_model_len: int
    tokens: int
    requests: int
    batch_tokens: int


def capacity(
    model: Annotated[
        str, typer.Argument(help=f"A config.json, or one of {', '.join(CONFIGS)}.")
    ] = "Llama-3-8B",
    blocks: Annotated[int | None, typer.Option(help="The pool, in blocks.")] = None,
    pool: Annotated[str | None, typer.Option(help="The pool, in bytes, as 52.32GiB.")] = None,
    gpu_memory: Annotated[str, typer.Option(help="Without a pool: the GPU's memory.")] = "79.65GiB",
    utilization: Annotated[str, typer.Option(help="The share of it that is used.")] = "0.92",
    weights: Annotated[
        str | None, typer.Option(help="All weights; built-in models know theirs.")
    ] = None,
    overhead: Annotated[str, typer.Option(help="Activations, graphs, workspace.")] = "6GiB",
    dtype: Annotated[
        str, typer.Option(help=f"Of the cache: auto, as the model, or {', '.join(ELEMENT_BYTES)}.")
    ] = "auto",
    max_model_len: Annotated[
        int | None, typer.Option(help="The longest request; without it the model's own.")
    ] = None,
    block_size: Annotated[int, typer.Option(help="Slots of a block.")] = 16,
    tokens: Annotated[int, typer.Option(help="Tokens of a request, outputs included.")] = 612,
    requests: Annotated[int, typer.Option(help="Rows of block and token tables.")] = 256,
    batch_tokens: Annotated[
        int, typer.Option(help="Tokens written in one step, which layers with a window add.")
    ] = 8192,
    tensor_parallel: Annotated[int, typer.Option(help="Ranks that share the heads.")] = 1,
    context_parallel: Annotated[
        int, typer.Option(help="Ranks that share the positions, times those.")
    ] = 1,
    document: Annotated[
        bool,
        typer.Option("--document", help="Only the source document's figures, and which follow."),
    ] = False,
) -> None:
    """Compute how many requests fit, what indexes and tails cost, and how each figure is rounded."""
    out = report.console()
    if document:
        show_document(out)
        return
    known = model_named(model)
    length = known.max_len if max_model_len is None else max_model_len
    if length is None:
        raise UsageError(
            f"{known.name} does not say how long a request may be; give --max-model-len."
        )
    parallel = Parallel(
        _whole("--tensor-parallel", tensor_parallel), _whole("--context-parallel", context_parallel)
    )
    question = Question(
        known,
        known.dtype if dtype == "auto" else dtype,
        _layout(known, known.dtype if dtype == "auto" else dtype, block_size, parallel),
        block_size,
        _whole("--max-model-len", length),
        _whole("--tokens", tokens),
        _whole("--requests", requests),
        _whole("--batch-tokens", batch_tokens),
    )
    if tokens > length:
        raise UsageError(f"{tokens} tokens are more than max_model_len {length}; give fewer.")
    rows, count = _pool(question, blocks, pool, (gpu_memory, utilization, weights, overhead))
    _announce(out, question)
    show_columns(out, ("step", "result", "how"), _model_rows(question) + rows, left=(0, 2))
    show_columns(out, ("requests", "", "how"), _request_rows(question, count), left=(0, 2))
    show_columns(out, ("index", "", "how"), _index_rows(question), left=(0, 2))
    _show_tails(out, question, count)
    _show_startup(out, question, count)
    out.print("~ is rounded for display; every other number is exact.")


def _whole(option: str, value: int) -> int:
    if not 1 <= value <= MOST[option]:
        raise UsageError(f"{option} {value} cannot be; give 1 to {MOST[option]}.")
    return value


def _layout(model: Model, dtype: str, block_size: int, parallel: Parallel) -> Layout:
    if dtype not in ELEMENT_BYTES:
        raise UsageError(
            f"The dtype {dtype!r} is not known; give one of {', '.join(ELEMENT_BYTES)}."
        )
    _whole("--block-size", block_size)
    try:
        return layout(model.layers, block_size, ELEMENT_BYTES[dtype], parallel)
    except ValueError as error:
        raise UsageError(
            f"{model.name} cannot be laid out: {error}; choose other sizes."
        ) from error


def _pool(
    question: Question,
    blocks: int | None,
    pool: str | None,
    budget: tuple[str, str, str | None, str],
) -> tuple[list[Row], int]:
    """The steps to the pool's blocks, and how many there are."""
    block = question.layout.block_bytes
    if blocks is not None and pool is not None:
        raise UsageError("--blocks and --pool both give the pool; give one of them.")
    if blocks is not None:
        count, rows = _whole("--blocks", blocks), []
        rows.append(("pool", size(count * block), f"{number(count)} blocks x {size(block)}"))
    else:
        asked = None if pool is None else parse_size("--pool", pool)
        rows, total = _budget(question, *budget) if asked is None else ([], asked)
        count = int(total // block)
        how = rounded_down(size(total), size(block), total / block)
        rows.append(("blocks", number(count), how))
    if count < 1:
        raise UsageError("The pool holds not even one block; give more memory or smaller blocks.")
    slots = count * question.block_size
    rows.append(("slots", number(slots), f"{number(count)} blocks x {question.block_size}"))
    return rows, count


def _budget(
    question: Question, memory: str, utilization: str, weights: str | None, overhead: str
) -> tuple[list[Row], Fraction]:
    whole, share = parse_size("--gpu-memory", memory), parse_number("--utilization", utilization)
    if not 0 < share <= 1:
        raise UsageError(f"--utilization {utilization} cannot be; give more than 0 and at most 1.")
    if weights is None and question.model.weights_bytes is None:
        raise UsageError(
            f"How much the weights of {question.model.name} take is not known;"
            " give --weights, or the pool by --blocks or --pool."
        )
    all_weights = (
        question.model.weights_bytes if weights is None else parse_size("--weights", weights)
    )
    ranks = question.layout.parallel.tensor
    own, rest = Fraction(all_weights or 0) / ranks, parse_size("--overhead", overhead)
    left = arithmetic.pool_bytes(whole, share, own, rest)
    if left < 0:
        raise UsageError(
            f"Weights and overhead take {size(-left)} more than there is;"
            " give more memory, or more ranks by --tensor-parallel."
        )
    rows = [
        ("engine's memory", size(whole * share), f"{size(whole)} x {number(share)}"),
        ("weights", size(own), f"{size(all_weights or 0)} / {ranks} tensor parallel ranks"),
        ("pool", size(left), f"{size(whole * share)} - {size(own)} - {size(rest)}, in whole bytes"),
    ]
    return rows, Fraction(left)


def _announce(out: Console, question: Question) -> None:
    model, parallel = question.model, question.layout.parallel
    out.print(f"kvoracle {__version__} capacity", style="bold")
    out.print(f"  model      {model.name}", markup=False)
    for kind in question.layout.kinds:
        out.print(f"             {_kind_in_words(kind)}")
    if model.without_cache:
        out.print(
            f"             {model.without_cache} layers without a cache of their own: not counted"
        )
    out.print(f"  cache      {question.dtype}, blocks of {question.block_size}")
    out.print(
        f"  ranks      {parallel.tensor} tensor x {parallel.context} context parallel;"
        " bytes are those of one"
    )
    out.print(f"  longest    {question.max_model_len:,} tokens{_beyond(question)}\n")


def _kind_in_words(kind: Kind) -> str:
    layer = kind.layer
    window = f", window {layer.window:,}" if layer.window else ""
    tables = f"; {kind.tables} tables of blocks of {kind.block_size}" if kind.tables > 1 else ""
    heads = f"{layer.kv_heads} KV head{'s' if layer.kv_heads > 1 else ''}"
    return f"{kind.layers} layers of {heads} of {layer.head_elements} elements{window}{tables}"


def _beyond(question: Question) -> str:
    own = question.model.max_len
    return f", beyond the model's own {own:,}" if own and own < question.max_model_len else ""


def _model_rows(question: Question) -> list[Row]:
    shape = question.layout
    element = ELEMENT_BYTES[question.dtype]
    parts = [
        f"{k.layers} layers x {shape.parallel.heads(k.layer.kv_heads)} x {k.layer.head_elements}"
        for k in shape.kinds
    ]
    sum_of_parts = parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"
    group = f" x {shape.group_layers} of {len(question.model.layers)} layers"
    padding = f", {shape.padding_layers} places empty" if shape.padding_layers else ""
    return [
        ("token", size(shape.token_bytes), f"{sum_of_parts} x {element} bytes"),
        (
            "block",
            size(shape.block_bytes),
            f"{question.block_size} tokens{group if len(shape.kinds) > 1 else ''}{padding}",
        ),
    ]


def _request_rows(question: Question, blocks: int) -> list[Row]:
    shape, tokens, longest = question.layout, question.tokens, question.max_model_len
    pool, reservation = blocks * shape.block_bytes, shape.reservation_bytes(longest)
    contiguous, each = pool // reservation, shape.request_blocks(tokens)
    paged, unused = blocks // each, arithmetic.unused_slots(longest, tokens)
    return [
        (
            "a reservation",
            size(reservation),
            f"{number(longest)} tokens, as if each request had them",
        ),
        (
            "contiguous",
            f"{contiguous:,} requests",
            rounded_down(size(pool), size(reservation), Fraction(pool, reservation)),
        ),
        (
            "  in use",
            size(contiguous * shape.reservation_bytes(tokens)),
            f"{contiguous:,} x {tokens:,} tokens, {size(shape.reservation_bytes(tokens))}",
        ),
        (
            "  unused",
            percent(Fraction(unused, longest)),
            f"1 - {tokens:,} / {longest:,} of each reservation",
        ),
        ("a paged request", f"{each:,} blocks", _blocks_in_words(question)),
        (
            "paged",
            f"{paged:,} requests",
            rounded_down(f"{blocks:,} blocks", f"{each:,}", Fraction(blocks, each)),
        ),
    ]


def _blocks_in_words(question: Question) -> str:
    parts = []
    for kind in question.layout.kinds:
        times = f"{kind.tables} tables x " if kind.tables > 1 else ""
        limit = ", at most, in its window" if kind.layer.window else ""
        parts.append(f"{times}{kind.blocks(question.tokens):,}{limit}")
    return f"{question.tokens:,} tokens, rounded up in each table: {' + '.join(parts)}"


def _index_rows(question: Question) -> list[Row]:
    rows, longest, shape = question.requests, question.max_model_len, question.layout
    widths = [
        f"{kind.tables * arithmetic.blocks_for(longest, kind.positions):,}" for kind in shape.kinds
    ]
    return [
        (
            "block tables",
            size(shape.index_bytes(rows, longest)),
            f"{rows:,} rows x {' + '.join(widths)} blocks x 4 bytes",
        ),
        (
            "token table",
            size(arithmetic.token_table_bytes(rows, longest)),
            f"{rows + 1:,} rows x {longest:,} tokens x 4 bytes; one row is padding",
        ),
    ]


def _show_tails(out: Console, question: Question, blocks: int) -> None:
    """Tail waste of as many requests as are admitted, by block size."""
    shape, tokens = question.layout, question.tokens
    admitted, pool = blocks // shape.request_blocks(tokens), blocks * shape.block_bytes
    ranks = shape.parallel.context
    where = f", on all {ranks} context parallel ranks" if ranks > 1 else ""
    out.print(f"tails of {admitted:,} requests{where}, and how many each block size would admit")
    rows = []
    for block_size in sorted({*BLOCK_SIZES, question.block_size}):
        other = _layout(question.model, question.dtype, block_size, shape.parallel)
        worst = other.worst_tail_bytes()
        here = admitted * other.tail_bytes(tokens)
        would = pool // other.block_bytes // other.request_blocks(tokens)
        share = percent(Fraction(admitted * worst, pool * ranks))
        uniform = Fraction(admitted * worst, 2)
        row = [f"{block_size}", size(worst), size(admitted * worst), share]
        rows.append((*row, size(uniform), size(here), f"{would:,}"))
    heads = ("block size", "worst, each", "worst, all", "of the pool", "uniform, all")
    show_columns(out, (*heads, f"{tokens:,} tokens, all", "admitted"), rows, left=())


def _show_startup(out: Console, question: Question, blocks: int) -> None:
    longest, shape = question.max_model_len, question.layout
    check = shape.startup(longest, blocks, question.batch_tokens)
    need = f"one request of {longest:,} tokens needs {check.needed_blocks:,} of {blocks:,} blocks"
    if not check.fits:
        needed, there = check.needed_blocks * shape.block_bytes, blocks * shape.block_bytes
        out.print(
            f"startup  REFUSED: {need}, {size(needed)} of {size(there)};"
            f" lower max_model_len to {check.largest_len:,}",
            style="bold red",
        )
    elif all(kind.layer.window for kind in shape.kinds):
        out.print(f"startup  fits: {need}, and a longer one no more than its windows")
    else:
        out.print(f"startup  fits: {need}; the longest could have {check.largest_len:,} tokens")
