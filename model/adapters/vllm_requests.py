"""vLLM's `Request` objects: what identifies their tokens, and how they are hashed."""

from collections.abc import Mapping, Sequence
from typing import Any

from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.request import Request

from kvoracle.model.adapters.base import NO_KEYS
from kvoracle.model.trace import Configuration

ADAPTER_PATH = "/adapters"
IMAGE_AT_THE_START = PlaceholderRange(offset=0, length=1)

init_none_hash(sha256)  # the seed of every hash chain; the engine does this as it starts


class Requests:
    """Makes the requests of one pool, hashed if it caches prefixes."""

    def __init__(self, config: Configuration) -> None:
        self.block_size = config.block_size
        self.hasher = (
            get_request_block_hasher(config.block_size, sha256) if config.prefix_cache else None
        )
        self.adapter_ids: dict[str, int] = {}

    def waiting(self, name: str, prompt: Sequence[int], keys: Mapping[str, str] = NO_KEYS) -> Any:
        """A request that has not been scheduled yet."""
        return Request(
            name,
            list(prompt),
            SamplingParams(),
            pooling_params=None,
            block_hasher=self.hasher,
            lora_request=self._lora_request(keys.get("adapter")),
            cache_salt=keys.get("salt"),
            mm_features=_image(keys.get("image")),
        )

    def take_back(self, request: Any, count: int) -> None:
        """Undo `append_output_token_ids`."""
        del request._output_token_ids[-count:]
        del request._all_token_ids[-count:]
        if self.hasher is not None:
            del request.block_hashes[request.num_tokens // self.block_size :]

    def _lora_request(self, name: str | None) -> Any:
        """One id an adapter, as vLLM asks for."""
        if not name:
            return None
        adapter_id = self.adapter_ids.setdefault(name, len(self.adapter_ids) + 1)
        return LoRARequest(name, adapter_id, ADAPTER_PATH)


def _image(name: str | None) -> list[Any]:
    """An image at the first token: every block holds a part of it or follows one that does."""
    return [MultiModalFeatureSpec(None, "image", name, IMAGE_AT_THE_START)] if name else []
