"""How everything in this folder is compiled."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba as nb
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock as lock

from partwise.backends.arrays import compiled_code_is_kept

# no "nnan" or "ninf": inf and nan keep their meaning
OPTIONS: dict[str, Any] = {
    "cache": compiled_code_is_kept(),
    "fastmath": {"nsz", "arcp", "contract", "afn", "reassoc"},
    "error_model": "numpy",
    "nogil": True,
    "no_cfunc_wrapper": True,
}

# A helper that is called, not inlined, is there twice: as it was compiled alone, and as it was
# compiled again with its caller, whose sums may run in another order. A process that compiles calls
# the first, one that loads the cache the second, and their last digits differ.
HELPER: dict[str, Any] = {**OPTIONS, "forceinline": True}

if hasattr(os, "register_at_fork"):  # a child would wait for ever for a thread that it has not
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )


class _MendedCache(FunctionCache):
    """numba's cache, which starts anew where its files cannot be read, as after a power cut."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # the bytes of a broken pickle may raise any error
            self.disable()
            with suppress(OSError):  # where the index stays as it is, nothing more is kept
                self.flush()
                self.enable()
            return None


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit`` with these options, whose cache recovers from broken files."""

    def compile_one(function: Callable[..., Any]) -> Any:
        made = nb.njit(**options)(function)
        if options["cache"]:
            made._cache = _MendedCache(function)
        return made

    return compile_one
