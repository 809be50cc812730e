"""``python -m wakupush``, the same as ``wakupush``."""

from wakupush.cli import main

main()
