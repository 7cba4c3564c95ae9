"""Tests of Torch tensors in which labelled samples of one class are summed to one row.

The results are compared with those of a tensor that holds the summed rows.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install partwise[torch]")

from partwise import CNMF  # noqa: E402
from partwise.backends.array_api import DeviceDense  # noqa: E402
from partwise.backends.torch.torch_data import StackedRows, TorchData  # noqa: E402
from partwise.fitting import solving  # noqa: E402

N, P, K = 60, 9, 4
#: The class of each sample, or -1: labelled samples of three classes lie among the others, or
#: first.
SCATTERED = np.array([i % 3 if i % 7 == 0 else -1 for i in range(N)])
FIRST = np.array([i % 3 if i < 12 else -1 for i in range(N)])


def to_rows(codes):
    """Return the summed row of each sample: classes in order, then the unlabelled samples."""
    index = codes.copy()
    index[codes < 0] = 3 + np.arange((codes < 0).sum())
    return index, int(index.max()) + 1


@pytest.fixture(params=["scattered", "first"])
def gathered(request, rng):
    """Return the summed rows in two forms, X, and the summed row of each sample.

    The first form sums rows only where needed; the second is a tensor computed with an explicit
    loop.
    """
    index, rows = to_rows(SCATTERED if request.param == "scattered" else FIRST)
    X = torch.from_numpy(rng.random((N, P)))
    whole = torch.zeros(rows, P, dtype=X.dtype)
    for i, row in enumerate(index):
        whole[row] += X[i]
    return TorchData(X).weighted(None, index, rows), TorchData(whole), X, index


def close(got, want):
    # The values are sums of at most N products, each rounded once.
    torch.testing.assert_close(got, want, rtol=N * np.finfo(np.float64).eps, atol=0)


def test_rows_that_are_not_summed_are_not_copied(gathered):
    R, whole, X, index = gathered
    assert isinstance(R, StackedRows) and R.shape == whole.shape
    assert (R.mass, R.dtype, R.density) == (N, whole.dtype, 1.0)
    rest = R.rest.X
    if index[12] == 3:  # rows that are consecutive are a view of X
        assert rest.data_ptr() == X[12:].data_ptr()
    close(rest, whole.X[3:])
    close(R.top.X, whole.X[:3])
    assert "X" not in vars(R)


def test_products_are_those_of_one_matrix(gathered, rng):
    R, whole, *_ = gathered
    U, V = (torch.from_numpy(rng.random((m, K))) for m in (P, R.shape[0]))
    for product, factor in (("dot", U), ("tdot", V)):
        want = getattr(whole, product)(factor)
        close(getattr(R, product)(factor), want)
        R.expect(product, factor)
        close(getattr(R, product)(factor), want)
    for name in ("row_sums", "row_sq_norms", "row_xlogx"):
        close(getattr(R, name)(), getattr(whole, name)())
    close(R.row_sq_residuals(V, U), whole.row_sq_residuals(V, U))


def test_ratio_products_take_the_rows_as_one_matrix(gathered, rng):
    R, whole, *_ = gathered
    whole.weighing(None, N)
    U, V = (torch.from_numpy(rng.random((m, K)) + 0.1) for m in (P, R.shape[0]))
    for got, want in zip(R.kl_dot(V, U), whole.kl_dot(V, U), strict=True):
        close(got, want)
    close(R.kl_tdot(V, U), whole.kl_tdot(V, U))
    again = R.weighted(None, np.zeros(R.shape[0], dtype=np.int64), 1)
    close(again.X, whole.X.sum(dim=0, keepdim=True))


def test_weights_and_many_classes_are_summed_at_once(rng):
    index, rows = to_rows(FIRST)
    data = TorchData(torch.from_numpy(rng.random((N, P))))
    assert not isinstance(data.weighted(np.ones(N), index, rows), StackedRows)
    pairs = data.weighted(None, np.arange(N) // 2, N // 2)
    assert isinstance(pairs, DeviceDense) and not isinstance(pairs, StackedRows)
    close(pairs.X, data.X[::2] + data.X[1::2])


def test_sums_of_many_float32_values_are_rounded_once():
    X = torch.full((2**15 + 1, 2), 1.0 + 2**-20)
    index = np.zeros(2**15 + 1, dtype=np.int64)
    index[-1] = 1
    R = TorchData(X).weighted(None, index, 2)
    want = 2**15 * (1.0 + 2**-20)  # this value is exact in float32
    assert (R.top.X == want).all()


def test_labelled_samples_alone_are_coded_as_new_ones(rng, monkeypatch):
    X = torch.from_numpy(rng.random((N, P)))
    seen, solve = [], solving.solve_new

    def note(estimator, what, model, factor):
        seen.append(model.data.shape)
        return solve(estimator, what, model, factor)

    monkeypatch.setattr(solving, "solve_new", note)
    model = CNMF(K, max_iter=50, random_state=0).fit(X, FIRST)
    assert seen == [(12, P)]
    want = model.transform(X)[:12]
    # Both sets of part weights are solved to tol=1e-4.
    np.testing.assert_allclose(model._groups.labelled, want, atol=1e-4 * float(want.max()))
