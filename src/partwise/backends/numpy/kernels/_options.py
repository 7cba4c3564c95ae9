"""How everything in this folder is compiled."""

from __future__ import annotations

from typing import Any

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
