"""scikit-learn without what it imports and most commands never use."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

#: Half of the time that ``import sklearn`` takes: one function of it uses the first, none the
#: second, which it imports to see whether it is there.
SELDOM = ("scipy.stats", "pandas")


class _Later(ModuleType):
    """Stands for a module until something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def import_sklearn() -> None:
    """Before anybody else does, and in a process of our own; afterwards nobody sees a difference.

    Whoever wants one of `SELDOM` imports it then, as ever.
    """
    if "sklearn" in sys.modules:
        return
    later = {name: _Later(name) for name in SELDOM if name not in sys.modules}
    sys.modules.update(later)
    try:
        import_module("sklearn.base")
    finally:
        for name, module in later.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
