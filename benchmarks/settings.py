"""Size of a benchmark run, its environment, and its machine."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


@dataclass(frozen=True)
class Settings:
    """One of the three sizes of a benchmark run.

    Parameters
    ----------
    name : "bench", "full" or "quick"
        "quick" tests the benchmark code: small data, few iterations, meaningless numbers.
    runs : int
        Timed runs of each pair; the median of their ratios is reported.
    patience : float
        Maximum seconds of a peer for the timed runs of a case; slower peers have fewer runs.
        scikit-learn has three times as many seconds.
    limit : float
        Maximum seconds of one run of a peer; slower peers except scikit-learn are omitted.
    minutes : float
        After this number of minutes, the remaining parts have one run each.
    """

    name: str
    runs: int
    patience: float
    limit: float
    minutes: float = float("inf")

    @property
    def full(self) -> bool:
        return self.name == "full"

    @property
    def quick(self) -> bool:
        return self.name == "quick"


SIZES = {
    "quick": Settings("quick", runs=2, patience=20, limit=20),
    "bench": Settings("bench", runs=3, patience=8, limit=12, minutes=9),
    "full": Settings("full", runs=3, patience=60, limit=120),
}


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_threads(threads: int) -> None:
    """Set the same number of threads for every package; call it before numpy is imported."""
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)


def memory_bytes() -> int:
    """Return the physical memory, or 0 if it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def machine() -> dict[str, Any]:
    """Return processor, cores, memory, system and date."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        named = [line for line in lines if line.startswith("model name")]
        model = named[0].split(":", 1)[1].strip() if named else model
    except OSError:
        pass
    return {
        "processor": model,
        "cores": available_cores(),
        "memory_GiB": round(memory_bytes() / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "threads": os.environ.get("OMP_NUM_THREADS", "unset"),
        "date": time.strftime("%Y-%m-%d"),
    }


def fingerprint() -> str:
    """Return a hash of the measured code, since stored results of other code must not be reused."""
    import partwise

    digest = hashlib.sha256()
    own = [path for path in HERE.glob("*.py") if path.name != "gpu.py"]
    for path in sorted([*Path(partwise.__file__).parent.rglob("*.py"), *own]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
