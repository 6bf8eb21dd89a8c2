"""Evaluates a trained run on held-out tasks: `python evaluate.py --help`."""

import sys

from minimax_lib.commands.launch import evaluate

if __name__ == "__main__":
    sys.exit(evaluate())
