"""`python -m paceline` is the `paceline` command."""

from paceline.cli.app import main

main()
