"""Arguments that are misspelt, or of a wrong type: the answer is an error of the library that names the argument."""

import pickle
import re
import warnings
from typing import overload

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp import plots
from pymc_dirdp.errors import ArgumentError, DirdpError, InternalError, KeywordError
from pymc_dirdp.releases.plan import ModelPlanning
from pymc_dirdp.signatures import user_facing
from tests.planned import one_row
from tests.verbs import APPROX, CALLS, OPTIONS, PURE, VERBS, called, names_of, noisy, quiet, spent, tosses

# The names that it takes depend on the kind that is asked for.
BY_KIND = {"convert"}


def misspelt(name):
    """The name with its middle letters exchanged, or doubled if they are the same."""
    middle = len(name) // 2
    before, after = name[middle - 1 : middle], name[middle : middle + 1]
    exchanged = name[: middle - 1] + after + before + name[middle + 1 :] if middle else name
    return exchanged if exchanged != name else f"{name}{name[-1]}"


@pytest.mark.parametrize("verb", [verb for verb in CALLS if verb not in BY_KIND])
def test_a_misspelt_name_is_answered_with_the_right_one(verb):
    for name in dict.fromkeys([*names_of(VERBS[verb]), *OPTIONS.get(verb, ())]):
        if name != "options" and len(name) > 3:
            answer = f"unexpected keyword argument '{misspelt(name)}'. Did you mean '{name}'?"
            with pytest.raises(KeywordError, match=re.escape(answer)):
                VERBS[verb](**{misspelt(name): None})


def test_a_name_like_no_other_is_answered_with_all_that_there_are():
    with pytest.raises(KeywordError, match=r"argument 'x'\. It has guarantee, prior, n_records, simulations"):
        dirdp.compare(x=1)
    # Python calls it a type error, and so do programs that try an option.
    assert issubclass(KeywordError, TypeError)
    # A plan of any model and one of tables have their own names.
    for name, which in (("levels", {}), ("n_records", {"any_model": True})):
        with pytest.raises(KeywordError, match=f"argument '{name}'"):
            dirdp.plan(PURE, pm.Model(), **{name: 5}, **which)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if "." not in verb])
def test_a_verb_is_found_where_it_says_that_it_was_defined(verb):
    """A wrapper has the name, the signature and the documentation of what it wraps, and can be pickled."""
    thing = VERBS[verb]
    assert pickle.loads(pickle.dumps(thing)) is thing
    assert thing.__doc__
    assert "args" not in names_of(thing)


def test_warnings_point_to_the_line_that_called():
    model, descending = one_row([20, 30, 10, 5]), one_row([30, 20, 10, 5])
    guarantee = dirdp.ApproxDP(epsilon=0.1, delta=1e-6)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            dirdp.sample(dirdp.plan(guarantee, model, released_draws=100), model, random_seed=1)
            dirdp.sample(guarantee, descending)
        dirdp.ThompsonSampler(["a", "b"], guarantee, random_seed=1)
        dirdp.plan(dirdp.ApproxDP(epsilon=100, delta=1e-6), model)
    kinds = {f"{kind}Warning" for kind in ("CategoriesFromData", "ManyDraws", "RepeatedRelease", "SeededRelease")}
    assert kinds | {"WeakGuaranteeWarning"} <= {warning.category.__name__ for warning in caught}
    assert {warning.filename for warning in caught} == {__file__}


WRONG = {
    "None": None,
    "True": True,
    "-1": -1,
    "1.5": 1.5,
    "NaN": float("nan"),
    "huge": 10**400,
    "complex": 1j,
    "text": "x\0",
    "bytes": b"x",
    "list": [],
    "nested": [["x"]],
    "list of None": [None],
    "dict of None": {"x": None},
    "dict by number": {0: 0},
    "object": object(),
    "array": np.array([[1.0]]),
    "date": np.datetime64("2020-01-01"),
    "guarantee": APPROX,
}
# Verbs that take a tenth of a second with a value that is right after all: those that are wrong most often.
DEAR = {"private_model", "compare", "audit", "Classifier.sample", "latent_counts", "sample"}
FEW = ("None", "NaN", "huge", "text", "list of None", "dict of None", "array", "guarantee")
PATHS = ("path", "source", "release", "tables", "calibration")


def no_answers(call, right, names, kinds=WRONG):
    """Call a verb with each wrong value of each argument, and yield what is no answer of the library."""
    call(right())
    for name in names:
        for kind in kinds:
            try:
                call(right() | {name: WRONG[kind]})
            except InternalError as error:
                yield f"{name}={kind}: {error}"
            except DirdpError as error:
                # The error of Python that came before it may hold the value.
                if error.__context__ is not None and not error.__suppress_context__:
                    yield f"{name}={kind}: {error.__context__!r} is behind {error!r}"
            except OSError as error:
                # What takes a release takes the path of its file, and there is none of such a name.
                if name not in PATHS:
                    yield f"{name}={kind}: {error!r}"
            except Exception as error:
                yield f"{name}={kind}: {error!r}"
            plt.close("all")


def test_every_verb_has_a_call():
    assert {verb for verb in VERBS if names_of(VERBS[verb])} == set(CALLS)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("verb", "kinds"),
    [(verb, FEW if verb in DEAR else WRONG) for verb in CALLS]
    + [pytest.param(verb, set(WRONG) - set(FEW), marks=pytest.mark.slow) for verb in sorted(DEAR)],
    ids=lambda value: value if isinstance(value, str) else f"{len(value)} kinds",
)
def test_a_value_of_a_wrong_type_is_answered_by_the_library(verb, kinds, tmp_path, monkeypatch):
    # A path of a wrong type makes a file there, and pictures open no window.
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")
    names = [name for name in dict.fromkeys([*names_of(VERBS[verb]), *CALLS[verb]()]) if name not in ("options", "at")]
    assert list(no_answers(lambda arguments: called(verb, arguments), CALLS[verb], names, kinds)) == []
    if verb == "private_model":
        own = {"guarantee": PURE, "model": tosses(), "any_model": True, "contribution": 1, "adjacency": "replace-one"}
        others = set(ModelPlanning.__annotations__) - set(names)
        call = lambda arguments: dirdp.plan(**arguments)  # noqa: E731
        assert list(no_answers(call, lambda: own | quiet, sorted(others), kinds)) == []


def test_what_was_answered_by_python():
    for call, message in (
        (lambda: dirdp.estimate(noisy(), prob=95), "prob to be a list whose entries are each a number, got"),
        (lambda: plots.plot_frontier(noisy()), "frontier to be a Frontier from dirdp.privacy_utility, got a r"),
        (lambda: spent()[0].spend(PURE, what="x", mechanism="geometric"), "mechanism to be a PrivacyCurves"),
        (lambda: spent()[0].spend(PURE, what="x", groups=3), "groups to be a list whose entries are each a l"),
        (lambda: plots.plot_calibration({"aware": {0.5: 0.5}}, ax=3), "ax to be an Axes or None, got an int"),
        (lambda: dirdp.analyse(noisy(), random_seed=1.5), "random_seed to be an integer"),
        (lambda: dirdp.save(noisy(), 1), "path to be a path, got an int"),
    ):
        with pytest.raises(ArgumentError, match=re.escape(f"Expected {message}")) as caught:
            call()
        assert caught.value.__context__ is None


def test_an_error_of_a_right_call_is_not_blamed_on_an_argument():
    @overload
    def failing(table: str, draws: int = 1): ...

    @user_facing
    def failing(table: list[float], draws: int = 1):
        raise ZeroDivisionError(f"a bug with {table} and {draws}")

    for arguments, kind, message in (
        (([1.0],), ZeroDivisionError, "a bug"),
        (([1], 3.0), ZeroDivisionError, "a bug"),
        (("a",), ZeroDivisionError, "a bug"),
        (([1.0], 3.5), ArgumentError, "Expected draws to be an integer, got a float"),
        ((["1"],), ArgumentError, "Expected table to be a list whose entries are each a number, got a list"),
        (([1.0], 1, 2), TypeError, "2 positional arguments but 3 were given"),
    ):
        with pytest.raises(kind, match=message):
            failing(*arguments)
