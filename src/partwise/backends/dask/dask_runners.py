"""Runners of the blocks of a Dask array: Dask's threads, or workers of a `distributed` client."""

from __future__ import annotations

import warnings
from operator import itemgetter
from typing import Any

import dask
import dask.system
import numpy as np

from partwise.backends.dask.row_blocks import Recipe, RowLayout, run_block
from partwise.backends.memory import in_units

#: Bytes of constants above which they are sent once per worker instead of once per task.
SCATTER = 10_000
#: Share of a worker's memory above which Dask writes values to disk, unless it is configured.
SPILL = 0.7
#: Copies of a chunk of X that a task holds while it computes and uses the chunk.
CHUNKS = 5
#: Copies of the part weights that a worker holds at the peak of an iteration.
COPIES = 6

LOST = (
    "a Dask worker was lost, and with it the rows of V that lay there; start the fit again. An "
    "estimator with a checkpoint parameter goes on from the last checkpoint in that folder."
)
#: Results of a task count as large if its constants have at least LARGE bytes. A worker sums its
#: results after MANY small or FEW large ones.
LARGE, MANY, FEW = 2**20, 32, 4
#: Seconds after which a fit ends if no worker runs tasks.
PATIENCE = 60
FULL = (
    f"all Dask workers have been paused for {PATIENCE} seconds, since their memory is full. Use "
    "workers with more memory, fewer rows per chunk, or fewer parts."
)


class Threads:
    """Blocks run by Dask's local scheduler; values are plain arrays of this process."""

    threads = dask.system.CPU_COUNT
    keeps = False  # each pass computes the blocks of X again
    short = False  # whether the workers lack memory for X

    def plan(self, X: Any, row_bytes: float) -> None:
        """Do nothing; only a cluster needs a plan of which blocks stay in memory."""

    def keep(self, calls: list[Any]) -> list[Any]:
        return calls

    def check_room(self, n: int, row_bytes: int) -> None:
        """Do nothing; only the workers of a cluster have a memory limit to check."""

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
    """Blocks run by a `distributed` client, each on the worker that holds its block of X.

    If X is larger than the free memory of the workers, they are ``short`` of memory, and each pass
    computes the blocks again. ``moved`` counts bytes sent to and from the workers, and passes.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.short = False
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
        """Return results; raise if a worker was lost, or if all workers stay paused."""
        from distributed import CancelledError, wait

        paused = 0
        while True:
            try:
                wait(futures, timeout=2)
                break
            except CancelledError as error:
                raise RuntimeError(LOST) from error
            except TimeoutError:
                status = self.client.run_on_scheduler(_status)
                if not set(self.homes) <= set(status):
                    raise RuntimeError(LOST) from None
                paused = paused + 2 if set(status.values()) == {"paused"} else 0
                if paused >= PATIENCE:
                    raise RuntimeError(FULL) from None
        return self._guard(lambda: self.client.gather(futures))

    def room(self) -> dict[str, float]:
        """Return the bytes that each worker can store before Dask writes values to disk."""
        share = dask.config.get("distributed.worker.memory.spill", SPILL) or SPILL
        memory = self._guard(lambda: self.client.run(_memory))
        return {w: share * limit - used for w, (limit, used) in memory.items()}

    def check_room(self, n: int, row_bytes: int) -> None:
        """Raise if the workers cannot hold the part weights of n samples."""
        need, room = COPIES * n * row_bytes, sum(self.room().values())
        if need > room:
            raise ValueError(
                f"the part weights of {n:,} samples need about {in_units(need)} on the workers, "
                f"which have {in_units(room)} left; use more workers, fewer parts or float32."
            )

    @property
    def keeps(self) -> bool:
        return not self.short

    def plan(self, X: Any, row_bytes: float) -> None:
        """Decide whether the workers keep X, and raise if they cannot hold one chunk of it."""
        from distributed import futures_of

        if futures_of(X):  # X is already in the memory of the workers
            return
        room, threads = self.room(), self.client.nthreads()
        largest, need = row_bytes * max(X.chunks[0]), row_bytes * X.shape[0]
        self.short = need > sum(room.values())
        if self.short:
            at_once = min(left / threads.get(w, 1) for w, left in room.items())
            sizes = (
                f"X takes {in_units(need)} and the {len(room)} workers have "
                f"{in_units(sum(room.values()))} left"
            )
            if CHUNKS * largest > at_once:
                raise ValueError(
                    f"{sizes}. Each pass would compute the chunks again, but {CHUNKS} copies of a "
                    f"chunk of {in_units(largest)} are more than the {in_units(at_once)} that a "
                    "thread has. Rechunk X to fewer rows per chunk, or use more memory."
                )
            warnings.warn(
                f"{sizes}, so each pass over X computes its chunks again. With more memory, "
                "workers compute them once.",
                stacklevel=2,
            )
            self.homes = sorted(room)

    def keep(self, calls: list[Any]) -> list[Any]:
        """Load the blocks of X; if memory is short, return how to compute each of them."""
        from distributed import wait

        if self.short:
            workers = self.homes
            self.homes = [workers[b * len(workers) // len(calls)] for b in range(len(calls))]
            return [Recipe(dask.optimize(call)[0]) for call in calls]
        futures: list[Any] = self.client.compute(calls)
        self._guard(lambda: wait(futures))
        for future in futures:  # raises the error of a chunk that cannot be computed
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
            # The constants are sent to one worker, and the others fetch them there. A broadcast to
            # a lost worker would never end and would block all later broadcasts.
            sent = client.scatter([constants], hash=False, workers=workers[:1])[0]
            self.moved["out"] += size * len(workers)
        else:
            sent = constants
            self.moved["out"] += size * len(inputs)
        results = [
            client.submit(run_block, job, sent, block, **self._home(layout, b))
            for b, block in enumerate(inputs)
        ]
        # One task per block keeps all values, so that the scheduler can free the results to sum.
        values = [
            client.submit(_kept, result, **self._home(layout, b))
            for b, result in enumerate(results if kept else ())
        ]
        groups: dict[str, list[Any]] = {}
        for b, result in enumerate(results):
            groups.setdefault(self._home(layout, b)["workers"][0], []).append(result)
        # Workers add results while others are computed, so that the results do not fill the memory.
        many = MANY if size < LARGE else FEW
        partial = []
        for w, group in groups.items():
            where = {"workers": [w], "allow_other_workers": True, "pure": False, "priority": 1}
            sums = [
                client.submit(_combine, combine, group[i : i + many], **where)
                for i in range(0, len(group), many)
            ]
            one = len(sums) == 1
            partial.append(sums[0] if one else client.submit(combine, sums, **where))
        del result, results, groups, group, sums
        shares = self._gather(partial)
        self.moved["back"] += sum(np.asarray(share).nbytes for share in shares)
        self.moved["rounds"] += 1
        return combine(shares), [(values, j) for j in range(kept)]

    def pick(self, layout: RowLayout, handles: list[Any], j: int) -> list[Any]:
        """Return one of the values that each handle holds, as a separate handle."""
        submit = self.client.submit
        return [submit(itemgetter(j), h, **self._home(layout, b)) for b, h in enumerate(handles)]

    def fetch(self, handles: list[Any]) -> Any:
        return self._gather(handles)

    def secure(self, handles: list[Any]) -> None:
        """Copy each value to a second worker, since a worker may be lost."""
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


def _status(dask_scheduler: Any) -> dict[str, str]:
    """Return the status of each worker, for example "running" or "paused"."""
    return {address: worker.status.name for address, worker in dask_scheduler.workers.items()}


def _memory(dask_worker: Any) -> tuple[float, float]:
    """Return the memory limit of a worker, infinite if it has none, and the bytes in use."""
    return (
        dask_worker.memory_manager.memory_limit or np.inf,
        dask_worker.monitor.get_process_memory(),
    )


def _combine(combine: Any, results: list[Any]) -> Any:
    return combine([share for share, _ in results])


def _kept(result: Any) -> Any:
    return result[1]


def current_client() -> Any:
    """Return the active `distributed` client, if there is one."""
    try:
        from distributed import default_client
    except ImportError:
        return None
    try:
        return default_client()
    except ValueError:
        return None
