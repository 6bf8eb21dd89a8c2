"""Trains students in a curriculum of levels: `python train.py --help`."""

import sys

from minimax_lib.commands.launch import train

if __name__ == "__main__":
    sys.exit(train())
