"""What holds the house together: traces, their sources, lockstep, shrinking, adapters, the command line."""
