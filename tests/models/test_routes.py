"""What a likelihood sees of the released variables: counts carried back, against PyMC's own log-likelihood."""

import pickle

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.replace import clone_replace

import pymc_dirdp as dirdp
from pymc_dirdp.errors import DataError, UnsupportedModelError
from pymc_dirdp.models.observations import find_observations, total_records
from pymc_dirdp.models.tables import tables
from pymc_dirdp.releases.opened import open_release
from tests.planned import counts_of, planned_sample

from .small import CODES, OTHER, YES, N, beta, built, coded, counted, simplex, tossed, tried

RNG = np.random.default_rng(3)
PURE, NOISY = dirdp.PureDP(epsilon=3), {"mechanism": "geometric"}
PLAIN = Mode(linker="py", optimizer=None)
J = 4
GRID = RNG.integers(0, 2, (N, J))
LEVELS = RNG.integers(0, 3, (N, J))
PATH = RNG.integers(0, 3, (8, 6))
VECTOR = np.array([3, 0, 7, 2])
BLOCK = RNG.integers(0, 9, (2, 3, 4))
TRIALS = RNG.integers(4, 9, (2, 3))
SUCCESSES = RNG.integers(0, 5, (6, 2, 3))
CHOICES = RNG.integers(0, 4, (6, 2, 3))


def two():
    return beta(name="a"), beta(prior=(3, 1))


def data(values, name="x"):
    return pm.Data(name, values)


def shares_and_what_is_always_1():
    b = beta(3)
    one = b + (1 - b)
    tried((one[::-1] - b) * (one + one + -one), 9, [6, 1, 2])


def a_chain(x):
    return coded(simplex(3, 3, name="P")[x[..., :-1]], x[..., 1:])


# Each builds a model whose tables PyMC knows under the same names.
READ = {
    "counts": lambda: counted(simplex(4), VECTOR),
    "no counts": lambda: counted(simplex(4), np.zeros(4, int)),
    "several counts": lambda: counted(simplex(4), BLOCK[0]),
    "counts with the sum of data": lambda: counted(simplex(4), data(BLOCK[0])),
    "counts of one row": lambda: counted(simplex(1, 4), BLOCK[0]),
    "counts of each row": lambda: counted(simplex(3, 4), data(BLOCK[0] * 1.0), data(BLOCK[0].sum(-1) * 1.0, "n")),
    "counts of rows on two axes": lambda: counted(simplex(2, 3, 4), BLOCK),
    "counts of rows on the first axis": lambda: counted(simplex(2, 4)[:, None, :], BLOCK),
    "counts of rows by codes": lambda: counted(simplex(4, 4)[np.array([0, 2, 2])], BLOCK[0]),
    "one choice": lambda: coded(simplex(4), 2),
    "choices of rows on the outer axes": lambda: coded(simplex(6, 3, 4)[:, None], CHOICES * 1.0),
    "nobody's choices": lambda: coded(simplex(2, 4), np.zeros((0, 2), int)),
    "successes": lambda: tried(beta(), TRIALS, SUCCESSES),
    "successes of each row": lambda: tried(beta(2, 3), data(TRIALS, "n"), data(SUCCESSES[0])),
    "successes of rows on the first axis": lambda: tried(beta(6)[:, None, None], data(TRIALS * 1.0), SUCCESSES),
    "rows between other axes": lambda: tried(beta(2, 3)[None, :, None], 4, np.ones((1, 7, 2, 5, 3), int)),
    "an expanded copy": lambda: tried(pt.specify_shape(beta(2, 3), (2, 3)).copy()[:, None], 4, np.ones((2, 7, 3), int)),
    "another precision and back": lambda: tossed(beta().astype("float32").astype("float64")),
    "tosses of truth values": lambda: tossed(beta(), data(GRID.astype(bool))),
    "uniform": lambda: tried(pm.Uniform("p", 0, 1), 9, 6),
    "complement by three terms": lambda: tossed(pt.add(0.25, -beta(), 0.75)),
    "a logarithm and back": lambda: tossed(pt.exp(pt.log(beta()))),
    "log-odds and back": lambda: tossed(pt.sigmoid(pt.log(b := beta()) - pt.log1p(-b))),
    "a root and its square": lambda: tossed(pt.sqrt(beta()) ** 2),
    "a share of both": lambda: tossed((b := beta()) / (b + (1 - b))),
    "sums over an axis": lambda: tossed(pt.stack([b := beta(), 1 - b, b]).sum(axis=0) - 1),
    "a matrix product": lambda: tossed(pt.dot(pt.stack([b := beta(), 1 - b]), pt.stack([pt.ones(()), pt.zeros(())]))),
    "what is always 1": shares_and_what_is_always_1,
    "both sides of one share": lambda: (tossed(b := beta()), tried(1 - b, 5, 2, "z")),
    "an entry each": lambda: (tried((b := beta(prior=([1, 2], 1)))[0], 10, 3), tried(b[1], 12, 4, "z")),
    "slices": lambda: (tried((b := beta(4))[:2], 10, [3, 4]), tried(b[3:1:-1], 10, [5, 6], "z")),
    "categories in reverse": lambda: coded(simplex(3, 3)[:, ::-1], CODES.reshape(10, 3)),
    "stacked betas": lambda: tried(pm.math.stack(two()), [100, 120], [13, 21]),
    "stacked rows": lambda: coded(
        pt.stack([simplex(J, 3), simplex(J, 3, name="q")], 1), np.stack([LEVELS, 2 - LEVELS], 2)
    ),
    "joined parts": lambda: tried(pt.concatenate([beta(2, name="c"), (b := beta(3))[1:], b[:1]]), 7, np.arange(1, 6)),
    "a beta as two categories": lambda: coded(pt.stack([1 - (b := beta()), b]), YES),
    "betas as two categories": lambda: counted(pt.stack([b := beta(2), 1 - b], axis=-1), np.array([[1, 5], [2, 4]])),
    "two categories as a success": lambda: tossed(simplex(2)[0]),
    "the second of two categories": lambda: tried(simplex(3, 2)[:, 1], [4, 5, 6], [1, 2, 3]),
    "rows reordered": lambda: coded(simplex(2, 5, 3).dimshuffle(1, 0, 2), RNG.integers(0, 3, (4, 5, 2))),
    "a reshaped table": lambda: tried(beta(2, 3).reshape((3, 2)), 8, [[1, 2], [3, 4], [5, 6]]),
    "logits": lambda: pm.Bernoulli("y", logit_p=-pm.math.logit(beta()), observed=YES),
    "logits of rows": lambda: pm.Bernoulli("y", logit_p=pm.math.logit(beta(2)), observed=OTHER.reshape(15, 2)),
    "a softmax of logarithms": lambda: coded(pm.math.softmax(pm.math.log(simplex(3)), axis=-1)),
    "normalised once more": lambda: coded((p := simplex(2, 3)) / p.sum(axis=-1, keepdims=True), CODES.reshape(15, 2)),
    "naive Bayes of words": lambda: tossed(beta(3, J)[CODES], GRID),
    "features first": lambda: tossed(beta(J, 3)[:, CODES], GRID.T),
    "some features": lambda: tossed(beta(3, J)[CODES][:, 1:3], GRID[:, :2]),
    "codes of one axis and rows of another": lambda: coded(simplex(3, 2, 3)[:, OTHER], RNG.integers(0, 3, (3, N))),
    "codes between two axes": lambda: tossed(
        beta(2, 3, J)[:, CODES].dimshuffle(1, 2, 0), np.stack([GRID, 1 - GRID], 2)
    ),
    "a switch between a share and the rest": lambda: tossed(pm.math.switch(OTHER, b := beta(), 1 - b)),
    "a switch of tables": lambda: tossed(pm.math.switch(OTHER, *two())),
    "a switch of rows by codes": lambda: tossed(pm.math.switch(OTHER, beta(3)[CODES], beta(3, name="c")[CODES])),
    "a switch of columns": lambda: coded(pt.switch(OTHER[:, None], simplex(3), simplex(3, name="q"))),
    "a mask as codes": lambda: tossed(beta(2)[(data(CODES) > 1).astype("int64")]),
    "stacked betas by codes": lambda: tossed(pm.math.stack([(ab := two())[0], ab[1], ab[0]])[CODES]),
    "codes of an observed parent and data": lambda: tossed(beta(6)[coded(simplex(3, name="q"), name="u") * 2 + OTHER]),
    "a matrix of records with parents of their own": lambda: coded(simplex(3, 3)[PATH], PATH[::-1]),
    "one chain": lambda: (coded(simplex(3, name="start"), (x := data(CODES))[:1], "first"), a_chain(x)),
    "repeated for all": lambda: tossed(pt.broadcast_to(beta(2), (15, 2)), OTHER.reshape(15, 2)),
    "tiled": lambda: tossed(pt.tile(beta(), 4), [1, 0, 1, 1]),
}


def log_likelihood(model, every):
    inputs = {table.name: pt.tensor(shape=model[table.name].type.shape, dtype="float64") for table in every}
    total = pt.sum([pm.logp(rv, model.rvs_to_values[rv]).sum() for rv in model.observed_RVs])
    given = {model[name]: variable for name, variable in inputs.items()}
    given |= {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    (total,) = clone_replace([total], given, rebuild_strict=False)
    with pytensor.config.change_flags(cxx=""):
        return pytensor.function(list(inputs.values()), total, mode=PLAIN)


@pytest.mark.parametrize("name", READ)
def test_the_log_likelihood_is_the_counts_times_logarithms_of_shares(name):
    """At every point: so the counts are right, and the posterior is a product of Dirichlet or Beta distributions."""
    model, rng = built(READ[name]), np.random.default_rng(1)
    every, counts = tables(model), counts_of(model)
    function, differences = log_likelihood(model, every), []
    for _ in range(3):
        cells = {t.name: rng.dirichlet(np.full(t.n_categories, 2.0), size=t.shape[:-1]) for t in every}
        values = (cells[t.name][..., 0] if t.family == "beta" else cells[t.name] for t in every)
        expected = sum((counts[name] * np.log(shares)).sum() for name, shares in cells.items())
        differences.append(function(*values) - expected)
    np.testing.assert_allclose(differences, differences[0], rtol=1e-6, atol=1e-5)
    # The total is found without the counts, or refused where it depends on them.
    for table in every:
        if name.startswith("a switch of") or name == "stacked betas by codes":
            with pytest.raises(UnsupportedModelError, match="the number of records of each is data"):
                total_records(find_observations([table], model))
        else:
            assert total_records(find_observations([table], model)) == counts[table.name].sum()


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: pm.DirichletMultinomial("y", n=12, a=[1, 2, 3, 4], observed=VECTOR), VECTOR),
        (lambda: pm.DirichletMultinomial("y", n=data(BLOCK[0].sum(-1)), a=np.ones(4), observed=BLOCK[0]), BLOCK[0]),
        (lambda: pm.DirichletMultinomial("y", n=BLOCK.sum(-1), a=np.ones((3, 4)), observed=data(BLOCK)), BLOCK),
        (lambda: pm.BetaBinomial("y", n=10, alpha=2, beta=3, observed=3), [3, 7]),
        (
            lambda: pm.BetaBinomial("y", n=TRIALS, alpha=[1, 2, 3], beta=4, observed=data(SUCCESSES[0] * 1.0)),
            np.stack([SUCCESSES[0], TRIALS - SUCCESSES[0]], axis=-1),
        ),
    ],
)
def test_counts_of_priors_that_are_integrated_out(build, expected):
    """PyMC knows no shares of theirs: each row of observations is one of the table."""
    model = built(build)
    (table,) = tables(model)
    counts = counts_of(model)[table.name]
    assert (counts.dtype, counts.shape, counts.tolist()) == (np.int64, table.shape, np.asarray(expected).tolist())
    assert total_records(find_observations([table], model)) == np.sum(expected)


@pytest.mark.parametrize(
    ("p", "problem"),
    [
        (lambda: beta(3, J)[CODES + 7919], "codes from 0 to 2"),
        (lambda: beta(3, J)[-1 - CODES], "not all >= 0"),
        (lambda: beta(3, J)[CODES[:1]], "one code for each"),
        (lambda: beta(3, J)[data(CODES) + 7919], "codes from 0 to 2"),
        (lambda: beta(3, J)[data(CODES) * data([1], "e")], "one code for each"),
        (lambda: pt.switch(data([1]), (b := beta(2))[0], b[1]), "one code for each"),
    ],
)
def test_wrong_codes_are_an_error_without_a_value(p, problem):
    def build():
        shares = p()
        tossed(shares, GRID if shares.type.ndim == 2 else YES)

    with pytest.raises(DataError, match=problem) as caught:
        dirdp.sample(PURE, built(build), unit=0, **NOISY)
    assert "'y'" in str(caught.value)
    assert "7919" not in str(caught.value)


def test_no_code_and_no_observed_value_is_read_when_tables_are_found():
    def build(codes, counts):
        b = beta(6)
        tossed(1 - b[data(codes) * 2 + OTHER])
        tossed(pt.switch(data(codes, "e"), b[0], b[1]), name="z")
        tried(beta(2, name="c"), 9, data(counts, "counts"), "k")
        pm.DirichletMultinomial("d", n=9, a=np.ones(2), observed=counts)

    first = built(lambda: build(CODES, np.array([9, 0])))
    assert tables(first) == tables(built(lambda: build(np.full(N, -7919), np.array([-3, 77]))))


def test_two_views_of_one_table_are_distinguished():
    """The digest of a plan, and the check of a plan that comes from a file."""
    models = [built(lambda k=k: tossed(beta(3)[k])) for k in (0, 2)]
    first, second = (dirdp.plan(PURE, model, **NOISY) for model in models)
    assert first.digest != second.digest
    assert first.parts[0].table != second.parts[0].table
    assert pickle.loads(pickle.dumps(first)).digest == first.digest == dirdp.plan(PURE, models[0], **NOISY).digest
    with pytest.raises(UnsupportedModelError, match="not the one that was planned"):
        dirdp.sample(first, models[1])


def test_a_release_of_a_switch_between_tables_holds_no_number_of_records():
    """Under add-remove the numbers of records are private, and the file has the planning size alone."""
    options = {"adjacency": "add-remove", "n_records": 40} | NOISY
    release = planned_sample(PURE, built(READ["a switch of tables"]), **options)
    assert [part.n_records for part in open_release(release).plan.parts] == [40, 40]
    assert dirdp.verify(release)


def test_large_tables_take_no_array_of_all_records():
    codes, answers = np.zeros(20_000, dtype=int), np.zeros((20_000, 100), dtype=bool)
    model = built(lambda: tossed(1 - beta(3, 100)[codes], answers))
    (table,) = tables(model)
    assert table.likelihoods[0].view.cells.size == table.prior.size == 600
    assert counts_of(model)["b"][0].tolist() == [[20_000, 0]] * 100


@pytest.mark.parametrize(
    ("adjacency", "observed", "codes"),
    [("replace-one", LEVELS, CODES[:, None]), ("add-remove", LEVELS[:, 0], CODES[:1])],
    ids=["a code for a row of observations", "too few codes"],
)
def test_shapes_that_do_not_fit_are_found_before_a_ledger_is_charged(adjacency, observed, codes):
    model, ledger = built(lambda: coded(simplex(3, 3)[codes], observed)), dirdp.Ledger(PURE, adjacency=adjacency)
    options = {"contribution": J, "adjacency": adjacency, "n_records": 80 if adjacency == "add-remove" else None}
    with pytest.raises(DataError, match=r"'y' do not have one code .* np.repeat"):
        dirdp.plan(PURE, model, **options)
    with pytest.raises(DataError, match="'y' do not have one code"):
        planned_sample(PURE, model, ledger=ledger, **options)
    assert not list(ledger.entries())


def test_a_diagnosis_of_what_a_likelihood_sees():
    model, other = built(lambda: tossed(1 - beta())), built(READ["stacked betas"])
    diagnosis = dirdp.diagnose(dirdp.sample(PURE, model, **NOISY), model, draws=100, random_seed=1)
    b = diagnosis["non_private"]["posterior"]["b"].values[..., None]
    expected = np.where(YES, np.log1p(-b), np.log(b))
    np.testing.assert_allclose(diagnosis["non_private"]["log_likelihood"]["y"], expected)
    release = dirdp.sample(PURE, other, **NOISY)
    with pytest.raises(UnsupportedModelError, match="feeds 'a' and other tables"):
        dirdp.diagnose(release, other, draws=100)
