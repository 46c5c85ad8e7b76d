"""How requests begin with tokens: on the longest published prefix of them, and fresh blocks."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from kvoracle.impl.chains import Prompt
from kvoracle.impl.contents import AnyTokens, as_tokens, block_texts, check_extra_keys
from kvoracle.impl.errors import BadCall
from kvoracle.impl.growth import Growth
from kvoracle.impl.ids import Ids
from kvoracle.impl.requests import Requests


class Admission:
    """Admission to one allocator, which keeps `watermark` blocks back from requests that begin."""

    def __init__(self, requests: Requests, watermark: int) -> None:
        self.requests = requests
        self.pool = requests.pool
        self.tables = requests.tables
        self.chains = requests.chains
        self.index = requests.chains.index
        self.block_size = requests.tables.block_size
        self.watermark = watermark
        self.queried_tokens = 0
        self.hit_tokens = 0

    def admit(self, name: str, prompt: ArrayLike, extra_keys: Mapping[str, str]) -> Growth:
        """Begin a request with a prompt, all of which is written with this call."""
        found = self.find(name, prompt, extra_keys)
        growth = self._begin_written(name, found)
        self.count(found)
        return growth

    def look_up(self, name: str, prompt: ArrayLike, extra_keys: Mapping[str, str]) -> int:
        """Hold the blocks that a prompt hits; returns how many tokens they have."""
        self.requests.check_new(name)
        found = self._find(name, prompt, extra_keys)
        self.pool.hold(found.hit)
        self.requests.looked_up[name] = found
        self.count(found)
        return self._known(found)

    def use(self, name: str) -> Growth:
        """Begin the request of a lookup on the blocks that it holds."""
        found = self._looked_up(name)
        growth = self._begin_written(name, found)
        del self.requests.looked_up[name]
        self.pool.drop_hold(found.hit)
        return growth

    def cancel(self, name: str) -> None:
        """End a lookup."""
        found = self._looked_up(name)
        del self.requests.looked_up[name]
        self.pool.drop_hold(found.hit)

    def resume(self, name: str) -> Growth:
        """Begin a preempted request again, with all that it had written."""
        old = self.requests.preempted.get(name)
        if old is None:
            raise BadCall("not preempted", name)
        found = self._add_part(self._match(old.length, old.tokens, old.extra_keys))
        growth = self._begin_written(name, found)
        del self.requests.preempted[name]
        self.count(found)
        return growth

    def find(self, name: str, prompt: ArrayLike, extra_keys: Mapping[str, str]) -> Prompt:
        """What a new request would begin with; changes nothing."""
        self.requests.check_new(name)
        return self._add_part(self._find(name, prompt, extra_keys))

    def can_admit(self, prompt: ArrayLike, extra_keys: Mapping[str, str]) -> bool:
        """Whether a prompt finds room; changes nothing."""
        found = self._add_part(self._find("the prompt", prompt, extra_keys))
        room = self.pool.room_beside(np.concatenate([found.hit, found.source]))
        return self._needed(found) + self.watermark <= room

    def would_hit(self, prompt: ArrayLike, extra_keys: Mapping[str, str]) -> tuple[int, int]:
        """How many tokens a prompt hits, and how many blocks of those nothing holds; changes
        nothing."""
        tokens, root = as_tokens(prompt), self.chains.root(check_extra_keys(extra_keys))
        keys = self._keys_to_a_miss(root.parent, block_texts(tokens, self.chains.unit))
        found = Prompt(len(tokens), tokens, root, keys, self.hits(keys, len(tokens)))
        known = self._known(self._add_part(found))
        return known, self.pool.num_free - self.pool.room_beside(found.hit)

    def begin(self, name: str, prompt: Prompt) -> int:
        """Give a request the blocks for its prompt, the hits first; OutOfBlocks changes nothing."""
        needed = self._needed(prompt)
        blocks = self.pool.use_and_take(prompt.hit, needed, self.watermark, prompt.source)
        row = self.requests.open(name)
        self.tables.extend(row, blocks)
        return row

    def count(self, prompt: Prompt) -> None:
        """Count the tokens that were looked for and those that were found."""
        if self.chains.caching:
            self.queried_tokens += prompt.length
            self.hit_tokens += self._known(prompt)

    def growth(self, row: int, prompt: Prompt) -> Growth:
        """The slots for what a prompt does not hit, and the copy of the block that it hits in part,
        to the first block of its own."""
        first, known = len(prompt.hit), self._known(prompt)
        own = self.tables.ids[row, first : first + 1]
        copies = zip(prompt.source.tolist(), own.tolist(), strict=False)
        return Growth(self.tables.slots(row, known, prompt.length - known), list(copies), known)

    def hits(self, keys: list[bytes], length: int) -> Ids:
        """The whole blocks that a prompt of this length hits: never its last token, whose logits are
        still to be computed."""
        most, units = (length - 1) // self.block_size, self.chains.units
        return np.array(
            self.index.match(keys[units - 1 :: units][:most], self.pool.is_held), np.int32
        )

    def _keys_to_a_miss(self, parent: bytes, texts: list[bytes]) -> list[bytes]:
        """The keys of units, up to the end of the first block that is not published whole."""
        keys, units = [parent], self.chains.units
        for first in range(0, len(texts), units):
            keys += self.index.keys(keys[-1], texts[first : first + units])
            if keys[-1] not in self.index:
                break
        return keys[1:]

    def _find(self, name: str, prompt: ArrayLike, extra_keys: Mapping[str, str]) -> Prompt:
        """The whole blocks that a prompt hits."""
        tokens = as_tokens(prompt)
        if len(tokens) == 0:
            raise BadCall("no tokens", name)
        self.requests.check_length(name, len(tokens))
        known = check_extra_keys(extra_keys)
        return self._match(len(tokens), tokens.copy() if self.chains.caching else tokens[:0], known)

    def _add_part(self, prompt: Prompt) -> Prompt:
        """Let a prompt also hit as many units of the next block as there are in any block."""
        first = len(prompt.hit) * self.chains.units
        most = min((prompt.length - 1) // self.chains.unit, first + self.chains.units - 1)
        for full in range(min(most, len(prompt.keys)), first, -1):
            source = self.index.match(prompt.keys[full - 1 : full], self.pool.is_held)
            if source:
                prompt.source = np.array(source, np.int32)
                prompt.part = (full - first) * self.chains.unit
                break
        return prompt

    def _known(self, prompt: Prompt) -> int:
        return len(prompt.hit) * self.block_size + prompt.part

    def _needed(self, prompt: Prompt) -> int:
        return -(-prompt.length // self.block_size) - len(prompt.hit)

    def _match(self, length: int, tokens: AnyTokens, extra_keys: Mapping[str, str]) -> Prompt:
        root = self.chains.root(extra_keys)
        keys = self.index.keys(root.parent, block_texts(tokens, self.chains.unit))
        return Prompt(length, tokens, root, keys, self.hits(keys, length))

    def _begin_written(self, name: str, prompt: Prompt) -> Growth:
        row = self.begin(name, prompt)
        self.tables.lengths[row] = prompt.length
        self.chains.write_prompt(row, prompt)
        return self.growth(row, prompt)

    def _looked_up(self, name: str) -> Prompt:
        try:
            return self.requests.looked_up[name]
        except KeyError:
            raise BadCall("unknown lookup", name) from None
