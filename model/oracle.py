"""The reference for a configuration: the one place that says what each of its fields means there."""

from typing import Any

from kvoracle.model.trace import Configuration
from kvoracle.reference import Oracle


def oracle_of(config: Configuration, **how: Any) -> Oracle:
    """An empty reference; `how` says who chooses for it, and overrules what the configuration says."""
    options = {
        "caching": config.prefix_cache,
        "watermark": config.watermark,
        "match_unit": config.match_unit,
        "max_length": config.max_model_len or None,
    }
    return Oracle(config.blocks, config.block_size, **{**options, **how})
