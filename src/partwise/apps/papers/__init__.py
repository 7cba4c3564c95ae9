"""The papers' tables and figures, each with one command.

A table is a settings file (``<paper>/<table>.toml``), the printed numbers
(``<paper>/<table>.csv``) and a command (``partwise reproduce <paper>/<table>``). The protocol is
data.
"""

from partwise.apps.papers.protocol import Protocol, load_protocol, names

__all__ = ["Protocol", "load_protocol", "names"]
