"""Work in the background: a job in a thread, and cross-validation in a process of its own."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from partwise.apps.studio import reviews

#: Settings that limit the process to one thread, so that one of two cores is left to the clicks.
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
START = "from partwise.apps.studio.background import serve; serve()"


class LatestJob:
    """A job that runs in a thread; requests that come meanwhile make it run once more."""

    def __init__(self, job: Callable[[], None]) -> None:
        self._job = job
        self._lock = threading.Condition()
        self._requested = self.busy = False

    def request(self) -> None:
        with self._lock:
            self._requested = True
            if not self.busy:
                self.busy = True
                threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            while self._is_requested():
                self._job()
        except Exception:
            with self._lock:
                self._end()
            raise

    def _is_requested(self) -> bool:
        with self._lock:
            requested, self._requested = self._requested, False
            if not requested:
                self._end()
            return requested

    def _end(self) -> None:
        self.busy = False
        self._lock.notify_all()

    def wait(self) -> None:
        with self._lock:
            self._lock.wait_for(lambda: not self.busy)


class ReviewProcess:
    """A process for cross-validation, since a thread would compete with clicks for the interpreter.

    It reads graph and part weights from their file, computes on one thread at low priority, and
    ends with the process that started it, whose end closes the pipe.
    """

    def __init__(self, path: Path) -> None:
        python_path = os.pathsep.join(filter(None, sys.path))
        settings = {**dict.fromkeys(THREADS, "1"), "PYTHONPATH": python_path}
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | settings,
        )

    def review(
        self,
        edition: int,
        labels: Mapping[int, str],
        history: list[reviews.Point],
        random: Sequence[int] = (),
    ) -> reviews.Reviewed:
        """Return the result of `reviews.review`; OSError or EOFError if the process is gone."""
        assert self._process.stdin is not None and self._process.stdout is not None
        pickle.dump((edition, dict(labels), history, list(random)), self._process.stdin)
        self._process.stdin.flush()
        result: reviews.Reviewed = pickle.load(self._process.stdout)
        return result

    def kill(self) -> None:
        """End the process at any moment; it holds nothing that exists only there."""
        self._process.kill()

    def close(self) -> None:
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # unsent content
                pipe.close()


def serve() -> None:
    """Answer requests from the standard input until it ends."""
    from partwise import load

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this one
    if hasattr(os, "nice"):
        os.nice(10)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints of libraries must not get into the answers
    model, loaded = None, None
    while True:
        try:
            edition, labels, history, random = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if model is None or edition != loaded:
            model, loaded = load(sys.argv[1]), edition
        pickle.dump(reviews.review(model, labels, history, random), answers)
        answers.flush()
