"""What a likelihood sees of the released variables: counts carried back, against PyMC's own log-likelihood and NUTS."""

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
from pymc_dirdp.models.observations import find_observations, read_counts, total_records
from pymc_dirdp.models.tables import tables
from tests.planned import planned_sample

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
def complement_by_three_terms():
    pm.Bernoulli("y", p=pt.add(0.25, -pm.Beta("b", 1, 2), 0.75), observed=YES)


@reads
def negative_taken_away():
    pm.Bernoulli("y", p=0.0 - (0.0 - pm.Beta("b", 1, 2)), observed=YES)


@reads
def shares_and_what_is_always_1():
    b = pm.Beta("b", 1, 2, shape=3)
    one = b + (1 - b)
    pm.Binomial("y", n=9, p=(one[::-1] - b) * (one + one + -one), observed=[6, 1, 2])


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
def rows_reordered():
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
def rows_of_two_parents():
    pm.Categorical("y", p=simplex(3, 2, 3)[CODES, OTHER], observed=LEVELS[:, 0])


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


def point(every, rng):
    """Values of the released variables, and those of all their cells."""
    cells = {table.name: rng.dirichlet(np.full(table.n_categories, 2.0), size=table.shape[:-1]) for table in every}
    values = {table.name: cells[table.name][..., 0] if table.family == "beta" else cells[table.name] for table in every}
    return values, cells


def log_likelihood(model, every):
    """Of all observed variables, as a function of the released variables."""
    inputs = {table.name: pt.tensor(shape=(None,) * model[table.name].type.ndim, dtype="float64") for table in every}
    total = pt.sum([pm.logp(rv, model.rvs_to_values[rv]).sum() for rv in model.observed_RVs])
    given = {model[name]: variable for name, variable in inputs.items()}
    given |= {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    (total,) = clone_replace([total], given, rebuild_strict=False)
    with pytensor.config.change_flags(cxx=""):
        return pytensor.function(list(inputs.values()), total, mode=PLAIN)


@pytest.mark.parametrize("name", READ)
def test_the_log_likelihood_is_the_counts_times_logarithms_of_shares(name):
    """It holds at every point.

    So the counts are right and the posterior is a product of Dirichlet or Beta distributions.
    """
    model, rng = built(name), np.random.default_rng(1)
    every = tables(model)
    function = log_likelihood(model, every)
    differences = []
    for _ in range(4):
        values, cells = point(every, rng)
        expected = sum(
            (read_counts(find_observations([table], model)) * np.log(cells[table.name])).sum() for table in every
        )
        differences.append(function(*values.values()) - expected)
    np.testing.assert_allclose(differences, differences[0], rtol=1e-9, atol=1e-9)


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
                total_records(find_observations([table], model))
        else:
            assert (
                total_records(find_observations([table], model)) == read_counts(find_observations([table], model)).sum()
            )


# What a table of parts must not hide


def release_of(build, **said):
    with pm.Model() as model:
        build()
    return planned_sample(dirdp.ApproxDP(epsilon=3, delta=1e-3), model, **said)


def test_a_sequence_of_more_axes_is_read():
    """A row chosen by codes beside two axes by position, one of them moved."""
    codes = RNG.integers(0, 3, 7)
    with pm.Model() as model:
        th = pm.Beta("th", 1, 1, shape=(2, 3, J))
        p = th[:, codes].dimshuffle(1, 2, 0)
        pm.Bernoulli("y", p=p, observed=RNG.integers(0, 2, (7, J, 2)))
    (table,) = tables(model)
    y = model.rvs_to_values[model["y"]].data
    expected = np.zeros((2, 3, J, 2))
    for i, j, k in np.ndindex(y.shape):
        expected[k, codes[i], j, 1 - y[i, j, k]] += 1
    np.testing.assert_array_equal(read_counts(find_observations([table], model)), expected)


WRONG_CODES = {
    "a code too high": (lambda: pm.Bernoulli("y", p=beta_rows(CODES + 7919), observed=GRID), "codes from 0 to 2"),
    "a code below 0": (lambda: pm.Bernoulli("y", p=beta_rows(-1 - CODES), observed=GRID), "not all >= 0"),
    "too few codes": (lambda: pm.Bernoulli("y", p=beta_rows(CODES[:1]), observed=GRID), "one code for each"),
    "a sum of codes too high": (
        lambda: pm.Bernoulli("y", p=beta_rows(pm.Data("c", CODES) + 7919), observed=GRID),
        "codes from 0 to 2",
    ),
    "columns of different lengths": (
        lambda: pm.Bernoulli("y", p=beta_rows(pm.Data("c", CODES) * pm.Data("e", [1])), observed=GRID),
        "one code for each",
    ),
    "one condition for all": (
        lambda: pm.Bernoulli(
            "y", p=pt.switch(pm.Data("c", [1]), (b := pm.Beta("b", 1, 1, shape=2))[0], b[1]), observed=YES
        ),
        "one code for each",
    ),
}


def beta_rows(codes):
    return pm.Beta("b", 1, 1, shape=(3, J))[codes]


@pytest.mark.parametrize(("build", "problem"), WRONG_CODES.values(), ids=WRONG_CODES)
def test_wrong_codes_are_an_error_without_a_value(build, problem):
    with pytest.raises(DataError, match=problem) as caught:
        release_of(build, unit=0)
    assert "'y'" in str(caught.value)
    assert "7919" not in str(caught.value)


def test_codes_are_not_read_when_tables_are_found():
    def model(codes):
        with pm.Model() as model:
            b = pm.Beta("b", 1, 1, shape=6)
            pm.Bernoulli("y", p=1 - b[pm.Data("c", codes) * 2 + OTHER], observed=YES)
            pm.Bernoulli("z", p=pt.switch(pm.Data("e", codes), b[0], b[1]), observed=YES)
        return model

    assert tables(model(CODES)) == tables(model(np.full(N, -7919)))


def test_two_views_of_one_table_are_distinguished():
    """The digest of a plan, and the check of a plan that comes from a file."""

    def model(k):
        with pm.Model() as model:
            b = pm.Beta("b", 1, 1, shape=3)
            pm.Bernoulli("y", p=b[k], observed=YES)
        return model

    target = dirdp.ApproxDP(epsilon=1, delta=1e-3)
    first, second = dirdp.plan(target, model(0)), dirdp.plan(target, model(2))
    assert first.digest != second.digest
    assert first.parts[0].table != second.parts[0].table
    assert pickle.loads(pickle.dumps(first)).digest == first.digest == dirdp.plan(target, model(0)).digest
    with pytest.raises(UnsupportedModelError, match="not the one that was planned"):
        dirdp.sample(first, model(2))


def test_the_number_of_records_of_a_part_is_that_of_its_positions():
    """Each table of a stack has the trials of its own entry, and not those of all."""
    with pm.Model() as model:
        stack = pm.math.stack([pm.Beta("a", 1, 1), pm.Beta("b", 1, 1)])
        pm.Binomial("y", n=[100, 120], p=stack, observed=[13, 21])
    assert [total_records(find_observations([table], model)) for table in tables(model)] == [100, 120]
    plan = dirdp.plan(dirdp.ApproxDP(epsilon=1, delta=1e-3), model)
    assert [part.n_records for part in plan.parts] == [100, 120]


@pytest.mark.thorough
def test_a_release_of_a_switch_between_tables_holds_no_number_of_records():
    """Under add-remove the numbers of records are private, and the file has the planning size alone."""

    def build():
        a, b = two()
        pm.Bernoulli("y", p=pm.math.switch(pm.Data("group", OTHER), a, b), observed=YES)

    release = release_of(build, adjacency="add-remove", n_records=1000)
    assert release["utility"]["n_records"].values.tolist() == [1000, 1000]
    assert dirdp.verify(release)


def test_large_tables_take_no_array_of_all_records():
    """A million records with a hundred columns behind each code: the map has the size of the table."""
    codes = np.zeros(20_000, dtype=int)
    with pm.Model() as model:
        th = pm.Beta("th", 1, 1, shape=(3, 100))
        pm.Bernoulli("y", p=1 - th[codes], observed=np.zeros((20_000, 100), dtype=bool))
    (table,) = tables(model)
    assert table.likelihoods[0].view.cells.size == table.prior.size == 600
    assert read_counts(find_observations([table], model))[0].tolist() == [[20_000, 0]] * 100


@pytest.mark.parametrize(("build", "error"), [(complement, None), (stacked_betas, "feeds 'a' and other tables")])
@pytest.mark.thorough
def test_a_diagnosis_of_what_a_likelihood_sees(build, error):
    with pm.Model() as model:
        build()
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        release = dirdp.sample(dirdp.ApproxDP(epsilon=3, delta=1e-3), model, random_seed=1)
    if error:
        with pytest.raises(UnsupportedModelError, match=error):
            dirdp.diagnose(release, model, draws=100)
        return
    diagnosis = dirdp.diagnose(release, model, draws=100, random_seed=1)
    b = diagnosis["non_private"]["posterior"]["b"]
    expected = np.where(YES, np.log1p(-b.values[..., None]), np.log(b.values[..., None]))
    np.testing.assert_allclose(diagnosis["non_private"]["log_likelihood"]["y"], expected)


# A third oracle: NUTS on the model itself


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["both_sides_of_one_share", "naive_bayes_of_words", "logits_of_rows", "a_chain"])
def test_nuts_agrees_with_prior_plus_counts(name):
    model = built(name)
    every = tables(model)
    with model:
        trace = pm.sample(1000, tune=500, chains=2, cores=1, random_seed=5, progressbar=False)["posterior"]
    for table in every:
        u = table.prior + read_counts(find_observations([table], model))
        mean, total = u / u.sum(-1, keepdims=True), u.sum(-1, keepdims=True)
        sd = np.sqrt(mean * (1 - mean) / (total + 1))
        drawn = trace[table.name].values.reshape(-1, *trace[table.name].shape[2:])
        pick = (lambda x: x[..., 0]) if table.family == "beta" else (lambda x: x)
        # The error of a mean of 2000 draws, of which at least a fifth are effective; the chance of six of them is 1e-9.
        assert np.all(np.abs(drawn.mean(0) - pick(mean)) < 6 * pick(sd) / np.sqrt(400))
        np.testing.assert_allclose(drawn.std(0), pick(sd), rtol=0.25)
        # A wrong reading is far away: success and failure, or the categories, in reverse.
        assert np.any(np.abs(drawn.mean(0) - pick(mean[..., ::-1])) > 6 * pick(sd) / np.sqrt(400))
