"""Background work of the studio: jobs in threads, and a cross-validation process."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from partwise.apps.studio import reviews

#: Environment variables that limit the process to one thread. The other cores stay free for clicks.
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
START = "from partwise.apps.studio.background import serve; serve()"


class LatestJob:
    """Job that runs in a thread, and runs again if it was requested meanwhile."""

    def __init__(self, job: Callable[[], None]) -> None:
        self._job, self._pool, self._lock = job, ThreadPoolExecutor(1), threading.Lock()
        self._last: Future[None] | None = None

    @property
    def busy(self) -> bool:
        """True if the job is running or will run."""
        return self._last is not None and not self._last.done()

    def request(self) -> None:
        """Start the job, or run it once more after its current run."""
        with self._lock:
            if self._last is None or self._last.running() or self._last.done():
                self._last = self._pool.submit(self._job)
                self._last.add_done_callback(Future.result)  # this reports an error of the job

    def wait(self) -> None:
        """Wait until the job is not running."""
        while self._last is not None and not self._last.done():
            wait([self._last])


class ReviewProcess:
    """Process that evaluates predictions by cross-validation.

    A thread would compete with clicks for the Python interpreter. The process reads the graph and
    the part weights from their file, and computes with one thread at low priority. It ends with the
    studio's process, because the pipe between them is then closed.
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
        """Return the result of `reviews.review`, computed in the process.

        Raise OSError or EOFError if the process has ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        pickle.dump((edition, dict(labels), history, list(random)), self._process.stdin)
        self._process.stdin.flush()
        result: reviews.Reviewed = pickle.load(self._process.stdout)
        return result

    def kill(self) -> None:
        """End the process at any time; no data is lost, because it stores nothing."""
        self._process.kill()

    def close(self) -> None:
        """End the process and close the pipes."""
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # the pipe may contain unsent data
                pipe.close()


def serve() -> None:
    """Answer review requests from standard input until it is closed."""
    from partwise import load

    # Ctrl-C is handled by the parent process, which ends this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(10)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output that libraries print must not mix with the answers
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
