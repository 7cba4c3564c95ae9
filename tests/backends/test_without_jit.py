"""Tests that fits work with NUMBA_DISABLE_JIT=1, which runs every kernel as Python code."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import partwise

KL = "kullback-leibler"


def parts_of_quick_fits():
    """Return the parts that some estimators find in small dense and sparse data."""
    rng = np.random.default_rng(0)
    X = rng.random((40, 12))
    y = np.where(np.arange(40) % 3 == 0, np.arange(40) % 2, -1)
    found = {}
    for kind, data in (("dense", X), ("sparse", sp.csr_array(X * (X > 0.5)))):
        options = {"max_iter": 5, "random_state": 0}
        for model in (
            partwise.NMF(3, **options),
            partwise.NMF(3, beta_loss=KL, **options),
            partwise.GNMF(3, n_neighbors=3, **options),
            partwise.PartsClassifier(n_folds=2, **options),
        ):
            model.fit(data, *([y] if hasattr(model, "predict") else []))
            found[f"{kind} {model}"] = np.ravel(model.components_).tolist()
    return found


def without_compilation(program):
    """Return what a Python program prints as JSON if numba compiles nothing."""
    folder = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": folder, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", f"import json; {program}"]
    run = subprocess.run(command, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_the_demo_without_compilation_has_less_work():
    """On all digits the demo takes more than 15 minutes if each kernel runs as Python code."""
    found = without_compilation(
        "from partwise.apps.cli.demonstration import METHODS, run; "
        "found = run([m for m in METHODS if m.name in ('nmf', 'cdnmf')]); "
        "print(json.dumps([len(found.dataset.X), found.scored, *(r.iterations for r "
        " in found.results), *(r.accuracy for r in found.results)]))"
    )
    size, scored, *iterations, first, second = found
    assert size == 200 and "200 digits" in scored and "10 iterations" in scored
    assert max(iterations) <= 10 and min(first, second) > 0.5


@pytest.mark.filterwarnings("ignore")
def test_fits_without_compilation_find_the_same_parts():
    plain = without_compilation(
        "import test_without_jit as own; print(json.dumps(own.parts_of_quick_fits()))"
    )
    compiled = parts_of_quick_fits()
    assert len(plain) == 8
    for name, parts in compiled.items():
        # Compiled sums run in another order, and a few iterations enlarge the difference.
        np.testing.assert_allclose(plain[name], parts, rtol=1e-5, atol=1e-6, err_msg=name)
