"""Upper limits on the files and functions of the package that a fit enters.

The numbers measure how much code a reader must follow. Lower them when they fall; do not raise
them.
"""

import os
import subprocess
import sys

import pytest

COUNT = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from sklearn.datasets import load_digits
import partwise
X, y = load_digits(return_X_y=True)
y = np.where(np.arange(len(y)) % 10 == 0, y, -1)
entered = set()
def profile(frame, event, argument):
    code = frame.f_code
    if event == "call" and "/partwise/" in code.co_filename and "<" not in code.co_name:
        entered.add((code.co_filename, code.co_firstlineno))
given = (X, y) if "{name}" == "PartsClassifier" else (X,)
partwise.{name}({settings}).fit(*given)
model = partwise.{name}({settings})
sys.setprofile(profile)
model.fit(*given)
sys.setprofile(None)
print(len({f for f, _ in entered}), len(entered))
"""


@pytest.mark.parametrize(
    ("name", "settings", "files", "functions"),
    [
        ("NMF", "10, max_iter=30, random_state=0", 18, 145),
        ("GNMF", "10, max_iter=30, random_state=0", 22, 200),
        ("PartsClassifier", "random_state=0", 31, 327),
    ],
)
def test_a_warm_fit_enters_few_files_and_functions(name, settings, files, functions):
    code = COUNT.replace("{name}", name).replace("{settings}", settings)
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert not run.returncode, run.stderr
    found = [int(number) for number in run.stdout.split()]
    # Depending on the processor, the fit calls a few other kernels.
    assert found[0] <= files + 1 and found[1] <= functions + 5
