"""Heads that were weighed before keep what they had; others have no say."""

from types import SimpleNamespace

from partwise.classify.pool import Head, Trial


def test_a_head_that_was_not_weighed_has_no_weight():
    weighed = SimpleNamespace(heads=[Head("logistic", "plain", 2.0)], weights=[0.3])
    trial = SimpleNamespace(weighed=weighed)
    assert Trial._as_weighed(trial, Head("logistic", "plain", 1.0)) == (2.0, 0.3)
    assert Trial._as_weighed(trial, Head("logistic", "codes", 1.0)) == (1.0, 0.0)
    assert Trial._as_weighed(trial, Head("trees", "plain", 1.0)) == (1.0, 0.0)
