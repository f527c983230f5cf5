"""Any one thing in a release may be missing or strange: there is an answer, or one error."""

import math

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.releases.interop import as_mechanism, to_dp_accounting
from pymc_dirdp.releases.verification import verify

GROUPS = ("/", "/posterior", "/mechanism", "/mechanism/p_class", "/mechanism/p_legs", "/privacy", "/utility")
FRAME = pd.DataFrame({"class": ["cat", "hen"] * 20, "legs": [4, 2] * 20})
CATEGORIES = {"class": ["cat", "hen"], "legs": [2, 4]}
KINDS = {
    "dirichlet": (dirdp.ApproxDP(epsilon=1.0, delta=1e-6), {"draws": 2, "mechanism": "auto"}),
    "exact": (dirdp.RenyiDP(order=3, epsilon=0.5), {"sampler": "exact"}),
    "geometric": (dirdp.PureDP(epsilon=1.0), {"mechanism": "geometric"}),
    "marginals": (dirdp.ZeroCDP(rho=0.1), {"mechanism": "marginals"}),
    "zero-sum marginals": (dirdp.PureDP(epsilon=1.0), {"mechanism": "marginals"}),
}


@pytest.fixture(scope="module")
def releases():
    model = dirdp.naive_bayes(FRAME[["legs"]], FRAME["class"], categories=CATEGORIES)
    return {kind: dirdp.sample(target, model, **options) for kind, (target, options) in KINDS.items()}


# Where a number, a text or an array may do harm.
NUMBERS = [0, -1, 1, 2, 10**12, 10**400, math.nan, math.inf, -math.inf, 1e-320, 1e300, 1e-5, 0.5, True, np.int64(3)]
NUMBERS += [np.float32(0.25), np.uint64(2**63)]
TEXTS = [
    "",
    "1",
    "null",
    "[]",
    "{}",
    "[[]]",
    '[["p_class"]]',
    '[["p_class", "p_legs"]]',
    "[" * 50_000,
    "\x1b[2J\n",
    "NaN",
]
TEXTS += ["DirichletMechanism", "GeometricMechanism", "PureDP", "ZeroCDP", "ApproxDP", "add-remove", "beta", "9" * 5000]
TEXTS += ['[["p_class", 0.1], ["p", "x"]]', '{"records": 1e400, "axes": []}', '{"records": 2, "axes": ["any"]}']
TEXTS += [
    '{"records": 1, "axes": ["each"]}',
    '{"records": 1, "axes": 3}',
    "[1, 2]",
    '"p_class"',
    "x" * 1000,
    "clip",
    "seed",
]
TEXTS += ["[[0], [0, 1]]", "[[1], [1]]", '[["0"], [1]]', "[[-1]]", "[1e999, 2.5]", "[3.5, 2.5]", "[[0], 1]", "[{}, {}]"]
OTHERS = [None, [1, 2], ["a"], np.zeros(3), np.array("a"), np.zeros(0), {"a": 1}, b"bytes", 1j, (1,), xr.Dataset()]


def of_shape(shape):
    """Arrays in place of one of this shape: other values, types and shapes."""
    other = [(), (0,), (1,), (3,), (2, 2), (1, 1, 2), (2, 0), (*shape, 1), shape[:-1], shape[::-1], (2, *shape)]
    values = [np.full(shape, value) for value in (0.0, -1.0, np.nan, np.inf, 1e-300, 1e300, 0.3, 1.0, 5)]
    values += [
        np.full(shape, value, dtype=kind) for value, kind in (("a", "U1"), ("a", "O"), (None, "O"), (1, "M8[ns]"))
    ]
    values += [np.full(shape, 1 + 1j), np.full(shape, True), np.full(shape, 1, dtype="int8")]
    values += [np.broadcast_to(0.5, (10**6,) * 3)]
    return values + [np.full(one, 0.5) for one in other]


def mutated(release, data):
    path = data.draw(st.sampled_from(GROUPS))
    node = release[path]
    dataset = node.to_dataset()
    names = [("attribute", name) for name in dataset.attrs] + [("variable", name) for name in dataset.variables]
    names += [("group", path)] if path != "/" else []
    what, name = data.draw(st.sampled_from(names))
    drop = data.draw(st.booleans())
    if what == "group":
        if drop:
            parent, _, child = path.rpartition("/")
            del release[parent or "/"][child]
        else:
            node.dataset = xr.Dataset()
    elif what == "attribute":
        if drop:
            del node.attrs[name]
        else:
            node.attrs[name] = data.draw(st.sampled_from([*NUMBERS, *TEXTS, *OTHERS]))
    elif drop:
        node.dataset = dataset.drop_vars(name)
    else:
        values = data.draw(st.sampled_from(of_shape(dataset[name].shape)))
        dims = dataset[name].dims
        if values.shape != dataset[name].shape:
            dims = data.draw(st.sampled_from([dims, dims[::-1]]))[: values.ndim]
            dims = (*dims, *(f"extra_{i}" for i in range(values.ndim - len(dims))))
        kept = dataset.drop_vars(
            [other for other in dataset.variables if set(dataset[other].dims) & set(dims)] + [name]
        )
        same = values.shape == dataset[name].shape
        try:
            node.dataset = (dataset.drop_vars(name) if same else kept).assign({name: xr.Variable(dims, values)})
        except ValueError:
            reject()  # xarray has no such data set.
    return release


USES = (
    verify,
    lambda release: str(dirdp.report(release)) + dirdp.report(release)._repr_html_(),
    as_mechanism,
    lambda release: dirdp.predict_log_proba(release, {"legs": [2, 4, 4]}, target="class", draws="released"),
    lambda release: dirdp.log_likelihood(release, {"legs": [2], "class": ["hen"]}, draws=5),
    lambda release: dirdp.synthetic(release, 5, random_seed=1),
    lambda release: dirdp.sample_posterior_predictive(release, n_records=5, random_seed=1),
    lambda release: dirdp.analyse(release, 5, random_seed=1),
)


def uses_of(kind):
    """No posterior is computed from margins; tables are fitted to them."""
    return (*USES[:-1], lambda release: dirdp.fit(release, progressbar=False)) if "marginals" in kind else USES


def check(release, stated, uses=USES):
    lengths = [0]
    for use in uses:
        try:
            found = use(release)
        except ReleaseError as error:
            lengths.append(len(str(error)))
        except (dirdp.ArgumentError, dirdp.DataError):
            # A release that is none of a network, or of other categories than those of the records.
            assert use in USES[3:6]
        else:
            if use is verify and found:
                assert found.stated == stated
            if use is USES[3]:
                np.testing.assert_allclose(np.exp(found).sum(axis=-1), 1.0)
    assert max(lengths) < 1000


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.thorough] * (kind != "exact")) for kind in KINDS]
)
@settings(max_examples=50)
@given(data=st.data())
@pytest.mark.thorough
def test_one_thing_is_missing_or_strange(releases, kind, data):
    check(mutated(releases[kind].copy(deep=True), data), KINDS[kind][0], uses_of(kind))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_a_prior_that_has_lost_an_axis(releases, kind):
    """What one person adds to a table has an entry for each row axis."""
    release = releases[kind].copy(deep=True)
    node = release["mechanism/p_legs"]
    dataset = node.to_dataset()
    dim = dataset["prior"].dims[-1]
    lost = dataset.drop_vars([name for name in dataset.variables if dataset[name].dims])
    node.dataset = lost.assign(prior=((dim,), np.ones(dataset.sizes[dim])))
    check(release, KINDS[kind][0], uses_of(kind))


@pytest.mark.thorough
@settings(max_examples=25)
@given(data=st.data())
def test_two_things_are(releases, data):
    release = mutated(releases["dirichlet"].copy(deep=True), data)
    try:
        release = mutated(release, data)
    except KeyError:
        return  # The first one took away the group of the second.
    for use in USES[:3]:
        try:
            use(release)
        except ReleaseError:
            continue


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dirichlet", "geometric"])
@settings(max_examples=400, derandomize=False)
@given(data=st.data())
def test_one_thing_is_missing_or_strange_at_length(releases, kind, data):
    check(
        mutated(releases[kind].copy(deep=True), data),
        KINDS[kind][0],
        uses=(*USES, lambda one: to_dp_accounting(one, step=1e-2)),
    )
