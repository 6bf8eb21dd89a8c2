"""Our curricula and environments for other libraries. Each of these is imported only when it is asked for."""
