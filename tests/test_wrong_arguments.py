"""Arguments that are misspelt, or of a wrong type: the answer is an error of the library that names the argument."""

import functools
import inspect
import pickle
import re
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp import auditing, bandits, curator, mechanisms, planning, plots, privacy, releases
from pymc_dirdp.errors import ArgumentError, DirdpError, InternalError, KeywordError
from pymc_dirdp.planning.options import TableOptions
from pymc_dirdp.releases.plan import ModelPlanning, Options
from pymc_dirdp.signatures import user_facing

ROOMS = (dirdp, auditing, bandits, curator, mechanisms, planning, plots, privacy, releases)
# What nobody but the library makes, or that everybody derives from.
RESULTS = {
    *("Audit", "BanditRuns", "BanditView", "Bins", "Comparison", "Counts", "DrawError", "Estimates"),
    *("Frontier", "Guarantee", "Mechanism", "MechanismOutput", "ModelPlan", "PairsPlan", "PairsRelease", "Plan"),
    *("Policy", "PriorExpectedKL"),
    *("Report", "Statement", "Structure", "Table", "Transcript"),
    *("Verification",),
}
# Its names depend on the kind that is asked for.
BY_KIND = {"convert"}


def public_verbs():
    """Functions of all rooms, constructors, and methods that do something."""
    for room in ROOMS:
        for name in room.__all__:
            thing = getattr(room, name)
            is_made = inspect.isclass(thing) and not issubclass(thing, Exception) and name not in RESULTS
            if inspect.isfunction(thing) or is_made:
                yield name, thing
    for kind in (dirdp.Classifier, dirdp.Ledger, dirdp.ThompsonSampler):
        for name in dir(kind):
            method = getattr(kind, name)
            if not name.startswith("_") and inspect.isroutine(method):
                yield f"{kind.__name__}.{name}", method


VERBS = dict(public_verbs())


def names_of(verb):
    return [name for name in inspect.signature(verb).parameters if name != "self"]


OPTIONS = {
    **dict.fromkeys(
        ("calibrate", "compare", "expected_error", "least_guarantee", "least_records", "privacy_utility"),
        inspect.signature(TableOptions).parameters,
    ),
    "plan": [*inspect.signature(Options).parameters, *ModelPlanning.__annotations__],
}
NAMED = [
    (verb, name)
    for verb in VERBS
    if verb not in BY_KIND
    for name in dict.fromkeys([*names_of(VERBS[verb]), *OPTIONS.get(verb, ())])
    if name != "options"
]


def misspelt(name):
    """The name with its middle letters exchanged, or doubled if they are the same."""
    middle = len(name) // 2
    before, after = name[middle - 1 : middle], name[middle : middle + 1]
    exchanged = name[: middle - 1] + after + before + name[middle + 1 :] if middle else name
    return exchanged if exchanged != name else f"{name}{name[-1]}"


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in BY_KIND and names_of(VERBS[verb])])
def test_a_misspelt_name_is_answered_with_the_right_one(verb):
    for name in [name for other, name in NAMED if other == verb and len(name) > 3]:
        answer = f"unexpected keyword argument '{misspelt(name)}'. Did you mean '{name}'?"
        with pytest.raises(KeywordError, match=re.escape(answer)):
            VERBS[verb](**{misspelt(name): None})


def test_a_name_like_no_other_is_answered_with_all():
    with pytest.raises(KeywordError, match=r"argument 'x'\. It has guarantee, prior, n_records, simulations"):
        dirdp.compare(x=1)
    # Python calls it a type error, and so do programs that try an option.
    assert issubclass(KeywordError, TypeError)


def test_a_plan_of_any_model_and_one_of_tables_have_their_own_names():
    guarantee = dirdp.PureDP(epsilon=1)
    with pytest.raises(KeywordError, match=r"argument 'levels'"):
        dirdp.plan(guarantee, pm.Model(), levels={"x": 2})
    with pytest.raises(KeywordError, match=r"argument 'n_records'"):
        dirdp.plan(guarantee, pm.Model(), any_model=True, n_records=5)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if "." not in verb])
def test_a_verb_is_found_where_it_says_that_it_was_defined(verb):
    """A wrapper has the name, the signature and the documentation of what it wraps, and can be pickled."""
    thing = VERBS[verb]
    assert pickle.loads(pickle.dumps(thing)) is thing
    assert thing.__doc__
    assert "args" not in names_of(thing)


def test_warnings_point_to_the_line_that_called():
    counts = {"observed": [20, 30, 10, 5], "n": 65}
    with pm.Model(coords={"hair": ["red", "brown", "black", "blond"]}) as model:
        pm.Multinomial("y", p=pm.Dirichlet("p", np.ones(4), dims="hair"), dims="hair", **counts)
    with pm.Model(coords={"hair": ["red", "brown", "black", "blond"]}) as descending:
        pm.Multinomial("y", n=65, p=pm.Dirichlet("p", np.ones(4), dims="hair"), observed=[30, 20, 10, 5], dims="hair")
    guarantee = dirdp.ApproxDP(epsilon=0.1, delta=1e-6)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            dirdp.sample(dirdp.plan(guarantee, model, released_draws=100), model, random_seed=1)
            dirdp.sample(guarantee, descending)
        dirdp.ThompsonSampler(["a", "b"], guarantee, random_seed=1)
        dirdp.plan(dirdp.ApproxDP(epsilon=100, delta=1e-6), model)
    kinds = {
        dirdp.errors.CategoriesFromDataWarning,
        dirdp.errors.ManyDrawsWarning,
        dirdp.errors.RepeatedReleaseWarning,
        dirdp.errors.SeededReleaseWarning,
        dirdp.errors.WeakGuaranteeWarning,
    }
    assert kinds <= {warning.category for warning in caught}
    assert {warning.filename for warning in caught} == {__file__}


# Values of wrong types. Every public verb is called in a way that is right but for one argument.

APPROX, PURE = dirdp.ApproxDP(epsilon=1, delta=1e-6), dirdp.PureDP(epsilon=1)
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
FRAME = pd.DataFrame({"a": ["u", "v"] * 30, "b": ["u", "u", "v"] * 20, "c": ["u", "v", "v"] * 20, "age": range(60)})
LABELS = {name: ["u", "v"] for name in "abc"}
ALL = FRAME[["a", "b", "c"]]
FEATURES = FRAME[["a", "b"]]
quiet = {"progressbar": False}


@functools.cache
def hair():
    with pm.Model(coords={"hair": ["black", "brown", "red"]}) as model:
        pm.Multinomial("y", n=60, p=pm.Dirichlet("p", np.ones(3), dims="hair"), observed=[20, 30, 10], dims="hair")
    return model


@functools.cache
def tosses():
    with pm.Model() as model:
        pm.Bernoulli("x", pm.Beta("p", 1, 1), observed=[0, 1] * 20)
    return model


@functools.cache
def draw():
    return dirdp.sample(APPROX, hair(), **quiet)


@functools.cache
def noisy():
    return dirdp.sample(PURE, hair(), mechanism="geometric", **quiet)


@functools.cache
def network():
    model = dirdp.bayesian_network(ALL, {"a": [], "b": ["a"], "c": ["b"]}, categories=LABELS)
    return dirdp.sample(PURE, model, mechanism="geometric", **quiet)


@functools.cache
def classifier():
    return dirdp.Classifier.sample(PURE, FEATURES, FRAME["c"], categories=LABELS, target="c")


@functools.cache
def diagnosis():
    return dirdp.diagnose(draw(), hair(), draws=100, random_seed=1)


@functools.cache
def private():
    return dirdp.private_model(PURE, tosses(), adjacency="replace-one")


def spent():
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=3))
    return ledger, ledger.spend(PURE, what="x", unit="record", adjacency="replace-one")


def of_ledger(verb):
    return lambda **named: getattr(spent()[0], verb)(**named)


def with_receipt(verb, **more):
    def call(**named):
        ledger, entry = spent()
        own = {"entry": entry} if verb == "receipt" else {"receipt": ledger.receipt(entry)}
        return getattr(ledger, verb)(**own | more | named)

    return call


def of_bandit(verb, **settings):
    return lambda **named: getattr(dirdp.ThompsonSampler(["a", "b"], PURE, **settings), verb)(**named)


def saved_run():
    path = f"run{len(saved_runs)}.db"
    saved_runs.append(path)
    dirdp.ThompsonSampler(["a", "b"], PURE).save(path)
    return {"path": path}


def saved_release():
    dirdp.save(noisy(), "release.dirdp")
    return {"path": "release.dirdp"}


saved_runs = []
TABLE = {"prior": [1, 1], "n_records": 9}
OPTIONAL = {"adjacency": "replace-one", "released_draws": 1, "min_count": 0, "contribution": 1, "public": []}
CELLS = {"prior": [1, 1], "scale": 1.0}
VARIABLES_ALONE = {"prior": np.ones((2, 2)), "marginals": ((0,), (1,)), "parameters": (1.0, 1.0)}
GEOMETRIC = mechanisms.GeometricMechanism([1, 1], 1.0)
RUN = {"policy": bandits.EveryRound(APPROX, 20), "means": [0.2, 0.8], "horizon": 20, "n_runs": 2, "random_seed": 1}


@functools.cache
def runs():
    return dirdp.simulate_bandit(**RUN, **quiet)


@functools.cache
def comparison():
    return dirdp.compare(APPROX, simulations=1, **TABLE, **quiet)


# The verb if it is not that of the name, and a call of it that is right.
CALLS = {
    "ApproxDP": lambda: {"epsilon": 1, "delta": 1e-6},
    "PureDP": lambda: {"epsilon": 1},
    "RenyiDP": lambda: {"order": 2, "epsilon": 1},
    "TruncatedCDP": lambda: {"rho": 1, "omega": 2},
    "ZeroCDP": lambda: {"rho": 1},
    "Contribution": lambda: {"records": 1},
    "convert": lambda: {"guarantee": PURE, "kind": dirdp.ApproxDP, "delta": 1e-6},
    # Ledgers
    "Ledger": lambda: {"limit": APPROX},
    "Ledger.spend": lambda: {"guarantee": PURE, "what": "w", "unit": "record", "adjacency": "replace-one"},
    "Ledger.reserve": lambda: {"guarantee": PURE, "what": "w", "unit": "record", "adjacency": "replace-one"},
    "Ledger.remaining": dict,
    "Ledger.using": lambda: {"reservation": 1},
    "Ledger.holds": dict,
    "Ledger.issued": dict,
    "Ledger.receipt": dict,
    # Bandits
    "ThompsonSampler": lambda: {"arms": ["a", "b"], "guarantee": PURE},
    "ThompsonSampler.update": lambda: {"arm": "a", "reward": 1, "person": "Ann"},
    "ThompsonSampler.select": dict,
    "ThompsonSampler.add_arm": lambda: {"arm": "c"},
    "ThompsonSampler.retire_arm": lambda: {"arm": "a"},
    "ThompsonSampler.posterior": lambda: {"draws": 5},
    "ThompsonSampler.release_logp": lambda: {"mean_reward": [0.5, 0.5]},
    "ThompsonSampler.save": lambda: {"path": "run.db"},
    "ThompsonSampler.load": saved_run,
    "simulate_bandit": lambda: RUN | quiet,
    "bandit_lower_bound": lambda: {"means": [0.2, 0.8], "epsilon": 1},
    "Design": lambda: {"mechanism": bandits.BatchNoise(1.0)},
    "EveryRound": lambda: {"guarantee": APPROX, "horizon": 20},
    "BatchNoise": lambda: {"scale": 1.0},
    "BatchCounts": lambda: {"scale": 1.0, "worths": (0.0, 0.5, 1.0)},
    # Planning
    "calibrate": lambda: {"guarantee": APPROX, "mechanism": "geometric", "objective": "posterior", **TABLE, **OPTIONAL},
    "compare": lambda: {"guarantee": APPROX, "simulations": 1, **TABLE, **OPTIONAL, **quiet},
    "expected_error": lambda: {"guarantee": APPROX, "of": "draw", "objective": "posterior", **TABLE, **OPTIONAL},
    "least_guarantee": lambda: {"kl": 0.1, "like": PURE, "mechanism": "geometric", "of": "draw", **TABLE, **OPTIONAL},
    "least_records": lambda: {"kl": 0.1, "guarantee": PURE, "mechanism": "geometric", "prior": [1, 1], **OPTIONAL},
    "privacy_utility": lambda: {"guarantees": [PURE], "mechanisms": ("geometric",), "of": "draw", **TABLE, **OPTIONAL},
    "audit": lambda: {"mechanism": GEOMETRIC, "n": 1000, "random_seed": 1},
    "check_curve": lambda: {"mechanism": GEOMETRIC, "epsilons": [0.5], "orders": [2.0]},
    # Releases
    "plan": lambda: {"guarantee": APPROX, "model": hair(), **quiet},
    "sample": lambda: {"guarantee": APPROX, "model": hair(), **quiet},
    "private_model": lambda: {"source": PURE, "model": tosses(), "contribution": 1, "adjacency": "replace-one"},
    "release_of": lambda: {"model": private()},
    "tables": lambda: {"model": hair()},
    "report": lambda: {"release": noisy()},
    "statement": lambda: {"release": noisy()},
    "verify": lambda: {"release": noisy()},
    "save": lambda: {"release": noisy(), "path": "saved.dirdp"},
    "load": saved_release,
    "analyse": lambda: {"release": noisy(), "draws": 5, "chains": 1, **quiet},
    "analyze": lambda: {"release": noisy(), "draws": 5, "chains": 1, **quiet},
    "estimate": lambda: {"release": noisy(), **quiet},
    "release_logp": lambda: {"release": noisy(), "p": [0.2, 0.3, 0.5]},
    "analyst_model": lambda: {"release": noisy()},
    "latent_counts": lambda: {
        "idata": dirdp.analyse(noisy(), draws=10, chains=1, **quiet),
        "release": noisy(),
    },
    "sample_posterior_predictive": lambda: {"release": noisy(), "model": hair(), "n_records": 5},
    "diagnose": lambda: {"release": draw(), "model": hair(), "draws": 100},
    "exact_posterior": lambda: {"model": hair(), "draws": 5},
    # Networks and records
    "count": lambda: {"records": FRAME, "variables": ["a"], "categories": LABELS},
    "choose_bins": lambda: {
        "guarantee": PURE,
        "records": FRAME,
        "column": "age",
        "n_bins": 3,
        "candidates": list(range(0, 61, 10)),
        "ledger": None,
    },
    "choose_structure": lambda: {"guarantee": PURE, "records": ALL, "categories": LABELS},
    "bayesian_network": lambda: {"records": ALL, "structure": {"a": [], "b": ["a"], "c": []}, "categories": LABELS},
    "latent_class": lambda: {"records": ALL, "categories": LABELS},
    "naive_bayes": lambda: {"X": FEATURES, "y": FRAME["c"], "categories": LABELS, "target": "c"},
    "Classifier": lambda: {"tables": classifier().tables, "calibration": classifier().calibration},
    "Classifier.sample": lambda: {
        "guarantee": PURE,
        "X": FEATURES,
        "y": FRAME["c"],
        "categories": LABELS,
        "target": "c",
        "mechanism": "geometric",
    },
    "Classifier.predict_log_proba": lambda: {"X": FEATURES},
    "fit": lambda: {"release": network(), **quiet},
    "log_likelihood": lambda: {"release": network(), "records": ALL},
    "predict_log_proba": lambda: {"release": network(), "X": FEATURES, "target": "c"},
    "synthetic": lambda: {"release": network(), "n_records": 5},
    # Pictures
    "plot_analysis": lambda: {"release": noisy()},
    "plot_calibration": lambda: {"coverage": {"a": {0.5: 0.4, 0.9: 0.8}}},
    "plot_comparison": lambda: {"comparison": comparison()},
    "plot_draw": lambda: {"release": draw()},
    "plot_frontier": lambda: {"frontier": dirdp.privacy_utility([PURE], mechanisms=["geometric"], **TABLE)},
    "plot_posteriors": lambda: {"diagnosis": diagnosis()},
    "plot_privacy": lambda: {"source": GEOMETRIC},
    "plot_regret": lambda: {"runs": runs()},
    # Mechanisms
    "Dirichlet": dict,
    "Marginals": dict,
    "DirichletMechanism": lambda: {"alpha": [1, 1], "r": 0.5},
    "PairsMechanism": lambda: {"lengths": (2, 3), "parameter": 5.0},
    "MarginalsMechanism": lambda: VARIABLES_ALONE,
    "ZeroSumMarginalsMechanism": lambda: VARIABLES_ALONE,
    "QuantilesMechanism": lambda: {"n_bins": 3, "n_candidates": 9, "scale": 1.0},
    "TreeMechanism": lambda: {"lengths": (2, 2), "scale": 1.0, "parameter": 1.0},
    "JointTableMechanism": lambda: CELLS,
    "ZeroSumJointTableMechanism": lambda: CELLS,
    "GeometricMechanism": lambda: CELLS,
    "ZeroSumGeometricMechanism": lambda: CELLS,
    "DiscreteGaussianMechanism": lambda: {"prior": [1, 1], "sigma": 1.0},
}
# Methods are called on an object of their own.
OF_OBJECTS = {
    **{f"Ledger.{verb}": of_ledger(verb) for verb in ("spend", "reserve", "remaining", "using", "verify")},
    **{f"ThompsonSampler.{verb}": of_bandit(verb) for verb in ("select", "add_arm", "retire_arm", "posterior")},
    **{f"ThompsonSampler.{verb}": of_bandit(verb) for verb in ("release_logp", "save")},
    "ThompsonSampler.update": of_bandit("update", contribution=2),
    "Ledger.holds": with_receipt("holds", digest="d"),
    "Ledger.issued": with_receipt("issued"),
    "Ledger.receipt": with_receipt("receipt"),
    "Classifier.predict_log_proba": lambda **named: classifier().predict_log_proba(**named),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for whatever a path of a wrong type makes, and no window for pictures."""
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")


PATHS = ("path", "source", "release", "tables", "calibration")


def answers(verb, right, names):
    """Call a verb with each wrong value of each argument, and yield what is no answer of the library."""
    verb(**right())
    for name in names:
        for kind, value in WRONG.items():
            try:
                verb(**right() | {name: value})
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
@pytest.mark.parametrize("verb", CALLS)
def test_a_value_of_a_wrong_type_is_answered_by_the_library(verb, folder):
    names = [name for name in dict.fromkeys([*names_of(VERBS[verb]), *CALLS[verb]()]) if name not in ("options", "at")]
    assert list(answers(OF_OBJECTS.get(verb, VERBS[verb]), CALLS[verb], names)) == []
    if verb == "private_model":
        any_model = {"guarantee": PURE, "any_model": True, "contribution": 1, "adjacency": "replace-one"}
        own = any_model | {"model": tosses()} | quiet
        assert list(answers(dirdp.plan, lambda: own, ModelPlanning.__annotations__)) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dirdp.estimate(noisy(), prob=95), "Expected prob to be a list whose entries are each a number, got"),
        (
            lambda: plots.plot_frontier(noisy()),
            "Expected frontier to be a Frontier from dirdp.privacy_utility, got a r",
        ),
        (
            lambda: spent()[0].spend(PURE, what="x", mechanism="geometric"),
            "Expected mechanism to be a PrivacyCurves",
        ),
        (lambda: spent()[0].spend(PURE, what="x", groups=3), "Expected groups to be a list whose entries are each a l"),
        (lambda: plots.plot_calibration({"aware": {0.5: 0.5}}, ax=3), "Expected ax to be an Axes or None, got an int"),
        (lambda: dirdp.analyse(noisy(), random_seed=1.5), "Expected random_seed to be an integer"),
        (lambda: dirdp.save(noisy(), 1), "Expected path to be a path, got an int"),
    ],
)
def test_what_was_answered_by_python(call, message):
    with pytest.raises(ArgumentError, match=re.escape(message)) as caught:
        call()
    assert caught.value.__context__ is None


def test_an_error_of_a_right_call_is_not_blamed_on_an_argument():
    @user_facing
    def failing(table: list[float], draws: int = 1):
        raise ZeroDivisionError(f"a bug with {table} and {draws}")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        failing([1.0])
    with pytest.raises(ZeroDivisionError, match="a bug"):
        failing([1], draws=3.0)
    with pytest.raises(ArgumentError, match="Expected draws to be an integer, got a float"):
        failing([1.0], draws=3.5)
    with pytest.raises(ArgumentError, match="Expected table to be a list whose entries are each a number, got a list"):
        failing(["1"])
    with pytest.raises(TypeError, match="2 positional arguments but 3 were given"):
        failing([1.0], 1, 2)
