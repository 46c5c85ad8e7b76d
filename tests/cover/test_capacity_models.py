"""Models by name and from a config.json: layers, windows, dtypes, and what is refused."""

import json
from collections import Counter
from fractions import Fraction

import pytest

from kvoracle.model.capacity.models import CONFIGS, model_named
from kvoracle.model.capacity.sizes import number, parse_number, parse_size, rounded_down, size
from kvoracle.model.errors import UsageError
from kvoracle.reference.layers import Layer, layout

PLAIN = {
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 64,
    "max_position_embeddings": 100,
}


@pytest.fixture
def load(tmp_path):
    def from_config(**changes):
        config = {key: value for key, value in (PLAIN | changes).items() if value != "absent"}
        (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
        return model_named(str(tmp_path))

    return from_config


def windows(model):
    return [layer.window for layer in model.layers]


# By name


@pytest.mark.parametrize(
    ("name", "token_bytes"),
    [
        ("Llama-3-8B", 131_072),
        ("Llama-3.1-8B", 131_072),
        ("Llama-3.1-70B", 327_680),
        ("Qwen2.5-7B", 57_344),
        ("Mistral-7B-v0.1", 131_072),
        ("DeepSeek-V3", 70_272),
        ("Gemma-3-12B", 393_216),
        ("Gemma-3-27B", 507_904),
    ],
)
def test_built_in_models_cost_so_much_a_token(name, token_bytes):
    assert layout(model_named(name).layers, 16, 2).token_bytes == token_bytes
    assert model_named(name.upper()) == model_named(name)


def test_every_built_in_model_is_among_those():
    assert len(CONFIGS) == 8


def test_weights_are_those_that_the_document_rounds():
    weights = model_named("Llama-3-8B").weights_bytes
    assert f"{weights / 2**30:.2f}" == "14.96"
    assert model_named("DeepSeek-V3").weights_bytes is None


def test_gemma_has_a_layer_without_window_every_six():
    model = model_named("Gemma-3-12B")
    assert Counter(windows(model)) == {1024: 40, 0: 8}
    assert windows(model)[5] == 0


# From a config.json


def test_plain_keys(load):
    model = load()
    assert model.layers == (Layer(2, 16),) * 4
    assert (model.max_len, model.dtype, model.weights_bytes) == (100, "bfloat16", None)


@pytest.mark.parametrize(
    ("changes", "layer"),
    [
        ({"head_dim": 32}, Layer(2, 64)),
        ({"head_dim": None}, Layer(2, 16)),
        ({"head_dim": 32, "v_head_dim": 8}, Layer(2, 40)),
        ({"num_key_value_heads": "absent"}, Layer(8, 16)),
        ({"num_key_value_heads": "absent", "multi_query": True}, Layer(1, 16)),
        ({"num_key_value_heads": "absent", "multi_query_group_num": 4}, Layer(4, 16)),
        (
            {"multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 4}
            | {"num_key_value_heads": "absent"},
            Layer(4, 16),
        ),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, Layer(1, 576)),
    ],
)
def test_heads(changes, layer, load):
    assert set(load(**changes).layers) == {layer}


def test_keys_of_gpt_2(tmp_path):
    file = tmp_path / "gpt2.json"
    file.write_text('{"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024}', "utf-8")
    model = model_named(str(file))
    assert model.layers == (Layer(12, 128),) * 12
    assert model.max_len == 1024


def test_a_text_model_within_a_larger_one(tmp_path):
    file = tmp_path / "config.json"
    whole = {"torch_dtype": "float16", "hidden_size": 1, "text_config": PLAIN}
    file.write_text(json.dumps(whole), "utf-8")
    assert model_named(str(file)).layers == (Layer(2, 16),) * 4
    assert model_named(str(file)).dtype == "float16"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sliding_window": 9}, [9, 9, 9, 9]),
        ({"sliding_window": None}, [0, 0, 0, 0]),
        ({"sliding_window": 9, "use_sliding_window": False}, [0, 0, 0, 0]),
        ({"sliding_window": 9, "model_type": "qwen2"}, [0, 0, 0, 0]),
        (
            {"sliding_window": 9, "model_type": "qwen2", "use_sliding_window": True}
            | {"max_window_layers": 3},
            [0, 0, 0, 9],
        ),
        ({"sliding_window": 9, "model_type": "gemma2"}, [9, 0, 9, 0]),
        ({"sliding_window": 9, "model_type": "gpt_oss"}, [9, 0, 9, 0]),
        ({"sliding_window": 9, "sliding_window_pattern": 3}, [9, 9, 0, 9]),
        ({"attention_chunk_size": 9, "model_type": "llama4_text"}, [9, 9, 9, 0]),
        (
            {"sliding_window": 9, "attention_chunk_size": 7}
            | {
                "layer_types": [
                    "full_attention",
                    "sliding_attention",
                    "chunked_attention",
                    "linear_attention",
                ]
            },
            [0, 9, 7],
        ),
        ({"full_attention_interval": 2}, [0, 0]),
        ({"sliding_window": 9, "sliding_window_pattern": 2, "num_kv_shared_layers": 2}, [9, 0]),
    ],
)
def test_windows(changes, expected, load):
    model = load(**changes)
    assert windows(model) == expected
    assert model.without_cache == 4 - len(expected)


def test_layers_without_a_window_may_have_heads_of_their_own(load):
    model = load(
        sliding_window=9, sliding_window_pattern=2, global_head_dim=32, num_global_key_value_heads=1
    )
    assert set(model.layers) == {Layer(2, 16, 9), Layer(1, 64)}


def test_a_layer_may_have_keys_of_its_own(load):
    layers = load(per_layer_config={"03": {"head_dim": 32}}).layers
    assert layers[2:] == (Layer(2, 16), Layer(2, 64))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"num_hidden_layers": "absent"}, "has no 'num_hidden_layers'"),
        ({"num_hidden_layers": 0}, "0 as 'num_hidden_layers'"),
        ({"num_hidden_layers": "four"}, "must be a whole number"),
        ({"num_hidden_layers": True}, "must be a whole number"),
        ({"num_hidden_layers": 10**9}, "1000000000 layers"),
        ({"num_kv_shared_layers": 5}, "no layer with a KV cache"),
        ({"num_attention_heads": -1}, "must be a whole number"),
        ({"num_attention_heads": 7}, "7 heads in 64 elements"),
        ({"layer_types": ["full_attention"]}, "not as many 'layer_types'"),
        ({"layer_types": ["odd"] * 4}, "'odd', which is not known here"),
        ({"layer_types": ["sliding_attention"] * 4}, "has no 'sliding_window'"),
        ({"layer_types": ["mamba"] * 4}, "no layer with a KV cache"),
        ({"hybrid_override_pattern": "M*M*"}, "say it by 'layer_types'"),
        ({"attn_layer_period": 2}, "say it by 'layer_types'"),
        ({"index_topk": 2048}, "'index_topk', and what that does to its cache"),
        ({"per_layer_config": [1]}, "'per_layer_config'"),
        ({"per_layer_config": {"one": {}}}, "'per_layer_config'"),
        ({"is_encoder_decoder": True}, "'is_encoder_decoder'"),
        ({"torch_dtype": 16}, "names the type 16"),
    ],
)
def test_what_is_not_understood_is_refused(changes, complaint, load):
    with pytest.raises(UsageError) as error:
        load(**changes)
    assert complaint in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00", "[" * 100_000])
def test_what_is_no_object_is_refused(text, tmp_path):
    (tmp_path / "config.json").write_text(text, "utf-8")
    with pytest.raises(UsageError):
        model_named(str(tmp_path))


def test_a_name_of_nothing_is_refused(tmp_path):
    for text in ("", "nonsense", str(tmp_path)):
        with pytest.raises(UsageError, match="There is no model"):
            model_named(text)


# Sizes


@pytest.mark.parametrize(
    ("text", "count_bytes"),
    [("52.32GiB", Fraction("52.32") * 2**30), ("80GB", 80 * 10**9), ("1 KiB", 1024), ("7B", 7)],
)
def test_sizes_are_exact(text, count_bytes):
    assert parse_size("--pool", text) == count_bytes


@pytest.mark.parametrize("text", ["", "1", "GiB", "-1GiB", "1e3GiB", "1iB", "1gib", "nan", ".5GiB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match="is not a size"):
        parse_size("--pool", text)


@pytest.mark.parametrize("text", ["", "-1", "1e3", "nan", "0.9.2"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(UsageError, match="is not a number"):
        parse_number("--utilization", text)


@pytest.mark.parametrize(
    ("count_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (2 * 2**20, "2 MiB"),
        (15 * 2**17, "1.875 MiB"),
        (Fraction("52.32") * 2**30, "52.32 GiB"),
        (686 * 15 * 2**17, "~1.26 GiB"),
    ],
)
def test_sizes_as_text_say_when_they_are_rounded(count_bytes, text):
    assert size(count_bytes) == text


def test_numbers_as_text_say_when_they_are_rounded():
    assert number(Fraction(15, 16), 4) == "0.9375"
    assert number(Fraction(15, 16)) == "~0.94"
    assert number(1200) == "1,200"
    assert number(100) == "100"
    assert rounded_down("9", "3", Fraction(3)) == "9 / 3, exactly"
    assert rounded_down("9", "4", Fraction(9, 4)) == "9 / 4 = 2.25, rounded down"
