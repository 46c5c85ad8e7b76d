"""`kvoracle capacity` and `kvoracle waste`: whole outputs, and what bad input gets."""

import json

import pytest
from test_golden import hold_against_golden, kvoracle

CONFIG = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "hidden_size": 2880,
    "sliding_window": 128,
    "max_position_embeddings": 131_072,
    "torch_dtype": "bfloat16",
}
TRACE = [
    {"timestamp": 0, "input_length": 1030, "output_length": 20, "hash_ids": [0, 1, 2]},
    {"timestamp": 5, "input_length": 1030, "output_length": 33, "hash_ids": [0, 1, 2]},
    {"timestamp": 9, "input_length": 700, "output_length": 1, "hash_ids": [0, 3]},
]

GOOD = {
    "capacity-document": ["capacity", "--document"],
    "capacity-of-the-document": ["capacity", "--blocks", "26785", "--max-model-len", "32768"],
    "capacity-in-bytes": ["capacity", "--pool", "52.32GiB", "--max-model-len", "32768"],
    "capacity-budget": [
        *("capacity", "--gpu-memory", "81559MiB", "--weights", "14.96GiB"),
        *("--max-model-len", "32768", "--block-size", "128"),
    ],
    "capacity-refused": [
        *("capacity", "Llama-3.1-8B", "--blocks", "2048", "--max-model-len", "131072"),
    ],
    "capacity-mla": [
        *("capacity", "DeepSeek-V3", "--pool", "20GiB", "--tensor-parallel", "8"),
        *("--context-parallel", "2", "--dtype", "fp8"),
    ],
    "capacity-window": ["capacity", "Mistral-7B-v0.1"],
    "capacity-mixed-windows": [
        *("capacity", "Gemma-3-27B", "--tensor-parallel", "2", "--max-model-len", "32768"),
    ],
    "capacity-config": ["capacity", "config.json", "--weights", "13.5GB", "--gpu-memory", "24GiB"],
    "waste-arguments": ["waste", "1", "15", "16", "17"],
    "waste-lengths": ["waste", "lengths.txt", "--block-size", "64", "--block-sizes", "16,64"],
    "waste-mooncake": ["waste", "trace.jsonl"],
    "waste-azure": ["waste", "trace.csv"],
}

BAD = {
    "model": ["capacity", "nonsense"],
    "config": ["capacity", "broken.json"],
    "config-empty": ["capacity", "empty.json"],
    "config-without-heads": ["capacity", "no-heads.json"],
    "config-negative": ["capacity", "negative.json"],
    "config-text": ["capacity", "text.json"],
    "pool": ["capacity", "--pool", "52.32"],
    "pool-twice": ["capacity", "--pool", "1GiB", "--blocks", "512"],
    "pool-too-small": ["capacity", "--pool", "1MiB"],
    "blocks": ["capacity", "--blocks", "0"],
    "weights": ["capacity", "DeepSeek-V3"],
    "weights-too-large": ["capacity", "Llama-3.1-70B"],
    "utilization": ["capacity", "--utilization", "92"],
    "utilization-word": ["capacity", "--utilization", "most"],
    "dtype": ["capacity", "--dtype", "int7"],
    "block-size": ["capacity", "--block-size", "0"],
    "tokens": ["capacity", "--tokens", "9000"],
    "max-model-len": ["capacity", "--max-model-len", "-1"],
    "tensor-parallel": ["capacity", "--tensor-parallel", "3"],
    "waste-nothing": ["waste"],
    "waste-missing": ["waste", "missing.csv"],
    "waste-empty": ["waste", "empty.txt"],
    "waste-only-a-comment": ["waste", "comment.txt"],
    "waste-zero": ["waste", "0"],
    "waste-word": ["waste", "5", "six"],
    "waste-line": ["waste", "wrong.jsonl"],
    "waste-block-size": ["waste", "5", "--block-size", "0"],
    "waste-block-sizes": ["waste", "5", "--block-sizes", "8,many"],
}


@pytest.fixture
def folder(tmp_path):
    lines = [json.dumps(request) for request in TRACE]
    texts = {
        "config.json": json.dumps(CONFIG),
        "broken.json": "{",
        "empty.json": "{}",
        "no-heads.json": json.dumps({**CONFIG, "num_key_value_heads": 0}),
        "negative.json": json.dumps({**CONFIG, "num_hidden_layers": -3}),
        "text.json": json.dumps({**CONFIG, "text_config": 3}),
        "lengths.txt": "# tokens of each request\n612, 612, 4000\n64\n",
        "empty.txt": "",
        "comment.txt": "# nothing yet\n",
        "trace.jsonl": "\n".join(lines) + "\n",
        "wrong.jsonl": "\n".join([*lines, lines[0].replace("1030", "2000")]) + "\n",
        "trace.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


@pytest.mark.parametrize("command", ["capacity", "waste"])
def test_help(command, folder):
    hold_against_golden(f"help-{command}", [command, "--help"], folder)


@pytest.mark.parametrize("name", GOOD)
def test_what_is_printed(name, folder):
    text = hold_against_golden(name, GOOD[name], folder)

    assert text.endswith("Exit code: 0\n")


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_sentence_and_exit_code_2(name, folder):
    text = hold_against_golden(f"bad-capacity-{name}", BAD[name], folder)

    assert text.count("\n") == 3
    assert text.endswith("Exit code: 2\n")


def test_a_folder_with_a_config_json_will_do(folder):
    assert kvoracle(["capacity", ".", "--blocks", "10"], folder).returncode == 0
