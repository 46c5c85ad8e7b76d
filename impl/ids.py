"""The arrays of the allocator by name."""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
"""Block ids."""

Rows = NDArray[np.intp]
"""Rows of the block tables."""

Slots = NDArray[np.int64]
"""Slots, `block * block_size + offset`."""

Tokens = NDArray[np.int64]
"""Token ids."""

ONE = np.array(1)
"""As an array, which spares numpy the conversion of a Python number in every call."""
