"""Public penalty terms on one factor, and the base class for your own terms."""

from partwise.model.graph_terms import Graph
from partwise.model.terms import Bound, Linear, Ridge, Term, check_term

__all__ = ["Bound", "Graph", "Linear", "Ridge", "Term", "check_term"]
