"""Vectors for other languages: the schema is that of the types, and every vector keeps its promises."""

import json
from pathlib import Path

import pytest

from kvoracle.model.mutants import MUTANTS
from kvoracle.model.operations import OPERATIONS
from kvoracle.model.run import with_expected
from kvoracle.model.schema import render as render_schema
from kvoracle.model.schema import schema
from kvoracle.model.trace import SCHEMA_NAME, read, render

SEEDS = Path(__file__).parents[2] / "seeds"
SCHEMA = schema()
TRACES = pytest.mark.parametrize(
    "path",
    [path for path in sorted(SEEDS.glob("*/*.json")) if path.parent.name != "found"],
    ids=lambda path: path.stem,
)
VECTORS = pytest.mark.parametrize(
    "path", sorted(SEEDS.glob("bugs/*.json")), ids=lambda path: path.stem
)
MUTANT = {mutant.name: mutant for mutant in MUTANTS}
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
SIZES = {
    "minimum": lambda value, limit: value >= limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
    "minLength": lambda value, limit: len(value) >= limit,
    "maxLength": lambda value, limit: len(value) <= limit,
    "minItems": lambda value, limit: len(value) >= limit,
    "maxItems": lambda value, limit: len(value) <= limit,
}


def fits(value, rule):
    """Whether a value is as a rule says, by the words of JSON Schema that ours uses."""
    if "$ref" in rule:
        return fits(value, SCHEMA["$defs"][rule["$ref"].rpartition("/")[2]])
    if "anyOf" in rule:
        return any(fits(value, either) for either in rule["anyOf"])
    if "const" in rule or "enum" in rule:
        return value in rule.get("enum", [rule.get("const")])
    return (
        type(value) is TYPES[rule["type"]]
        and all(is_right(value, rule[name]) for name, is_right in SIZES.items() if name in rule)
        and (type(value) is not list or all(fits(part, rule["items"]) for part in value))
        and (type(value) is not dict or has_right_fields(value, rule))
    )


def has_right_fields(value, rule):
    known, further = rule.get("properties", {}), rule.get("additionalProperties", {})
    return (
        set(rule.get("required", [])) <= set(value)
        and (further is not False or set(value) <= set(known))
        and all(fits(part, known.get(name, further)) for name, part in value.items())
        and all(fits(name, rule["propertyNames"]) for name in value if "propertyNames" in rule)
    )


def test_the_schema_in_the_repository_is_that_of_the_types():
    assert (SEEDS / SCHEMA_NAME).read_text("utf-8") == render_schema(), (
        "write it anew: python -m kvoracle.model.schema seeds/schema.json"
    )


def test_the_schema_names_every_operation_with_its_fields():
    for operation in OPERATIONS:
        rule = SCHEMA["$defs"][operation.__name__]

        assert rule["properties"]["op"] == {"enum": [operation.verb]}
        assert [*rule["properties"]][1:] == [*operation.__struct_fields__]


@TRACES
def test_every_trace_fits_the_schema(path):
    assert fits(json.loads(path.read_bytes()), SCHEMA)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"config": {"blocks": 0, "block_size": 1}},
        {"config": {"blocks": 1}},
        {"operations": [{"op": "create"}]},
        {"operations": [{"op": "create", "request": ""}]},
        {"operations": [{"op": "create", "request": "a", "tokens": []}]},
        {"operations": [{"op": "conjure", "request": "a"}]},
        {"operations": [{"op": "append", "request": "a", "tokens": [True]}]},
        {"expected": [{"outcome": "fine", "free": 1}]},
        {"blocks": 1},
    ],
)
def test_what_is_no_trace_does_not_fit_the_schema(change):
    trace = {
        "version": 1,
        "config": {"blocks": 1, "block_size": 1},
        "operations": [{"op": "create", "request": "a"}],
    }

    assert fits(trace, SCHEMA)
    assert not fits(trace | change, SCHEMA)


@VECTORS
class TestEveryVector:
    def test_is_named_after_its_mutant_and_says_what_that_does_wrong(self, path):
        trace, mutant = read(path), MUTANT[path.stem]

        assert trace.flags == list(mutant.bugs)
        assert trace.notes.keys() == {"mutant", "wrong", "rule"}
        assert trace.notes["mutant"] == mutant.name
        assert trace.notes["wrong"] == mutant.wrong

    def test_expects_what_is_right(self, path):
        trace = read(path)

        assert trace.expected
        assert with_expected(trace, MUTANT[path.stem].adapter).expected == trace.expected

    def test_is_written_as_this_project_writes_traces(self, path):
        assert path.read_text("utf-8") == render(read(path))


def test_every_mutant_has_a_vector():
    assert {path.stem for path in SEEDS.glob("bugs/*.json")} == set(MUTANT)
