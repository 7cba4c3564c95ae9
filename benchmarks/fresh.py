"""Measure one operation in a fresh process: ``fresh.py OPERATION JSON`` prints one JSON line."""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
import warnings
from typing import Any


def run_import(what: str) -> dict[str, Any]:
    began = time.perf_counter()
    if what == "partwise":
        import partwise

        assert partwise.NMF  # partwise imports the class when this attribute is accessed
    else:
        from sklearn.decomposition import NMF  # noqa: F401
    return {"seconds": time.perf_counter() - began, "numba": "numba" in sys.modules}


def run_first_fit(n: int, p: int, k: int, loss: str, density: float) -> dict[str, Any]:
    import numpy as np
    import scipy.sparse as sp

    import partwise

    rng = np.random.default_rng(0)
    X = rng.random((n, p))
    if density < 1:
        X = sp.csr_array(np.where(rng.random((n, p)) < density, np.ceil(4 * X), 0))
    W, H = rng.random((n, k)), rng.random((k, p))
    model = partwise.NMF(k, init="custom", beta_loss=loss, tol=0, max_iter=5)
    times = []
    for _ in range(2):
        began = time.perf_counter()
        model.fit(X, W=W, H=H)
        times.append(time.perf_counter() - began)
    return {"first": times[0], "second": times[1]}


def run_small_fit(
    loss: str, k: int = 5, dtype: str = "float64", kind: str = "NMF"
) -> dict[str, Any]:
    """Time one fit of 200 x 64, including all imports and compilation."""
    import numpy as np

    import partwise

    X = np.random.default_rng(0).random((200, 64)).astype(dtype)
    model = getattr(partwise, kind)(k, random_state=0, tol=1e-3)
    if kind == "NMF":
        model.set_params(beta_loss=loss)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
    return {"seconds": time.perf_counter() - began}


def run_memory(kind: str, n: int, p: int, k: int, dtype: str, max_iter: int) -> dict[str, Any]:
    """Return the peak memory of a fit in addition to X, its start and loaded code."""
    import numpy as np

    import partwise

    def fit(n: int) -> None:
        rng = np.random.default_rng(0)
        X = rng.random((n, p), dtype=np.dtype(dtype))
        W = rng.random((n, k), dtype=X.dtype)
        second = "C" if kind in ("CF", "LCF") else "H"
        shape = (n, k) if second == "C" else (k, p)
        given = {"W": W, second: rng.random(shape, dtype=X.dtype) / n}
        options = {} if kind == "NMF" else {"n_clusters": 1}
        model = getattr(partwise, kind)(k, init="custom", tol=0, max_iter=max_iter, **options)
        gc.collect()
        before = _resident()
        with Peak() as peak:
            model.fit(X, **given)
        seen.append(peak.bytes - before)

    seen: list[int] = []
    fit(n)  # the first fit compiles code and starts threads, whose memory is not counted
    gc.collect()
    fit(n)
    return {"bytes": seen[-1]}


class Peak:
    """Context manager that records the highest resident memory of the process.

    Linux can reset its own maximum; on other systems a thread measures every millisecond.
    """

    def __enter__(self) -> Peak:
        self.bytes, self._open = _resident(), True
        self._exact = _reset_peak()
        if not self._exact:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def _watch(self) -> None:
        while self._open:
            self.bytes = max(self.bytes, _resident())
            time.sleep(0.001)

    def __exit__(self, *exc: Any) -> None:
        self._open = False
        if self._exact:
            self.bytes = _status("VmHWM")
        else:
            self._thread.join()


def _reset_peak() -> bool:
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        return abs(_status("VmHWM") - _status("VmRSS")) < 2**24
    except OSError:
        return False


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                return 1024 * int(line.split()[1])
    raise OSError(f"no {name}")


def _resident() -> int:
    try:
        return _status("VmRSS")
    except OSError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    operation: dict[str, Any] = {
        "import": run_import,
        "first_fit": run_first_fit,
        "small_fit": run_small_fit,
        "memory": run_memory,
    }
    print(json.dumps(operation[sys.argv[1]](**json.loads(sys.argv[2]))))
