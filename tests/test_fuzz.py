"""Whole models and mechanisms at random, up to extreme priors, counts and guarantees.

Whatever is asked for, the library either answers, and then the guarantee holds by formulas that are written here once
more, or it refuses with an error of its own that tells nothing of the data.
"""

import contextlib
import json
import math
import signal
import sys
import warnings

import numpy as np
import pymc as pm
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet, noises
from pymc_dirdp.releases.interop import as_mechanism
from tests.planned import planned_sample
from tests.test_rounding import gaussian_renyi, pair_delta, pair_renyi

# A search for a thousand records of each person was seen to take 17 s on a slow machine that did something else too.
SECONDS = 100

# Without shrinking, which would take minutes where an example takes a second.
quick = settings(phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
# Nor does anything trace each line to explain a failure, which takes several times as long.
thorough = settings(quick, derandomize=False, phases=[phase for phase in Phase if phase is not Phase.explain])


@contextlib.contextmanager
def within(seconds):
    """A search that never ends is a failure, and not a test that hangs. Of processor time, as machines are busy."""

    def stop(signum, frame):
        raise TimeoutError(f"took more than {seconds} s")

    if not hasattr(signal, "SIGPROF"):  # Windows
        yield
        return
    if sys.gettrace() is not None:
        # Anyone who measures coverage waits several times as long.
        seconds *= 5
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


# The oracle: Theory, sections 3 and 4, by the formulas of `test_rounding`. Nothing of the library is used.

# The library guarantees its curves to a relative 1e-10, and Gaussian nodes are as good.
ROUNDING = 1 + mpf(10) ** -9


def ends(alpha, r, min_count, contribution, n_records, adjacency):
    """The two cells that lose most, and by how much they change.

    One cell of a row whose number of records is public may hold all records that do not change.
    """
    one, other = (mpf(float(cell)) + mpf(r) * mpf(min_count) for cell in np.partition(np.ravel(alpha), 1)[:2])
    if adjacency == "add-remove":
        assert n_records is None
        other = mp.inf
    if n_records is None:
        return [((one, other), mpf(r) * contribution)]
    changing = min(contribution, n_records)
    rest = max(mpf(r) * (n_records - changing - 2 * mpf(min_count)), mpf(0))
    step = mpf(r) * changing
    return [((one, other + rest), step), ((one + rest, other), step)] if changing else []


def refute(target, groups, *, adjacency, min_count, contribution):
    """Fails where the formulas refute the guarantee. `groups` hold (alpha, r, times, public number) of tables.

    A public number of records is not None where it limits what a person can change.
    """
    min_count = math.ceil(min_count)
    match target:
        case dirdp.RenyiDP(order=order, epsilon=epsilon):
            bounds = [(order, mpf(epsilon))]
        case dirdp.TruncatedCDP(rho=rho, omega=omega):
            bounds = [(order, mpf(rho) * order) for order in (1.0, 1 + (omega - 1) * 1e-3, (1 + omega) / 2, omega)]
        case dirdp.ApproxDP():
            bounds = []
        case _:
            raise AssertionError(f"no Dirichlet draw keeps {target}")
    with mp.workdps(40):
        for group in groups:
            tables = [(ends(alpha, r, min_count, contribution, n, adjacency), times) for alpha, r, times, n in group]
            if not bounds:
                # No table alone may lose more than all of them together.
                for cells, step in (change for changes, _ in tables for change in changes):
                    # What is larger is in `privacy/test_extreme_parameters.py`: these sums have as many terms.
                    if max(*(cell for cell in cells if mp.isfinite(cell)), step) < 1e5:
                        assert pair_delta(target.epsilon, *cells, step) <= target.delta * ROUNDING
            for order, bound in bounds:
                lost = mpf(0)
                for changes, times in tables:
                    losses = [pair_renyi(order, *cells, step) for cells, step in changes]
                    lost += times * max(losses, default=mpf(0))
                assert lost <= bound * ROUNDING


def log_floats(low, high):
    return st.floats(math.log10(low), math.log10(high)).map(lambda x: 10.0**x)


epsilons = st.one_of(log_floats(1e-6, 1e3), st.sampled_from([1e-6, 0.1, 1.0, 10.0, 1e3]))
orders = st.one_of(st.just(1.0), log_floats(1, 1e4), log_floats(1e-9, 1).map(lambda x: 1 + x))
APPROX = st.builds(
    dirdp.ApproxDP,
    epsilon=st.one_of(epsilons, st.just(0.0)),
    delta=st.one_of(log_floats(1e-15, 0.5), st.sampled_from([1e-15, 1e-6, 0.5])),
)
ADDITIVE = st.one_of(
    st.builds(dirdp.RenyiDP, order=orders, epsilon=epsilons),
    st.builds(dirdp.TruncatedCDP, rho=epsilons, omega=orders.filter(lambda order: order > 1)),
)
OTHER = st.one_of(
    st.builds(dirdp.ZeroCDP, rho=epsilons),
    st.builds(dirdp.PureDP, epsilon=epsilons),
    st.builds(dirdp.TruncatedCDP, rho=epsilons, omega=st.just(math.inf)),
)
TARGETS = st.one_of(APPROX, ADDITIVE, ADDITIVE, OTHER)
parameters = st.one_of(log_floats(1e-3, 1e4), st.sampled_from([1e-3, 0.5, 1.0, 1e4]))
PUBLIC = {
    "adjacency": st.sampled_from(["replace-one", "add-remove"]),
    "min_count": st.sampled_from([0.0, 0.0, 0.0, 0.5, 2.0, 1e3]),
    "contribution": st.sampled_from([1, 1, 1, 2, 5, 1000]),
}
CHOICES = PUBLIC | {
    "mechanism": st.sampled_from(["optimal", "optimal", "temper", "inflate", "algorithm-1"]).map(
        lambda strategy: Dirichlet(strategy=strategy)
    ),
    "objective": st.sampled_from(["posterior", "estimate"]),
}


@st.composite
def mechanism_cases(draw, *, noise):
    case = {"prior": draw(st.lists(parameters, min_size=2, max_size=6)), "adjacency": draw(PUBLIC["adjacency"])}
    if noise:
        case["mechanism"] = draw(st.sampled_from(sorted(noises())))
        return draw(TARGETS), case, draw(st.lists(st.integers(0, 10**9), min_size=1, max_size=6))
    case["n_records"] = draw(st.sampled_from([0, 1, 30, 2000, 10**6, 10**9]))
    return draw(TARGETS), case | {name: draw(strategy) for name, strategy in CHOICES.items()}, [2_000]


def finite_curves(mechanism):
    divergences = mechanism.renyi(np.array([1, 1 + 1e-9, 1.5, 2, 10, 1e3, 1e4]))
    assert np.all(divergences >= 0)
    assert np.all(divergences[:-1] <= divergences[1:] * (1 + 1e-9))
    epsilon = np.array([0, 1e-6, 1e-2, 1, 10, 1e3])
    deltas = mechanism.delta(epsilon)
    assert np.all((deltas >= 0) & (deltas <= 1))
    # Below the least double they are rounded up to 1e-305.
    assert np.all(deltas[1:] <= deltas[:-1] * (1 + 1e-9) + 1e-304)
    for delta in (1e-15, 1e-6, 0.5):
        assert mechanism.delta(mechanism.epsilon(delta)) <= delta


def check_mechanism(spec):
    target, case, counts = spec
    with within(SECONDS):
        try:
            mechanism = dirdp.calibrate(target, **case)
        except dirdp.DirdpError:
            return
        assert mechanism.satisfies(target)
        finite_curves(mechanism)
        ways = [{}]
        if isinstance(mechanism, dirdp.mechanisms.DirichletMechanism):
            public = {name: case[name] for name in PUBLIC}
            refute(target, [[(mechanism.alpha, mechanism.r, 1, mechanism.n_records)]], **public)
            ways = [{"steps": 100}, {"sampler": "fast"}]
        elif case["mechanism"] == "gaussian" and isinstance(target, dirdp.RenyiDP):
            per_record = 2 if case["adjacency"] == "replace-one" else 1
            variance = mpf(mechanism.variance.numerator) / mechanism.variance.denominator
            assert gaussian_renyi(target.order, variance, per_record, 1) <= target.epsilon * ROUNDING
        for options in ways:
            proper_rows(mechanism.sample(np.resize(counts, len(case["prior"])), random_seed=1, **options))


def proper_rows(values):
    assert np.all((values >= 0) & (values <= 1))
    np.testing.assert_allclose(values.sum(axis=-1), 1, atol=1e-9)


NAMES = ["p", "theta", "r", "prior", "näme", "a b", "p.q", "posterior", "θ[0]", "mechanism", "q"]
DIMS = ["alpha", "noise_sd", "order", "größe", "c d", "table", "epsilon", "noisy_counts", "kind", "index", "x0", "x1"]
KINDS = (
    *("multinomial", "categorical", "conditional", "grouped", "dirichlet-multinomial"),
    *("binomial", "bernoulli", "conditional-bernoulli", "beta-binomial"),
)
INTEGRATED = ("dirichlet-multinomial", "beta-binomial")
BETAS = ("binomial", "bernoulli", "conditional-bernoulli", "beta-binomial")
BY_CODES = ("conditional", "conditional-bernoulli", "grouped")
# Large and with many different digits, so that finding them in a message means something.
unusual = st.integers(10**6, 10**9).filter(lambda n: len(set(str(n))) >= 5)
whole = st.one_of(st.just(0), st.integers(0, 60), unusual, unusual)


@st.composite
def model_specs(draw):
    """A model of one to three tables, how it is released, and the numbers that no message may hold."""
    names, dims = draw(st.permutations(NAMES)), draw(st.permutations(DIMS))
    released, large, public = {}, set(), set()
    with pm.Model() as model:
        for i in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
            kind = draw(st.sampled_from(KINDS))
            beta = kind in BETAS
            rows, d = draw(st.integers(kind in BY_CODES, 3)), 2 if beta else draw(st.integers(2, 5))
            shape = (rows, d) if rows else (d,)
            prior, counts = (
                np.reshape(draw(st.lists(entries, min_size=math.prod(shape), max_size=math.prod(shape))), shape)
                for entries in (parameters, whole)
            )
            # Pairs of parent and category; none at all is a data set too.
            pairs = draw(st.lists(st.tuples(st.integers(0, max(rows, 1) - 1), st.integers(0, d - 1)), max_size=20))
            own = dict(zip(dims[2 * i :], shape[:-1] if beta else shape, strict=False))
            own = own if draw(st.booleans()) else {}
            for dim, length in own.items():
                model.add_coord(dim, [f"é {k}" for k in range(length)])
            wrong = draw(st.sampled_from([False] * 9 + [True]))
            _add(names[i], kind, prior, counts, np.reshape(pairs, (-1, 2)).astype(int), tuple(own) or None, wrong)
            released[names[i] + ("_p" if kind in INTEGRATED else "")] = beta
            large |= {n for n in counts.ravel().tolist() if n >= 10**6}
            public |= {int(counts.sum()) + shift for shift in (-1, 0, 1)}
    options = {name: draw(strategy) for name, strategy in CHOICES.items()}
    first, *others = released
    if others:
        options["weights"] = draw(st.sampled_from([None, {first: 1e-6}, {first: 1e3}]))
        options["disjoint"] = draw(st.sampled_from([None, [[first], others]]))
    if options["adjacency"] == "add-remove":
        options["n_records"] = draw(st.sampled_from([None, 1, 500, 10**9]))
    options["released_draws"] = draw(st.sampled_from([1, 1, 1, 2, 7]))
    options["mechanism"] = draw(st.sampled_from([*["dirichlet"] * 3, "gaussian", "geometric", "auto"]))
    options["sampler"] = draw(st.sampled_from(["fast", "fast", "fast", "exact"]))
    return draw(TARGETS), model, released, options, large - public


def _add(name, kind, prior, counts, pairs, dims, wrong):
    """A table of a model; the observations of one that is `wrong` contradict each other."""
    parents, codes = pairs.T
    n = counts.sum(axis=-1)
    if kind == "dirichlet-multinomial":
        pm.DirichletMultinomial(name, n=n + wrong, a=prior, observed=counts, dims=dims)
        return
    a, b = prior[..., 0], prior[..., 1]
    if kind == "beta-binomial":
        pm.BetaBinomial(name, n=n - wrong, alpha=a, beta=b, observed=counts[..., 0], dims=dims)
        return
    p = pm.Beta(name, a, b, dims=dims) if kind in BETAS else pm.Dirichlet(name, a=prior, dims=dims)
    seen, each = f"{name} seen", pm.Bernoulli if kind in BETAS else pm.Categorical
    if kind == "multinomial":
        pm.Multinomial(seen, n=n + wrong, p=p, observed=counts)
    elif kind == "binomial":
        pm.Binomial(seen, n=n - wrong, p=p, observed=counts[..., 0])
    elif kind.startswith("conditional"):
        each(seen, p=p[parents], observed=codes + 9 * wrong)
    else:
        rows = prior.shape[:-1]
        wanted = codes[: len(codes) // math.prod(rows) * math.prod(rows)].reshape(-1, *rows)
        each(seen, p=p, observed=wanted + 9 * wrong)
    pm.Deterministic(f"{name} twice", 2 * p, dims=dims)


def check_model(spec):
    target, model, released, options, secrets = spec
    with within(SECONDS), warnings.catch_warnings():
        # A seed only so that a failure can be seen again.
        warnings.simplefilter("ignore", dirdp.errors.SeededReleaseWarning)
        try:
            release = planned_sample(target, model, random_seed=1, **options)
        except dirdp.DirdpError as refused:
            error = refused
            while error is not None:
                text = f"{error} {error!r}"
                assert not any(form.format(n) in text for n in secrets for form in ("{}", "{:,}", "{:g}", "{:e}"))
                error = error.__cause__ or error.__context__
            return
        assert not any(np.isnan(values).any() for values in release["posterior"].data_vars.values())
        for name, beta in released.items():
            values = release["posterior"][name].values
            proper_rows(np.stack([values, 1 - values], axis=-1) if beta else values)
        assert as_mechanism(release).satisfies(target)
        assert str(dirdp.report(release, full=True))
    # Integrals of forty digits may take longer than the library.
    _refute_release(release, target, options)


def _refute_release(release, target, options):
    tables = {name: group.dataset for name, group in release["mechanism"].children.items()}
    dirichlet = {name: table for name, table in tables.items() if table.attrs["mechanism"] == "DirichletMechanism"}
    # The noise of other tables takes its part of any other guarantee.
    if len(dirichlet) == len(tables) or isinstance(target, dirdp.ApproxDP | dirdp.RenyiDP):
        draws = options["released_draws"]
        groups = [
            [
                (table["alpha"].values, float(table["r"]), draws, table.attrs.get("public_records"))
                for name, table in dirichlet.items()
                if name in names
            ]
            for names in json.loads(release["privacy"].attrs["groups"])
        ]
        refute(target, groups, **{name: options[name] for name in PUBLIC})


# Short in every run, long on demand, when each run draws others. What goes wrong once in 50 times is missed once in a
# thousand runs with 350 examples, and of models, which take longest, with the same number of weeks.
CHECKS = {
    "models": (check_model, model_specs(), 5, 100),
    "dirichlet": (check_mechanism, mechanism_cases(noise=False), 25, 350),
    "noise": (check_mechanism, mechanism_cases(noise=True), 20, 1_000),
}


@pytest.mark.parametrize("what", CHECKS)
@pytest.mark.parametrize(
    "many", [pytest.param(False, marks=pytest.mark.thorough), pytest.param(True, marks=pytest.mark.slow)]
)
def test_what_is_answered_keeps_its_guarantee(what, many):
    check, cases, few, most = CHECKS[what]
    examples = settings(thorough if many else quick, max_examples=most if many else few)
    examples(given(cases)(lambda case: check(case)))()
