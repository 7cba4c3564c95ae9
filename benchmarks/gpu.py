"""Check and time fits on one GPU; the last output is a table.

    PYTHONPATH=src python benchmarks/gpu.py --out results-folder

The script needs torch, scikit-learn, numba and scipy; Partwise need not be installed. `--small`
runs everything on small arrays, also on the CPU. A part runs even if an earlier one failed.

The floor of an iteration is the time to read X twice, once per half-step, at the bandwidth of a
copy on this device. The rest of an iteration is coordinate descent on both factors, the k x k
products, the objective, and waiting for numbers that decide the next step.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp
import torch

import partwise
from partwise.backends.arrays import to_numpy
from partwise.backends.sweeps import quadratic_change, sweep, sweep_columns, sweep_graph
from partwise.backends.torch import torch_data, triton_dispatch
from partwise.fitting import new_samples, solving

warnings.filterwarnings("ignore", message="Sparse")
LIMIT = 320.0  # seconds after which no further measurement begins
RANKS = (10, 20, 50, 100)
LONG = 60  # iterations after which the objectives in float32 and float64 are compared


class Bench:
    """Results of all measurements, and functions that measure time on the device."""

    def __init__(self, device: str, small: bool) -> None:
        self.device, self.small = device, small
        self.began = time.perf_counter()
        self.rows: list[dict[str, Any]] = []
        self.failures: list[dict[str, str]] = []
        self.copy = float("nan")
        self.X: Any = None

    def wait(self) -> float:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter()

    def seconds(self, call: Any, repeats: int = 5) -> float:
        call()
        times = []
        for _ in range(repeats):
            start = self.wait()
            call()
            times.append(self.wait() - start)
        return float(np.median(times))

    def add(
        self, part: str, case: str, value: float, unit: str, target: str = "", **more: Any
    ) -> None:
        row = {"part": part, "case": case, "value": value, "unit": unit, "target": target, **more}
        self.rows.append(row)
        print(f"  {case:44s} {value:10.4g} {unit:8s} {target}", flush=True)

    @property
    def floor(self) -> float:
        """Seconds to read X twice, which no iteration can undercut."""
        return 2 * self.X.numel() * self.X.element_size() / self.copy


@contextmanager
def without_codes() -> Iterator[None]:
    """Skip the final solve for the part weights, in fits and for new samples."""

    def as_they_are(model: Any, Z: Any, *rest: Any, **options: Any) -> tuple[Any, int]:
        return Z, 0

    with (
        mock.patch.object(solving, "solve_codes", as_they_are),
        mock.patch.object(new_samples, "solve_codes", as_they_are),
    ):
        yield


def per_iteration(bench: Bench, estimator: Any, X: Any, **given: Any) -> float:
    """Return the seconds per iteration: the cost of twelve more of them, median of three.

    The final solve for the part weights is skipped, because at tol=0 it would continue to the last
    digit.
    """
    took = []
    with without_codes():
        for _ in range(4):
            spent = []
            for rounds in (4, 16):
                begin = bench.wait()
                estimator.set_params(max_iter=rounds, tol=0, init="random", random_state=0).fit(
                    X, **given
                )
                spent.append(bench.wait() - begin)
            took.append((spent[1] - spent[0]) / 12)
    return float(np.median(took[1:]))


def objective64(X: Any, model: Any) -> float:
    """Return ½‖X - VH‖² of a fitted model in float64."""
    V, H = model.embedding_.double(), model.components_.double()
    parts = torch.split(X, 5000)
    codes = torch.split(V, 5000)
    return sum(float((part.double() - v @ H).square().sum()) for part, v in zip(parts, codes)) / 2


# -- measurements --------------------------------------------------------------------------------


def bandwidth(bench: Bench) -> None:
    size = 1 << (22 if bench.small else 30)
    a = torch.rand(size, device=bench.device)
    b = torch.empty_like(a)
    bench.copy = 2 * a.numel() * 4 / bench.seconds(lambda: b.copy_(a))
    bench.add("bandwidth", "copy, read and write", bench.copy / 1e12, "TB/s")


def check_float64(bench: Bench) -> None:
    """Compare the device with NumPy in float64: 20 iterations of "mu", 200 of "hals"."""
    rng = np.random.default_rng(0)
    X = rng.random((600, 8)) @ rng.random((8, 300)) + 0.1 * rng.random((600, 300))
    X *= rng.random(X.shape) < 0.5
    y = np.where(np.arange(600) < 60, np.arange(600) % 8, -1)
    W, H = rng.random((600, 8)) + 0.1, rng.random((8, 300)) + 0.1
    graph = ring(600)
    kl = {"beta_loss": "kullback-leibler"}
    cases: list[tuple[str, Any, dict[str, Any], dict[str, Any]]] = [
        ("NMF", partwise.NMF, {}, {}),
        ("NMF KL", partwise.NMF, kl, {}),
        ("GNMF", partwise.GNMF, {}, {"graph": graph}),
        ("CNMF", partwise.CNMF, {}, {"y": y}),
        ("CNMF KL", partwise.CNMF, kl, {"y": y}),
        ("CDNMF", partwise.CDNMF, {}, {"y": y}),
        ("NMFDC", partwise.NMFDC, {}, {"y": y}),
    ]
    for name, cls, params, given in cases:
        for solver in ("mu",) if params else ("mu", "hals"):
            # "hals" sweeps in another order on GPUs, but reaches the same minimum.
            rounds = 20 if solver == "mu" else 200
            settings = {"solver": solver, "init": "custom", "max_iter": rounds, "tol": 0, **params}
            base = cls(8, **settings).fit(X, W=W, H=H, **given)
            P = base.embedding_ @ base.components_
            for layout in ("dense", "csr"):
                for dtype in (torch.float64, torch.float32):
                    T = torch.from_numpy(X).to(bench.device, dtype)
                    T = T if layout == "dense" else T.to_sparse_csr()
                    kind = np.float64 if dtype == torch.float64 else np.float32
                    here = cls(8, **settings).fit(T, W=W.astype(kind), H=H.astype(kind), **given)
                    got = to_numpy(here.embedding_).astype(float) @ to_numpy(here.components_)
                    off = abs(here.objective_ / base.objective_ - 1)
                    limit = 1e-3 if solver == "hals" or dtype == torch.float32 else 1e-9
                    case = f"{name} {solver} {layout} {str(dtype)[6:]}: objective"
                    bench.add(
                        "check", case, off, "rel",
                        f"<= {limit:g} {'ok' if off <= limit else 'FAILED'}",
                        product=float(np.abs(got - P).max()),
                    )  # fmt: skip


def check_fused(bench: Bench) -> None:
    """Compare the fused Triton kernels for the GPU with tensor operations in float64."""
    if not bench.device.startswith("cuda"):
        bench.add("check", "fused kernels: not on this device", float("nan"), "")
        return

    def verdict(case: str, off: float, limit: float) -> None:
        word = "ok" if off <= limit else "FAILED"
        bench.add("check", case, off, "rel", f"<= {limit:g} {word}")

    kind: Any = {"device": bench.device}
    for k in (1, 3, 10, 20, 50, 100, 128):
        kind["generator"] = torch.Generator(device=bench.device).manual_seed(k)
        Z, C = torch.rand(1001, k, **kind), torch.rand(1001, k, **kind) * k
        A = torch.rand(4 * k, k, **kind)
        G, d, r = A.T @ A / k, torch.rand(1001, **kind), torch.rand(1001, **kind)
        none = torch.zeros(1, device=bench.device)
        for weights, ridge in ((None, none), (d, r)):
            args = (Z, C, G, weights, ridge.reshape(-1, 1), none.reshape(1, 1))
            got = sweep(*args, 1, 0.1, 0.0)
            wide = (a if a is None else a.double() for a in args)
            want = sweep_columns(*wide, 1, 0.1, 0.0)
            off = float((got - want).abs().max() / want.abs().max())
            verdict(f"fused sweep k={k} weights={weights is not None}", off, 1e-4)
    for k in (3, 20, 100):
        X = torch.rand(5001, 1003, **kind)
        V, U = torch.rand(5001, k, **kind) + 0.1, torch.rand(1003, k, **kind) + 0.1
        wide = torch_data.TorchData(X.double())
        data = torch_data.TorchData(X)
        pairs = zip(
            (*data.kl_dot(V, U), data.kl_tdot(V, U)),
            (*wide.kl_dot(V.double(), U.double()), wide.kl_tdot(V.double(), U.double())),
            ("V", "logarithms", "U"),
            strict=True,
        )
        for got, want, what in pairs:
            verdict(f"fused KL k={k}: {what}", float((got - want).norm() / want.norm()), 1e-5)
        for transposed in (False, True) if k <= 32 else ():
            got = data.kl_curvature(V, U, transposed)
            want = wide.kl_curvature(V.double(), U.double(), transposed)
            off = float((got[:, : want.shape[1]] - want).norm() / want.norm())
            verdict(f"fused curvature k={k} transposed={transposed}", off, 5e-3)
        got, want = data.row_sq_norms(), X.double().square().sum(dim=1)
        verdict(f"squared lengths of rows k={k}", float(((got - want) / want).abs().max()), 1e-6)
        U[:, 1] = 0
        near = V @ U.T * (1 + 1e-3 * torch.randn(5001, 1003, **kind))
        got = torch_data.TorchData(near).row_sq_residuals(V, U)
        want = (near.double() - V.double() @ U.double().T).square().sum(dim=1)
        verdict(f"residuals of a near fit k={k}", float((got.sum() / want.sum() - 1).abs()), 1e-5)
    W = sp.random_array((3001, 3001), density=0.003, format="csr", rng=0)
    parts = [torch.from_numpy(a).to(bench.device) for a in (W.indptr, W.indices, W.data)]
    W = torch_data.Csr(parts[0], parts[1], parts[2].float(), W.shape)
    double = sp.csr_array(tuple(to_numpy(a) for a in (W.values.double(), W.indices, W.indptr)))
    for k in (3, 20):
        Z = torch.rand(3001, k, **kind)
        for order in (Z, Z.t().contiguous().t()):
            got = to_numpy(data.differences(W, order)).astype(float)
            wide = to_numpy(Z).astype(float)
            want = double.sum(axis=1)[:, None] * wide - double @ wide
            verdict(f"fused Laplacian k={k}", float(abs(got - want).max() / want.max()), 1e-5)
    check_changes(bench, verdict, W, double)
    check_products(bench, verdict)
    for name in (
        "sweep",
        "graph_sweep",
        "change",
        "laplacian",
        "split_ratio_dot",
        "split_ratio_tdot",
        "dot",
        "tdot",
        "residuals",
        "curvature",
        "curvature_t",
        "damped",
    ):
        runs = triton_dispatch.fused(name, Z, 20) is not None
        bench.add("check", f"kernel {name} runs here", float(runs), "", "ok" if runs else "FAILED")


def check_changes(bench: Bench, verdict: Any, W: Any, double: Any) -> None:
    """Compare sweeps with a graph term, and the change of a quadratic objective, with float64."""
    n, weight, rounds = W.shape[0], 0.7, 4
    degrees = torch.from_numpy(double.sum(axis=1)).to(bench.device)
    for k in (3, 20, 33, 64):
        g = torch.Generator(device=bench.device).manual_seed(k)
        kind: Any = {"generator": g, "device": bench.device}
        Z, C = torch.rand(n, k, **kind), torch.rand(n, k, **kind) * k
        A, d, r = torch.rand(4 * k, k, **kind), torch.rand(n, **kind), torch.rand(n, 1, **kind)
        G = A.T @ A / k
        term = mock.Mock(edges=(W, weight), degrees=degrees.float())
        for weights in (None, d):
            got = sweep_graph(Z, C, G, weights, r, term, rounds, 0.1)
            e = r.double() + 2 * weight * degrees[:, None]
            want = Z.double()
            for _ in range(rounds):
                wide = to_numpy(want)
                slope = weight * (double.sum(axis=1)[:, None] * wide - double @ wide)
                C64 = C.double() - torch.from_numpy(slope).to(bench.device)
                d64 = None if weights is None else weights.double()
                want = sweep_columns(want, C64, G.double(), d64, r.double(), e, 1, 0.1, 0.0)
            off = float((got - want).abs().max() / want.abs().max())
            verdict(f"fused graph sweep k={k} weights={weights is not None}", off, 1e-4)
            old = torch.rand(k, n, **kind).t()
            got = float(quadratic_change(Z, old, C, G, weights))
            slope = (Z.double() + old.double()) @ (0.5 * G.double())
            slope = (slope if weights is None else slope * d.double()[:, None]) - C.double()
            share = slope * (Z.double() - old.double())
            off = abs(got - float(share.sum())) / float(share.abs().sum())
            verdict(f"fused change k={k} weights={weights is not None}", off, 1e-6)


def check_products(
    bench: Bench, verdict: Any, ranks: Sequence[int] = (1, 3, 16, 20, 50, 64, 100, 128, 200)
) -> None:
    """Compare X U and Xᵀ V with float64, for many k and sizes and for X in 16 bits."""
    g = torch.Generator(device=bench.device).manual_seed(1)
    kind = {"generator": g, "device": bench.device}
    for n, p in ((5001, 1003), (70_000, 300)):
        smooth = torch.rand(n, p, **kind) * torch.logspace(-12, 3, n, device=bench.device)[:, None]
        counts = torch.randint(0, 2048, (n, p), **kind).float()
        for what, X in (("float32", smooth), ("counts", counts)):
            data = torch_data.TorchData(X)
            for k in ranks:
                size = torch.logspace(-6, 6, k, device=bench.device)
                U, V = torch.rand(p, k, **kind) * size, torch.rand(n, k, **kind) * size
                if k > 1:  # a component of zeros
                    U[:, 1] = V[:, 1] = 0
                for name, got, want in (
                    ("X U", data.dot(U), X.double() @ U.double()),
                    ("Xᵀ V", data.tdot(V), X.double().t() @ V.double()),
                ):
                    off = float(
                        ((got - want).norm(dim=0) / want.norm(dim=0).clamp(min=1e-30)).max()
                    )
                    verdict(f"{name} {n} x {p} {what} k={k}", off, 2e-6)
            check_summed(verdict, f"{n} x {p} {what}", data, ranks)


def check_summed(verdict: Any, what: str, data: Any, ranks: Sequence[int]) -> None:
    """Compare sums of labelled rows, which come first or lie among the other rows."""
    n, p = data.shape
    for where, labelled in (("first", np.arange(n) < n // 10), ("among", np.arange(n) % 9 == 0)):
        index = np.where(labelled, np.arange(n) % 7, 6 + np.cumsum(~labelled))
        n_rows = int(index.max()) + 1
        R, whole = data.weighted(None, index, n_rows), data.X.new_zeros((n_rows, p)).double()
        whole.index_add_(0, data.rows(index), data.X.double())
        for k in ranks:
            U, V = (data.rows(torch.rand(m, k, device=data.X.device)) for m in (p, n_rows))
            R.expect("tdot", V)
            for name, got, want in (
                ("Rᵀ V", R.tdot(V), whole.t() @ V.double()),
                ("R U", R.dot(U), whole @ U.double()),
            ):
                off = float((got - want).norm() / want.norm())
                verdict(f"{name} {what} k={k}, summed rows {where}", off, 2e-6)


def make_dense(bench: Bench) -> None:
    n, p = (4000, 300) if bench.small else (200_000, 10_000)
    g = torch.Generator(device=bench.device).manual_seed(0)
    kind = {"generator": g, "device": bench.device}
    X = torch.rand(n, 30, **kind) ** 4 @ (torch.rand(30, p, **kind) ** 4)
    for lo in range(0, n, 10_000):
        X[lo : lo + 10_000] += 0.05 * torch.rand(X[lo : lo + 10_000].shape, **kind)
    bench.X = X
    bench.add("dense", f"{n} x {p} float32: reading X twice", 1e3 * bench.floor, "ms")


def widths(bench: Bench) -> None:
    """Time X U and Xᵀ V by the number of columns, in torch and in Partwise."""
    X = bench.X
    read = X.numel() * 4
    data = torch_data.TorchData(X)
    exact = torch_data.TorchData((X * 1000).round_().clamp_(max=2047))
    for k in (8, 10, 16, 20, 32, 50, 64, 100, 128):
        U, V = (torch.rand(m, k, device=bench.device) for m in (X.shape[1], X.shape[0]))
        for word, calls in (
            ("torch", (partial(X.__matmul__, U), partial(X.T.__matmul__, V))),
            ("float32", (partial(data.dot, U), partial(data.tdot, V))),
            ("16 bits", (partial(exact.dot, U), partial(exact.tdot, V))),
        ):
            one, two = (bench.seconds(call, 3) for call in calls)
            floor = 0.5 * bench.floor
            bench.add("width", f"k={k} {word}: X U, Xᵀ V", read / one / 1e12, "TB/s",
                      f"{one / floor:.2f}x, {two / floor:.2f}x a reading")  # fmt: skip


GOALS = {10: 1.4, 20: 1.4, 50: 2.0, 100: 3.0}


def nmf(bench: Bench) -> None:
    """Measure iterations in float32 and with X in 16 bits, and compare objectives with float64."""
    counts = (bench.X * 100).round_().clamp_(max=2047)
    for word, X in (("float32", bench.X), ("16 bits", counts)):
        for k in RANKS:
            seconds = per_iteration(bench, partwise.NMF(k), X)
            ratio, goal = seconds / bench.floor, GOALS[k] if word == "float32" else 0.7
            said = f"{ratio:.2f}x floor (<= {goal:g} {'ok' if ratio <= goal else 'MISSED'})"
            bench.add("nmf", f"NMF k={k} {word} iteration", 1e3 * seconds, "ms", said)
    part = bench.X[: 2000 if bench.small else 20_000]
    for k in RANKS:
        narrow, wide = (
            partwise.NMF(k, max_iter=LONG, tol=0, init="random", random_state=0).fit(X)
            for X in (part, part.double())
        )
        off = objective64(part, narrow) / objective64(part, wide) - 1
        bench.add("nmf", f"NMF k={k} objective after {LONG}, against float64", off, "rel",
                  "ok" if off <= 1e-4 else "MISSED")  # fmt: skip


def second_order(bench: Bench) -> None:
    """Time second-order KL steps until they reach the objective of 300 multiplicative ones.

    The final solve for the part weights is skipped, as in `per_iteration`.
    """
    X = bench.X
    for k in (10, 20, 32):
        rng, size = np.random.default_rng(1), float(X.mean() / k) ** 0.5
        start = {
            name: (2 * size * rng.random(shape)).astype(np.float32)
            for name, shape in (("W", (X.shape[0], k)), ("H", (k, X.shape[1])))
        }

        def fit(solver: str, rounds: int, k: int = k, start: Any = start) -> tuple[float, Any]:
            model = partwise.NMF(k, solver=solver, max_iter=rounds, init="custom", tol=0,
                                 beta_loss="kullback-leibler")  # fmt: skip
            with without_codes():
                begin = bench.wait()
                model.fit(X, **start)
                return bench.wait() - begin, model

        fit("mu", 2), fit("newton", 5)  # these fits compile the kernels
        slow, model = fit("mu", 300)
        goal = model.objective_history_[-1]
        history = fit("newton", 60)[1].objective_history_
        rounds = next((i + 1 for i, value in enumerate(history) if value <= goal), 0)
        took = fit("newton", rounds)[0] if rounds else float("nan")
        said = f"{slow / took:.1f}x sooner than mu, {rounds} iterations of 300"
        said += f" (>= 5 {'ok' if slow >= 5 * took else 'MISSED'})"
        bench.add("second order", f"NMF KL k={k} to 300 iterations of mu", took, "s", said)


def ring(n: int) -> sp.csr_array:
    """Return a graph that connects each sample with the two samples on either side."""
    i = np.arange(n)
    rows = np.concatenate([i] * 4)
    columns = np.concatenate([(i + s) % n for s in (-2, -1, 1, 2)])
    return sp.csr_array((np.ones(4 * n), (rows, columns)), shape=(n, n))


def others(bench: Bench) -> None:
    """Compare the time of each method with NMF at the same k, in float32 and 16 bits."""
    X, n = bench.X, bench.X.shape[0]
    y = np.where(np.arange(n) < n // 10, np.arange(n) % 10, -1)
    kl = {"beta_loss": "kullback-leibler"}
    ranks = (20, 100) if not bench.small else (20,)
    for k in ranks:
        base = per_iteration(bench, partwise.NMF(k), X)
        cases: list[tuple[str, Any, dict[str, Any], float]] = [
            ("GNMF", partwise.GNMF(k), {"graph": ring(n)}, 1.2),
            ("CNMF", partwise.CNMF(k), {"y": y}, 1.2),
            ("cdNMF", partwise.CDNMF(k), {"y": y}, 1.2),
            ("NMF-DC", partwise.NMFDC(k), {"y": y}, 1.2),
            ("NMF KL, mu", partwise.NMF(k, solver="mu", **kl), {}, 3.0),
        ]
        for name, est, given, limit in cases:
            seconds = per_iteration(bench, est, X, **given)
            word = "ok" if seconds <= limit * base else "MISSED"
            bench.add("others", f"{name} k={k} iteration", 1e3 * seconds, "ms",
                      f"{seconds / base:.2f}x NMF (<= {limit:g} {word})")  # fmt: skip
    counts = (X * 100).round_().clamp_(max=2047)
    for k in ranks:
        base = per_iteration(bench, partwise.NMF(k), counts)
        for name, est in (("CNMF", partwise.CNMF(k)), ("NMF-DC", partwise.NMFDC(k))):
            seconds = per_iteration(bench, est, counts, y=y)
            word = "ok" if seconds <= 1.2 * base else "MISSED"
            bench.add("others", f"{name} k={k} 16 bits iteration", 1e3 * seconds, "ms",
                      f"{seconds / base:.2f}x NMF (<= 1.2 {word})")  # fmt: skip


def profile(bench: Bench) -> None:
    """Time each step of an iteration of NMF separately, on the GPU."""
    data = torch_data.TorchData(bench.X)
    none = torch.zeros((1, 1), device=bench.device)
    for k in (20, 100):
        V, U = (torch.rand(m, k, device=bench.device) for m in bench.X.shape)
        V, U = data.rows(V), data.rows(U)
        for side, Z, B, call in (("V", V, U, data.dot), ("U", U, V, data.tdot)):
            C, G = call(B), B.T @ B
            times = data.sweeps(B.shape[0], k)
            bench.add("profile", f"k={k} {side}: product with X",
                      1e3 * bench.seconds(partial(call, B)), "ms")  # fmt: skip
            moving = partial(sweep, Z, C, G, None, none, none, times, 0.1, 0.0)
            spent = 1e3 * bench.seconds(moving)
            bench.add("profile", f"k={k} {side}: at most {times} sweeps", spent, "ms")


def sparse(bench: Bench) -> None:
    n, p, nnz, k = (2000, 300, 60_000, 20) if bench.small else (40_000, 5_000, 33_000_000, 20)
    bench.X = None
    g = torch.Generator(device=bench.device).manual_seed(0)
    X = torch.rand(n, p, generator=g, device=bench.device)
    X = torch.where(
        X < nnz / (n * p), X + 0.1, torch.zeros((), device=bench.device)
    ).to_sparse_csr()
    for solver in ("hals", "mu"):
        est = partwise.NMF(k, solver=solver, max_iter=20, tol=0, init="random", random_state=0)
        seconds = bench.seconds(lambda: est.fit(X), 3)  # noqa: B023
        word = "ok" if seconds < 0.4 else "MISSED"
        bench.add(
            "sparse", f"{solver}, a whole fit of 20 iterations", seconds, "s", f"< 0.4 {word}"
        )
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    with record(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        est.fit(X)
    print(found.key_averages().table(sort_by="cpu_time_total", row_limit=14))


PARTS = [
    bandwidth,
    check_fused,
    check_float64,
    make_dense,
    widths,
    nmf,
    second_order,
    others,
    profile,
    sparse,
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=None, help="folder for gpu.json")
    parser.add_argument("--small", action="store_true", help="small arrays, on any device")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="*", default=[], help="parts, by name; none: all of them")
    args = parser.parse_args()
    if args.device == "cpu" and not args.small:
        parser.error("no GPU here; --small runs on the CPU")
    bench = Bench(args.device, args.small)
    name = torch.cuda.get_device_name() if args.device.startswith("cuda") else platform.processor()
    machine = {"device": name, "torch": torch.__version__, "python": platform.python_version()}
    for part in [part for part in PARTS if not args.only or part.__name__ in args.only]:
        spent = time.perf_counter() - bench.began
        print(f"{part.__name__} (at {spent:.0f} s)", flush=True)
        if spent > LIMIT:
            bench.failures.append({"part": part.__name__, "error": "not begun: out of time"})
            continue
        try:
            part(bench)
        except Exception:
            bench.failures.append({"part": part.__name__, "error": traceback.format_exc()})
            print(traceback.format_exc(), flush=True)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        report = {"machine": machine, "rows": bench.rows, "failures": bench.failures}
        (args.out / "gpu.json").write_text(json.dumps(report, indent=1) + "\n")
    print("\n" + ", ".join(f"{key}: {value}" for key, value in machine.items()))
    for row in bench.rows:
        line = f"{row['part']:10s} {row['case']:55s} {row['value']:10.4g} {row['unit']:5s}"
        print(line, row["target"])
    for failure in bench.failures:
        print(f"FAILED {failure['part']}: {failure['error'].strip().splitlines()[-1]}")


if __name__ == "__main__":
    main()
