"""Terms of the objective on one factor: the named ones, and the base of your own."""

from partwise.model.graph_terms import Graph
from partwise.model.terms import Bound, Linear, Ridge, Term, check_term

__all__ = ["Bound", "Graph", "Linear", "Ridge", "Term", "check_term"]
