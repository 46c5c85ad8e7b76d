"""An interval proof on Triton's IR: within declared bounds no 32-bit operation overflows.

Every value of a kernel is given the smallest and the largest number that it can be, one operation
after the other.  Where a sum, a difference or a product of 32 bits or less can leave its type, or a
value is cut to a type too small for it, that is a problem.  Loops with constant bounds are gone
through; of others whatever a round changes may be anything of its type.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

WORD_BITS = 32
Interval = tuple[int, int]
Bounds = dict[str, Interval]
ID_MAX, COUNT_MAX = 2**31 - 1, 2**30 - 1
PROGRAM = "program"

BOUNDS: dict[str, Bounds] = {
    "slot_mapping": {"requests": (0, COUNT_MAX), "starts": (0, ID_MAX)},
    "copy_disjoint": {"planes": (1, ID_MAX), "tiles": (1, ID_MAX)},
    "copy_chains": {"planes": (1, ID_MAX), "tiles": (1, ID_MAX)},
    "kv_write": {"tiles": (1, ID_MAX)},
    "paged_gather": {"tiles": (1, ID_MAX)},
    "alloc_extend": {PROGRAM: (0, COUNT_MAX - 1)},
    "alloc_decode": {PROGRAM: (0, COUNT_MAX // 128), "count": (0, COUNT_MAX)},
}
"""What the arguments of each kernel, and what lies behind its pointers, can be: the functions check it.
What is not named is anything of its type; programs are at most a grid's."""

ANY_PROGRAM = (0, 2**31 - 2)


class Operation(NamedTuple):
    """A line of the IR."""

    results: list[str]
    name: str
    operands: list[str]
    text: str
    bits: int
    line: str
    body: list["Operation"]


class Value(NamedTuple):
    """An interval, or a pointer and the argument that it points into."""

    low: int
    high: int
    points_into: str = ""


class Proof:
    """The walk over one kernel; `problems` is empty where nothing can overflow."""

    def __init__(self, ttir: str, bounds: Bounds) -> None:
        self.bounds = bounds
        self.values: dict[str, Value] = {}
        self.problems: list[str] = []
        self.checked = 0
        lines = iter(_with_lines(ttir))
        head = next(line for line in lines if "tt.func" in line)
        for name, kind in re.findall(r"(%\w+): (!tt\.ptr<\w+>|i\d+)", head):
            self.values[name] = self._argument(name.strip("%"), kind)
        self._walk(_parse(lines)[0])

    def _argument(self, name: str, kind: str) -> Value:
        if kind.startswith("!"):
            return Value(0, 0, name)
        return Value(*self.bounds.get(name, _whole(int(kind[1:]))))

    def _walk(self, operations: list[Operation]) -> list[Value]:
        """Carry out operations; what they yield at their end."""
        for operation in operations:
            if operation.name in ("scf.yield", "tt.reduce.return", "tt.scan.return"):
                return [self.values[name] for name in operation.operands]
            if operation.name == "scf.for":
                self._loop(operation)
            elif operation.results:
                self.values[operation.results[0]] = self._value(operation)
        return []

    def _value(self, operation: Operation) -> Value:
        kind = operation.name
        if kind in SOURCES:
            return self._source(operation)
        operands = [self.values[name] for name in operation.operands]
        if kind in SAME:
            return operands[0]
        if kind == "tt.load":
            return self._loaded(operation, operands)
        if kind in ("tt.reduce", "tt.scan"):
            return self._combined(operation, operands[0])
        if kind == "arith.select":
            return _join(operands[1], operands[2])
        if kind not in ARITHMETIC:
            raise NotImplementedError(f"the interval proof does not know {kind}")
        return self._fitted(operation, ARITHMETIC[kind](*operands))

    def _source(self, operation: Operation) -> Value:
        """What does not depend on any operand."""
        kind = operation.name
        if kind == "arith.constant":
            return _constant(operation)
        if kind == "tt.get_program_id":
            return Value(*self.bounds.get(PROGRAM, ANY_PROGRAM))
        if kind == "tt.make_range":
            start, end = (int(_find(rf"{word} = (\d+)", operation)) for word in ("start", "end"))
            return Value(start, end - 1)
        return Value(*_whole(1 if kind == "arith.cmpi" else operation.bits))

    def _fitted(self, operation: Operation, value: Value) -> Value:
        """The value; a problem, and anything of its type, where it does not fit that."""
        low, high = _whole(operation.bits)
        if operation.bits <= WORD_BITS:
            self.checked += 1
        if low <= value.low and value.high <= high:
            return value
        if operation.bits <= WORD_BITS:
            name = re.sub(r"(_\d+)?(#\d+)?$", "", "".join(operation.results[:1]).strip("%"))
            is_named = bool(name) and not name.isdigit()
            what = f"{operation.name} of {operation.bits} bits" + f" in `{name}`" * is_named
            self.problems.append(f"{operation.line}{what} can be {value.low} .. {value.high}")
        return Value(low, high)

    def _loaded(self, operation: Operation, operands: list[Value]) -> Value:
        found = Value(*self.bounds.get(operands[0].points_into, _whole(operation.bits)))
        return _join(found, operands[2]) if len(operands) > 2 else found

    def _combined(self, operation: Operation, each: Value) -> Value:
        """A sum of all lanes, or of those up to each; anything where lanes are not summed."""
        lanes = int(_find(r"tensor<(\d+)x", operation))
        if [inner.name for inner in operation.body[:-1]] != ["arith.addi"]:
            return Value(*_whole(operation.bits))
        sums = Value(min(each.low, each.low * lanes), max(each.high, each.high * lanes))
        return self._fitted(operation, sums)

    def _loop(self, operation: Operation) -> None:
        counter, first, end, step, names, initial = _loop_parts(operation)
        start, stop, stride = self.values[first], self.values[end], self.values[step]
        state = [self.values[name] for name in initial]
        self.values[counter] = Value(start.low, max(stop.high - 1, start.low))
        self._fitted(operation, Value(start.low, stop.high - 1 + stride.high))
        is_constant = start.low == start.high and stop.low == stop.high
        rounds = -(-(stop.high - start.low) // stride.low) if is_constant else 0
        if not is_constant:
            self._bind(names, state)
            with_problems = list(self.problems)
            after = self._walk(operation.body)
            self.problems = with_problems
            state = [
                old if new == old or old.points_into else Value(*_whole(bits))
                for old, new, bits in zip(state, after, _bits_of_all(operation), strict=True)
            ]
            rounds = 1
        before = state
        for _ in range(rounds):
            self._bind(names, state)
            state = self._walk(operation.body)
        if not is_constant:
            state = [_join(old, new) for old, new in zip(before, state, strict=True)]
        self._bind(operation.results, state)

    def _bind(self, names: list[str], values: list[Value]) -> None:
        self.values.update(zip(names, values, strict=True))


def _join(one: Value, other: Value) -> Value:
    return Value(min(one.low, other.low), max(one.high, other.high), one.points_into)


def _corners(operate: Callable[[int, int], int]) -> Callable[[Value, Value], Value]:
    """An operation that is monotonous in each operand: its extremes are at theirs."""

    def of_intervals(one: Value, other: Value) -> Value:
        ends = [operate(a, b) for a in one[:2] for b in other[:2]]
        return Value(min(ends), max(ends))

    return of_intervals


def _divide(one: Value, other: Value) -> Value:
    if other.low < 1:
        return Value(min(one.low, -one.high), max(one.high, -one.low))
    return _corners(lambda a, b: abs(a) // b * (1 if a >= 0 else -1))(one, other)


def _remainder(one: Value, other: Value) -> Value:
    most = max(abs(other.low), abs(other.high)) - 1
    return Value(max(one.low, -most) if one.low < 0 else 0, min(max(one.high, 0), most))


ARITHMETIC: dict[str, Callable[..., Value]] = {
    "arith.addi": _corners(lambda a, b: a + b),
    "arith.subi": _corners(lambda a, b: a - b),
    "arith.muli": _corners(lambda a, b: a * b),
    "arith.divsi": _divide,
    "arith.remsi": _remainder,
    "arith.minsi": _corners(min),
    "arith.maxsi": _corners(max),
    "arith.extui": lambda one: one if one.low >= 0 else Value(0, 2**WORD_BITS - 1),
    "arith.trunci": lambda one: one,
}
SAME = ("tt.splat", "tt.expand_dims", "tt.broadcast", "tt.addptr", "tt.bitcast", "arith.extsi")
"""What leaves an interval, or an address, as it is."""
SOURCES = (
    "arith.constant",
    "tt.get_program_id",
    "tt.make_range",
    "arith.cmpi",
    "arith.andi",
    "arith.ori",
    "arith.xori",
    "tt.int_to_ptr",
)


def _whole(bits: int) -> Interval:
    """Of one bit 0 and 1, else all numbers of a signed type; a float's bits are nobody's business."""
    return (0, 1) if bits == 1 else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _constant(operation: Operation) -> Value:
    text = _find(r"arith\.constant (?:dense<)?(-?\d+|true|false)", operation)
    number = {"true": 1, "false": 0}.get(text)
    number = int(text) if number is None else number
    return Value(number, number)


def _loop_parts(operation: Operation) -> tuple[str, str, str, str, list[str], list[str]]:
    """The counter, its first value, end and step, and the names and first values of what is carried."""
    head = re.search(r"scf\.for (%\w+) = (%\w+) to (%\w+) step (%\w+)", operation.text)
    assert head is not None
    carried = re.search(r"iter_args\((.*?)\) ->", operation.text)
    pairs = re.findall(r"(%[\w#]+) = (%[\w#]+)", carried[1]) if carried else []
    counter, first, end, step = head.groups()
    return counter, first, end, step, [name for name, _ in pairs], [value for _, value in pairs]


def _bits_of_all(operation: Operation) -> list[int]:
    kinds = re.search(r"-> \((.*)\) ", operation.text)
    return [_bits(kind) for kind in re.split(r", (?=tensor|i\d|!)", kinds[1])] if kinds else []


def _bits(kind: str) -> int:
    """Of the elements of a type."""
    found = re.findall(r"i(\d+)", kind)
    return int(found[-1]) if found else 64


def _find(pattern: str, operation: Operation) -> str:
    found = re.search(pattern, operation.text)
    assert found is not None, operation.text
    return found[1]


def _with_lines(ttir: str) -> Iterator[str]:
    """The IR with the line of the kernel's file in place of each location's name."""
    places = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", ttir, re.MULTILINE))

    def line(name: str) -> str:
        place = places.get(name, "")
        within = re.findall(r"#loc\d*", place)
        return line(within[-1]) if within else "".join(re.findall(r":(\d+):\d+$", place))

    for text in ttir.splitlines():
        yield re.sub(r"loc\((#loc\d*)\)", lambda found: f"loc({line(found[1])})", text)


def _parse(lines: Iterator[str]) -> tuple[list[Operation], str]:
    """Operations up to the brace that ends their region, and what follows the brace."""
    operations: list[Operation] = []
    for line in lines:
        text, _, place = line.strip().partition(" loc(")
        if text.startswith("}"):
            return operations, text
        match = re.match(r"(?:(%\w+)(?::(\d+))? = )?\"?([a-z_]+\.[\w.]+)\"?(.*)", text)
        if match is None:
            continue
        name, count, kind, rest = match.groups()
        body: list[Operation] = []
        if text.endswith(("{", "({")):
            body, after = _parse(lines)
            text += after
        results = [f"{name}#{number}" for number in range(int(count))] if count else [name]
        results = results if name else []
        operands = re.findall(r"%[\w#]+", rest)
        number = place.rstrip(")")
        at = f"line {number}: " if number.isdigit() else ""
        operations.append(Operation(results, kind, operands, text, _bits(text), at, body))
    return operations, ""
