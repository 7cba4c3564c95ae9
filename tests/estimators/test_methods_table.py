"""The table of methods: what each can do follows from its estimator."""

import pytest

import partwise
from partwise.estimators.methods import ESTIMATORS, METHODS


def able(what):
    return {name for name, method in METHODS.items() if getattr(method, what)}


def test_what_methods_can_do_follows_from_their_estimators():
    labelled = {"classify", "cnmf", "nmfdc", "cdnmf", "cdnmf-kl", "lpcnmf", "semignmf", "combined"}
    assert able("uses_labels") == labelled
    assert able("signed") == {"classify", "cf", "lcf", "seminmf"}
    assert able("images") == {"ntf"} and able("square") == {"symnmf"}
    assert able("in_memory") == {"cf", "lcf", "seminmf", "symnmf", "ntf"}
    alone = {"classify", "cf", "lcf", "symnmf", "ntf", "sparse-nmf", "ansnmf", "lpcnmf"}
    assert able("links") == set(METHODS) - alone


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_is_public(name):
    assert name in partwise.__all__ and getattr(partwise, name).__name__ == name
