"""Tests that a fit restores the state of its process, and of its cache of compiled code."""

import importlib.util
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import partwise
from methods import make_problem
from partwise.backends.threads import blas_threads

q = make_problem(0, n=60, p=40)


def blas():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_threads_that_leave_in_another_order_restore_blas():
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas()
        first, second = blas_threads(1.0), blas_threads(1.0)
        first.__enter__()
        second.__enter__()
        assert set(blas()) == {1}
        first.__exit__(None, None, None)
        assert set(blas()) == {1}, "the second is still inside"
        second.__exit__(None, None, None)
        assert blas() == before


def test_fits_in_threads_leave_blas_as_it_was():
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas()
        with ThreadPoolExecutor(4) as pool:
            list(
                pool.map(
                    lambda seed: partwise.NMF(3, random_state=seed, max_iter=5, tol=0).fit(q.X),
                    range(16),
                )
            )
        assert blas() == before


def test_a_limit_is_lifted_when_the_work_fails():
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas()
        with pytest.raises(ZeroDivisionError), blas_threads(1.0):
            raise ZeroDivisionError
        assert blas() == before


FIT = """
import sys, numpy as np, warnings
warnings.simplefilter("error")
warnings.filterwarnings("always", message="compiled code cannot be cached")
import partwise
from partwise.knowledge.graph._compiled import kernels
X = np.random.default_rng(0).random((30, 20))
# A kernel decides on its creation whether it is cached, so the test need not compile it, which
# would take seconds.
import partwise.backends.numpy.kernels.pivot
partwise.NMF(2, solver="mu", max_iter=3, tol=0, random_state=0).fit(X)
kernels()
print(partwise.__file__)
"""


@pytest.mark.skipif(os.name == "nt", reason="the test makes folders unwritable as on Unix")
def test_fits_where_nothing_can_be_written(tmp_path):
    """Check fits, which give one warning if neither the package folder nor HOME is writable."""
    package = tmp_path / "site" / "partwise"
    shutil.copytree(
        Path(partwise.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").touch()
    home = tmp_path / "home"
    home.touch()
    env = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    env |= {"HOME": str(home), "PYTHONPATH": str(package.parent), "MPLCONFIGDIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", FIT], env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == str(package / "__init__.py")
    assert run.stderr.count("compiled code cannot be cached") == 1
    assert "NUMBA_CACHE_DIR" in run.stderr


def test_the_cache_is_used_where_there_is_one():
    from partwise.backends.numpy.kernels import _options

    assert _options.OPTIONS["cache"] is True or not os.access(
        Path(_options.__file__).parent, os.W_OK
    )


@pytest.mark.parametrize("kind", ("nbi", "nbc"))
@pytest.mark.parametrize("left", (0, 20, 0.5, -1), ids=("empty", "20 bytes", "half", "other bytes"))
def test_broken_cache_files_are_compiled_again(kind, left, tmp_path):
    """Check that a damaged cache file is compiled again once, and that later processes load it."""
    path = tmp_path / "kernel.py"
    path.write_text(
        "from partwise.backends.numpy.kernels._options import OPTIONS, compiled\n"
        "@compiled(**OPTIONS | {'cache': True})\n"
        "def twice(x):\n"
        "    return 2 * x\n"
    )

    def hits():
        spec = importlib.util.spec_from_file_location("kernel", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)  # the module is loaded again, as in a new process
        assert module.twice(3.0) == 6.0
        return sum(module.twice.stats.cache_hits.values())

    assert (hits(), hits()) == (0, 1)
    (file,) = (tmp_path / "__pycache__").glob(f"*.{kind}")
    kept = file.read_bytes()
    size = int(left * len(kept)) if 0 < left < 1 else left
    file.write_bytes(bytes(len(kept)) if left < 0 else kept[:size])
    assert (hits(), hits()) == (0, 1)


def test_kernels_call_nothing_that_is_compiled_twice():
    """Check that compiled kernels call only functions that are inlined into them.

    A function that is not inlined could be compiled differently with and without a cache, so
    results would differ.
    """
    from numba.core.dispatcher import Dispatcher

    from partwise.backends.numpy.kernels import (
        divergence,
        hals,
        pivot,
        products,
        sampled,
        symmetric_sweep,
    )

    called = 0
    for module in (divergence, hals, pivot, products, symmetric_sweep, sampled):
        compiled = {k: f for k, f in vars(module).items() if isinstance(f, Dispatcher)}
        for kernel in compiled.values():
            for name in compiled.keys() & set(kernel.py_func.__code__.co_names):
                assert compiled[name].targetoptions.get("forceinline"), f"{module}: {name}"
                called += 1
    assert called > 10


@pytest.mark.long
def test_the_first_fit_and_the_second_have_the_same_digits(tmp_path):
    fit = """
import numpy as np, scipy.sparse as sp, partwise
X = np.random.default_rng(0).gamma(0.5, 1, (60, 40))
for X in (X, sp.csr_array(X * (X > 1))):
    for options in ({"n_init": 3}, {"beta_loss": "kullback-leibler", "solver": "auto"}):
        model = partwise.NMF(4, init="random", random_state=0, tol=0, max_iter=30, **options)
        print(model.fit_transform(X).tobytes().hex())
"""
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run([sys.executable, "-c", fit], env=env, capture_output=True, text=True)
        for _ in range(2)
    ]
    assert runs[0].stdout and runs[0].stdout == runs[1].stdout


FIRST = """
import warnings
import numpy as np
import partwise
from numba.core import event
compiled, inside = [], []
class Listener(event.Listener):
    def on_start(self, began):
        if not inside:
            compiled.append(began.data["dispatcher"].py_func.__name__)
        inside.append(began)
    def on_end(self, ended):
        inside.pop()
event.register("numba:compile", Listener())
warnings.simplefilter("ignore")
X = np.random.default_rng(0).random((200, 64))
partwise.{model}.fit(X)
print(*compiled)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "kernels"),
    [
        ("NMF(5, random_state=0, tol=1e-3)", "_half_steps _hals_blocks"),
        ("NMF(5, random_state=0, beta_loss='kullback-leibler')", "_newton_dense"),
        ("GNMF(5, random_state=0)", "laplacian _hals_graph _hals_blocks"),
    ],
)
def test_a_first_fit_compiles_no_more_than_it_needs(tmp_path, model, kernels):
    """Check which kernels the first fit of a new user compiles, at 0.1 to 0.8 seconds each.

    The fit runs with one thread; several threads need one more kernel.
    """
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", FIRST.replace("{model}", model)]
    run = subprocess.run(command, env=env, capture_output=True, text=True)
    assert run.stdout.split() == kernels.split(), run.stderr
