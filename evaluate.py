"""Evaluates a trained run on held-out tasks: `python evaluate.py --help`."""

import sys

from minimax_lib.commands.evaluate import main

if __name__ == "__main__":
    sys.exit(main())
