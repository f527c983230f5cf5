from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.replace import clone_replace
from scipy.sparse import csr_matrix

from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.models.graph import parameters
from pymc_dirdp.models.observations import find_observations, read_counts, total_records
from pymc_dirdp.models.tables import tables

RNG = np.random.default_rng(20)
PLAIN = Mode(linker="py", optimizer=None)

VECTOR = np.array([3, 0, 7, 2])
ROWS = RNG.integers(0, 9, size=(5, 4))  # many rows that share p, or one for each row of p
BLOCK = RNG.integers(0, 9, size=(2, 3, 4))
CODES = RNG.integers(0, 4, size=(6, 2, 3))
BITS = RNG.integers(0, 2, size=(6, 2, 3))
TRIALS = RNG.integers(4, 9, size=(2, 3))
SUCCESSES = RNG.integers(0, 5, size=(6, 2, 3))


class Case(NamedTuple):
    model: pm.Model
    counts: np.ndarray
    """By hand."""


CASES = {}


def case(build):
    CASES[build.__name__] = build
    return build


def tally(codes, d=4):
    """Codes as indicators: one more axis."""
    return (np.asarray(codes)[..., None] == np.arange(d)).astype(int)


def pairs(successes, trials):
    successes, trials = np.broadcast_arrays(successes, trials)
    return np.stack([successes, trials - successes], axis=-1)


@case
def multinomial_one_row():
    p = pm.Dirichlet("p", [1, 2, 3, 4])
    pm.Multinomial("y", n=12, p=p, observed=VECTOR)
    return VECTOR


@case
def multinomial_with_dims():
    pm.modelcontext(None).add_coords({"row": range(5), "hair": list("abcd")})
    p = pm.Dirichlet("p", np.ones(4), dims=("row", "hair"))
    pm.Multinomial("y", n=ROWS.sum(-1), p=p, observed=ROWS, dims=("row", "hair"))
    return ROWS


@case
def multinomial_many_rows_share_p():
    p = pm.Dirichlet("p", np.ones(4))
    pm.Multinomial("y", n=ROWS.sum(-1), p=p, observed=ROWS)
    return ROWS.sum(0)


@case
def multinomial_same_n_in_all_rows():
    p = pm.Dirichlet("p", np.ones(4))
    pm.Multinomial("y", n=12, p=p, observed=[VECTOR, VECTOR[::-1]])
    return VECTOR + VECTOR[::-1]


@case
def multinomial_rows_of_p():
    p = pm.Dirichlet("p", np.arange(1.0, 21).reshape(5, 4))
    pm.Multinomial("y", n=ROWS.sum(-1), p=p, observed=ROWS)
    return ROWS


@case
def multinomial_two_row_axes():
    p = pm.Dirichlet("p", np.ones(4), shape=(2, 3, 4))
    pm.Multinomial("y", n=BLOCK.sum(-1), p=p, observed=BLOCK)
    return BLOCK


@case
def multinomial_last_batch_axis_is_the_row():
    p = pm.Dirichlet("p", np.ones((3, 4)))
    pm.Multinomial("y", n=BLOCK.sum(-1), p=p, observed=BLOCK)
    return BLOCK.sum(0)


@case
def multinomial_first_batch_axis_is_the_row():
    p = pm.Dirichlet("p", np.ones((2, 4)))
    pm.Multinomial("y", n=BLOCK.sum(-1), p=p[:, None, :], observed=BLOCK)
    return BLOCK.sum(1)


@case
def multinomial_with_data():
    p = pm.Dirichlet("p", np.ones(4))
    x = pm.Data("x", ROWS)
    pm.Multinomial("y", n=x.sum(axis=-1), p=p, observed=x)
    return ROWS.sum(0)


@case
def multinomial_with_data_of_floats():
    p = pm.Dirichlet("p", np.ones(4), shape=(5, 4))
    n = pm.Data("n", ROWS.sum(-1).astype(float))
    pm.Multinomial("y", n=n, p=p, observed=pm.Data("x", ROWS.astype(float)))
    return ROWS


@case
def multinomial_without_records():
    p = pm.Dirichlet("p", np.ones(4))
    pm.Multinomial("y", n=0, p=p, observed=np.zeros(4, dtype=int))
    return np.zeros(4)


@case
def multinomial_row_axis_of_length_one():
    p = pm.Dirichlet("p", np.ones((1, 4)))
    pm.Multinomial("y", n=ROWS.sum(-1), p=p, observed=ROWS)
    return ROWS.sum(0, keepdims=True)


@case
def multinomial_in_a_nested_model():
    with pm.Model("sub"):
        p = pm.Dirichlet("p", np.ones(4))
        pm.Multinomial("y", n=12, p=p, observed=pm.Data("x", VECTOR))
    return VECTOR


@case
def categorical_one_row():
    p = pm.Dirichlet("p", np.ones(4))
    pm.Categorical("y", p=p, observed=CODES[:, 0, 0])
    return tally(CODES[:, 0, 0]).sum(0)


@case
def categorical_one_record():
    p = pm.Dirichlet("p", np.ones(4))
    pm.Categorical("y", p=p, observed=2)
    return tally(2)


@case
def categorical_table_of_records():
    p = pm.Dirichlet("p", np.ones(4))
    pm.Categorical("y", p=p, observed=pm.Data("x", CODES))
    return tally(CODES).sum((0, 1, 2))


@case
def categorical_rows():
    p = pm.Dirichlet("p", np.ones((2, 3, 4)))
    pm.Categorical("y", p=p, observed=CODES)
    return tally(CODES).sum(0)


@case
def categorical_rows_on_the_outer_axes():
    p = pm.Dirichlet("p", np.ones((6, 3, 4)))
    pm.Categorical("y", p=p[:, None], observed=CODES.astype(float))
    return tally(CODES).sum(1)


@case
def categorical_row_axis_of_length_one():
    p = pm.Dirichlet("p", np.ones((1, 3, 4)))
    pm.Categorical("y", p=p, observed=CODES)
    return tally(CODES).sum((0, 1))[None]


@case
def categorical_without_records():
    p = pm.Dirichlet("p", np.ones((2, 4)))
    pm.Categorical("y", p=p, observed=np.zeros((0, 2), dtype=int))
    return np.zeros((2, 4))


@case
def binomial_one_row():
    b = pm.Beta("b", 1, 2)
    pm.Binomial("y", n=10, p=b, observed=3)
    return np.array([3, 7])


@case
def binomial_many_share_b():
    b = pm.Beta("b", 1, 2)
    pm.Binomial("y", n=TRIALS, p=b, observed=SUCCESSES)
    return pairs(SUCCESSES, TRIALS).sum((0, 1, 2))


@case
def binomial_rows():
    b = pm.Beta("b", 1, [1.0, 2, 3], shape=(2, 3))
    pm.Binomial("y", n=pm.Data("n", TRIALS), p=b, observed=pm.Data("x", SUCCESSES[0]))
    return pairs(SUCCESSES[0], TRIALS)


@case
def binomial_rows_on_the_outer_axes():
    b = pm.Beta("b", 1, 1, shape=6)
    pm.Binomial("y", n=pm.Data("n", TRIALS.astype(float)), p=b[:, None, None], observed=SUCCESSES)
    return pairs(SUCCESSES, TRIALS).sum((1, 2))


@case
def binomial_rows_between_records():
    b = pm.Beta("b", 1, 1, shape=(6, 3))
    pm.Binomial("y", n=8, p=b[:, None, :], observed=pm.Data("x", SUCCESSES.astype(float)))
    return pairs(SUCCESSES, 8).sum(1)


@case
def binomial_row_axis_of_length_one():
    b = pm.Beta("b", 1, 1, shape=(2, 1))
    pm.Binomial("y", n=8, p=b, observed=SUCCESSES)
    return pairs(SUCCESSES, 8).sum((0, 2))[:, None]


@case
def bernoulli_many_share_b():
    b = pm.Beta("b", 1, 1)
    pm.Bernoulli("y", p=b, observed=pm.Data("x", BITS.astype(bool)))
    return pairs(BITS, 1).sum((0, 1, 2))


@case
def bernoulli_rows():
    b = pm.Beta("b", 1, 1, shape=3)
    pm.Bernoulli("y", p=b, observed=BITS)
    return pairs(BITS, 1).sum((0, 1))


@case
def bernoulli_without_records():
    b = pm.Beta("b", 1, 1, shape=3)
    pm.Bernoulli("y", p=b, observed=np.zeros((0, 3), dtype=int))
    return np.zeros((3, 2))


@case
def dirichlet_multinomial_one_row():
    pm.DirichletMultinomial("y", n=12, a=[1, 2, 3, 4], observed=VECTOR)
    return VECTOR


@case
def dirichlet_multinomial_rows():
    pm.DirichletMultinomial("y", n=pm.Data("n", ROWS.sum(-1)), a=[1, 2, 3, 4], observed=pm.Data("x", ROWS))
    return ROWS


@case
def dirichlet_multinomial_two_row_axes():
    pm.DirichletMultinomial("y", n=BLOCK.sum(-1), a=np.arange(1.0, 13).reshape(3, 4), observed=BLOCK)
    return BLOCK


@case
def dirichlet_multinomial_trials_of_the_last_row_axis():
    both = np.stack([BLOCK[0], BLOCK[0, :, ::-1]])
    pm.DirichletMultinomial("y", n=BLOCK[0].sum(-1), a=np.ones(4), observed=both)
    return both


@case
def beta_binomial_one_row():
    pm.BetaBinomial("y", n=10, alpha=2, beta=3, observed=3)
    return np.array([3, 7])


@case
def beta_binomial_rows():
    pm.BetaBinomial("y", n=TRIALS, alpha=[1, 2, 3], beta=4, observed=pm.Data("x", SUCCESSES[0].astype(float)))
    return pairs(SUCCESSES[0], TRIALS)


def built(build):
    with pm.Model() as model:
        counts = build()
    return Case(model, np.asarray(counts))


def each(cases):
    return pytest.mark.parametrize("build", cases.values(), ids=cases)


INTEGRATED = {
    name: build for name, build in CASES.items() if name.startswith(("dirichlet_multinomial", "beta_binomial"))
}
SAMPLED = {name: build for name, build in CASES.items() if name not in INTEGRATED}


@each(CASES)
def test_counts_by_hand(build):
    model, expected = built(build)
    (table,) = tables(model)
    counts = read_counts(find_observations([table], model))
    assert counts.dtype == np.int64
    assert counts.shape == table.shape
    np.testing.assert_array_equal(counts, expected)
    assert total_records(find_observations([table], model)) == expected.sum()


def slope(model, table, at):
    """Of PyMC's own log-likelihood in the parameter that is released, at a value of it."""
    observed = model.named_vars[table.likelihoods[0].name]
    p = pt.tensor(dtype="float64", shape=at.shape)
    logp = pm.logp(observed, model.rvs_to_values[observed]).sum()
    logp = clone_replace(logp, {model.named_vars[table.name]: p})
    return pytensor.function([p], pytensor.grad(logp, p), mode=PLAIN)(at)


@each(SAMPLED)
def test_counts_are_the_slope_of_the_likelihood(build):
    model, _ = built(build)
    (table,) = tables(model)
    counts = read_counts(find_observations([table], model))
    if table.family == "dirichlet":
        # The log-likelihood is sum(x * log(p)) and its slope x / p.
        p = RNG.dirichlet(np.ones(table.n_categories), size=table.shape[:-1])
        found = p * slope(model, table, p)
    else:
        # The slope is k / p - (n - k) / (1 - p): two values of p give two equations.
        one, two = np.full(table.shape[:-1], 0.3), np.full(table.shape[:-1], 0.6)
        equations = [[1 / 0.3, -1 / 0.7], [1 / 0.6, -1 / 0.4]]
        slopes = np.stack([slope(model, table, one), slope(model, table, two)], axis=-1)
        found = np.linalg.solve(equations, slopes[..., None])[..., 0]
    np.testing.assert_allclose(found, counts, rtol=1e-9, atol=1e-9)


@each(INTEGRATED)
def test_counts_are_the_growth_of_the_marginal_likelihood(build):
    model, expected = built(build)
    (table,) = tables(model)
    observed = model.named_vars[table.likelihoods[0].name]
    trials = parameters(observed)[1][0]

    def marginal(prior):
        if table.family == "dirichlet":
            distribution = pm.DirichletMultinomial.dist(n=trials, a=prior)
        else:
            distribution = pm.BetaBinomial.dist(n=trials, alpha=prior[..., 0], beta=prior[..., 1])
        return pytensor.function([], pm.logp(distribution, model.rvs_to_values[observed]), mode=PLAIN)()

    # With one more prior record in cell i, the marginal likelihood grows by (x_i + a_i) / a_i * A / (N + A).
    units = np.eye(table.n_categories)
    growth = np.exp(np.stack([marginal(table.prior + unit) - marginal(table.prior) for unit in units], axis=-1))
    a, total = table.prior, table.prior.sum(-1, keepdims=True)
    found = growth * a * (expected.sum(-1, keepdims=True) + total) / total - a
    np.testing.assert_allclose(found, read_counts(find_observations([table], model)), rtol=1e-9, atol=1e-9)


def test_each_table_reads_its_own_observations():
    with pm.Model() as model:
        b = pm.Beta("b", 1, 1)
        p = pm.Dirichlet("p", np.ones(3))
        pm.Categorical("y", p=p, observed=[0, 2, 2])
        pm.Binomial("z", n=5, p=b, observed=1)
    first, second = tables(model)
    np.testing.assert_array_equal(read_counts(find_observations([first], model)), [1, 4])
    np.testing.assert_array_equal(read_counts(find_observations([second], model)), [1, 0, 2])


def test_new_data_are_read_when_they_are_set():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Categorical("y", p=p, observed=pm.Data("x", [0, 1]))
    (table,) = tables(model)
    model.set_data("x", [2, 2, 2])
    np.testing.assert_array_equal(read_counts(find_observations([table], model)), [0, 0, 3])
    assert total_records(find_observations([table], model)) == 3


def test_large_counts_are_exact():
    counts = np.array([10**9, 10**9 + 1, 2])
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("y", n=counts.sum(), p=p, observed=counts)
        b = pm.Beta("b", 1, 1)
        pm.Binomial("z", n=2**53, p=b, observed=[2.0**53 - 1])
    first, second = tables(model)
    np.testing.assert_array_equal(read_counts(find_observations([first], model)), counts)
    np.testing.assert_array_equal(read_counts(find_observations([second], model)), [2**53 - 1, 1])


def test_the_total_is_found_without_the_counts():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("y", n=[4, 5], p=p, observed=np.full((2, 3), -1))
    (table,) = tables(model)
    assert total_records(find_observations([table], model)) == 9


def test_reading_changes_nothing():
    values = np.array([1.0, 0.0, 1.0])
    with pm.Model() as model:
        b = pm.Beta("b", 1, 1)
        data = pm.Data("x", values)
        pm.Bernoulli("y", p=b, observed=data)
    (table,) = tables(model)
    counts = read_counts(find_observations([table], model))
    counts += 5
    np.testing.assert_array_equal(read_counts(find_observations([table], model)), [2, 1])
    np.testing.assert_array_equal(data.get_value(), [1, 0, 1])


def test_a_table_of_another_model():
    with pm.Model() as model:
        b = pm.Beta("b", 1, 1)
        pm.Bernoulli("y", p=b, observed=[0, 1])
    (table,) = tables(model)
    with pytest.raises(ArgumentError, match="no variable 'y'"):
        read_counts(find_observations([table], pm.Model()))


# What is wrong with data. The numbers are distinctive, so that a message that holds one is found out.

DISTINCTIVE = (7919, 6007, 4211)


def counted(observed, n, **options):
    p = pm.Dirichlet("p", np.ones((*options.pop("rows", ()), 3)))
    pm.Multinomial("y", n=n, p=p, observed=observed, **options)


def tried(observed, n, **options):
    b = pm.Beta("b", 1, 1, shape=options.pop("rows", ()))
    pm.Binomial("y", n=n, p=b, observed=observed, **options)


def recorded(observed, **options):
    p = pm.Dirichlet("p", np.ones((*options.pop("rows", ()), 3)))
    pm.Categorical("y", p=p, observed=observed, **options)


def tossed(observed, **options):
    b = pm.Beta("b", 1, 1, shape=options.pop("rows", ()))
    pm.Bernoulli("y", p=b, observed=observed, **options)


def data(values, name="x"):
    return pm.Data(name, np.asarray(values))


def changed(values):
    """A `pm.Data` with values that PyMC would not take at first."""
    stored = pm.Data("x", np.zeros(np.shape(values)))
    stored.set_value(np.asarray(values, dtype=float))
    return stored


BROKEN = {
    "negative counts": (lambda: counted([7919, -6007, 4211], 6123), ">= 0"),
    "counts that do not add up": (lambda: counted([7919, 6007, 4211], 18136), "do not add up to `n`"),
    "one row that does not add up": (lambda: counted([[7919, 0, 0], [0, 6007, 0]], [7919, 6008]), "do not add up"),
    "rows that add up in all only": (lambda: counted([[7919, 0, 0], [0, 6007, 0]], [7918, 6008]), "do not add up"),
    "fractions in a list": (lambda: counted([7919.5, 6007.5, 4211], 18138), "do not add up"),
    "fractions in data": (lambda: counted(data([7919.5, 6007.5, 4211]), 18138), "integers"),
    "not a number": (lambda: counted(changed([7919, np.nan, 4211]), 12130), "finite"),
    "infinite": (lambda: tried(changed([7919, np.inf]), 8000), "finite"),
    "more than n": (lambda: tried([7919, 4211], 6007), "above `n`"),
    "more than one n": (lambda: tried([7919, 4211], [7920, 4210]), "above `n`"),
    "negative successes": (lambda: tried(data([-7919]), 6007), ">= 0"),
    "half a success": (lambda: tried(data([6007.5]), 7919), "integers"),
    "negative trials": (lambda: tried([0], data([-7919], "n")), "trials of 'y' are not all >= 0"),
    "half a trial": (lambda: tried([6007], data([7919.5], "n")), "trials of 'y' are not all integers"),
    "half a trial of categories": (lambda: counted([7919, 0, 0], 7919.5), "trials of 'y' are not all integers"),
    "trials of another shape": (lambda: tried(data([7919, 7919]), data([7919] * 3, "n")), "shape"),
    "trials that cannot be computed": (
        lambda: tried(data([7919, 6007]), data([7919, 6007], "n") + data([4211] * 3, "m")),
        "cannot be computed",
    ),
    "beyond all integers": (lambda: tried(changed([1e300]), 7919), "above 2**53"),
    "a code beyond all integers": (lambda: recorded(changed([1e300])), "above 2**53"),
    "too many": (lambda: tried([2.0**53, 7919], 2**53), "2**53"),
    "too many in all": (lambda: counted(changed(np.full((4, 3), 2.0**52)), 3 * 2**52), "2**53"),
    "so many that 64 bits wrap": (lambda: tried(changed(np.ones(4097)), 2**53), "2**53"),
    "a sum of 2**53 + 1": (lambda: counted(changed([2.0**53, 1.0, 0.0]), 2**53), "2**53"),
    "a code too high": (lambda: recorded([0, 1, 7919]), "codes from 0 to 2"),
    "the first code too high": (lambda: recorded([0, 1, 3]), "codes from 0 to 2"),
    "a negative code": (lambda: recorded([0, -7919]), ">= 0"),
    "half a code": (lambda: recorded(data([0.5, 1])), "integers"),
    "an unknown code": (lambda: recorded(changed([0, np.nan])), "finite"),
    "a code too high in a row": (lambda: recorded([[0, 3], [1, 1]], rows=(2,)), "codes from 0 to 2"),
    "two successes at once": (lambda: tossed([0, 7919]), "0 or 1"),
    "half a toss": (lambda: tossed(data([0.5, 1])), "integers"),
    "too many categories": (lambda: counted(data([7919, 6007, 4211, 0]), 18137), "the 3 categories of the prior"),
    "too few rows": (lambda: counted(data([[7919, 0, 0]]), 7919, rows=(2,)), "the 2 rows of the prior"),
    "too many rows": (lambda: tossed(data(np.zeros(7919)), rows=(2,)), "the 2 rows of the prior"),
    "too few columns": (lambda: recorded(data(np.zeros((6007, 1))), rows=(2,)), "the 2 rows of the prior"),
    "a record that the shape repeats": (lambda: tossed(data([1]), shape=(7919,)), "shape that the variable declares"),
    "a sparse array": (lambda: counted(csr_matrix([[7919, 6007, 4211]]), 18137), "dense array"),
}


each_problem = pytest.mark.parametrize(("build", "problem"), BROKEN.values(), ids=BROKEN)


def refused(reader, build):
    """What the error says, after a check that it says nothing of the data."""
    with pm.Model() as model:
        build()
    (table,) = tables(model)
    with pytest.raises(DataError) as info:
        reader(find_observations([table], model))
    error = info.value
    assert error.__cause__ is None
    assert error.__context__ is None
    said = str(error) + repr(error.args)
    assert "'y'" in said
    for number in DISTINCTIVE:
        assert str(number) not in said
    return str(error)


@each_problem
def test_broken_data_are_refused_without_a_word_about_them(build, problem):
    assert problem in refused(read_counts, build)


# Those for which the total is wrong, too: its sources are the number of trials and the shape.
TOTALS = [
    "negative trials",
    "half a trial",
    "half a trial of categories",
    "trials of another shape",
    "trials that cannot be computed",
    "too many",
    "too many in all",
    "so many that 64 bits wrap",
    "too many categories",
    "too few rows",
    "too many rows",
    "too few columns",
    "a record that the shape repeats",
]


@pytest.mark.parametrize("what", TOTALS)
def test_broken_totals_are_refused_without_a_word_about_them(what):
    build, problem = BROKEN[what]
    assert problem in refused(total_records, build)


# Short floats


@pytest.mark.parametrize("given", ["list of floats", "list of integers", "data"])
def test_counts_that_float32_cannot_tell_apart_are_refused(given):
    """Finding 9: under `floatX="float32"` 2**26 + 4 and 2**26 + 5 were read as two numbers that differ by 8."""

    def model(count):
        with pytensor.config.change_flags(floatX="float32"), pm.Model() as model:
            values = {"list of floats": [float(count)], "list of integers": [count]}.get(given)
            observed = pm.Data("x", np.array([float(count)])) if values is None else values
            pm.Binomial("y", n=2**27, p=pm.Beta("b", 1, 1, shape=1), observed=observed)
        return model

    # Also where the flag is back to what it was.
    for count in (2**24, 2**26 + 5):
        (table,) = tables(model(count))
        with pytest.raises(DataError, match="reach 2\\*\\*24") as caught:
            read_counts(find_observations([table], model(count)))
        assert str(count) not in str(caught.value)
    small = model(2**24 - 1)
    np.testing.assert_array_equal(
        read_counts(find_observations(tables(small), small)), [[2**24 - 1, 2**27 - 2**24 + 1]]
    )


def test_a_number_of_trials_in_a_short_float_is_refused():
    with pm.Model() as model:
        n = pytensor.shared(np.array([2.0**24], dtype="float32"), name="n")
        pm.Binomial("y", n=n, p=pm.Beta("b", 1, 1), observed=[5])
    with pytest.raises(DataError, match=r"numbers? of trials"):
        total_records(find_observations(tables(model), model))


@pytest.mark.parametrize("first", [2**53 - 1, 2**53])
def test_a_total_is_counted_up_to_the_last_number_that_doubles_hold(first):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        pm.Binomial("y", n=[first, 1], p=p, observed=[0, 0])
    (table,) = tables(model)
    if first + 1 <= 2**53:
        assert total_records(find_observations([table], model)) == first + 1
    else:
        with pytest.raises(DataError):
            total_records(find_observations([table], model))


# The facts of an observed variable, against counting by hand.


def observed(trials, data=None):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        pm.Binomial("y", n=np.array(trials), p=p, observed=np.zeros(np.shape(data or trials), dtype=int))
    (table,) = tables(model)
    return find_observations([table], model)[0]


def raw(shape):
    with pm.Model() as model:
        pm.Categorical("y", p=pm.Dirichlet("p", np.ones(2)), observed=np.zeros(shape, dtype=int))
    (table,) = tables(model)
    return find_observations([table], model)[0]


@pytest.mark.parametrize(
    "trials", [[[5, 5], [9, 9]], [[5, 6], [9, 9]], [[5, 9], [5, 9]], [[4, 4], [4, 4]], [[1, 2], [3, 4]]]
)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), ()])
def test_whether_trials_differ_along_axes(trials, axes):
    """Oracle: the numbers of one line along the axes, for every place on the others."""
    array = np.array(trials)
    rest = [axis for axis in range(2) if axis not in axes]
    lines = np.moveaxis(array, rest, range(len(rest))).reshape(*(array.shape[axis] for axis in rest), -1)
    differ = any(len(set(line.tolist())) > 1 for line in lines.reshape(-1, lines.shape[-1]))
    assert observed(trials).trials_differ_along(axes) == (differ and bool(axes))
    assert observed(trials).numbered == (0, 1)


def test_raw_records_have_one_trial_each():
    facts = raw((4, 3))
    assert not facts.trials_differ_along((0, 1))
    assert facts.numbered == ()
    assert not facts.has_several_trials
    assert facts.common_n_trials == 1
    sizes = facts.records_of((0,))
    assert sizes.dtype == np.int64
    np.testing.assert_array_equal(sizes, [3, 3, 3, 3])
    assert facts.max_records_in_block((0,)) == 3


@pytest.mark.parametrize("trials", [[[5, 6], [9, 9]], [[1, 1], [1, 1]], [[1]], np.ones((0, 2), int)])
def test_entries_with_numbers_of_their_own_may_hold_several_trials(trials):
    assert observed(trials).has_several_trials


def test_one_number_of_trials_is_looked_at():
    for n in (1, 2):
        with pm.Model() as model:
            pm.Binomial("y", n=n, p=pm.Beta("p", 1, 1), observed=np.zeros(1, dtype=int))
        (table,) = tables(model)
        assert find_observations([table], model)[0].has_several_trials == (n > 1)


def test_records_of_an_entry_are_its_trials():
    facts = observed([[5, 6], [9, 9]])
    assert facts.common_n_trials is None
    np.testing.assert_array_equal(facts.records_of((0,)), [11, 18])
    assert facts.max_records_in_block((0,)) == 18


@pytest.mark.parametrize(
    ("n_rows", "dims", "record_axes"),
    [
        pytest.param(2, (("g", "c"), ("g", "c")), (0,), id="two rows"),
        pytest.param(2, (None, None), (0,), id="two rows without a name"),
        pytest.param(1, (("g", "c"), ("g", "c")), (0,), id="one row of the same dim"),
        pytest.param(1, (("g", "c"), ("person", "c")), (), id="one row, and observations along another dim"),
        pytest.param(1, (None, None), (), id="one row without a name"),
    ],
)
def test_rows_that_are_followed_by_position(n_rows, dims, record_axes):
    """A single row may hold a private number of observations, unless the model says that both are along one dim."""
    coords = {"g": range(n_rows), "person": range(n_rows), "c": range(3)}
    with pm.Model(coords=coords) as model:
        p = pm.Dirichlet("p", np.ones((n_rows, 3)), dims=dims[0])
        pm.Multinomial("y", n=4, p=p, observed=np.full((n_rows, 3), [1, 1, 2]), dims=dims[1])
        q = pm.Beta("q", np.ones(n_rows), 1, dims=dims[0] and dims[0][:1])
        pm.Binomial("z", n=4, p=q, observed=np.full(n_rows, 3), dims=dims[1] and dims[1][:1])
    for table in tables(model):
        (facts,) = find_observations([table], model)
        assert facts.record_axes == record_axes
        assert facts.summed == tuple({0} - set(record_axes))


def test_no_face_of_what_was_read_shows_it():
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.ones(4))
        pm.Multinomial("y", n=VECTOR.sum() + 8000, p=p, observed=VECTOR + 2000)
    (observed,) = find_observations(tables(model), model)
    seen = observed.reading.records()
    np.testing.assert_array_equal(seen.records, VECTOR + 2000)
    for face in (repr(seen), str(seen), f"{seen}", repr(observed), str(observed), repr(observed.reading)):
        assert "2003" not in face
        assert "array" not in face
