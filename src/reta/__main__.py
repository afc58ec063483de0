"""`python -m reta` is the command line."""

from reta.cli import main

main()
