"""Progress bar on a terminal, with the remaining time; piped output has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from partwise.fitting.callbacks import AVAILABLE


def duration(seconds: float) -> str:
    """Return a duration as text, for example "4.2 s", "3 min 24 s" or "2 h 5 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


class _Left(TimeRemainingColumn):
    """Column of the progress bar with the remaining time.

    It is computed from the finished share, or from an estimate of the total time.
    """

    max_refresh = 0.0  # otherwise a new stage would show the previous stage's time at first

    def render(self, task: Any) -> Text:
        """Return the remaining time as text."""
        seconds = task.fields.get("seconds")
        if seconds is None:
            return super().render(task)
        left = max(seconds - (task.elapsed or 0), 0)
        return Text(f"about {duration(round(left))}", style="progress.remaining")


class Bar:
    """Progress bar on standard error with the current task and the remaining time.

    It is a context manager; `step` has the arguments of callbacks ``step(done, total, what)``.
    """

    def __init__(self, console: Console) -> None:
        self.console, self.shown = console, console.is_terminal
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            _Left(),
            console=console,
            transient=True,
            disable=not self.shown,
        )
        self._task = self._progress.add_task("", total=None)
        self._what = ""

    def __enter__(self) -> Bar:
        if self.shown:
            self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.shown:  # otherwise rich before version 14 prints an empty line
            self._progress.stop()

    def step(self, done: int, total: int | None, what: str) -> None:
        """Show how much of a task is done; a new task ``what`` restarts the clock."""
        if what != self._what:
            self._progress.reset(self._task, total=total, description=what, seconds=None)
            self._what = what
        self._progress.update(self._task, completed=done, total=total)

    def start(self, what: str, *, seconds: float | None = None) -> None:
        """Show a task of unknown length, with its expected duration if given."""
        self.step(0, None, what)
        self._progress.update(self._task, seconds=seconds)

    def note(self, text: str) -> None:
        """Print a sentence above the bar, or nothing if output is piped."""
        if self.shown:
            self.console.print(text, markup=False, highlight=False)

    def watch(self, model: Any, what: str) -> Callable[[], None]:
        """Show the iterations of a model's `fit`, and return a function that stops this."""
        self.start(what)
        if not self.shown or not AVAILABLE or not hasattr(model, "set_callbacks"):
            return lambda: None
        model.set_callbacks(_Iterations(self, what, int(model.max_iter)))
        return lambda: model.set_callbacks()


class _Iterations:
    """scikit-learn callback that shows the number of iterations in a progress bar."""

    def __init__(self, bar: Bar, what: str, total: int) -> None:
        self.bar, self.what, self.total, self.done = bar, what, total, 0

    def setup(self, estimator: Any, context: Any) -> None:
        """Begin to count iterations at 0."""
        self.done = 0

    def teardown(self, estimator: Any, context: Any) -> None:
        """Show that the fit has ended and clustering begins."""
        self.bar.start("clustering")

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Do nothing before an iteration."""
        pass

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        """Show the number of iterations; never stop the fit."""
        if context.task_name == "iteration":
            self.done += 1
            self.bar.step(min(self.done, self.total), self.total, self.what)
        return False
