"""What a call that gives out slots did.

Copies are returned, not carried out: the caller copies each (source, destination) block, in order,
before it writes the slots of the same call.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kvoracle.impl.ids import Ids, Slots

Copy = tuple[int, int]


@dataclass(slots=True)
class Growth:
    """What an append or an admission did.

    `slots` is int64 [new tokens]; `hit` tokens of a prompt were found written.
    """

    slots: Slots
    copies: list[Copy] = field(default_factory=list)
    hit: int = 0


@dataclass(slots=True)
class BatchGrowth:
    """What a batch did.

    `slots` is int64 [new tokens], request after request, -1 where a request was refused; `granted`
    is bool [requests]; `fresh` is int32, every block that was taken, in the order of taking.
    """

    slots: Slots
    granted: NDArray[np.bool_]
    copies: list[Copy]
    fresh: Ids
