"""Traces as JSON: what is written is read back, and a bad file is one sentence."""

import json
import os
import re
import subprocess
import sys

import msgspec
import pytest

from kvoracle.model import trace as trace_module
from kvoracle.model.errors import UsageError
from kvoracle.model.operations import (
    OPERATIONS,
    Acknowledge,
    Admit,
    Append,
    AppendEach,
    BeginStep,
    Cancel,
    ChangeWeights,
    Commit,
    Create,
    Done,
    EndStep,
    Evict,
    FailStep,
    Fork,
    LookUp,
    OutOfBlocks,
    Pin,
    Preempt,
    Receive,
    Rejected,
    Release,
    ReleaseEach,
    Reserve,
    Reset,
    Resume,
    Send,
    Tick,
    Trim,
    Unpin,
    Use,
)
from kvoracle.model.trace import (
    OPTIONS,
    Configuration,
    Expected,
    Trace,
    parse,
    read,
    render,
    write,
)

ALL_KEYS = {"adapter": "x", "salt": "", "image": 'é "quoted" \n 😀'}

EXAMPLES = {
    Create: Create("a"),
    Admit: Admit("a", (1, -2, 2**63 - 1, -(2**63), 0)),
    Append: Append("a", (1, -2, 2**63 - 1, -(2**63), 0)),
    AppendEach: AppendEach(("a", "b"), (3, 4)),
    Fork: Fork("a", 'b "quoted" \\ \n é 你好 😀'),
    Pin: Pin("a", "t"),
    Unpin: Unpin("t"),
    Release: Release("x" * 200),
    ReleaseEach: ReleaseEach(("a", "b", "a")),
    Reset: Reset(),
    LookUp: LookUp("a", (1,), ALL_KEYS),
    Use: Use("a"),
    Cancel: Cancel("a"),
    Reserve: Reserve("a", 1_000_000),
    Commit: Commit("a", (5,)),
    Trim: Trim("a"),
    BeginStep: BeginStep("s", ("a", "b"), (3, 4)),
    EndStep: EndStep("s"),
    FailStep: FailStep("s"),
    Send: Send("a", "t", 64, 1_000_000),
    Receive: Receive("a", (1, 2), "t", 1, 0, ALL_KEYS),
    Acknowledge: Acknowledge("t", 63, 1),
    Tick: Tick(),
    Preempt: Preempt("a"),
    Resume: Resume("a"),
    Evict: Evict("a", 0),
    ChangeWeights: ChangeWeights(),
}
CONFIG = '"config":{"blocks":4,"block_size":2}'


def pool_with(field):
    """The text of a trace on a pool with one more field."""
    return text_of(config=f'"config":{{"blocks":4,"block_size":2,{field}}}')


def one(verb, fields):
    """The text of a trace of one operation."""
    return text_of(f'[{{"op":"{verb}",{fields}}}]')


def text_of(operations="[]", config=CONFIG, version='"version":1', more=""):
    return f'{{{version},{config},"operations":{operations}{more}}}'.encode()


def test_every_operation_has_an_example_here():
    assert set(EXAMPLES) == set(OPERATIONS)


@pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.verb)
def test_an_operation_is_read_back_as_it_was_written(kind, tmp_path):
    trace = Trace(Configuration(4, 2), [EXAMPLES[kind]])
    path = tmp_path / "a" / "new" / "folder" / "trace.json"

    write(trace, path)

    assert read(path) == trace
    assert type(read(path).operations[0]) is kind


@pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.verb)
def test_the_op_of_an_operation_in_json_is_its_verb(kind):
    assert json.loads(msgspec.json.encode(EXAMPLES[kind]))["op"] == kind.verb


def test_a_whole_trace_is_read_back_as_it_was_written():
    trace = Trace(
        Configuration(1024, 4096),
        list(EXAMPLES.values()),
        expected=[Expected("ok", 4, refused=["b"]), Expected("rejected", 4, reason="no tokens")]
        + [Expected("out of blocks", 0)] * (len(EXAMPLES) - 2),
        flags=["DF01"],
        notes={"DF01": "a note"},
        origin={"engine": "walk", "seed": 2**64 - 1},
    )

    assert parse(render(trace).encode(), "here") == trace


def test_the_text_of_a_trace_has_one_operation_and_one_expected_outcome_a_line():
    operations = list(EXAMPLES.values())
    trace = Trace(Configuration(4, 2), operations, expected=[Expected("ok", 4)] * len(operations))

    lines = render(trace).splitlines()

    written = [json.loads(line.rstrip(",")) for line in lines if line.startswith("  {")]
    assert written == [
        *[json.loads(msgspec.json.encode(operation)) for operation in operations],
        *[{"outcome": "ok", "free": 4}] * len(operations),
    ]
    assert lines[:2] == ["{", '"version": 1,']
    assert render(trace).endswith("}\n")


def test_the_text_of_a_trace_is_plain_json():
    fields = json.loads(render(Trace(Configuration(4, 2), [Create("a")], flags=["x"])))

    assert fields == {
        "version": 1,
        "config": {"blocks": 4, "block_size": 2},
        "operations": [{"op": "create", "request": "a"}],
        "flags": ["x"],
    }


def test_a_prompt_says_its_extra_keys_only_where_it_has_some():
    bare, keyed = Admit("a", (1,)), Admit("a", (1,), {"salt": "x"})
    same = {"op": "admit", "request": "a", "prompt": [1]}

    assert json.loads(msgspec.json.encode(bare)) == same
    assert json.loads(msgspec.json.encode(keyed)) == {**same, "extra_keys": {"salt": "x"}}


@pytest.mark.parametrize(
    "options",
    [{"prefix_cache": True}, *({name: 1} for name in OPTIONS), dict.fromkeys(OPTIONS, 1)],
    ids=str,
)
def test_a_pool_says_only_the_options_that_it_is_given(options):
    trace = Trace(Configuration(4, 2, **options), [])

    assert json.loads(render(trace))["config"] == {"blocks": 4, "block_size": 2, **options}
    assert parse(render(trace).encode(), "here") == trace


def test_a_trace_without_operations_is_read_back_as_it_was_written():
    trace = Trace(Configuration(4, 2), [])

    assert parse(render(trace).encode(), "here") == trace


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Done(refused=["b"]), Expected("ok", 3, refused=["b"])),
        (OutOfBlocks(), Expected("out of blocks", 3)),
        (Rejected("no tokens"), Expected("rejected", 3, reason="no tokens")),
    ],
)
def test_the_expected_outcome_of_an_outcome(outcome, expected):
    assert Expected.of(outcome, 3) == expected


@pytest.mark.parametrize(("blocks", "block_size"), [(4_194_304, 1), (1024, 4096), (1, 4096)])
def test_the_largest_pools_are_read(blocks, block_size):
    config = f'"config":{{"blocks":{blocks},"block_size":{block_size}}}'

    assert parse(text_of(config=config), "here").config == Configuration(blocks, block_size)


BAD_TEXTS = {
    "empty": (b"", "truncated"),
    "blank": (b" \n", "truncated"),
    "truncated": (text_of()[:-12], "truncated"),
    "not JSON": (b"hello", "malformed"),
    "trailing text": (text_of() + b" x", "trailing characters"),
    "two traces": (text_of() * 2, "trailing characters"),
    "a list": (b"[]", "Expected `object`, got `array`"),
    "null": (b"null", "Expected `object`, got `null`"),
    "wrong version": (text_of(version='"version":2'), "has trace version 2"),
    "version zero": (text_of(version='"version":0'), "has trace version 0"),
    "another format of a later version": (b'{"version":3,"pool":{}}', "has trace version 3"),
    "missing version": (text_of(version='"flags":[]'), "required field `version`"),
    "version as text": (text_of(version='"version":"1"'), r"\$\.version"),
    "version of 400 digits": (text_of(version=f'"version":{"9" * 400}'), "version"),
    "version of 5,000 digits": (text_of(version=f'"version":{"9" * 5000}'), "version|range"),
    "version as bool": (text_of(version='"version":true'), r"\$\.version"),
    "version with a point": (text_of(version='"version":1.0'), r"\$\.version"),
    "missing config": (text_of(config='"flags":[]'), "required field `config`"),
    "missing operations": (f'{{"version":1,{CONFIG}}}'.encode(), "required field `operations`"),
    "missing block_size": (text_of(config='"config":{"blocks":4}'), "required field `block_size`"),
    "unknown op": (text_of('[{"op":"defragment"}]'), r"Invalid value 'defragment' .*\.op"),
    "missing op": (text_of('[{"request":"a"}]'), "required field `op`"),
    "missing field of an operation": (text_of('[{"op":"create"}]'), "required field `request`"),
    "unknown field": (text_of(more=',"seed":1'), "unknown field `seed`"),
    "unknown field of the config": (
        text_of(config='"config":{"blocks":4,"block_size":2,"colour":1}'),
        "unknown field `colour`",
    ),
    "unknown field of an operation": (
        text_of('[{"op":"create","request":"a","tokens":[1]}]'),
        "unknown field `tokens`",
    ),
    "unknown field of every operation": (
        text_of('[{"op":"release_each","requests":["a"],"x":1}]'),
        r"unknown field `x` - at `\$\.operations\[0\]",
    ),
    "unknown field of an expected outcome": (
        text_of(
            '[{"op":"create","request":"a"}]',
            more=',"expected":[{"outcome":"ok","free":4,"held":0}]',
        ),
        "unknown field `held`",
    ),
    "negative blocks": (text_of(config='"config":{"blocks":-4,"block_size":2}'), ">= 1"),
    "no block": (text_of(config='"config":{"blocks":0,"block_size":2}'), ">= 1"),
    "zero block_size": (text_of(config='"config":{"blocks":4,"block_size":0}'), ">= 1"),
    "huge blocks": (
        text_of(config='"config":{"blocks":4194305,"block_size":1}'),
        "at most 4,194,304 slots",
    ),
    "a slot too many in blocks of many": (
        text_of(config='"config":{"blocks":1025,"block_size":4096}'),
        "at most 4,194,304 slots",
    ),
    "blocks of 400 digits": (
        text_of(config=f'"config":{{"blocks":{"9" * 400},"block_size":2}}'),
        "at most 4,194,304 slots",
    ),
    "huge block_size": (text_of(config='"config":{"blocks":4,"block_size":4097}'), "<= 4096"),
    "fractional blocks": (text_of(config='"config":{"blocks":4.5,"block_size":2}'), "got `float`"),
    "blocks with a point": (
        text_of(config='"config":{"blocks":4.0,"block_size":2}'),
        "got `float`",
    ),
    "blocks as bool": (text_of(config='"config":{"blocks":true,"block_size":2}'), "got `bool`"),
    "blocks as text": (text_of(config='"config":{"blocks":"4","block_size":2}'), "got `str`"),
    "fractional token": (
        text_of('[{"op":"append","request":"a","tokens":[1.5]}]'),
        r"got `float` - at `\$\.operations\[0\]\.tokens\[0\]`",
    ),
    "token as bool": (text_of('[{"op":"append","request":"a","tokens":[true]}]'), "got `bool`"),
    "token above int64": (
        text_of('[{"op":"append","request":"a","tokens":[9223372036854775808]}]'),
        r"<= 9223372036854775807 - at `\$\.operations\[0\]\.tokens\[0\]`",
    ),
    "token below int64": (
        text_of('[{"op":"append","request":"a","tokens":[-9223372036854775809]}]'),
        ">= -9223372036854775808",
    ),
    "token of 400 digits": (
        text_of(f'[{{"op":"append","request":"a","tokens":[{"9" * 400}]}}]'),
        "tokens",
    ),
    "negative count": (one("reserve", '"request":"a","count":-1'), r">= 0 - at .*\.count"),
    "count too large": (one("reserve", '"request":"a","count":1000001'), "<= 1000000"),
    "fractional count": (one("reserve", '"request":"a","count":1.5'), "got `float`"),
    "count as text": (one("reserve", '"request":"a","count":"1"'), "got `str`"),
    "missing count": (one("reserve", '"request":"a"'), "required field `count`"),
    "negative position": (one("evict", '"request":"a","first":-1'), r">= 0 - at .*\.first"),
    "no worker": (
        one("send", '"request":"a","transfer":"t","workers":0,"lease":0'),
        r">= 1 - at .*\.workers",
    ),
    "too many workers": (
        one("send", '"request":"a","transfer":"t","workers":65,"lease":0'),
        r"<= 64 - at .*\.workers",
    ),
    "negative lease": (
        one("send", '"request":"a","transfer":"t","workers":1,"lease":-1'),
        r">= 0 - at .*\.lease",
    ),
    "negative worker": (
        one("acknowledge", '"transfer":"t","worker":-1,"life":0'),
        r">= 0 - at .*\.worker",
    ),
    "worker above the last": (
        one("acknowledge", '"transfer":"t","worker":64,"life":0'),
        r"< 64|<= 63",
    ),
    "life before the one before": (
        one("acknowledge", '"transfer":"t","worker":0,"life":2'),
        r"<= 1 - at .*\.life",
    ),
    "life as bool": (
        one("acknowledge", '"transfer":"t","worker":0,"life":true'),
        "got `bool`",
    ),
    "unknown extra key": (
        one("admit", '"request":"a","prompt":[1],"extra_keys":{"lora":"x"}'),
        "Invalid enum value 'lora'",
    ),
    "extra key that is no text": (
        one("look_up", '"request":"a","prompt":[1],"extra_keys":{"salt":1}'),
        r"Expected `str`, got `int` - at .*\.extra_keys",
    ),
    "extra keys as a list": (
        one("look_up", '"request":"a","prompt":[1],"extra_keys":["salt"]'),
        r"got `array` - at .*\.extra_keys",
    ),
    "extra keys of an operation without a prompt": (
        one("resume", '"request":"a","extra_keys":{}'),
        "unknown field `extra_keys`",
    ),
    "receive without a transfer": (
        one("receive", '"request":"a","prompt":[1],"workers":1,"lease":0'),
        "required field `transfer`",
    ),
    "empty step name": (one("end_step", '"step":""'), "length >= 1"),
    "step without requests": (
        one("begin_step", '"step":"s","requests":[],"tokens":[]'),
        "length >= 1",
    ),
    "a name of another kind": (one("end_step", '"transfer":"t"'), "transfer|step"),
    "a match unit that does not divide": (pool_with('"match_unit":3'), "3 does not divide 2"),
    **{
        f"{what} {name}": (pool_with(f'"{name}":{value}'), match)
        for name in OPTIONS
        for what, value, match in (
            ("negative", "-1", ">= 0|>= 1"),
            ("fractional", "1.5", "got `float`"),
            ("textual", '"1"', "got `str`"),
        )
    },
    "empty name": (text_of('[{"op":"create","request":""}]'), "length >= 1"),
    "name too long": (text_of(f'[{{"op":"create","request":"{"x" * 201}"}}]'), "length <= 200"),
    "empty batch": (text_of('[{"op":"release_each","requests":[]}]'), "length >= 1"),
    "expected of another length": (
        text_of(
            '[{"op":"create","request":"a"}]',
            more=',"expected":[{"outcome":"ok","free":4},{"outcome":"ok","free":4}]',
        ),
        "1 operations but 2 expected",
    ),
    "deep nesting": (b"[" * 100_000, "Expected `object`|recursion"),
    "deep nesting in a field": (
        text_of("[" * 100_000 + "]" * 100_000),
        "maximum recursion depth|Expected `object`",
    ),
    "deep nesting in an unknown field": (
        text_of(more=f',"x":{"[" * 100_000}{"]" * 100_000}'),
        "maximum recursion depth",
    ),
    "deep nesting in a note": (
        text_of(more=f',"notes":{"[" * 100_000}{"]" * 100_000}'),
        "maximum recursion depth",
    ),
    "non-UTF-8 bytes": (b"\xff\xfe\x80", "malformed"),
    "non-UTF-8 bytes in a name": (
        text_of('[{"op":"create","request":"?"}]').replace(b"?", b"\xff\xfe"),
        "UTF-8",
    ),
    "non-UTF-8 bytes in an op": (text_of('[{"op":"?"}]').replace(b"?", b"\xff\xfe"), "UTF-8"),
    "non-UTF-8 bytes in a key": (text_of(more=',"?":1').replace(b"?", b"\xff\xfe"), "UTF-8"),
    "UTF-16": (text_of().decode().encode("utf-16"), "malformed"),
    "lone surrogate": (text_of('[{"op":"create","request":"\\ud800"}]'), "is not a trace"),
    "NUL bytes": (b"\0" * 100, "malformed"),
    "a line break in an unknown field": (text_of(more=',"a\\nb":1'), "unknown field"),
    "a line break in an op": (text_of('[{"op":"a\\nb"}]'), "Invalid value"),
    "an unknown field of 3,000 letters": (text_of(more=f',"{"x" * 3000}":1'), "unknown field"),
    "unknown outcome": (
        text_of(
            '[{"op":"create","request":"a"}]', more=',"expected":[{"outcome":"maybe","free":4}]'
        ),
        "outcome",
    ),
    "negative free": (
        text_of('[{"op":"create","request":"a"}]', more=',"expected":[{"outcome":"ok","free":-1}]'),
        "free",
    ),
}

"""Bad texts that do not yet give one clear sentence, and why."""

CASES = [
    pytest.param(
        *case,
        id=name,
    )
    for name, case in BAD_TEXTS.items()
]


def assert_is_one_sentence_naming(path, error):
    """One line, one full stop (those of the path apart), the file named, and what to do instead."""
    message = str(error)
    assert str(path) in message
    said = message.replace(str(path), "FILE")
    assert len(said.splitlines()) == 1
    assert len(said) < 500
    assert said.endswith(".")
    assert not re.search(r"[.!?] +[A-Z]", said)
    assert "; " in said


@pytest.mark.parametrize(("text", "match"), CASES)
def test_a_bad_file_is_one_sentence_that_names_it(text, match, tmp_path):
    path = tmp_path / "bad.json"
    path.write_bytes(text)

    with pytest.raises(UsageError, match=match) as caught:
        read(path)

    assert_is_one_sentence_naming(path, caught.value)


def test_a_missing_file_is_one_sentence_that_names_it(tmp_path):
    path = tmp_path / "missing.json"

    with pytest.raises(UsageError, match="No such file or directory") as caught:
        read(path)

    assert_is_one_sentence_naming(path, caught.value)


def test_a_directory_is_one_sentence_that_names_it(tmp_path):
    with pytest.raises(UsageError, match="is not a file") as caught:
        read(tmp_path)

    assert_is_one_sentence_naming(tmp_path, caught.value)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(UsageError, match="is not a file") as caught:
        read(tmp_path / "pipe")

    assert_is_one_sentence_naming(tmp_path / "pipe", caught.value)


def test_a_path_through_a_file_is_one_sentence_that_names_it(tmp_path):
    (tmp_path / "file").write_text("x")
    path = tmp_path / "file" / "trace.json"

    with pytest.raises(UsageError, match="Not a directory") as caught:
        read(path)

    assert_is_one_sentence_naming(path, caught.value)


def test_a_path_that_no_file_can_have_is_one_sentence(tmp_path):
    path = tmp_path / "a\0b"

    with pytest.raises(UsageError) as caught:
        read(path)

    assert_is_one_sentence_naming(path, caught.value)


def test_a_file_above_the_limit_is_one_sentence_that_names_it_and_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_module, "FILE_BYTES_MAX", 1000)
    path = tmp_path / "large.json"
    path.write_bytes(text_of() + b" " * 1000)

    with pytest.raises(UsageError, match="more than the 1,000 bytes of the largest") as caught:
        read(path)

    assert_is_one_sentence_naming(path, caught.value)


def test_a_file_at_the_limit_is_read(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    path.write_bytes(text_of())
    monkeypatch.setattr(trace_module, "FILE_BYTES_MAX", path.stat().st_size)

    assert read(path) == Trace(Configuration(4, 2), [])


def test_a_device_without_an_end_is_not_read_whole():
    """/dev/zero says that it has no byte: the limit must hold for what is read."""
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))\n"
        "from pathlib import Path\n"
        "from kvoracle.model.errors import UsageError\n"
        "from kvoracle.model.trace import read\n"
        "try: read(Path('/dev/zero'))\n"
        "except UsageError as error: print(error)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert_is_one_sentence_naming("/dev/zero", done.stdout.rstrip("\n"))
