"""`python -m antiphon` is the command `antiphon`."""

from antiphon.cli.main import main

main()
