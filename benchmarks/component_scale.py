"""Compare rules for the scale of NMF's components by the accuracy of a pipeline.

    python -m benchmarks.component_scale --data FOLDER [--sets digits,orl] [--held-back]
    python -m benchmarks.component_scale --page

Without a penalty, w_k and h_k can be multiplied by c and 1/c at no cost, so a fit has to choose c.
A linear classifier on W depends on that choice. Each rule is judged by ``scaler -> NMF(k) ->
LogisticRegression()`` in stratified three-fold cross-validation on at most 1,000 samples. The
scaler is none or to [0, 1] by feature; k is 16 or 48 (at most the number of samples or features).

The rule was fixed before the run: take the highest accuracy on average over the sets for
development. Rules within half a point of it are tied. Among those, take one that treats W and H
alike (the same for X and its transpose) and does not change with the number of samples or features.
Every third set in alphabetical order is held back; it is only run with ``--held-back``.

Results are kept in ``benchmarks/results/component_scale.json`` after each set. An interrupted run
continues. ``--page`` writes ``component_scale.md`` from them.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.answers import SETS, load

RESULTS = Path(__file__).parent / "results" / "component_scale.json"
PARTS, FOLDS, MOST = (16, 48), 3, 1000
BUNDLED = ("breast_cancer", "digits", "wine")
NAMES = sorted([*SETS, *BUNDLED, "lfw"])
HELD_BACK = NAMES[2::3]
ENTRY_NORMS: dict[str, Callable[[Any], Any]] = {
    "norm": lambda F: np.linalg.norm(F, axis=0),
    "rms": lambda F: np.linalg.norm(F, axis=0) / np.sqrt(len(F)),
    "max": lambda F: F.max(axis=0),
    "mean": lambda F: F.mean(axis=0),
}
#: Each rule makes a norm of w_k and h_k equal ("both"), or makes it 1 in W or in H.
RULES = {
    "equal norms": ("norm", "both"),
    "equal root mean squares": ("rms", "both"),
    "equal maxima": ("max", "both"),
    "equal means": ("mean", "both"),
    "h of norm 1": ("norm", "H"),
    "h of maximum 1": ("max", "H"),
    "h of mean 1": ("mean", "H"),
    "w of root mean square 1": ("rms", "W"),
}
AS_FITTED, SKLEARN = "as the solver leaves it", "scikit-learn's NMF"


def factors_to_apply(rule: tuple[str, str], W: Any, H: Any) -> Any:
    """Return the factors c_k by which the columns of W are multiplied and the rows of H divided."""
    size, side = ENTRY_NORMS[rule[0]], rule[1]
    of_w, of_h = size(W), size(H.T)
    live = (of_w > 0) & (of_h > 0)
    of_w, of_h = np.where(live, of_w, 1), np.where(live, of_h, 1)
    return {"both": np.sqrt(of_h / of_w), "H": of_h, "W": 1 / of_w}[side]


def samples(folder: Path, name: str) -> tuple[Any, Any]:
    """Return at most `MOST` samples of a data set and their classes."""
    if name in BUNDLED:
        import sklearn.datasets

        X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    elif name == "lfw":
        file = np.load(folder / "lfw_crop32.npz")
        X, y = file["X"].astype(float), file["y"]
    else:
        X, y = load(folder, name)
    rows = np.sort(np.random.RandomState(0).permutation(len(y))[:MOST])
    return X[rows], y[rows]


def cells(X: Any, y: Any) -> dict[str, dict[str, list[float]]]:
    """Return, for each scaler and k, the accuracy of each rule in each fold."""
    from scipy.sparse import issparse
    from sklearn.model_selection import StratifiedKFold
    from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler

    scalers: dict[str, Any] = {"none": FunctionTransformer()}
    scalers["to [0, 1]"] = MaxAbsScaler() if issparse(X) else MinMaxScaler(clip=True)
    if X.min() < 0:
        del scalers["none"]
    found: dict[str, dict[str, list[float]]] = {}
    for fold, (train, test) in enumerate(
        StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(np.zeros(len(y)), y)
    ):
        for scaler_name, scaler in scalers.items():
            A, B = scaler.fit_transform(X[train]), scaler.transform(X[test])
            for k in sorted({min(k, *A.shape) for k in PARTS}):
                cell = found.setdefault(f"{scaler_name}, k = {k}", {})
                for rule, accuracy in scores(A, y[train], B, y[test], k, fold).items():
                    cell.setdefault(rule, []).append(round(accuracy, 4))
    return found


def scores(A: Any, y: Any, B: Any, truth: Any, k: int, seed: int) -> dict[str, float]:
    """Return the accuracy of a logistic regression on W for each rule."""
    import sklearn.decomposition
    from sklearn.linear_model import LogisticRegression

    import partwise
    from partwise.fitting import every_start

    def accuracy(W: Any, new: Any) -> float:
        return float(LogisticRegression(max_iter=300).fit(W, y).score(new, truth))

    theirs = sklearn.decomposition.NMF(k, random_state=seed)
    found = {SKLEARN: accuracy(theirs.fit_transform(A), theirs.transform(B))}
    ours = partwise.NMF(k, random_state=seed)
    raw = next(every_start(ours, A))[1]  # components before the fit scales its result
    W, new, H = ours.fit_transform(A), ours.transform(B), ours.components_
    of_raw, of_h = np.linalg.norm(raw, axis=1), np.linalg.norm(H, axis=1)
    c = np.where((of_raw > 0) & (of_h > 0), of_h / np.where(of_raw > 0, of_raw, 1), 1)
    found[AS_FITTED] = accuracy(W * c, new * c)
    for name, rule in RULES.items():
        c = factors_to_apply(rule, W, H)
        found[name] = accuracy(W * c, new * c)
    return found


def by_rule(results: dict[str, Any], names: list[str]) -> dict[str, dict[str, float]]:
    """Return the accuracy in per cent by rule and data set, averaged over scalers and k."""
    return {
        rule: {
            name: 100 * float(np.mean([cell[rule] for cell in results[name].values()]))
            for name in names
        }
        for rule in (SKLEARN, AS_FITTED, *RULES)
    }


def page(results: dict[str, Any]) -> str:
    """Return the result page: all rules on both groups of sets, and three rules on each set."""
    done = [name for name in NAMES if name in results]
    found = by_rule(results, done)
    groups = [[name for name in done if (name in HELD_BACK) == held] for held in (False, True)]
    rows = []
    for rule, own in found.items():
        worst = max(max(other[n] for other in found.values()) - own[n] for n in done)
        means = [float(np.mean([own[name] for name in group])) for group in groups]
        rows.append((rule, *means, worst))
    rows.sort(key=lambda row: -row[1])
    chosen = rows[0][0]
    lines = [f"| {rule} | " + " | ".join(f"{x:.1f}" for x in rest) + " |" for rule, *rest in rows]
    shown = (SKLEARN, AS_FITTED, chosen)
    sets = [
        f"| {name}{' (held back)' if name in HELD_BACK else ''} | "
        + " | ".join(f"{found[rule][name]:.1f}" for rule in shown)
        + " |"
        for name in done
    ]
    return HEAD.format(
        rule=chosen, n=len(groups[0]), held=len(groups[1]), rows="\n".join(lines),
        heads=" | ".join(shown), sets="\n".join(sets),
    )  # fmt: skip


HEAD = """# Scale of NMF's components

Accuracy in per cent of ``scaler -> NMF(k) -> LogisticRegression()``, by the rule that sets the
scale of the components. `NMF` uses the first rule of the table.

`python -m benchmarks.component_scale --data FOLDER` (then `--held-back`, then `--page`)

Without a penalty, w_k and h_k can be multiplied by c and 1/c at no cost, so a fit has to choose c.
The rule was chosen on {n} sets: the highest mean accuracy wins. The {held} other sets were run
afterwards. Each number is the mean of three folds, with and without scaling of the features to
[0, 1], and with 16 and 48 components.

| rule | development sets | held-back sets | largest loss against the best rule |
| --- | --- | --- | --- |
{rows}

| set | {heads} |
| --- | --- | --- | --- |
{sets}
"""


def main() -> None:
    """Run the data sets without results, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", default="")
    parser.add_argument("--held-back", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.page:
        RESULTS.with_suffix(".md").write_text(page(results), encoding="utf-8")
        return
    names = options.sets.split(",") if options.sets else NAMES
    for name in names:
        if (name in HELD_BACK) == options.held_back and name not in results:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # fits of both packages may end at max_iter
                results[name] = cells(*samples(options.data, name))
            RESULTS.write_text(json.dumps(results) + "\n")
            print(name, flush=True)


if __name__ == "__main__":
    main()
