"""Opponents that do not learn: a bank of frozen copies of the student, and which of them it meets."""

from minimax_lib.opponents.bank import (
    LIVE,
    Bank,
    Games,
    Record,
    add,
    book,
    filled,
    init,
    parameters_at,
    win_rates,
)
from minimax_lib.opponents.cores import PFSP, DeltaUniform, FictitiousSelfPlay, Mixture, Opponents, SelfPlay
from minimax_lib.opponents.settings import OPPONENTS

__all__ = [
    "LIVE",
    "OPPONENTS",
    "PFSP",
    "Bank",
    "DeltaUniform",
    "FictitiousSelfPlay",
    "Games",
    "Mixture",
    "Opponents",
    "Record",
    "SelfPlay",
    "add",
    "book",
    "filled",
    "init",
    "parameters_at",
    "win_rates",
]
