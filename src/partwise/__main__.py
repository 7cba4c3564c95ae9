"""`python -m partwise`, the command."""

from partwise.cli import main

if __name__ == "__main__":
    main()
