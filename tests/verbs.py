"""Every public verb, and a call of each that is right: tests spoil its arguments, or ask for guarantees of any size."""

import functools
import inspect
import itertools
import typing
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm

import pymc_dirdp as dirdp
from pymc_dirdp import bandits, mechanisms
from pymc_dirdp.planning.options import TableOptions
from pymc_dirdp.releases.plan import ModelPlanning, Options
from tests.planned import one_row

PUBLIC_ROOMS = sorted(stub.parent.name for stub in Path(dirdp.__file__).parent.glob("*/__init__.pyi"))


def public_functions():
    """Every public function, constructor and method of all rooms, by the room and its name."""
    found = {}
    for room in ["", *PUBLIC_ROOMS]:
        module = import_module(f"pymc_dirdp.{room}".rstrip("."))
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing):
                found |= {
                    (room, f"{name}.{method}"): function
                    for method, function in inspect.getmembers(thing, callable)
                    if not method.startswith("_") and str(getattr(function, "__module__", "")).startswith("pymc_dirdp")
                }
            if inspect.isfunction(thing) or inspect.isclass(thing):
                found[room, name] = thing
    return found


# What nobody but the library makes, or that everybody derives from.
RESULTS = {
    *("Audit", "BanditRuns", "BanditView", "Bins", "Comparison", "Counts", "DrawError", "Estimates"),
    *("Frontier", "Guarantee", "Mechanism", "MechanismOutput", "ModelPlan", "PairsPlan", "PairsRelease", "Plan"),
    *("Policy", "PriorExpectedKL", "Report", "Statement", "Structure", "Table", "Transcript", "Verification"),
}
WITH_METHODS = ("Classifier", "Ledger", "ThompsonSampler")
ROOMS = ("", "auditing", "bandits", "curator", "mechanisms", "planning", "plots", "privacy", "releases")
VERBS = {
    name: verb
    for (room, name), verb in public_functions().items()
    if room in ROOMS
    and (name.partition(".")[0] in WITH_METHODS if "." in name else name not in RESULTS)
    and not (inspect.isclass(verb) and issubclass(verb, Exception))
}


def names_of(verb):
    """The names by which a verb takes arguments, but those behind `**options`."""
    return [name for name in inspect.signature(verb).parameters if name != "self"]


def parameters(function):
    """The names by which a function takes arguments, also behind `**options`, with their annotations in short."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return {}
    found = {}
    for one in signature.parameters.values():
        if one.kind is one.VAR_KEYWORD:
            for options in typing.get_args(one.annotation):
                found |= typing.get_type_hints(options)
        else:
            found[one.name] = one.annotation
    return {name: str(annotation).replace("collections.abc.", "") for name, annotation in found.items()}


OPTIONS = {
    **dict.fromkeys(
        ("calibrate", "compare", "expected_error", "least_guarantee", "least_records", "privacy_utility"),
        inspect.signature(TableOptions).parameters,
    ),
    "plan": [*inspect.signature(Options).parameters, *ModelPlanning.__annotations__],
}

APPROX, PURE = dirdp.ApproxDP(epsilon=1, delta=1e-6), dirdp.PureDP(epsilon=1)
RENYI = dirdp.RenyiDP(order=2, epsilon=1)
FRAME = pd.DataFrame({"a": ["u", "v"] * 30, "b": ["u", "u", "v"] * 20, "c": ["u", "v", "v"] * 20, "age": range(60)})
LABELS = {name: ["u", "v"] for name in "abc"}
ALL = FRAME[["a", "b", "c"]]
quiet = {"progressbar": False}


@functools.cache
def hair():
    return one_row([20, 30, 10])


@functools.cache
def tosses(names="x"):
    with pm.Model() as model:
        for name in names:
            pm.Bernoulli(name, pm.Beta(f"p_{name}", 1, 1), observed=[0, 1] * 20)
    return model


@functools.cache
def draw():
    return dirdp.sample(APPROX, hair(), **quiet)


@functools.cache
def noisy():
    return dirdp.sample(PURE, hair(), mechanism="geometric", **quiet)


@functools.cache
def network():
    return dirdp.bayesian_network(ALL, {"a": [], "b": ["a"], "c": ["b"]}, categories=LABELS)


@functools.cache
def drawn_network():
    return dirdp.sample(PURE, network(), mechanism="geometric", **quiet)


@functools.cache
def classifier():
    return dirdp.Classifier.sample(PURE, FRAME[["a", "b"]], FRAME["c"], categories=LABELS, target="c", **quiet)


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


runs = itertools.count()


def saved_run():
    path = f"run{next(runs)}.db"
    dirdp.ThompsonSampler(["a", "b"], PURE).save(path)
    return {"path": path}


def saved_release():
    dirdp.save(noisy(), "release.dirdp")
    return {"path": "release.dirdp"}


TABLE = {"prior": [1, 1], "n_records": 9}
OPTIONAL = {"adjacency": "replace-one", "released_draws": 1, "min_count": 0, "contribution": 1, "public": []}
CELLS = {"prior": [1, 1], "scale": 1.0}
TWO_VARIABLES = {"prior": np.ones((2, 2)), "marginals": ((0,), (1,)), "parameters": (1.0, 1.0)}
GEOMETRIC = mechanisms.GeometricMechanism([1, 1], 1.0)
RUN = {"policy": bandits.EveryRound(APPROX, 20), "means": [0.2, 0.8], "horizon": 20, "n_runs": 2, "random_seed": 1}
CHARGE = {"guarantee": PURE, "what": "w", "unit": "record", "adjacency": "replace-one"}
LABELLED = {"categories": LABELS, "target": "c"}
BINS = {"records": FRAME, "column": "age", "n_bins": 3, "candidates": list(range(0, 61, 10)), "ledger": None}

CALLS = {
    "ApproxDP": lambda: {"epsilon": 1, "delta": 1e-6},
    "PureDP": lambda: {"epsilon": 1},
    "RenyiDP": lambda: {"order": 2, "epsilon": 1},
    "TruncatedCDP": lambda: {"rho": 1, "omega": 2},
    "ZeroCDP": lambda: {"rho": 1},
    **dict.fromkeys(("Ledger.spend", "Ledger.reserve"), lambda: CHARGE),
    **dict.fromkeys(("plan", "sample"), lambda: {"guarantee": APPROX, "model": hair(), **quiet}),
    **dict.fromkeys(("report", "statement", "verify", "analyst_model", "plot_analysis"), lambda: {"release": noisy()}),
    **dict.fromkeys(("analyse", "analyze"), lambda: {"release": noisy(), "draws": 5, "chains": 1, **quiet}),
    **dict.fromkeys(
        ("GeometricMechanism", "ZeroSumGeometricMechanism", "JointTableMechanism", "ZeroSumJointTableMechanism"),
        lambda: CELLS,
    ),
    **dict.fromkeys(("MarginalsMechanism", "ZeroSumMarginalsMechanism"), lambda: TWO_VARIABLES),
    **dict.fromkeys(
        ("Ledger.remaining", "Ledger.holds", "Ledger.issued", "Ledger.receipt", "ThompsonSampler.select"), dict
    ),
    **dict.fromkeys(("Dirichlet", "Marginals"), dict),
    "Contribution": lambda: {"records": 1},
    "convert": lambda: {"guarantee": PURE, "kind": dirdp.ApproxDP, "delta": 1e-6},
    "Ledger": lambda: {"limit": APPROX},
    "Ledger.using": lambda: {"reservation": 1},
    "ThompsonSampler": lambda: {"arms": ["a", "b"], "guarantee": PURE},
    "ThompsonSampler.update": lambda: {"arm": "a", "reward": 1, "person": "Ann"},
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
    "calibrate": lambda: {"guarantee": APPROX, "mechanism": "geometric", "objective": "posterior", **TABLE, **OPTIONAL},
    # For a Rényi guarantee a Dirichlet draw is calibrated without integrals.
    "compare": lambda: {"guarantee": RENYI, "simulations": 1, **TABLE, **OPTIONAL, **quiet},
    "expected_error": lambda: {"guarantee": APPROX, "of": "draw", "objective": "posterior", **TABLE, **OPTIONAL},
    "least_guarantee": lambda: {"kl": 0.1, "like": PURE, "mechanism": "geometric", "of": "draw", **TABLE, **OPTIONAL},
    "least_records": lambda: {"kl": 0.1, "guarantee": PURE, "mechanism": "geometric", "prior": [1, 1], **OPTIONAL},
    "privacy_utility": lambda: {"guarantees": [PURE], "mechanisms": ("geometric",), "of": "draw", **TABLE, **OPTIONAL},
    "audit": lambda: {"mechanism": GEOMETRIC, "n": 100, "random_seed": 1},
    "check_curve": lambda: {"mechanism": GEOMETRIC, "epsilons": [0.5], "orders": [2.0]},
    "private_model": lambda: {"source": PURE, "model": tosses(), "contribution": 1, "adjacency": "replace-one"},
    "release_of": functools.cache(lambda: {"model": dirdp.private_model(PURE, tosses(), adjacency="replace-one")}),
    "tables": lambda: {"model": hair()},
    "save": lambda: {"release": noisy(), "path": "saved.dirdp"},
    "load": saved_release,
    "estimate": lambda: {"release": noisy(), **quiet},
    "release_logp": lambda: {"release": noisy(), "p": [0.2, 0.3, 0.5]},
    "latent_counts": functools.cache(
        lambda: {"idata": dirdp.analyse(noisy(), draws=10, chains=1, **quiet), "release": noisy()}
    ),
    "sample_posterior_predictive": lambda: {"release": noisy(), "model": hair(), "n_records": 5},
    "diagnose": lambda: {"release": draw(), "model": hair(), "draws": 100},
    "exact_posterior": lambda: {"model": hair(), "draws": 5},
    "count": lambda: {"records": FRAME, "variables": ["a"], "categories": LABELS},
    "choose_bins": lambda: {"guarantee": PURE, **BINS},
    "choose_structure": lambda: {"guarantee": PURE, "records": ALL, "categories": LABELS},
    "bayesian_network": lambda: {"records": ALL, "structure": {"a": [], "b": ["a"], "c": []}, "categories": LABELS},
    "latent_class": lambda: {"records": ALL, "categories": LABELS},
    "naive_bayes": lambda: {"X": FRAME[["a", "b"]], "y": FRAME["c"], **LABELLED},
    "Classifier": lambda: {"tables": classifier().tables, "calibration": classifier().calibration},
    "Classifier.sample": lambda: (
        {"guarantee": PURE, "X": FRAME[["a"]], "y": FRAME["c"], "mechanism": "geometric", "target": "c"}
        | {"categories": {"a": ["u", "v"], "c": ["u", "v"]}}
    ),
    "Classifier.predict_log_proba": lambda: {"X": FRAME[["a", "b"]]},
    "fit": lambda: {"release": drawn_network(), **quiet},
    "log_likelihood": lambda: {"release": drawn_network(), "records": ALL},
    "predict_log_proba": lambda: {"release": drawn_network(), "X": FRAME[["a", "b"]], "target": "c"},
    "synthetic": lambda: {"release": drawn_network(), "n_records": 5},
    "plot_calibration": lambda: {"coverage": {"a": {0.5: 0.4, 0.9: 0.8}}},
    "plot_comparison": functools.cache(lambda: {"comparison": dirdp.compare(**CALLS["compare"]())}),
    "plot_draw": lambda: {"release": draw()},
    "plot_frontier": functools.cache(
        lambda: {"frontier": dirdp.privacy_utility([PURE], mechanisms=["geometric"], **TABLE)}
    ),
    "plot_posteriors": functools.cache(lambda: {"diagnosis": dirdp.diagnose(**CALLS["diagnose"]())}),
    "plot_privacy": lambda: {"source": GEOMETRIC},
    "plot_regret": functools.cache(lambda: {"runs": dirdp.simulate_bandit(**CALLS["simulate_bandit"]())}),
    "DirichletMechanism": lambda: {"alpha": [1, 1], "r": 0.5},
    "PairsMechanism": lambda: {"lengths": (2, 3), "parameter": 5.0},
    "QuantilesMechanism": lambda: {"n_bins": 3, "n_candidates": 9, "scale": 1.0},
    "TreeMechanism": lambda: {"lengths": (2, 2), "scale": 1.0, "parameter": 1.0},
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


def called(verb, arguments):
    return OF_OBJECTS.get(verb, VERBS[verb])(**arguments)
