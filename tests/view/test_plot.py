"""Tests of the plots: content, axes, and refused input."""

import matplotlib
import numpy as np
import pytest
from sklearn.datasets import load_iris

from partwise import CDNMF, CF, NMF, plot

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    from matplotlib import pyplot as plt

    plt.close("all")


@pytest.fixture
def ax():
    from matplotlib.figure import Figure

    return Figure().add_subplot()


def rendered(ax):
    ax.figure.canvas.draw()
    return ax


@pytest.fixture(scope="module")
def model(digits):
    few = digits.y < 3
    X, y = digits.X[few][:120], digits.y[few][:120]
    return CDNMF(components_per_class=2, random_state=0, tol=1e-2).fit(X, y)


def test_components_place_each_part(model, ax):
    assert rendered(plot.components(model, (8, 8), columns=4, titles="abcdef", ax=ax)) is ax
    canvas = ax.get_images()[0].get_array()
    assert canvas.shape == (2 * 9 + 1, 4 * 9 + 1)
    part = model.components_[5].reshape(8, 8)
    np.testing.assert_allclose(canvas[10:18, 10:18], part / part.max())
    assert canvas[10:18, 28:36].mask.all(), "places without a part stay empty"
    assert [text.get_text() for text in ax.texts] == list("abcdef")


@pytest.mark.parametrize("shape", [(4, 6), (24, 1), (2, 4, 3)])
def test_components_of_any_shape(rng, shape):
    ax = rendered(plot.components(rng.random((5, 24)), shape))
    assert ax.get_images()


def test_signed_parts_are_centred_at_zero(rng, ax):
    plot.components(rng.normal(size=(2, 9)), (3, 3), ax=ax)
    assert ax.get_images()[0].get_clim() == (-1, 1)


def test_components_refuse_another_shape(model):
    with pytest.raises(ValueError, match=r"\(7, 8\).*64"):
        plot.components(model, (7, 8))


def test_components_refuse_unfitted_and_kernel_models(rng):
    with pytest.raises(ValueError, match=r"NMF.*components_"):
        plot.components(NMF(2), (2, 2))
    kernel = CF(2, kernel="rbf", random_state=0, tol=1e-1).fit(rng.random((20, 4)))
    with pytest.raises(ValueError, match="linear"):
        plot.components(kernel, (2, 2))


def test_class_parts_are_rows_of_classes(model, ax):
    rendered(plot.class_parts(model, (8, 8), ax=ax))
    assert ax.get_images()[0].get_array().shape == (3 * 9 + 1, 2 * 9 + 1)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["0", "1", "2"]


def test_class_parts_need_classes():
    with pytest.raises(ValueError, match=r"NMF.*CDNMF"):
        plot.class_parts(NMF(2), (2, 2))


def test_convergence(model, ax):
    rendered(plot.convergence({"ours": model, "list": [4, 2, 1]}, relative=True, ax=ax))
    np.testing.assert_allclose(ax.lines[1].get_ydata(), [1, 0.5, 0.25])
    assert len(ax.lines[0].get_xdata()) == model.n_iter_
    single = plot.convergence(model)
    assert single.get_legend() is None
    with pytest.raises(ValueError, match="history"):
        plot.convergence({"empty": []})


def test_embedding_colours_by_the_models_clusters(model, ax):
    rendered(plot.embedding(model, ax=ax))
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["0", "1", "2"]
    assert sum(len(points.get_offsets()) for points in ax.collections) == 120


def test_embedding_with_unknown_labels():
    X = load_iris().data[:40]
    labels = np.array(["a", None] * 20, dtype=object)
    ax = plot.embedding(NMF(3, random_state=0, tol=1e-2).fit(X), labels)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["no label", "a"]
    with pytest.raises(ValueError, match=r"40.*3"):
        plot.embedding(X, ["a", "b", "c"])


def test_top_terms(rng):
    H = rng.random((5, 8))
    names = [f"w{j}" for j in range(8)]
    axes = plot.top_terms(H, names, n_terms=3)
    assert axes.shape == (5,)
    best = np.argsort(-H[4])[:3]
    assert [t.get_text() for t in axes[4].get_yticklabels()] == [names[j] for j in best]
    again = plot.top_terms(H, names, axes=axes)
    assert again[0] is axes[0]
    with pytest.raises(ValueError, match=r"names.*8"):
        plot.top_terms(H, names[:3])
    with pytest.raises(ValueError, match=r"5.*2"):
        plot.top_terms(H, names, axes=axes[:2])


def test_parameter_path(ax):
    rendered(
        plot.parameter_path(
            [0, 1, 2], {"AC": [[1, 3], [2, 4], [3, 5]], "NMI": [1, 2, 3]}, parameter="λ", ax=ax
        )
    )
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [2, 3, 4])
    assert len(ax.collections) == 1, "a band only where there are runs"
    assert ax.get_xscale() == "linear" and ax.get_xlabel() == "λ"
    with pytest.raises(ValueError, match=r"scores.*3"):
        plot.parameter_path([1, 2, 3], [1, 2])


def test_parts_of_a_data_set_are_upright(rng):
    """Check that images of a data set are drawn upright if it stores pixels by columns."""
    from partwise.io.datasets.matrix_files import Dataset

    picture = np.triu(np.ones((4, 4)))
    faces = Dataset(picture.T.reshape(1, -1), None, "faces", image_shape=(4, 4), image_order="F")
    drawn = plot.components(faces.X, faces).get_images()[0].get_array()
    assert np.array_equal(drawn[1:5, 1:5], picture)
    with pytest.raises(ValueError, match="images"):
        plot.components(faces.X, Dataset(faces.X, None, "faces"))


def test_forty_classes_stay_readable(rng):
    """Check that forty classes have distinct styles, a legend in columns, and legible rows."""
    codes = np.repeat(np.arange(40), 4)
    V = np.column_stack([codes, codes % 7]) + 0.01 * rng.random((160, 2))
    ax = plot.embedding(V, codes)
    looks = {
        (tuple(c.get_facecolor()[0]), c.get_paths()[0].vertices.tobytes()) for c in ax.collections
    }
    assert len(looks) == len(ax.collections) == 40
    assert ax.get_legend()._ncols == 3

    class Parts:
        components_ = rng.random((40, 16))
        component_classes_ = list(range(40))

    rows = plot.class_parts(Parts(), (4, 4))
    assert rows.figure.get_figheight() > 9
