"""Who runs the blocks of a Dask array: Dask's threads, or the workers of a `distributed` client."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import dask
import dask.system
import numpy as np

from partwise.backends.dask.row_blocks import RowLayout, run_block

SCATTER = 10_000  # bytes of constants above which they travel once a worker and not once a task

LOST = (
    "a Dask worker was lost, and with it the rows of V that lay there; start the fit again. An "
    "estimator with a checkpoint parameter goes on from the last checkpoint in that folder."
)


class Threads:
    """Blocks run by Dask's local scheduler; values are plain arrays here."""

    threads = dask.system.CPU_COUNT
    keeps = False  # blocks of X

    def keep(self, calls: list[Any]) -> list[Any]:
        return calls  # chunks are made again for each pass

    def run(
        self,
        layout: RowLayout,
        job: Any,
        constants: list[Any],
        inputs: Any,
        kept: int,
        combine: Any,
    ) -> tuple[Any, list[Any]]:
        task = dask.delayed(run_block, pure=False, traverse=False)
        job, constants = dask.delayed(job, traverse=False), dask.delayed(constants, traverse=False)
        results = dask.compute(*[task(job, constants, list(block)) for block in inputs])
        made = zip(*(values for _, values in results), strict=True)
        return combine([share for share, _ in results]), [(list(values), None) for values in made]

    def fetch(self, handles: list[Any]) -> list[Any]:
        return list(dask.compute(*handles))

    def place(self, values: list[Any], first: int) -> list[Any]:
        return values

    def secure(self, handles: list[Any]) -> None:
        pass


class Workers:
    """Blocks run by a `distributed` client, each where its block of X lies.

    ``moved`` counts the bytes sent to and from the workers by the rounds since it was last reset.
    """

    keeps = True

    def __init__(self, client: Any) -> None:
        self.client = client
        self.homes: list[str] = []
        self.threads = max(1, sum(client.nthreads().values()))
        self.moved = {"out": 0, "back": 0, "rounds": 0}

    def _guard(self, action: Any) -> Any:
        from distributed import CancelledError, KilledWorker

        try:
            return action()
        except (KilledWorker, CancelledError, OSError, TimeoutError) as error:
            raise RuntimeError(LOST) from error

    def _gather(self, futures: list[Any]) -> Any:
        """Results; a worker that is gone is noticed while waiting: its rows may not return."""
        from distributed import wait

        while True:
            try:
                self._guard_wait(wait, futures)
                break
            except TimeoutError:
                if not set(self.homes) <= set(self.client.nthreads()):
                    raise RuntimeError(LOST) from None
        return self._guard(lambda: self.client.gather(futures))

    @staticmethod
    def _guard_wait(wait: Any, futures: list[Any]) -> None:
        from distributed import CancelledError

        try:
            wait(futures, timeout=2)
        except CancelledError as error:
            raise RuntimeError(LOST) from error

    def keep(self, calls: list[Any]) -> list[Any]:
        from distributed import wait

        futures: list[Any] = self.client.compute(calls)
        self._guard(lambda: wait(futures))
        for future in futures:  # a chunk that cannot be made says why
            if future.status == "error":
                future.result()
        where = self.client.who_has(futures)
        self.homes = [next(iter(where[f.key]), "") for f in futures]
        if not all(self.homes):
            raise RuntimeError("a Dask worker was lost while X was loaded; start the fit again.")
        return futures

    def _home(self, layout: RowLayout, block: int) -> dict[str, Any]:
        at = block - layout.first
        home = self.homes[at if at >= 0 else 0]
        return {"workers": [home], "allow_other_workers": True, "pure": False}

    def run(self, *args: Any) -> Any:
        return self._guard(lambda: self._run(*args))

    def _run(
        self,
        layout: RowLayout,
        job: Any,
        constants: list[Any],
        inputs: Any,
        kept: int,
        combine: Any,
    ) -> tuple[Any, list[Any]]:
        client = self.client
        size = sum(a.nbytes for a in constants if isinstance(a, np.ndarray))
        workers = sorted(set(self.homes))
        if size > SCATTER:
            # to one, from which the others fetch it: a broadcast to a worker that is gone never
            # ends, and while it lasts the scheduler begins no other
            sent = client.scatter([constants], hash=False, workers=workers[:1])[0]
            self.moved["out"] += size * len(workers)
        else:
            sent = constants
            self.moved["out"] += size * len(inputs)
        results = [
            client.submit(run_block, job, sent, block, **self._home(layout, b))
            for b, block in enumerate(inputs)
        ]
        groups: dict[str, list[Any]] = {}
        for b, result in enumerate(results):
            groups.setdefault(self._home(layout, b)["workers"][0], []).append(result)
        partial = [
            client.submit(
                _combine, combine, group, pure=False, workers=[w], allow_other_workers=True
            )
            for w, group in groups.items()
        ]
        # the shares may go while the values live: one task for each block, however many values
        values = [
            client.submit(_kept, result, **self._home(layout, b))
            for b, result in enumerate(results if kept else ())
        ]
        shares = self._gather(partial)
        self.moved["back"] += sum(np.asarray(share).nbytes for share in shares)
        self.moved["rounds"] += 1
        return combine(shares), [(values, j) for j in range(kept)]

    def pick(self, layout: RowLayout, handles: list[Any], j: int) -> list[Any]:
        """One of the values that each handle holds, as a handle of its own."""
        submit = self.client.submit
        return [submit(itemgetter(j), h, **self._home(layout, b)) for b, h in enumerate(handles)]

    def fetch(self, handles: list[Any]) -> Any:
        return self._gather(handles)

    def secure(self, handles: list[Any]) -> None:
        """Have each value on two workers: one may be lost."""
        if len(set(self.homes)) > 1:
            self._guard(lambda: self.client.replicate(handles, n=2))

    def place(self, values: list[Any], first: int) -> Any:
        return self._guard(lambda: self._place(values, first))

    def _place(self, values: list[Any], first: int) -> list[Any]:
        futures = []
        for b, value in enumerate(values):
            home = self.homes[max(0, b - first)]
            futures.append(self.client.scatter([value], workers=[home], hash=False)[0])
        return futures


def _combine(combine: Any, results: list[Any]) -> Any:
    return combine([share for share, _ in results])


def _kept(result: Any) -> Any:
    return result[1]


def current_client() -> Any:
    """The active `distributed` client, if there is one."""
    try:
        from distributed import default_client
    except ImportError:
        return None
    try:
        return default_client()
    except ValueError:
        return None
