"""`python -m streams`, and the installed `memriver`: imports nothing before it is called, since a judge's process, which is
started by importing the main program once more, needs none of it."""

from __future__ import annotations


def main() -> None:
    """The command line."""
    from streams.cli import main as command

    command()


if __name__ == "__main__":
    main()
