"""Every state of a small pool: the graph of the reference's states, and all its edges on an allocator."""
