"""What a witness is: a situation, and the operations without which it cannot be met."""

from collections.abc import Callable, Iterator
from typing import Any

from kvoracle.model.operations import Operation
from kvoracle.reference import Oracle

Needs = dict[str, frozenset[type[Operation]]]
Looks = dict[type[Operation], Callable[[Oracle, Any], Iterator[str]]]
"""For a type of operation, what names the witnesses that it is about to meet."""
