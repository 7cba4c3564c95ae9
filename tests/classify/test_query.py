"""Tests of the order in which `suggest` proposes samples to label, against a naive formula."""

import numpy as np
import pytest

from partwise.classify import query


def naive(space, doubt, closed, n):
    """Return the n samples that a greedy search by the formula over all pairs chooses."""
    Z, picked = space.Z.astype(float), []
    told = np.flatnonzero(closed).tolist()
    share = len(space.reach) / (len(told) + n)
    width = space.reach[min(len(space.reach) - 1, max(1, round(share)))]
    D = np.array([[np.sum((a - b) ** 2) for b in Z] for a in Z])
    K = np.exp(-D / width)
    for _ in range(n):
        told_now = told + picked
        gains = []
        for i in range(len(Z)):
            cover = K[told_now].max(axis=0) if told_now else np.zeros(len(Z))
            taken = closed[i] or i in picked
            gains.append(-1 if taken else np.sum(doubt * np.maximum(K[i] - cover, 0)))
        picked.append(int(np.argmax(gains)))
    return picked


@pytest.mark.parametrize("told", [0, 1, 12])
def test_the_queue_is_the_greedy_sum(told):
    rng = np.random.default_rng(told)
    space = query.make_space(rng.standard_normal((60, 5)) * [9, 3, 1, 1, 0])
    doubt, closed = rng.random(60), np.zeros(60, dtype=bool)
    closed[rng.choice(60, told, replace=False)] = True
    found = query.label_next(space, doubt, closed, 6)
    assert found.tolist() == naive(space, doubt, closed, 6)


def test_the_units_of_samples_change_nothing():
    """Check that scaling the features by a power of two, which is exact, changes no suggestion."""
    view = np.random.default_rng(0).standard_normal((60, 5)) * [9, 3, 1, 1, 0]
    one, other = query.make_space(view), query.make_space(2.0**-10 * view)
    limit = 8 * np.finfo(np.float32).eps  # rounding of rows of unit norm in single precision
    np.testing.assert_allclose(np.abs(other.Z), np.abs(one.Z), rtol=0, atol=limit)


def test_first_questions_meet_every_group():
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1, 2, 3, 4], [300, 80, 40, 40, 40])
    Z = 6 * np.eye(5)[group] + rng.standard_normal((500, 5))
    asked = query.label_next(query.make_space(Z), np.ones(500), np.zeros(500, dtype=bool), 5)
    assert set(group[asked]) == {0, 1, 2, 3, 4}


def test_many_samples_are_asked_from_a_part_of_them_until_none_is_left(monkeypatch):
    for name, value in (("WITNESSES", 50), ("OPEN", 40), ("CANDIDATES", 10)):
        monkeypatch.setattr(query, name, value)
    space = query.make_space(np.random.default_rng(0).standard_normal((200, 4)))
    closed, seen = np.zeros(200, dtype=bool), []
    while not closed.all():
        asked = query.label_next(space, np.ones(200), closed, 7)
        assert len(asked) and not closed[asked].any()
        closed[asked] = True
        seen += asked.tolist()
    assert sorted(seen) == list(range(200))
    assert not len(query.label_next(space, np.ones(200), closed, 7))


def test_samples_without_a_difference_are_asked_for_once_each():
    space = query.make_space(np.ones((8, 3)))
    asked = query.label_next(space, np.zeros(8), np.zeros(8, dtype=bool), 8)
    assert sorted(asked) == list(range(8))


def test_a_new_class_is_as_likely_as_classes_were_met_once():
    assert query.unseen(np.array([])) == 1
    assert query.unseen(np.array(["a", "b", "b", "c"])) == 0.5
    assert query.unseen(np.array([1, 1, 2, 2])) == 0


def test_margins_are_of_the_two_best():
    p = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_allclose(query.margins(p), [0.8, 0.3, 1.0])
    assert query.margins(np.ones((4, 1))).tolist() == [1, 1, 1, 1]
