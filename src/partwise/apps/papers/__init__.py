"""Reproduction of the NMF papers' tables and figures, each with one command.

Each table has a settings file (``<paper>/<table>.toml``) and a file with the printed numbers
(``<paper>/<table>.csv``). The command ``partwise reproduce <paper>/<table>`` runs its experiments.
A new table therefore needs only new files and no code.
"""

from partwise.apps.papers.protocol import Protocol, load_protocol, names

__all__ = ["Protocol", "load_protocol", "names"]
