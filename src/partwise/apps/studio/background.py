"""Work beside the clicks: the newest job in a thread, and reviews in a process that gives way."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from partwise.apps.studio import reviews

#: Threads of the process: one, so that two cores leave one to the clicks.
ALONE = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
START = "from partwise.apps.studio.background import serve; serve()"


class Latest:
    """Runs a job in the background; asked again meanwhile, it runs once more, not once each."""

    def __init__(self, job: Callable[[], None]) -> None:
        self._job = job
        self._lock = threading.Condition()
        self._wanted = self.busy = False

    def ask(self) -> None:
        with self._lock:
            self._wanted = True
            if not self.busy:
                self.busy = True
                threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._wanted:
                    self.busy = False
                    self._lock.notify_all()
                    return
                self._wanted = False
            try:
                self._job()
            except Exception:
                with self._lock:
                    self.busy = False
                    self._lock.notify_all()
                raise

    def wait(self) -> None:
        with self._lock:
            self._lock.wait_for(lambda: not self.busy)


class Helper:
    """A process that reviews: a thread would take turns with the clicks at the interpreter's lock.

    It reads the codes from their file, computes on one thread at a low priority, and ends with the
    process that started it, whose end closes the pipe.
    """

    def __init__(self, codes: Path) -> None:
        here = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, str(codes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | dict.fromkeys(ALONE, "1") | here,
        )

    def review(
        self, edition: int, labels: Mapping[int, str], history: list[reviews.Point]
    ) -> reviews.Reviewed:
        """`reviews.found` there; OSError or EOFError where the process is gone."""
        assert self._process.stdin is not None and self._process.stdout is not None
        pickle.dump((edition, dict(labels), history), self._process.stdin)
        self._process.stdin.flush()
        found: reviews.Reviewed = pickle.load(self._process.stdout)
        return found

    def kill(self) -> None:
        """At any moment: it holds nothing that is not elsewhere."""
        self._process.kill()

    def close(self) -> None:
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # what could not be sent any more
                pipe.close()


def serve() -> None:
    """The process: requests come on its standard input, until that ends."""
    from partwise import load

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the other's, who then ends this one
    if hasattr(os, "nice"):
        os.nice(10)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    model, mine = None, None
    while True:
        try:
            edition, labels, history = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if model is None or edition != mine:
            model, mine = load(sys.argv[1]), edition
        pickle.dump(reviews.found(model, labels, history), answers)
        answers.flush()
