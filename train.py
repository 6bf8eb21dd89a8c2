"""Trains students in a curriculum of levels: `python train.py --help`."""

import sys

from minimax_lib.commands.train import main

if __name__ == "__main__":
    sys.exit(main())
