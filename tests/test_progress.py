"""The progress bar: for anyone who looks at a terminal and waits for over a second, and for nobody else."""

import functools
import io
import threading
import time

import pytest
from rich import console as rich_console
from rich import progress as rich_progress

import pymc_dirdp as dirdp
from pymc_dirdp import progress
from pymc_dirdp.progress import QUIET, Bar
from tests.verbs import CALLS, called, drawn_network, hair


class Screen(io.StringIO):
    def isatty(self):
        return True


def terminal(monkeypatch):
    """A terminal, and a bar that does not wait long. pytest sets its own standard error after fixtures."""
    shown = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setitem(Bar.__init__.__kwdefaults__, "patience", 0.02)
    return shown


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_a_bar_appears_while_something_takes_its_time_and_counts(monkeypatch):
    """And goes at the end, which may be an error."""
    screen = terminal(monkeypatch)

    def fails():
        with Bar(7, "tables", shown=True) as bar:
            bar.advance(3)
            assert wait_for(lambda: "tables" in screen.getvalue() and "3/7" in screen.getvalue())
            bar.advance()
            assert wait_for(lambda: "4/7" in screen.getvalue())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    length = len(screen.getvalue())
    time.sleep(0.3)
    assert len(screen.getvalue()) == length


def test_nothing_is_written_before_its_time_or_where_none_is_wanted(monkeypatch):
    screen = terminal(monkeypatch)
    with Bar(3, "tables", shown=False) as bar, QUIET:
        bar.advance()
        QUIET.advance(10**6)
        time.sleep(0.2)
    monkeypatch.setitem(Bar.__init__.__kwdefaults__, "patience", 60.0)
    threads = threading.active_count()
    with Bar(3, "tables", shown=True) as bar:
        bar.advance(3)
    assert screen.getvalue() == ""
    assert wait_for(lambda: threading.active_count() <= threads)


def test_nothing_is_written_to_files_and_other_programs(monkeypatch, capsys):
    monkeypatch.setitem(Bar.__init__.__kwdefaults__, "patience", 0.0)
    monkeypatch.setattr(rich_console.Console, "is_terminal", False)
    with Bar(3, "tables", shown=True) as bar:
        time.sleep(0.3)
        bar.advance(3)
    # Nor do verbs print anything.
    for name in VERBS:
        USES[name]()
    dirdp.curator.exact_posterior(hair(), 10)
    said = capsys.readouterr()
    assert said.out == said.err == ""


def test_a_notebook_without_widgets_shows_no_bar_and_no_warning(monkeypatch, recwarn):
    """The library rich warns there, beside a result that took more than a second."""
    shown = []
    monkeypatch.setitem(Bar.__init__.__kwdefaults__, "patience", 0.0)
    monkeypatch.setattr(rich_console.Console, "is_terminal", True)
    monkeypatch.setattr(rich_console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(rich_progress.Progress, "start", lambda self: shown.append(self))
    for widgets in (None, object()):
        monkeypatch.setattr(progress, "find_spec", lambda name, found=widgets: found if name == "ipywidgets" else None)
        with Bar(3, "tables", shown=True):
            time.sleep(0.3)
        assert len(shown) == (widgets is not None)
    assert not recwarn.list


def with_bar(verb, **bar):
    return called(verb, {name: value for name, value in CALLS[verb]().items() if name != "progressbar"} | bar)


VERBS = ("sample", "analyse", "estimate", "compare")
USES = {verb: functools.partial(with_bar, verb) for verb in VERBS} | {
    "simulate_bandit": lambda **bar: dirdp.simulate_bandit(
        dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0)), [0.5, 0.4], 50, 2, **bar
    ),
    "network": lambda **bar: dirdp.analyse(drawn_network(), 5, chains=1, same_records=True, **bar),
    "rows": lambda **bar: dirdp.analyse(drawn_network(), 5, chains=1, same_records=False, **bar),
}


class Counted:
    made: list["Counted"]

    def __init__(self, total, what, *, shown):
        self.total, self.shown, self.done = total, shown, 0
        self.made.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def advance(self, steps=1):
        self.done += steps


@pytest.mark.parametrize("use", USES)
def test_each_verb_counts_all_that_it_does_and_can_be_silenced(use, monkeypatch, recwarn):
    for module in ("releases.release", "releases.analysis", "planning.comparison", "bandits.simulation"):
        monkeypatch.setattr(f"pymc_dirdp.{module}.Bar", Counted)
    for shown in (True, False):
        Counted.made = []
        USES[use](**({} if shown else {"progressbar": False}))
        # A verb that calls another one shows its own bar alone.
        assert sum(bar.shown for bar in Counted.made) == shown
        assert all(bar.done == bar.total > 0 for bar in Counted.made)


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("verb", [dirdp.plan, dirdp.sample])
def test_planning_has_a_bar(verb, shown, monkeypatch):
    """Also within `sample`, whose `progressbar=` decides for both."""
    monkeypatch.setattr("pymc_dirdp.releases.plan.Bar", Counted)
    Counted.made = []
    verb(dirdp.PureDP(epsilon=1.0), hair(), mechanism="geometric", progressbar=shown)
    assert [bar.shown for bar in Counted.made] == [shown]
