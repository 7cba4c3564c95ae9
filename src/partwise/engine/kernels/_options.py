"""How everything in this folder is compiled."""

from __future__ import annotations

from typing import Any

from partwise.engine.numeric import compiled_code_is_kept

# no "nnan" or "ninf": inf and nan keep their meaning
OPTIONS: dict[str, Any] = {
    "cache": compiled_code_is_kept(),
    "fastmath": {"nsz", "arcp", "contract", "afn", "reassoc"},
    "error_model": "numpy",
    "nogil": True,
}
