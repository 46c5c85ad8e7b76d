"""`python -m kvoracle` is the command `kvoracle`."""

from kvoracle.model.cli import main

if __name__ == "__main__":
    main()
