"""Exit codes, the same for every command."""

NOTHING_FOUND, VIOLATION, USAGE, INTERRUPTED = 0, 1, 2, 130
"""VIOLATION also where a campaign did not see enough, and USAGE for bad input of any kind."""

NOBODY_READS = 141
"""The output went into a pipe that was closed."""
