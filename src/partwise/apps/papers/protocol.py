"""Protocols: the settings of a paper's table or figure, and the printed numbers.

A protocol is a TOML file. With the key ``runs_of`` it shows the runs of another protocol in a
different way, for example as a figure or with a second metric. Such a file contains only the
settings that differ. The name of a stored result contains a hash of all settings that the result
depends on.
"""

from __future__ import annotations

import csv
import itertools
import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

PAPERS = ("cnmf", "lcf", "gnmf", "nmfdc", "cdnmf")
VARIANTS = "variants.toml"  # settings that a paper leaves open, and causes of differences
PROGRAMS = "programs.toml"  # settings of the programs that the papers' authors published
#: Settings that a protocol with ``runs_of`` does not inherit, since they describe only its page.
SHOWN = (
    "title", "paper", "kind", "view", "metrics", "claims", "misprints", "copies", "notes",
    "identities", "audited",
)  # fmt: skip


@dataclass(frozen=True)
class DataSpec:
    """Data set of an experiment: its name, preparation and numbers of clusters."""

    name: str
    prepare: str = "unit_rows"
    clusters: tuple[int, ...] = ()
    classes: int | None = None  # number of classes to keep; None keeps all
    per_class: int | None = None  # number of samples to keep per class; None keeps all
    note: str = ""


@dataclass(frozen=True)
class Budget:
    """Label budget: the number or share of samples per class that keep their label."""

    name: str
    per_class: int | None = None
    share: float | None = None
    printed: bool = True
    note: str = ""

    def count(self, size: int) -> int:
        """Return the number of labels in a class of ``size`` samples, rounded up."""
        if self.per_class is not None:
            return min(self.per_class, size)
        if self.share is None:
            return 0
        # without 1e-9, rounding errors could add a label: 0.1 * 30 > 3
        return min(size, math.ceil(self.share * size - 1e-9))


@dataclass(frozen=True)
class Method:
    """A method in a table: an estimator, its parameters and how its fits are run."""

    name: str
    estimator: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    labels: bool = False
    weights: str = ""
    # "shared": initial factors shared by all methods; "seed": the estimator's own
    start: str = "shared"
    restarts: int = 1  # number of starts; each runs 30 iterations and the best one continues
    stop: bool = False  # use the stopping rule of the authors' program, within max_iter
    subruns: int = 1
    # how several sub-runs give one result: the one with the best "objective", the one with the
    # best "score", or the "mean"
    subrun_choice: str = "objective"
    # how clusters are computed from the part weights V: "k-means++" and "random" are k-means with
    # these initial centres; "root random" is "random" on Γ^½V, where Γ holds the sample weights;
    # "argmax" takes the largest part weight
    readout: str = "k-means++"
    unit_basis: bool = True
    grid: dict[str, list[Any]] = field(default_factory=dict)
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    per_data: dict[str, dict[str, Any]] = field(default_factory=dict)
    fixed_by: str = ""  # "print" if the paper prints all settings of the method
    runs: int | None = None  # maximum number of runs, for a method that takes long
    note: str = ""

    @property
    def chosen_on_answer(self) -> bool:
        """True if parameters or sub-runs are chosen by their accuracy on the true classes."""
        return bool(self.grid) or (self.subruns > 1 and self.subrun_choice == "score")

    def columns(self) -> Iterator[Column]:
        """Yield the method with each of the parameter values that are tried."""
        axes = self.grid or self.sweep
        for values in itertools.product(*axes.values()):
            yield Column(self, dict(zip(axes, values, strict=True)))


@dataclass(frozen=True)
class Column:
    """A method with one of the parameter values that are tried: a table's column."""

    method: Method
    setting: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the method and its parameter values, as in ``GNMF[graph_reg=10]``."""
        if not self.setting:
            return self.method.name
        inner = ",".join(f"{key}={value}" for key, value in self.setting.items())
        return f"{self.method.name}[{inner}]"

    def params(self, data: str) -> dict[str, Any]:
        """Return the estimator's parameters on this data set."""
        return {**self.method.params, **self.method.per_data.get(data, {}), **self.setting}


@dataclass(frozen=True)
class Variant:
    """One choice of the settings that the paper does not specify.

    ``methods`` contains settings by method. Its ``params`` are merged with those of the method, and
    other settings replace those of the method.
    """

    name: str
    text: str = ""
    source: str = ""
    main: bool = False
    readout: str = ""
    prepare: dict[str, str] = field(default_factory=dict)
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)
    subrun_choice: str = ""
    protocol: str = ""  # name of a published program in `programs`, whose settings are used
    # a setting contradicts the paper, so that results are shown but not counted
    contradicts: bool = False
    runs: int | None = None  # number of runs, if it differs from the protocol's
    tables: tuple[str, ...] = ()

    def apply(self, method: Method) -> Method:
        """Return a method with the settings of this variant and its published program.

        Settings of the variant replace those of the program.
        """
        of_program = programs()[self.protocol]["estimators"] if self.protocol else {}
        program, own = of_program.get(method.estimator, {}), self.methods.get(method.name, {})
        params = {**method.params, **program.get("params", {}), **own.get("params", {})}
        change = program | own | {"params": params}
        if self.readout:
            change = {"readout": self.readout} | change
        if self.subrun_choice and method.subruns > 1:
            change = {"subrun_choice": self.subrun_choice} | change
        return replace(method, **change)


AS_WRITTEN = Variant("as written")


@dataclass(frozen=True)
class Printed:
    """One number that a paper prints in a table."""

    metric: str
    k: str  # a number of clusters, or "avg"
    method: str
    mean: float
    sd: float | None
    decimals: int


@dataclass(frozen=True)
class Cause:
    """A possible cause of the difference between a measured and a printed column.

    ``whose`` is "print", "not printed" or "ours". The cause is demonstrated by a ``variant``, by
    another number of labels (``budget``), by another ``column``, or by a computed ``identity`` of
    two columns.
    """

    tables: tuple[str, ...]
    columns: tuple[str, ...]
    whose: str
    text: str
    metrics: tuple[str, ...] = ()
    variant: str = ""
    budget: str = ""
    column: str = ""
    identity: bool = False

    @property
    def compares(self) -> bool:
        """True if the cause can be tested by comparing with other measured averages."""
        return bool(self.variant or self.budget or self.column)

    def fits(self, table: str, metric: str, column: str) -> bool:
        """Return whether the cause applies to this column of a table and this metric."""
        known = table.split("/")[-1] in self.tables and column in self.columns
        return known and (not self.metrics or metric in self.metrics)


@dataclass(frozen=True)
class Protocol:
    """Settings of a paper's table or figure: runs, presentation and printed numbers."""

    name: str
    title: str
    paper: str
    kind: str = "clustering"
    view: dict[str, Any] = field(default_factory=dict)
    data: tuple[DataSpec, ...] = ()
    metrics: tuple[str, ...] = ()
    runs_printed: int | None = None
    runs_default: int = 1
    quick: dict[str, Any] = field(default_factory=dict)
    kmeans: int = 20
    budgets: tuple[Budget, ...] = ()
    methods: tuple[Method, ...] = ()
    claims: tuple[dict[str, Any], ...] = ()
    misprints: tuple[dict[str, Any], ...] = ()
    copies: tuple[dict[str, Any], ...] = ()  # columns that repeat another table's numbers
    notes: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    runs_of: str = ""
    own_data: bool = True  # False if all runs are those of another protocol
    printed: tuple[Printed, ...] = ()
    comparable: bool = True
    # True if results were seen before the rule that chooses the main settings was fixed
    audited: bool = False
    identities: tuple[dict[str, Any], ...] = ()
    variants: tuple[Variant, ...] = (AS_WRITTEN,)
    causes: tuple[Cause, ...] = ()
    variant: Variant = AS_WRITTEN  # the variant of the settings that is in use

    @property
    def main(self) -> Variant:
        """Variant that is compared: the paper's settings, else the authors' program."""
        return next((v for v in self.variants if v.main), self.variants[0])

    def under(self, variant: Variant | None = None) -> Protocol:
        """Return this protocol with the settings of a variant, by default the main one."""
        variant = variant or self.main
        prepare = variant.prepare
        return replace(
            self,
            variant=variant,
            data=tuple(replace(d, prepare=prepare.get(d.name, d.prepare)) for d in self.data),
            methods=tuple(map(variant.apply, self.methods)),
        )

    def runs(self) -> int:
        """Return the declared number of runs per row in this variant."""
        return self.variant.runs or self.runs_default

    @property
    def root(self) -> str:
        """Name of the protocol whose runs and random seeds this protocol uses."""
        return self.runs_of or self.name

    def method(self, name: str) -> Method:
        """Return the method with this name, or raise a ValueError."""
        known = {method.name: method for method in self.methods}
        if name not in known:
            raise ValueError(f"{self.name} has no method {name!r}; choose one of {list(known)}")
        return known[name]

    def copied_from(self, metric: str, method: str) -> str:
        """Return the earlier table that prints the same numbers in a column, or ""."""
        found = (c for c in self.copies if metric in c["metrics"] and method in c["methods"])
        return str(next(found, {"of": ""})["of"])

    def settings_from(self, method: Method) -> str:
        """Return the source of the settings of a method in this variant.

        ``print`` is the paper. ``program`` is the authors' published program, for settings that the
        paper does not specify. ``choice`` is Partwise's declared choice, for settings that neither
        specifies. ``file`` is a protocol file of the user.
        """
        program = programs()[self.variant.protocol] if self.variant.protocol else {}
        if method.estimator in program.get("estimators", {}):
            return "program"
        return method.fixed_by or ("file" if self.name.startswith("own/") else "choice")

    def printed_value(self, metric: str, k: int | str, method: str) -> Printed | None:
        """Return the printed number, or None if the paper prints none."""
        wanted = (metric, str(k), method)
        return next((n for n in self.printed if (n.metric, n.k, n.method) == wanted), None)


def _folder() -> Traversable:
    """Return the package folder that contains the settings files."""
    return resources.files("partwise.apps.papers")


def _read(file: Traversable | Path) -> dict[str, Any]:
    """Return the content of a TOML file."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


@cache
def programs() -> dict[str, dict[str, Any]]:
    """Return the settings of the published programs, by the name of the program."""
    return _read(_folder() / PROGRAMS)


def variant_of_program(name: str) -> Variant:
    """Return the variant that uses the settings of a published program."""
    if name not in programs():
        raise ValueError(f"no protocol {name!r}; choose one of: {', '.join(programs())}")
    about = {key: programs()[name][key] for key in ("text", "source", "readout")}
    return Variant(name, **about, main=True, protocol=name)


@cache
def titles() -> dict[str, dict[str, str]]:
    """Return the titles of papers, metrics and axes that pages show."""
    return _read(_folder() / "titles.toml")


@cache
def names() -> tuple[str, ...]:
    """Return the names of all tables and figures, by paper, tables first."""
    found = []
    for paper in PAPERS:
        files = [file.name for file in (_folder() / paper).iterdir()]
        stems = [f.removesuffix(".toml") for f in files if f.endswith(".toml") and f != VARIANTS]
        stems.sort(key=lambda s: (not s.startswith("table"), int("".join(filter(str.isdigit, s)))))
        found += [f"{paper}/{stem}" for stem in stems]
    return tuple(found)


def expand(name: str) -> list[str]:
    """Return the tables and figures that a name selects: one, a paper's, or all."""
    if name == "all":
        return list(names())
    if name in PAPERS:
        return [n for n in names() if n.startswith(f"{name}/")]
    load_protocol(name)  # an unknown name raises an error before anything runs
    return [name]


def _file(name: str, suffix: str) -> Traversable | Path:
    """Return the settings file of a table, in this package or the user's own file."""
    if name.endswith(".toml"):
        return Path(name).with_suffix(suffix)
    if name not in names():
        raise ValueError(f"no table, figure or .toml file {name!r}; --list shows all tables")
    paper, stem = name.split("/")
    return _folder() / paper / f"{stem}{suffix}"


def read_settings(name: str) -> dict[str, Any]:
    """Return the settings in a table's own file, without inherited ones."""
    return _read(_file(name, ".toml"))


def read_printed(name: str) -> tuple[Printed, ...]:
    """Return the printed numbers of a table in the order of its file."""
    rows = read_rows(name) if _file(name, ".csv").is_file() else []
    numbers = []
    for row in (row for row in rows if "mean" in row):  # a table of formulas has no means
        mean, sd = row["mean"], float(row["sd"]) if row["sd"] else None
        decimals = len(mean.partition(".")[2])
        numbers.append(Printed(row["metric"], row["k"], row["method"], float(mean), sd, decimals))
    return tuple(numbers)


def read_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a table's CSV file as strings."""
    text = _file(name, ".csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def load_protocol(name: str, protocol: str = "") -> Protocol:
    """Return the settings of a table or figure, including inherited ones.

    Parameters
    ----------
    name : str
        ``<paper>/<table>``, one of `names`. It can also be the path of your protocol file, which
        ends in ``.toml``. Numbers to compare with are read from a ``.csv`` file of the same name.
    protocol : str, default=""
        A published program whose settings are used for the methods that it contains, for example
        ``"gnmf-matlab"``. It replaces all declared variants; by default these are used. A protocol
        file selects a program with the key ``protocol``.
    """
    raw, own_data = _with_inherited(read_settings(name))
    own, runs = name.endswith(".toml"), raw.get("runs", {})
    paper = {} if own else _read(_folder() / name.split("/")[0] / VARIANTS)
    program = protocol or raw.get("protocol", "")
    declared = _variants(raw.get("runs_of") or name, paper.get("variants", []))
    printed = read_printed(raw.get("printed_from", name))
    if own and printed:
        raw["claims"] = [*raw.get("claims", []), *_own_claims(raw, printed)]
    plain = (*SHOWN, "quick", "kmeans", "keep", "comparable", "runs_of")
    return Protocol(
        name=f"own/{Path(name).stem}" if own else name,
        **_frozen({k: raw[k] for k in plain if k in raw}),
        data=tuple(DataSpec(**_frozen(entry)) for entry in raw.get("data", [])),
        budgets=tuple(Budget(**entry) for entry in raw.get("budgets", [])),
        methods=tuple(Method(**entry) for entry in raw.get("methods", [])),
        runs_printed=runs.get("printed"),
        runs_default=runs.get("default", 1),
        own_data=own_data,
        printed=printed,
        variants=(variant_of_program(program),) if program else declared,
        causes=tuple(Cause(**_frozen(entry)) for entry in paper.get("causes", [])),
    )


def _with_inherited(raw: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return settings with inherited ones, and whether they define runs of their own."""
    if not raw.get("runs_of"):
        return raw, True
    inherited = read_settings(raw["runs_of"])
    return {k: v for k, v in inherited.items() if k not in SHOWN} | raw, "data" in raw


def _own_claims(raw: dict[str, Any], printed: tuple[Printed, ...]) -> list[dict[str, Any]]:
    """Return claims that each of the user's methods beats each printed method."""
    theirs = {number.method for number in printed}
    methods = [m["name"] for m in raw.get("methods", [])]
    pairs = [(a, b) for a in methods for b in methods if a not in theirs and b in theirs]
    metrics = [metric for metric in raw.get("metrics", []) if metric in ("ac", "nmi", "ari")]
    return [
        {"text": f"{mine} beats {other} in {metric.upper()} (on average)", "type": "beats"}
        | {"method": mine, "over": [other], "metric": metric, "every_k": False}
        for metric, (mine, other) in itertools.product(metrics, pairs)
    ]


def _frozen(entry: dict[str, Any]) -> dict[str, Any]:
    """Return settings with tuples instead of lists."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}


def _variants(name: str, listed: list[dict[str, Any]]) -> tuple[Variant, ...]:
    """Return the variants of settings declared for a table, or `AS_WRITTEN`."""
    found: dict[str, dict[str, Any]] = {}
    for entry in map(_frozen, listed):
        if name.split("/")[-1] in entry["tables"]:
            base = found.get(entry.pop("like", ""), {})
            shared = {k: v for k, v in base.items() if k in ("methods", "prepare", "protocol")}
            if "protocol" in entry:
                program = variant_of_program(entry["protocol"])
                shared |= {"readout": program.readout, "source": program.source}
            found[entry["name"]] = shared | entry
    return tuple(Variant(**entry) for entry in found.values()) or (AS_WRITTEN,)
