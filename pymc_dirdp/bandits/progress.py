"""A progress bar for simulations."""

from typing import final

__all__ = ["Bar"]


@final
class Bar:
    """A bar that counts rounds, or nothing at all.

    Parameters
    ----------
    total : int
        Rounds in all.
    shown : bool
    """

    def __init__(self, total: int, *, shown: bool) -> None:
        self._shown = shown
        if shown:
            from rich.progress import Progress

            self._progress = Progress()
            self._task = self._progress.add_task("rounds", total=total)
            self._progress.start()

    def advance(self, rounds: int) -> None:
        """Count more rounds as done."""
        if self._shown:
            self._progress.advance(self._task, rounds)

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._shown:
            self._progress.stop()
