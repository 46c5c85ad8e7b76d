"""What a Hugging Face config.json says of the KV cache: its layers, their windows, its length.

Names and defaults are those of transformers 5: a key that is absent means what the model type means
by it.  What is not understood is refused rather than counted wrongly.
"""

from collections.abc import Mapping
from typing import Any

from kvoracle.model.errors import UsageError
from kvoracle.reference.layers import Layer

Config = Mapping[str, Any]

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = ("num_key_value_heads", "multi_query_group_num", "num_kv_heads", "n_head_kv")
HIDDEN = ("hidden_size", "n_embd", "d_model")
LENGTH = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "n_ctx")
NOT_READ = ("attn_config", "index_topk", "is_encoder_decoder", "swa_num_key_value_heads")
"""Keys by which a cache differs in ways that only its model knows."""

KINDS_ELSEWHERE = (
    "attn_layer_indices",
    "attn_layer_period",
    "attn_type_list",
    "block_types",
    "full_attn_idxs",
    "hybrid_layer_pattern",
    "hybrid_override_pattern",
    "layers_block_type",
    "linear_attn_config",
    "linear_num_heads",
    "linear_num_value_heads",
    "mamba_d_state",
)
"""Keys of models whose layers are not all attention; which are, 'layer_types' must say."""

FULL_EVERY = {
    "gemma2": 2,
    "gpt_oss": 2,
    "llama4": 4,
    "cohere2": 4,
    "olmo3": 4,
    "gemma3n": 5,
    "gemma": 6,
}
"""By the beginning of the model type: the layers from one without a window to the next."""

STATES = ("linear_attention", "mamba", "conv")
"""Layer types that keep a state a request, and nothing a token."""

WHOLE_MAX, LAYERS_MAX = 10**9, 10_000


def layers_of(name: str, config: Config) -> list[Layer]:
    """The layers that keep something of each token."""
    _refuse(name, config)
    windows = _windows(name, config)
    kept = len(windows) - _optional(name, config, "num_kv_shared_layers", 0)
    overrides = _overrides(name, config)
    layers = [
        _layer(name, {**config, **overrides.get(index, {})}, window)
        for index, window in enumerate(windows[: max(kept, 0)])
        if window is not None
    ]
    if not layers:
        raise UsageError(f"{name} has no layer with a KV cache; give another model.")
    return layers


def without_cache(name: str, config: Config) -> int:
    """How many layers keep nothing of a token."""
    return _required(name, config, LAYERS) - len(layers_of(name, config))


def dtype_of(name: str, config: Config) -> str:
    """The type of the weights, which is the cache's where nothing else is asked for."""
    dtype = config.get("dtype") or config.get("torch_dtype") or "bfloat16"
    if not isinstance(dtype, str):
        raise UsageError(f"{name} names the type {dtype!r}, which is none; give --dtype.")
    return dtype


def length_of(name: str, config: Config) -> int | None:
    """The longest request that the model was made for."""
    return _first(name, config, LENGTH)


def _refuse(name: str, config: Config) -> None:
    for key in NOT_READ:
        if config.get(key):
            raise UsageError(
                f"{name} has {key!r}, and what that does to its cache is not known here;"
                " take it out in a copy if nothing."
            )
    if config.get("layer_types") or config.get("full_attention_interval"):
        return
    for key in KINDS_ELSEWHERE:
        if config.get(key):
            raise UsageError(
                f"{name} has {key!r}, and which of its layers are attention is not known from that;"
                " say it by 'layer_types' in a copy."
            )


def _overrides(name: str, config: Config) -> dict[int, dict[str, Any]]:
    """By layer, the keys that are different there."""
    given = config.get("per_layer_config") or {}
    try:
        return {int(index): dict(keys) for index, keys in given.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"{name} has a 'per_layer_config' that is not an object a layer; correct it."
        ) from error


def _layer(name: str, config: Config, window: int) -> Layer:
    latent = _optional(name, config, "kv_lora_rank", 0)
    if latent:
        return Layer(1, latent + _optional(name, config, "qk_rope_head_dim", 0), window)
    head_dim, kv_heads = _head_dim(name, config), _kv_heads(name, config)
    if not window:
        head_dim = _optional(name, config, "global_head_dim", head_dim)
        kv_heads = _optional(name, config, "num_global_key_value_heads", kv_heads)
    elements = head_dim + _optional(name, config, "v_head_dim", head_dim)
    if not kv_heads or not elements:
        raise UsageError(
            f"{name} has {kv_heads} KV heads of {elements} elements; both must be at least 1."
        )
    return Layer(kv_heads, elements, window)


def _head_dim(name: str, config: Config) -> int:
    given = _first(name, config, ("head_dim", "kv_channels"))
    if given is not None:
        return given
    hidden, heads = _required(name, config, HIDDEN), _required(name, config, HEADS)
    if hidden % heads:
        raise UsageError(f"{name} has {heads} heads in {hidden} elements; give it a 'head_dim'.")
    return hidden // heads


def _kv_heads(name: str, config: Config) -> int:
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    given = _first(name, config, KV_HEADS)
    return _required(name, config, HEADS) if given is None else given


def _windows(name: str, config: Config) -> list[int | None]:
    """The window of each layer, 0 where there is none; None where it keeps nothing of a token."""
    count = _required(name, config, LAYERS)
    if count > LAYERS_MAX:
        raise UsageError(f"{name} has {count} layers; give a model of at most {LAYERS_MAX}.")
    types = config.get("layer_types")
    if types is None:
        return _windows_by_rule(name, config, count)
    if not isinstance(types, list) or len(types) != count:
        raise UsageError(f"{name} has {count} layers and not as many 'layer_types'; correct them.")
    return [_window_of_type(name, config, kind) for kind in types]


def _window_of_type(name: str, config: Config, kind: object) -> int | None:
    if kind == "full_attention":
        return 0
    if kind == "sliding_attention":
        return _required(name, config, ("sliding_window",))
    if kind == "chunked_attention":
        return _required(name, config, ("attention_chunk_size",))
    if kind in STATES:
        return None
    raise UsageError(
        f"{name} has a layer of the type {kind!r}, which is not known here;"
        f" use full_attention, sliding_attention, chunked_attention or {', '.join(STATES)}."
    )


def _windows_by_rule(name: str, config: Config, count: int) -> list[int | None]:
    model_type = str(config.get("model_type", ""))
    if "full_attention_interval" in config:
        every = _required(name, config, ("full_attention_interval",))
        return [None if (index + 1) % every else 0 for index in range(count)]
    window = _first(name, config, ("sliding_window", "attention_chunk_size")) or 0
    if not config.get("use_sliding_window", not model_type.startswith("qwen")):
        window = 0
    by_type = next((FULL_EVERY[t] for t in FULL_EVERY if model_type.startswith(t)), 0)
    every = _first(name, config, ("sliding_window_pattern", "no_rope_layer_interval")) or by_type
    if every:
        return [window if (index + 1) % every else 0 for index in range(count)]
    begin = 0
    if config.get("use_sliding_window"):
        begin = _optional(name, config, "max_window_layers", 0)
    return [window if index >= begin else 0 for index in range(count)]


def _optional(name: str, config: Config, key: str, default: int) -> int:
    given = _first(name, config, (key,))
    return default if given is None else given


def _required(name: str, config: Config, keys: tuple[str, ...]) -> int:
    given = _first(name, config, keys)
    if given is None:
        raise UsageError(f"{name} has no {keys[0]!r}; give the model's own config.json.")
    if given == 0:
        raise UsageError(f"{name} has 0 as {keys[0]!r}, which must be at least 1; correct it.")
    return given


def _first(name: str, config: Config, keys: tuple[str, ...]) -> int | None:
    """The first of the keys that is there and not null."""
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if type(value) is not int or not 0 <= value <= WHOLE_MAX:
            raise UsageError(
                f"{name} has {value!r} as {key!r}, which must be a whole number, 0 or more; correct it."
            )
        return value
    return None
