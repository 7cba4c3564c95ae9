"""Compilation options of the kernels, and the cache of compiled code."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba as nb
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock as lock

from partwise.backends.arrays import compiled_code_is_kept

#: Whether kernels run as plain Python, because NUMBA_DISABLE_JIT=1 is set.
NO_JIT: bool = getattr(nb.config, "DISABLE_JIT", 0) == 1

# no "nnan" or "ninf": inf and nan keep their meaning
OPTIONS: dict[str, Any] = {
    "cache": compiled_code_is_kept(),
    "fastmath": {"nsz", "arcp", "contract", "afn", "reassoc"},
    "error_model": "numpy",
    "nogil": True,
    "no_cfunc_wrapper": True,
}

#: For kernels whose inner loops have a constant, short length: LLVM unrolls these and then fills
#: vectors with neighbouring statements, which numba leaves out by default. Without "reassoc" it
#: does not make vectors along the outer loop, which would gather their entries.
UNROLLED: dict[str, Any] = {**OPTIONS, "fastmath": {"nsz", "arcp", "contract", "afn"}}

# A helper that is not inlined is compiled twice: alone, and with its caller, where sums may have
# another order. A process that compiles calls the first version, and a process that loads the cache
# calls the second, so their last digits would differ.
HELPER: dict[str, Any] = {**OPTIONS, "forceinline": True}

if hasattr(os, "register_at_fork"):  # a child would wait for a thread of its parent
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )


@cache
def _stamp() -> tuple[float, int]:
    """Return the newest change of the files in this folder, and their total size."""
    files = [path.stat() for path in Path(__file__).parent.glob("*.py")]
    return max((file.st_mtime for file in files), default=0.0), sum(f.st_size for f in files)


class _MendedCache(FunctionCache):
    """numba's cache, which also depends on the kernels in other files and mends broken files.

    numba compiles a function again when its own file changes, but a kernel may call helpers of
    another file in this folder. A power cut can leave files that cannot be read.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = (self._impl.locator.get_source_stamp(), _stamp())
        self._cache_file = IndexDataCacheFile(
            self._cache_path, self._impl.filename_base, source_stamp=stamp
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # the bytes of a broken pickle may raise any error
            self.disable()
            with suppress(OSError):  # without a new index, nothing more is cached
                self.flush()
                self.enable()
            return None


def _with_neighbours(compile_as_numba_does: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with LLVM's vectorizer of neighbouring statements ("superword level")."""

    def compile_one(*args: Any) -> Any:
        with lock:
            before, nb.config.SLP_VECTORIZE = nb.config.SLP_VECTORIZE, 1  # type: ignore[attr-defined]
            try:
                return compile_as_numba_does(*args)
            finally:
                nb.config.SLP_VECTORIZE = before  # type: ignore[attr-defined]

    return compile_one


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function by ``numba.njit`` with these options and the cache above.

    With NUMBA_DISABLE_JIT=1, return the plain Python function.
    """

    def compile_one(function: Callable[..., Any]) -> Any:
        made = nb.njit(**options)(function)
        if NO_JIT:
            return made
        if options["cache"]:
            made._cache = _MendedCache(function)
        if options.get("fastmath") == UNROLLED["fastmath"]:
            made._compiler.compile = _with_neighbours(made._compiler.compile)
        return made

    return compile_one
