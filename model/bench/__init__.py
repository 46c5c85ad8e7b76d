"""The benchmark: this project's allocator and the released ones, in turns, on the same work."""
