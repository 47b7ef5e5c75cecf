"""`python -m swiftlet_operator`."""

from swiftlet_operator.main import main

main()
