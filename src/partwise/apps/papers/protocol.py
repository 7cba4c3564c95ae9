"""Read the protocols: what a table or figure runs, and what was printed.

A protocol is a TOML file. ``runs_of`` names another protocol whose runs it shows in another way
(a figure of a table's columns, a second metric of the same runs); such a file holds only what
differs. Everything a cell's result depends on is in the protocol, so a hash of those settings
tells whether a stored result still answers to it.
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

FIRST = "first"


@dataclass(frozen=True)
class Reading:
    """One way to read a protocol: what is done, and what fixes it.

    ``methods`` holds settings by column; ``params`` inside are merged, other settings replaced.
    ``readout`` is how representations become clusters,
    ``prepare`` how each data set is prepared, where they differ from the protocol.
    """

    name: str
    text: str = ""
    source: str = ""
    main: bool = False
    readout: str = ""
    prepare: dict[str, str] = field(default_factory=dict)
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)
    subrun_choice: str = ""
    budget: str = ""  # the label budget that print's is taken for
    protocol: str = ""  # a program that runs the columns of its own methods: one of `programs`
    contradicts: bool = False  # a setting contradicts print: shown, and never counted
    runs: int | None = None  # a declared number where it is not the protocol's
    tables: tuple[str, ...] = ()

    def of_method(self, method: ComparedMethod) -> ComparedMethod:
        """A column as this reading has it: the program's settings first, then its own."""
        theirs = programs()[self.protocol]["estimators"] if self.protocol else {}
        program, own = theirs.get(method.estimator, {}), self.methods.get(method.name, {})
        params = {**method.params, **program.get("params", {}), **own.get("params", {})}
        change = program | own | {"params": params}
        if self.readout:
            change = {"readout": self.readout} | change
        if self.subrun_choice and method.subruns > 1:
            change = {"subrun_choice": self.subrun_choice} | change
        return replace(method, **change)


AS_WRITTEN = Reading(FIRST)
READINGS = "readings.toml"  # beside a paper's tables: how each of them is read
PROGRAMS = "programs.toml"  # the procedures of public programs
PAPERS = ("cnmf", "lcf", "gnmf", "nmfdc", "cdnmf", "partwise")
#: What a protocol says of its own page, and takes from no other.
SHOWN = (
    "title", "paper", "kind", "view", "metrics", "claims", "slips", "copies", "notes", "evidence",
)  # fmt: skip


@dataclass(frozen=True)
class DataSpec:
    """One data set of a protocol: its name, preparation and the cluster numbers to draw."""

    name: str
    prepare: str = "unit_rows"
    clusters: tuple[int, ...] = ()
    classes: int | None = None  # keep this many classes
    per_class: int | None = None  # and this many samples of each
    at_most: int | None = None  # or as many as there are, up to this
    note: str = ""


@dataclass(frozen=True)
class Budget:
    """How many samples of each class show their label: a count or a share."""

    name: str
    per_class: int | None = None
    share: float | None = None
    printed: bool = True
    note: str = ""

    def count(self, size: int) -> int:
        """Labels shown in a class of ``size`` samples; a share is rounded up."""
        if self.per_class is not None:
            return min(self.per_class, size)
        if self.share is None:
            return 0
        return min(size, math.ceil(self.share * size - 1e-9))  # 0.1 * 30 is above 3


@dataclass(frozen=True)
class ComparedMethod:
    """One column: an estimator with its parameters, and what the authors do around it."""

    name: str
    estimator: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    labels: bool = False
    weights: str = ""
    start: str = "shared"  # shared: the cell's V0 and U0; seed: the estimator's own, seeded
    restarts: int = 1  # starts of 30 iterations, of which the best goes on
    stop: bool = False  # by the stopping rule of the laboratory's program, within max_iter
    subruns: int = 1
    subrun_choice: str = "objective"  # of the sub-runs: objective, score (the best) or mean
    readout: str = "k-means++"  # or random (seeds), argmax, "root random" (on Γ^½V, random seeds)
    unit_basis: bool = True
    grid: dict[str, list[Any]] = field(default_factory=dict)
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    per_data: dict[str, dict[str, Any]] = field(default_factory=dict)
    printed_only: str = ""
    fixed_by: str = ""  # "print" where the paper states all settings of the column
    max_clusters: int | None = None
    runs: int | None = None  # at most so many, for a column that costs much
    note: str = ""

    @property
    def chosen_on_answer(self) -> bool:
        """Whether parameters (or the sub-run) are chosen by the score they reach."""
        return bool(self.grid) or (self.subruns > 1 and self.subrun_choice == "score")

    def variants(self) -> Iterator[Variant]:
        """Every parameter setting of the grid or the sweep; one where there is neither."""
        axes = self.grid or self.sweep
        for values in itertools.product(*axes.values()):
            setting = dict(zip(axes, values, strict=True))
            yield Variant(self, setting)


@dataclass(frozen=True)
class Variant:
    """A method at one setting of its grid or sweep."""

    method: ComparedMethod
    setting: dict[str, Any]

    @property
    def name(self) -> str:
        """The method's name, with the setting where there is one: ``GNMF[graph_reg=10]``."""
        if not self.setting:
            return self.method.name
        inner = ",".join(f"{key}={value}" for key, value in self.setting.items())
        return f"{self.method.name}[{inner}]"

    def params(self, data: str) -> dict[str, Any]:
        """The estimator's parameters on this data set."""
        return {**self.method.params, **self.method.per_data.get(data, {}), **self.setting}


@dataclass(frozen=True)
class Printed:
    """One printed number."""

    metric: str
    k: str  # a cluster number, or "avg"
    method: str
    mean: float
    sd: float | None
    decimals: int


@dataclass(frozen=True)
class Cause:
    """Why a column may be far from print: whose it would be, in words, and what would show it.

    That is a reading, or the same one with more labels (``budget``), or another ``column``; or that
    the column is computed to be another one (``identity``).
    """

    tables: tuple[str, ...]
    columns: tuple[str, ...]
    whose: str
    text: str
    metrics: tuple[str, ...] = ()
    reading: str = ""
    budget: str = ""
    column: str = ""
    identity: bool = False

    def fits(self, table: str, metric: str, column: str) -> bool:
        """Whether it is about this average."""
        return (
            table.split("/")[-1] in self.tables
            and column in self.columns
            and (not self.metrics or metric in self.metrics)
        )


@dataclass(frozen=True)
class Protocol:
    """A table or figure: what to run, how to show it, and what was printed."""

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
    methods: tuple[ComparedMethod, ...] = ()
    claims: tuple[dict[str, Any], ...] = ()
    slips: tuple[dict[str, Any], ...] = ()
    copies: tuple[dict[str, Any], ...] = ()  # columns whose printed numbers are another table's
    notes: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    runs_of: str = ""
    own_data: bool = True  # not where all runs are those of another protocol
    printed: tuple[Printed, ...] = ()
    comparable: bool = True
    evidence: tuple[dict[str, Any], ...] = ()
    readings: tuple[Reading, ...] = (AS_WRITTEN,)
    causes: tuple[Cause, ...] = ()
    reading: Reading = AS_WRITTEN  # the one that this protocol is now

    @property
    def main(self) -> Reading:
        """The reading that is shown in full: the one the text or the authors' code fixes."""
        return next((r for r in self.readings if r.main), self.readings[0])

    def read(self, reading: Reading | None = None) -> Protocol:
        """The protocol in a reading, by default the main one."""
        reading = reading or self.main
        budgets = self.budgets
        if reading.budget:
            budgets = tuple(replace(b, printed=b.name == reading.budget) for b in budgets)
        return replace(
            self,
            reading=reading,
            data=tuple(
                replace(d, prepare=reading.prepare.get(d.name, d.prepare)) for d in self.data
            ),
            methods=tuple(map(reading.of_method, self.methods)),
            budgets=budgets,
        )

    def runs(self) -> int:
        """Runs a row by default, in this reading."""
        return self.reading.runs or self.runs_default

    @property
    def root(self) -> str:
        """The protocol under whose name the runs are seeded and stored."""
        return self.runs_of or self.name

    def method(self, name: str) -> ComparedMethod:
        """The method of this name."""
        known = {method.name: method for method in self.methods}
        if name not in known:
            raise ValueError(f"{self.name} has no method {name!r}; it has {list(known)}")
        return known[name]

    def runnable(self) -> tuple[ComparedMethod, ...]:
        """The methods that are not "printed only"."""
        return tuple(m for m in self.methods if not m.printed_only)

    def copied_from(self, metric: str, method: str) -> str:
        """The table that this printed column repeats; empty where it is the paper's own."""
        for copy in self.copies:
            if metric in copy["metrics"] and method in copy["methods"]:
                return str(copy["of"])
        return ""

    def settings_from(self, method: ComparedMethod) -> str:
        """What decides the settings of a column in this reading.

        ``print`` is the paper, ``program`` the laboratory's program where print is silent, and
        ``choice`` a declared choice of ours where both are silent.
        """
        program = programs()[self.reading.protocol] if self.reading.protocol else {}
        if method.estimator in program.get("estimators", {}):
            return "program"
        return method.fixed_by or "choice"

    def printed_value(self, metric: str, k: int | str, method: str) -> Printed | None:
        """The printed number, or None."""
        for cell in self.printed:
            if (cell.metric, cell.k, cell.method) == (metric, str(k), method):
                return cell
        return None


def _folder() -> Traversable:
    return resources.files("partwise.apps.papers")


@cache
def programs() -> dict[str, dict[str, Any]]:
    """The programs whose procedure a reading or a file may name with ``protocol``."""
    return tomllib.loads((_folder() / PROGRAMS).read_text(encoding="utf-8"))


def reading_of_program(name: str) -> Reading:
    """The reading in which a program runs the columns of its own methods."""
    if name not in programs():
        raise ValueError(f"no protocol {name!r}; choose one of: {', '.join(programs())}")
    about = programs()[name]
    return Reading(
        name, about["text"], about["source"], main=True, readout=about["readout"], protocol=name
    )


@cache
def names() -> tuple[str, ...]:
    """Every table and figure, tables before figures within a paper."""
    found = []
    for paper in PAPERS:
        stems = [
            entry.name.removesuffix(".toml")
            for entry in (_folder() / paper).iterdir()
            if entry.name.endswith(".toml") and entry.name != READINGS
        ]
        stems.sort(key=lambda s: (not s.startswith("table"), int("".join(filter(str.isdigit, s)))))
        found += [f"{paper}/{stem}" for stem in stems]
    return tuple(found)


def expand(name: str) -> list[str]:
    """The tables and figures that a name stands for: one, a paper's, or all."""
    if name == "all":
        return list(names())
    if name in PAPERS:
        return [n for n in names() if n.startswith(f"{name}/")]
    load_protocol(name)  # an unknown name is an error before anything runs
    return [name]


def _file(name: str, suffix: str) -> Traversable | Path:
    """A protocol's file: package data, or a user's own where the name ends in ``.toml``."""
    if name.endswith(".toml"):
        return Path(name).with_suffix(suffix)
    if name not in names():
        raise ValueError(
            f"no table or figure {name!r}; `partwise reproduce --list` shows all, "
            "and a protocol of your own is named by its .toml file"
        )
    paper, stem = name.split("/")
    return _folder() / paper / f"{stem}{suffix}"


def read_settings(name: str) -> dict[str, Any]:
    """A protocol's file as it is written."""
    return tomllib.loads(_file(name, ".toml").read_text(encoding="utf-8"))


def read_printed(name: str) -> tuple[Printed, ...]:
    """The printed numbers of a table, in reading order; empty for a figure."""
    if not _file(name, ".csv").is_file():
        return ()
    cells = []
    for row in read_rows(name):
        if "mean" not in row:  # a table of formulas, read by its own view
            return ()
        mean, sd = row["mean"], float(row["sd"]) if row["sd"] else None
        decimals = len(mean.partition(".")[2])
        cells.append(Printed(row["metric"], row["k"], row["method"], float(mean), sd, decimals))
    return tuple(cells)


def read_rows(name: str) -> list[dict[str, str]]:
    """The rows of a table's file, as they are written."""
    text = _file(name, ".csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def load_protocol(name: str, protocol: str = "") -> Protocol:
    """Read one protocol, with what it inherits through ``runs_of`` filled in.

    Parameters
    ----------
    name : str
        ``<paper>/<table>``, one of `names`; or the path of a protocol of your own, which
        ends in ``.toml`` and has the printed numbers, if any, in a ``.csv`` of the same name.
    protocol : str, default=""
        The program whose procedure runs the columns of its own methods, for example
        ``"gnmf-matlab"``; it replaces all declared readings. A file names it with the key
        ``protocol``. By default the declared readings are used.
    """
    raw = read_settings(name)
    runs_of = raw.get("runs_of", "")
    if runs_of:  # shows them in its own way
        raw = {k: v for k, v in read_settings(runs_of).items() if k not in SHOWN} | raw
    own_data = not runs_of or "data" in read_settings(name)
    runs = raw.get("runs", {})
    own = name.endswith(".toml")
    listed = {} if own else _listed(name.split("/")[0])
    declared = listed.get("readings", raw.get("readings", []))
    program = protocol or raw.get("protocol", "")
    printed = read_printed(raw.get("printed_from", name))
    if own and printed:
        raw["claims"] = [*raw.get("claims", []), *_own_claims(raw, printed)]
    return Protocol(
        name=f"own/{Path(name).stem}" if own else name,
        **_frozen(
            {k: raw[k] for k in (*SHOWN, "quick", "kmeans", "keep", "comparable") if k in raw}
        ),
        data=tuple(DataSpec(**_frozen(entry)) for entry in raw.get("data", [])),
        budgets=tuple(Budget(**entry) for entry in raw.get("budgets", [])),
        methods=tuple(ComparedMethod(**entry) for entry in raw.get("methods", [])),
        runs_printed=runs.get("printed"),
        runs_default=runs.get("default", 1),
        runs_of=runs_of,
        own_data=own_data,
        printed=printed,
        readings=(reading_of_program(program),)
        if program
        else _readings(runs_of or name, declared),
        causes=tuple(Cause(**_frozen(entry)) for entry in listed.get("causes", [])),
    )


def _own_claims(raw: dict[str, Any], printed: tuple[Printed, ...]) -> list[dict[str, Any]]:
    """That each method of a user's own beats each printed one, by every score of the table."""
    theirs = {cell.method for cell in printed}
    methods = [m["name"] for m in raw.get("methods", []) if not m.get("printed_only")]
    pairs = [(a, b) for a in methods for b in methods if a not in theirs and b in theirs]
    return [
        {
            "text": f"{mine} beats {other} in {metric.upper()} (on average)",
            "type": "beats",
            "method": mine,
            "over": [other],
            "metric": metric,
            "every_k": False,
        }
        for metric in raw.get("metrics", [])
        if metric in ("accuracy", "ac", "nmi", "ari")
        for mine, other in pairs
    ]


def _frozen(entry: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}


def _listed(paper: str) -> dict[str, Any]:
    """What a paper's own file says of the readings of its tables, and of causes."""
    source = _folder() / paper / READINGS
    return tomllib.loads(source.read_text(encoding="utf-8")) if source.is_file() else {}


def _readings(name: str, listed: list[dict[str, Any]]) -> tuple[Reading, ...]:
    """Of the readings those that name the table, or name none."""
    by_name: dict[str, dict[str, Any]] = {}
    for entry in map(_frozen, listed):
        if name.split("/")[-1] in entry.get("tables", (name.split("/")[-1],)):
            base = by_name.get(entry.pop("like", ""), {})
            shared = {k: v for k, v in base.items() if k in ("methods", "prepare", "protocol")}
            if "protocol" in entry:
                program = reading_of_program(entry["protocol"])
                shared |= {"readout": program.readout, "source": program.source}
            by_name[entry["name"]] = shared | entry
    found = tuple(Reading(**entry) for entry in by_name.values())
    return found if any(r.name == FIRST for r in found) else (AS_WRITTEN, *found)
