"""Traffic served on any allocator: a scheduler, what it stores, and what is measured."""
