"""`python -m swiftlet.testing.sim`: run seeds, or replay one; see `swiftlet.testing.sim.cli`."""

import sys

from swiftlet.testing.sim.cli import main

if __name__ == "__main__":
    sys.exit(main())
