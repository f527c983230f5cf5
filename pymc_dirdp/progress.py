"""A progress bar for calls of more than a second, in a terminal or a notebook."""

import threading
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self, final


@final
class Bar:
    """A bar that counts steps and appears after a second.

    It is written to the standard error of a terminal, or into a notebook with ipywidgets, and disappears at the end.
    Nothing is written if the output goes to a file or to another program.

    Parameters
    ----------
    total : int
        Number of steps.
    noun : str
        Name of the steps, in the plural.
    shown : bool
    patience : float, default 1.0
        Seconds before the bar appears.

    Examples
    --------
    >>> with Bar(3, "tables", shown=False) as bar:
    ...     for _ in range(3):
    ...         bar.advance()
    """

    def __init__(self, total: int, noun: str, *, shown: bool, patience: float = 1.0) -> None:
        self._total, self._noun, self._done = total, noun, 0
        self._progress: Any = None
        self._task: Any = None
        self._timer = threading.Timer(patience, self._show) if shown else None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if self._timer is not None:
            # The timer must not delay the end of a program.
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        with self._lock:
            self._timer = None
            if self._progress is not None:
                self._progress.stop()

    def advance(self, steps: int = 1) -> None:
        """Count more steps as done."""
        self._done += steps
        if self._progress is not None:
            self._progress.update(self._task, completed=self._done)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        # In a notebook rich shows bars as widgets, and without ipywidgets it shows a warning instead.
        shows = find_spec("ipywidgets") is not None if console.is_jupyter else console.is_terminal
        if not shows:
            return
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        # Do not redirect the output of other code.
        progress = Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
        with self._lock:
            # All steps may be done by now.
            if self._timer is None:
                return
            self._task = progress.add_task(self._noun, total=self._total)
            self._progress = progress
            # Show the steps that were counted before the bar existed.
            progress.update(self._task, completed=self._done)
            progress.start()


QUIET = Bar(0, "steps", shown=False)
"""A bar that is not shown."""
