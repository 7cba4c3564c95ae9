"""Terms of the objective on one factor: the named ones, and the base of your own."""

from partwise.engine.graph_terms import Graph
from partwise.engine.terms import Bound, Linear, Ridge, Term, check_term

__all__ = ["Bound", "Graph", "Linear", "Ridge", "Term", "check_term"]
