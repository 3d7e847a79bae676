"""``python -m extender`` is the ``sluice`` command."""

from extender.cli import main

main()
