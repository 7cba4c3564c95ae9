"""Looking for a call without sleeping."""

from __future__ import annotations

from typing import Any

import numba as nb
from numba.extending import intrinsic

from partwise.backends.numpy.kernels._options import OPTIONS
from partwise.backends.numpy.kernels.hals import _atomic_add, _yield

_add: Any = intrinsic(_atomic_add)
_let_others: Any = intrinsic(_yield)


@nb.njit(**OPTIONS)
def watch(flags, place, seen, times):
    """Wait until flags[place] is no longer ``seen``, but look no more than so many times."""
    for _ in range(times):
        if _add(flags, place, 0) != seen:
            return
        _let_others()
