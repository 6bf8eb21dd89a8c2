"""How good an agent is: held-out tasks, the worst levels, aggregates over seeds, and tables of all that."""
