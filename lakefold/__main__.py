"""`python -m lakefold`: the command line where its script is not on the PATH."""

from lakefold.cli import main

main()
