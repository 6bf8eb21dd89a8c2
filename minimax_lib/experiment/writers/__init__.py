"""Writers of the measurements of a run: CSV tables and TensorBoard."""
