"""`python -m model_probe`."""

from model_probe.cli import main

main()
