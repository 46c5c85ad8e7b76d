"""Verification suite for paged KV-cache allocators, paired with a reference implementation.

`kvoracle.reference` says what is right, `kvoracle.impl` is fast, `kvoracle.gpu` moves the bytes and
`kvoracle.model` holds them together.  ARCHITECTURE.md draws the rooms and who may import whom.
"""

__version__ = "0.1.0"
