"""What a likelihood sees of the released variables: counts carried back, against PyMC's own log-likelihood and NUTS."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.replace import clone_replace

from pymc_dirdp.errors import UnsupportedModelError
from pymc_dirdp.models.observations import read_counts, total_records
from pymc_dirdp.models.tables import tables

RNG = np.random.default_rng(2)
PLAIN = Mode(linker="py", optimizer=None)
N, J = 30, 4
YES = RNG.integers(0, 2, N)
CODES = RNG.integers(0, 3, N)
OTHER = RNG.integers(0, 2, N)
GRID = RNG.integers(0, 2, (N, J))
LEVELS = RNG.integers(0, 3, (N, J))
PATH = RNG.integers(0, 3, (8, 6))

# Each function builds a model whose tables PyMC knows under the same names.
READ = {}


def reads(build):
    READ[build.__name__] = build
    return build


def two():
    return pm.Beta("a", 1, 2), pm.Beta("b", 3, 1)


def simplex(*shape, name="p"):
    return pm.Dirichlet(name, np.ones(shape))


@reads
def uniform():
    pm.Binomial("water", n=9, p=pm.Uniform("p", 0, 1), observed=6)


@reads
def uniform_rows():
    pm.Binomial("y", n=9, p=pm.Uniform("p", 0, 1, shape=3), observed=[6, 1, 2])


@reads
def complement():
    pm.Bernoulli("y", p=1 - pm.Beta("b", 1, 2), observed=YES)


@reads
def complement_of_a_complement():
    pm.Bernoulli("y", p=1 - (1 - pm.Beta("b", 1, 2)), observed=YES)


@reads
def complement_by_a_negative():
    pm.Bernoulli("y", p=-pm.Beta("b", 1, 2) + 1.0, observed=YES)


@reads
def both_sides_of_one_share():
    b = pm.Beta("b", 1, 2)
    pm.Bernoulli("y", p=b, observed=YES)
    pm.Binomial("z", n=5, p=1 - b, observed=2)


@reads
def an_entry_each():
    b = pm.Beta("b", [1, 2], 1)
    pm.Binomial("y", n=10, p=b[0], observed=3)
    pm.Binomial("z", n=12, p=b[1], observed=4)


@reads
def an_entry_from_the_end():
    b = pm.Beta("b", [1, 2], 1)
    pm.Binomial("y", n=10, p=b[-1], observed=3)


@reads
def a_slice():
    b = pm.Beta("b", 1, 1, shape=4)
    pm.Binomial("y", n=10, p=b[:2], observed=[3, 4])
    pm.Binomial("z", n=10, p=b[3:1:-1], observed=[5, 6])


@reads
def every_other_row():
    pm.Categorical("y", p=simplex(4, 3)[::2], observed=CODES.reshape(15, 2))


@reads
def rows_in_reverse():
    pm.Categorical("y", p=simplex(3, 3)[::-1], observed=CODES.reshape(10, 3))


@reads
def categories_in_reverse():
    pm.Categorical("y", p=simplex(3, 3)[:, ::-1], observed=CODES.reshape(10, 3))


@reads
def stacked_betas():
    a, b = two()
    pm.Binomial("y", n=[100, 120], p=pm.math.stack([a, b]), observed=[13, 21])


@reads
def stacked_rows():
    p, q = simplex(3), simplex(3, name="q")
    pm.Categorical("y", p=pt.stack([p, q]), observed=CODES.reshape(15, 2))


@reads
def stacked_rows_on_another_axis():
    p, q = simplex(4, 3), simplex(4, 3, name="q")
    pm.Categorical("y", p=pt.stack([p, q], axis=1), observed=RNG.integers(0, 3, (5, 4, 2)))


@reads
def joined_parts():
    b, c = pm.Beta("b", 1, 1, shape=3), pm.Beta("c", 2, 1, shape=2)
    pm.Binomial("y", n=7, p=pm.math.concatenate([c, b[1:], b[:1]]), observed=[1, 2, 3, 4, 5])


@reads
def a_beta_as_two_categories():
    b = pm.Beta("b", 1, 2)
    pm.Categorical("y", p=pt.stack([1 - b, b]), observed=YES)


@reads
def betas_as_two_categories():
    b = pm.Beta("b", 1, 2, shape=2)
    pm.Multinomial("y", n=6, p=pt.stack([b, 1 - b], axis=-1), observed=[[1, 5], [2, 4]])


@reads
def two_categories_as_a_success():
    pm.Bernoulli("y", p=simplex(2)[0], observed=YES)


@reads
def the_second_of_two_categories():
    pm.Binomial("y", n=[4, 5, 6], p=simplex(3, 2)[:, 1], observed=[1, 2, 3])


@reads
def a_transposed_table():
    pm.Binomial("y", n=8, p=pm.Beta("b", 1, 1, shape=(2, 3)).T, observed=[[1, 2], [3, 4], [5, 6]])


@reads
def rows_moved():
    p = simplex(2, 5, 3)
    pm.Categorical("y", p=p.dimshuffle(1, 0, 2), observed=RNG.integers(0, 3, (4, 5, 2)))


@reads
def a_reshaped_table():
    pm.Binomial("y", n=8, p=pm.Beta("b", 1, 1, shape=(2, 3)).reshape((3, 2)), observed=[[1, 2], [3, 4], [5, 6]])


@reads
def a_flat_table():
    pm.Categorical("y", p=simplex(2, 2, 3).reshape((4, 3)), observed=RNG.integers(0, 3, (5, 4)))


@reads
def logits():
    pm.Bernoulli("y", logit_p=pm.math.logit(pm.Beta("b", 1, 2)), observed=YES)


@reads
def logits_of_rows():
    b = pm.Beta("b", 1, 2, shape=2)
    pm.Bernoulli("y", logit_p=pm.math.log(b) - pm.math.log(1 - b), observed=OTHER.reshape(15, 2))


@reads
def negative_logits():
    pm.Bernoulli("y", logit_p=-pm.math.logit(pm.Beta("b", 1, 2)), observed=YES)


@reads
def a_softmax_of_logarithms():
    pm.Categorical("y", p=pm.math.softmax(pm.math.log(simplex(3)), axis=-1), observed=CODES)


@reads
def logits_of_categories():
    pm.Categorical("y", logit_p=pm.math.log(simplex(2, 3)), observed=CODES.reshape(15, 2))


@reads
def normalised_once_more():
    p = simplex(2, 3)
    pm.Categorical("y", p=p / p.sum(axis=-1, keepdims=True), observed=CODES.reshape(15, 2))


@reads
def the_exponential_of_a_logarithm():
    pm.Categorical("y", p=pt.exp(pt.log(simplex(3))) * 1.0 + 0, observed=CODES)


@reads
def naive_bayes_of_words():
    pm.Bernoulli("y", p=pm.Beta("th", 1, 1, shape=(3, J))[CODES], observed=GRID)


@reads
def naive_bayes_of_categories():
    pm.Categorical("y", p=simplex(3, J, 3, name="th")[CODES], observed=LEVELS)


@reads
def naive_bayes_with_features_first():
    pm.Bernoulli("y", p=pm.Beta("th", 1, 1, shape=(J, 3))[:, CODES], observed=GRID.T)


@reads
def one_feature_of_a_vectorised_table():
    th = pm.Beta("th", 1, 1, shape=(3, J))
    pm.Bernoulli("y", p=th[CODES, 2], observed=YES)


@reads
def some_features():
    th = pm.Beta("th", 1, 1, shape=(3, J))
    pm.Bernoulli("y", p=th[CODES][:, 1:3], observed=GRID[:, :2])


@reads
def codes_of_one_axis_and_rows_of_another():
    pm.Categorical("y", p=simplex(3, 2, 3, name="th")[:, OTHER], observed=RNG.integers(0, 3, (3, N)))


@reads
def records_that_share_a_code():
    pm.Bernoulli("y", p=pm.Beta("b", 1, 1, shape=3)[CODES][:, None], observed=GRID)


@reads
def one_minus_a_row_by_codes():
    pm.Bernoulli("y", p=1 - pm.Beta("b", 1, 1, shape=3)[CODES], observed=YES)


@reads
def a_switch_within_a_row():
    b = pm.Beta("b", 1, 1, shape=2)
    pm.Bernoulli("y", p=pm.math.switch(pm.Data("group", OTHER), b[0], b[1]), observed=YES)


@reads
def a_switch_between_a_share_and_the_rest():
    b = pm.Beta("b", 1, 1)
    pm.Bernoulli("y", p=pm.math.switch(OTHER, b, 1 - b), observed=YES)


@reads
def a_condition_on_data():
    b = pm.Beta("b", 1, 1, shape=2)
    pm.Bernoulli("y", p=pt.where(pm.Data("age", CODES) > 1, b[1], b[0]), observed=YES)


@reads
def a_switch_of_tables():
    a, b = two()
    pm.Bernoulli("y", p=pm.math.switch(OTHER, a, b), observed=YES)


@reads
def a_switch_of_rows_by_codes():
    b, c = pm.Beta("b", 1, 1, shape=3), pm.Beta("c", 1, 1, shape=3)
    pm.Bernoulli("y", p=pm.math.switch(OTHER, b[CODES], c[CODES]), observed=YES)


@reads
def a_switch_for_each_column():
    p, q = simplex(3), simplex(3, name="q")
    pm.Categorical("y", p=pt.switch(OTHER[:, None], p, q), observed=CODES)


@reads
def a_mask_as_codes():
    b = pm.Beta("b", 1, 1, shape=2)
    pm.Bernoulli("y", p=b[(pm.Data("age", CODES) > 1).astype("int64")], observed=YES)


@reads
def stacked_betas_by_codes():
    a, b = two()
    pm.Bernoulli("y", p=pm.math.stack([a, b, a])[CODES], observed=YES)


@reads
def codes_of_two_columns():
    first, second = pm.Data("first", OTHER), pm.Data("second", CODES)
    pm.Categorical("y", p=simplex(6, 3)[first * 3 + second], observed=LEVELS[:, 0])


@reads
def codes_of_an_observed_parent_and_data():
    parent = pm.Categorical("parent", p=simplex(3, name="q"), observed=CODES)
    pm.Bernoulli("y", p=pm.Beta("b", 1, 1, shape=6)[parent * 2 + OTHER], observed=YES)


@reads
def a_chain():
    x = pm.Data("x", PATH)
    pm.Categorical("next", p=simplex(3, 3, name="P")[x[:, :-1]], observed=x[:, 1:])


@reads
def one_chain():
    x = pm.Data("x", CODES)
    pm.Categorical("first", p=simplex(3, name="start"), observed=x[:1])
    pm.Categorical("next", p=simplex(3, 3, name="P")[x[:-1]], observed=x[1:])


@reads
def columns_of_one_array():
    x = pm.Data("x", LEVELS)
    for j in range(J):
        pm.Categorical(f"y{j}", p=simplex(3, name=f"p{j}"), observed=x[:, j])


@reads
def repeated_for_all():
    b = pm.Beta("b", 1, 1, shape=2)
    pm.Bernoulli("y", p=pt.broadcast_to(b, (15, 2)), observed=OTHER.reshape(15, 2))


@reads
def tiled():
    pm.Bernoulli("y", p=pt.tile(pm.Beta("b", 1, 1), 4), observed=[1, 0, 1, 1])


@reads
def a_row_of_ones_times_a_share():
    pm.Bernoulli("y", p=pt.ones(4) * pm.Beta("b", 1, 1), observed=[1, 0, 1, 1])


def built(name):
    with pm.Model() as model:
        READ[name]()
    return model


def point(held, rng):
    """Values of the released variables, and those of all their cells."""
    cells = {table.name: rng.dirichlet(np.full(table.n_categories, 2.0), size=table.shape[:-1]) for table in held}
    values = {table.name: cells[table.name][..., 0] if table.family == "beta" else cells[table.name] for table in held}
    return values, cells


def log_likelihood(model, held):
    """Of all observed variables, and its slopes, as a function of the released variables."""
    inputs = {table.name: pt.tensor(shape=(None,) * model[table.name].type.ndim, dtype="float64") for table in held}
    total = pt.sum([pm.logp(rv, model.rvs_to_values[rv]).sum() for rv in model.observed_RVs])
    given = {model[name]: variable for name, variable in inputs.items()}
    given |= {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    (total,) = clone_replace([total], given, rebuild_strict=False)
    variables = list(inputs.values())
    with pytensor.config.change_flags(cxx=""):
        return pytensor.function(variables, [total, *pytensor.grad(total, variables)], mode=PLAIN)


@pytest.mark.parametrize("name", READ)
def test_the_log_likelihood_is_the_counts_times_logarithms_of_shares(name):
    """It holds at every point, so the counts are right and the posterior is a product of Dirichlet or Beta laws."""
    model, rng = built(name), np.random.default_rng(1)
    held = tables(model)
    function = log_likelihood(model, held)
    differences = []
    for _ in range(4):
        values, cells = point(held, rng)
        expected = sum((read_counts(table, model) * np.log(cells[table.name])).sum() for table in held)
        differences.append(function(*values.values())[0] - expected)
    np.testing.assert_allclose(differences, differences[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", READ)
def test_counts_are_the_slope_of_the_log_likelihood(name):
    model, rng = built(name), np.random.default_rng(3)
    held = tables(model)
    values, cells = point(held, rng)
    _, *slopes = log_likelihood(model, held)(*values.values())
    for table, slope in zip(held, slopes, strict=True):
        counts, p = read_counts(table, model), cells[table.name]
        if table.family == "beta":
            expected = counts[..., 0] / p[..., 0] - counts[..., 1] / p[..., 1]
            np.testing.assert_allclose(slope, expected, rtol=1e-8, atol=1e-8)
        else:
            # A distribution that divides by the sum of p takes the same number off each cell of a row.
            found = slope - counts / p
            np.testing.assert_allclose(found, np.broadcast_to(found[..., :1], found.shape), rtol=1e-8, atol=1e-8)


OF_TABLES_BY_CODES = [
    "a_switch_of_tables",
    "a_switch_of_rows_by_codes",
    "a_switch_for_each_column",
    "stacked_betas_by_codes",
]


@pytest.mark.parametrize("name", READ)
def test_the_total_is_that_of_the_counts(name):
    model = built(name)
    for table in tables(model):
        if name in OF_TABLES_BY_CODES:
            with pytest.raises(UnsupportedModelError, match="the number of records of each is data"):
                total_records(table, model)
        else:
            assert total_records(table, model) == read_counts(table, model).sum()
