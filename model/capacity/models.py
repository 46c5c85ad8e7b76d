"""A model's layers by a name, or from its Hugging Face config.json.

The built-in models are written as such files are, with the bytes of their weights beside them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvoracle.model.capacity.config_json import dtype_of, layers_of, length_of, without_cache
from kvoracle.model.errors import UsageError
from kvoracle.reference.layers import Layer

FILE_BYTES_MAX = 16 * 2**20


def _llama(layers: int, heads: int, hidden: int, length: int) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "hidden_size": hidden,
        "max_position_embeddings": length,
    }


def _gemma3(layers: int, kv_heads: int, head_dim: int) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 131_072,
    }


CONFIGS: dict[str, tuple[dict[str, Any], int | None]] = {
    "Llama-3-8B": (_llama(32, 32, 4096, 8192), 2 * 8_030_261_248),
    "Llama-3.1-8B": (_llama(32, 32, 4096, 131_072), 2 * 8_030_261_248),
    "Llama-3.1-70B": (_llama(80, 64, 8192, 131_072), 2 * 70_553_706_496),
    "Qwen2.5-7B": (
        {
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "hidden_size": 3584,
            "max_position_embeddings": 131_072,
        },
        2 * 7_615_616_512,
    ),
    "Mistral-7B-v0.1": (
        {**_llama(32, 32, 4096, 32_768), "sliding_window": 4096},
        2 * 7_241_732_096,
    ),
    "DeepSeek-V3": (
        {
            "num_hidden_layers": 61,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "max_position_embeddings": 163_840,
        },
        None,
    ),
    "Gemma-3-12B": (_gemma3(48, 8, 256), 2 * 12_187_325_040),
    "Gemma-3-27B": (_gemma3(62, 16, 128), 2 * 27_432_406_640),
}


@dataclass(frozen=True)
class Model:
    """What arithmetic needs of a model."""

    name: str
    layers: tuple[Layer, ...]
    without_cache: int
    """Layers beside those, which keep a state and nothing a token, or use another layer's cache."""
    dtype: str
    max_len: int | None
    weights_bytes: int | None


def model_named(text: str) -> Model:
    """A built-in model, or the one of a config.json or of the folder that it is in."""
    for name, (config, weights_bytes) in CONFIGS.items():
        if name.lower() == text.lower():
            return _model(name, config, weights_bytes)
    path = Path(text)
    if path.is_dir():
        path /= "config.json"
    if not path.is_file():
        raise UsageError(f"There is no model {text!r}; give a config.json or {', '.join(CONFIGS)}.")
    return _model(str(path), _read(path), None)


def _model(name: str, config: Mapping[str, Any], weights_bytes: int | None) -> Model:
    return Model(
        name,
        tuple(layers_of(name, config)),
        without_cache(name, config),
        dtype_of(name, config),
        length_of(name, config),
        weights_bytes,
    )


def _read(path: Path) -> dict[str, Any]:
    """The text model's keys, over those of the whole where it is a part."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise UsageError(f"{path} is too long for a config.json; give the model's own.")
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); give another file.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON ({error}); give the model's config.json.") from error
    if not isinstance(config, dict):
        raise UsageError(f"{path} holds no JSON object; give the model's config.json.")
    for part in ("text_config", "llm_config", "language_config"):
        inner = config.get(part)
        if isinstance(inner, dict):
            return {**config, **inner}
        if inner is not None:
            raise UsageError(f"{path} has a {part!r} that is no JSON object; correct it.")
    return config
