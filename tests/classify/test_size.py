"""Tests of the number of files and functions of the package that a fit enters.

The number measures how much code a reader must follow.
"""

import os
import sys

import numpy as np
from sklearn.datasets import load_digits

import partwise
from partwise import GNMF, PartsClassifier
from partwise.backends import threads

ROOT = os.path.dirname(partwise.__file__)


def entered(run):
    """Return the files and named functions of the package that a second call of ``run`` enters."""
    run()
    found = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and code.co_name[0] != "<":
            found.add((code.co_filename, code.co_firstlineno))

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def test_a_warm_fit_of_the_classifier_adds_few_functions_to_one_of_gnmf(monkeypatch):
    """Limit the code that PartsClassifier enters in addition to GNMF.

    The goal is 34 files and 320 functions in total, of which GNMF has 22 and 200.
    """
    monkeypatch.setattr(threads, "allowed", lambda: 1)  # the profiler sees only one thread
    X, y = (a[:300] for a in load_digits(return_X_y=True))
    known = np.where(np.arange(300) < 50, y, -1)
    found = entered(lambda: PartsClassifier().fit(X, known))
    own = {place for place in found if place[0].startswith(os.path.join(ROOT, "classify"))}
    assert len({file for file, _ in own}) <= 6 and len(own) <= 105
    # These functions run tasks in threads and check labels.
    assert len(found - own - entered(lambda: GNMF(10).fit(X))) <= 44
