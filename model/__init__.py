"""What holds the house together: traces and their sources, lockstep, shrinking, adapters, the command line."""
