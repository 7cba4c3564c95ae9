"""Terms of the objective on one factor: the named ones, and the base of your own."""

from partwise.engine.terms import Graph, Linear, Ridge, Term

__all__ = ["Graph", "Linear", "Ridge", "Term"]
