"""A fully jitted JAX framework for autocurricula."""

__version__ = "0.1.0"
