"""`python -m streams.cli`: the command line without its installed script."""

from streams.cli import main

main()
