"""Start worker processes, send them requests, and stop them."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.settings import HERE


class ContestantError(RuntimeError):
    """Error of a package in a worker process; its message appears in the table."""


def save_problem(path: Path, X: Any, W: Any = None, H: Any = None) -> None:
    """Write X and the initial factors in the format that `worker.py` reads."""
    arrays = {} if W is None else {"W": W, "H": H}
    if sp.issparse(X):
        arrays |= {"data": X.data, "indices": X.indices, "indptr": X.indptr}
        arrays["shape"] = np.asarray(X.shape)
    else:
        arrays["X"] = np.ascontiguousarray(X)
    np.savez(path, **arrays)


class Worker:
    """A process that runs `worker.py` with the given Python interpreter."""

    def __init__(self, python: str | Path, *, script: Path = HERE / "worker.py") -> None:
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [
                str(python),
                "-P",
                str(script),
            ],  # with -P, files of this folder cannot hide modules of the other packages
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )

    def ask(self, op: str, *, timeout: float = 3600, **request: Any) -> dict[str, Any]:
        """Send a request and return the reply; a late reply ends the process."""
        assert self._process.stdin and self._process.stdout
        timer = threading.Timer(timeout, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps({"op": op, **request}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        finally:
            late = not timer.is_alive()
            timer.cancel()
        if not line:
            why = f"took more than {timeout:.0f} s" if late else f"ended: {self._last_words()}"
            raise ContestantError(why)
        reply = json.loads(line)
        if not reply["ok"]:
            raise ContestantError(reply["error"])
        return reply

    def _last_words(self) -> str:
        self._process.wait(timeout=10)
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()
