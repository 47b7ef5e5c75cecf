"""`python -m swiftlet.main`: the same as the `swiftlet` command."""

from swiftlet.main.commands.cli import main

if __name__ == "__main__":
    main()
