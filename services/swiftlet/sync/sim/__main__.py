"""`python -m swiftlet.sync.sim`: run seeds, or replay one; see `swiftlet.sync.sim.cli`."""

import sys

from swiftlet.sync.sim.cli import main

if __name__ == "__main__":
    sys.exit(main())
