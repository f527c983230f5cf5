import pickle

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.models.table import Likelihood, Table, View
from pymc_dirdp.models.tables import tables

HAIR = ("black", "brown", "red", "blond")


def refused(*words, model=None):
    """The refusal names the variable and the reason: every one of these words."""
    with pytest.raises(UnsupportedModelError) as info:
        tables(model)
    for word in words:
        assert word in str(info.value)


# What is found


def test_one_dirichlet_with_dims():
    with pm.Model(coords={"hair": HAIR}):
        p = pm.Dirichlet("p", a=[1, 2, 3, 4], dims="hair")
        pm.Multinomial("students", n=10, p=p, observed=[1, 2, 3, 4])
        (table,) = tables()
    assert table.name == "p"
    assert table.family == "dirichlet"
    np.testing.assert_array_equal(table.prior, [1, 2, 3, 4])
    assert table.prior.dtype == np.float64
    assert not table.prior.flags.writeable
    assert table.dims == ("hair",)
    assert table.coords == {"hair": HAIR}
    assert table.likelihoods == (Likelihood("students", "multinomial", ()),)
    assert (table.shape, table.n_rows, table.n_categories) == ((4,), 1, 4)


def test_only_the_coords_of_the_released_variable():
    with pm.Model(coords={"row": ["a", "b"], "hair": HAIR, "secret": ["x"]}) as model:
        model.add_coord("batch", length=3)
        p = pm.Dirichlet("p", a=np.ones(4), dims=("batch", "row", "hair"))
        pm.Categorical("y", p=p, observed=np.zeros((3, 2), dtype=int))
    (table,) = tables(model)
    assert table.dims == ("batch", "row", "hair")
    assert table.coords == {"batch": None, "row": ("a", "b"), "hair": HAIR}
    assert table.shape == (3, 2, 4)


def test_dims_without_coords_take_the_length_of_the_variable():
    with pm.Model():
        p = pm.Dirichlet("p", a=np.ones((2, 3)), shape=(2, 3), dims=("row", "cell"))
        b = pm.Beta("b", 1, 1, dims="row")
        pm.Multinomial("y", n=5, p=p, observed=[[1, 2, 2], [0, 0, 5]], dims=("row", "cell"))
        pm.Bernoulli("z", p=b, observed=[0, 1], dims="row")
        first, second = tables()
    assert first.coords == {"row": None, "cell": None}
    assert second.shape == (2, 2)
    assert second.dims == ("row",)


def test_a_beta_is_a_pair():
    with pm.Model():
        b = pm.Beta("b", alpha=[1, 2, 3], beta=4)
        pm.Bernoulli("y", p=b, observed=np.ones((7, 3)))
        (table,) = tables()
    assert table.family == "beta"
    np.testing.assert_array_equal(table.prior, [[1, 4], [2, 4], [3, 4]])
    assert table.likelihoods == (Likelihood("y", "bernoulli", (1,)),)
    assert table.dims is None
    assert table.coords == {}


@pytest.mark.parametrize("spread", [{"nu": 10.0}, {"sigma": np.sqrt(0.3 * 0.7 / 11)}])
@pytest.mark.parametrize("mu", [0.3, np.array([0.3, 0.3]), pt.as_tensor([0.3, 0.3])])
def test_a_beta_by_mean_and_spread(mu, spread):
    with pm.Model():
        b = pm.Beta("b", mu=mu, **spread)
        pm.Binomial("y", n=3, p=b, observed=np.full(b.type.ndim * 2, 2) if b.type.ndim else 2)
        (table,) = tables()
    np.testing.assert_allclose(table.prior, np.broadcast_to([3.0, 7.0], table.shape), rtol=1e-14)


def test_a_prior_is_broadcast_to_the_shape_of_its_variable():
    with pm.Model():
        p = pm.Dirichlet("p", a=[1.0, 2.0], shape=(3, 4, 2))
        pm.Categorical("y", p=p, observed=np.zeros((5, 3, 4), dtype=int))
        (table,) = tables()
    np.testing.assert_array_equal(table.prior, np.broadcast_to([1.0, 2.0], (3, 4, 2)))
    assert table.likelihoods[0].rows == (1, 2)
    assert table.n_rows == 12


@pytest.mark.parametrize(
    ("spread", "rows", "shape"),
    [
        (lambda b: b, (1, 2), (7, 2, 3)),
        (lambda b: b[:, None], (0, 2), (2, 7, 3)),
        (lambda b: b[..., None], (0, 1), (2, 3, 7)),
        (lambda b: b[:, None, :, None], (0, 2), (2, 7, 3, 7)),
        (lambda b: b[None, :, None], (2, 4), (1, 7, 2, 7, 3)),
        (lambda b: pt.expand_dims(b, 1), (0, 2), (2, 7, 3)),
        (lambda b: pt.specify_shape(b, (2, 3))[:, None].copy(), (0, 2), (2, 7, 3)),
        (lambda b: b.astype("float32"), (1, 2), (7, 2, 3)),
    ],
)
def test_which_axes_the_rows_land_on(spread, rows, shape):
    with pm.Model():
        b = pm.Beta("b", 1, 1, shape=(2, 3))
        pm.Binomial("y", n=4, p=spread(b), observed=np.ones(shape, dtype=int))
        (table,) = tables()
    assert table.likelihoods[0].rows == rows


def test_a_deterministic_copy_is_looked_through():
    with pm.Model():
        p = pm.Dirichlet("p", np.ones((2, 3)))
        same = pm.Deterministic("same", p)
        pm.Categorical("y", p=same[:, None, :], observed=np.zeros((2, 9), dtype=int))
        (table,) = tables()
    assert table.likelihoods == (Likelihood("y", "categorical", (0,)),)


def test_other_deterministics_do_no_harm():
    with pm.Model():
        p = pm.Dirichlet("p", np.ones(3))
        pm.Deterministic("odds", p / (1 - p))
        pm.Multinomial("y", n=3, p=p, observed=[1, 1, 1])
        assert [table.name for table in tables()] == ["p"]


def test_integrated_priors_are_released_under_a_name_of_their_own():
    with pm.Model(coords={"row": ["a", "b"], "hair": HAIR}):
        pm.DirichletMultinomial("y", n=[1, 2], a=[1, 2, 3, 4], observed=np.ones((2, 4)), dims=("row", "hair"))
        pm.BetaBinomial("k", n=5, alpha=1, beta=[2, 3], observed=[1, 2], dims="row")
        first, second = tables()
    assert (first.name, first.family, first.dims) == ("y_p", "dirichlet", ("row", "hair"))
    np.testing.assert_array_equal(first.prior, [[1, 2, 3, 4], [1, 2, 3, 4]])
    assert first.likelihoods == (Likelihood("y", "dirichlet-multinomial", (0,)),)
    assert (second.name, second.family, second.dims) == ("k_p", "beta", ("row",))
    np.testing.assert_array_equal(second.prior, [[1, 2], [1, 3]])
    assert second.coords == {"row": ("a", "b")}


def test_several_tables_come_in_the_order_of_the_model():
    with pm.Model():
        pm.BetaBinomial("first", n=5, alpha=1, beta=2, observed=1)
        z = pm.Dirichlet("z", np.ones(2))
        a = pm.Beta("a", 1, 1)
        pm.Bernoulli("of_a", p=a, observed=[0, 1])
        pm.DirichletMultinomial("fourth", n=3, a=np.ones(3), observed=[1, 1, 1])
        pm.Categorical("of_z", p=z, observed=[0, 1])
        assert [table.name for table in tables()] == ["first_p", "z", "a", "fourth_p"]


def test_a_nested_model_stands_for_the_whole():
    with pm.Model(coords={"hair": HAIR}) as outer:
        with pm.Model("sub") as inner:
            p = pm.Dirichlet("p", np.ones(4), dims="hair")
            pm.Multinomial("y", n=4, p=p, observed=np.ones(4))
        pm.BetaBinomial("k", n=4, alpha=1, beta=1, observed=1)
        with inner:
            assert tables() == tables(inner) == tables(outer)
        table, other = tables()
    assert other.name == "k_p"
    assert table.name == "sub::p"
    assert table.likelihoods[0].name == "sub::y"
    assert table.coords == {"hair": HAIR}


def test_a_likelihood_is_known_by_its_op_not_by_its_name():
    with pm.Model():
        poisson = pm.Dirichlet("poisson", np.ones(3))
        pm.Multinomial("normal", n=3, p=poisson, observed=[1, 1, 1])
        assert [table.name for table in tables()] == ["poisson"]


def test_no_observed_value_is_read():
    def model(counts):
        with pm.Model() as model:
            b = pm.Beta("b", 1, 1, shape=2)
            pm.Binomial("y", n=9, p=b, observed=pm.Data("data", counts))
            pm.DirichletMultinomial("z", n=9, a=np.ones(2), observed=counts)
        return model

    assert tables(model(np.array([9, 0]))) == tables(model(np.array([-3, 77])))


def test_observe_and_do_make_models_like_any_other():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("y", n=4, p=p)
    refused("'y'", "unobserved Multinomial", "sample_posterior_predictive", model=model)
    (table,) = tables(pm.observe(model, {"y": [1, 1, 2]}))
    assert table.likelihoods == (Likelihood("y", "multinomial", ()),)
    refused("'y'", "no Dirichlet or Beta", model=pm.do(pm.observe(model, {"y": [1, 1, 2]}), {"p": np.ones(3) / 3}))


# Table as an object


def table_of(**changes):
    facts = {
        "name": "p",
        "family": "dirichlet",
        "prior": np.ones((2, 3)),
        "dims": ("row", None),
        "coords": {"row": ("a", "b")},
        "likelihoods": (Likelihood("y", "multinomial", (0,)),),
    }
    return Table(**(facts | changes))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "q"},
        {"family": "beta", "prior": np.ones((2, 2)), "dims": ("row",)},
        {"prior": np.ones((2, 4))},
        {"prior": np.full((2, 3), 2.0)},
        {"dims": None},
        {"coords": {"row": ("a", "c")}},
        {"likelihoods": (Likelihood("y", "categorical", (0,)),)},
        {"likelihoods": (Likelihood("y", "multinomial", (1,)),)},
    ],
)
def test_tables_are_equal_by_value(change):
    assert table_of() == table_of()
    assert hash(table_of()) == hash(table_of())
    assert table_of() != table_of(**change)
    assert table_of() != "p"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"family": "beta"}, "a Beta and has more than two categories"),
        ({"dims": ("row",)}, "The dims of 'p' do not fit its shape"),
        ({"coords": {}}, "The dims of 'p' do not fit its shape"),
        ({"coords": {"row": ("a",)}}, "The dim 'row' does not have one label for each entry"),
        ({"likelihoods": (Likelihood("y", "multinomial", (), (), View(np.array([0, 6]))),)}, "refers to cells"),
    ],
)
def test_a_table_that_contradicts_itself_is_none(change, problem):
    with pytest.raises(ArgumentError, match=problem):
        table_of(**change)


def test_a_table_survives_pickling():
    copy = pickle.loads(pickle.dumps(table_of()))
    assert copy == table_of()
    assert not copy.prior.flags.writeable


def test_a_table_keeps_no_reference_to_its_arguments():
    prior, coords = np.ones(2), {"row": ("a", "b")}
    table = Table("p", "dirichlet", prior, ("row",), coords)
    prior[0] = 9
    coords["row"] = ("c", "d")
    assert table == Table("p", "dirichlet", np.ones(2), ("row",), {"row": ("a", "b")})
    with pytest.raises(TypeError):
        table.coords["row"] = ()


def test_repr_is_short():
    assert repr(table_of()) == "Table('p', dirichlet, shape=(2, 3), observed as 'y')"


# What is refused: no model, no table


def test_no_model():
    with pytest.raises(ArgumentError, match="inside `with model:`"):
        tables()


def test_not_a_model():
    with pytest.raises(ArgumentError, match="Expected a PyMC model"):
        tables("model")


def test_a_prior_that_is_not_positive():
    with pm.Model():
        p = pm.Dirichlet("p", [1.0, 0.0])
        pm.Multinomial("y", n=3, p=p, observed=[3, 0])
        with pytest.raises(ArgumentError, match=r"the prior of 'p' to be > 0"):
            tables()


# What is refused: the prior


@pytest.mark.parametrize("make", [lambda a: pm.Data("a", a), lambda a: pytensor.shared(a, name="a")])
@pytest.mark.parametrize("use", [lambda a: a, lambda a: a + 1, lambda a: np.ones(3) * a.shape[0] * a[0]])
def test_prior_on_data(make, use):
    with pm.Model():
        p = pm.Dirichlet("p", use(make(np.ones(3))))
        pm.Multinomial("y", n=3, p=p, observed=[1, 1, 1])
        refused("'p'", "depends on the data 'a'", "as numbers")


def test_number_of_rows_on_data():
    with pm.Model():
        rows = pm.Data("rows", np.array(2))
        b = pm.Beta("b", 1, 1, shape=(rows,))
        pm.Bernoulli("y", p=b, observed=[0, 1])
        refused("'b'", "depends on the data 'rows'")


def test_integrated_prior_on_data():
    with pm.Model():
        pm.BetaBinomial("k", n=5, alpha=pm.Data("a", 1.0), beta=2, observed=1)
        refused("'k'", "depends on the data 'a'")


def test_lengths_of_dims_are_not_data():
    with pm.Model(coords={"row": range(2)}) as model:
        b = pm.Beta("b", 1, model.dim_lengths["row"], dims="row")
        pm.Bernoulli("y", p=b, observed=[0, 1])
        (table,) = tables()
    np.testing.assert_array_equal(table.prior, [[1, 2], [1, 2]])


def test_no_transform_at_all_is_fine():
    with pm.Model():
        b = pm.Beta("b", 1, 1, default_transform=None)
        pm.Bernoulli("y", p=b, observed=[0, 1])
        assert len(tables()) == 1


# What is refused: the likelihood


@pytest.mark.parametrize(
    ("observe", "words"),
    [
        (lambda b: pm.Poisson("y", mu=b, observed=[1, 2]), ["Poisson"]),
        (lambda b: pm.Normal("y", mu=b, observed=[1.0, 2.0]), ["Normal"]),
        (lambda b: pm.Geometric("y", p=b, observed=[1, 2]), ["Geometric"]),
        (lambda b: pm.NegativeBinomial("y", n=3, p=b, observed=[1, 2]), ["NegBinomial"]),
        (lambda b: pm.HyperGeometric("y", N=10, k=5, n=3, observed=[1, 2]), ["HyperGeometric"]),
        (
            lambda b: pm.ZeroInflatedBinomial("y", psi=b, n=3, p=0.5, observed=[1, 2]),
            ["Mixture", "no record says which component"],
        ),
        (
            lambda b: pm.Mixture("y", w=pt.stack([b, 1 - b]), comp_dists=pm.Poisson.dist([1, 9]), observed=[1, 2]),
            ["Mixture", "no record says which component"],
        ),
        (lambda b: pm.Censored("y", pm.Binomial.dist(n=5, p=b), lower=1, upper=3, observed=[1, 2]), ["Censored"]),
        (
            lambda b: pm.Truncated("y", pm.Binomial.dist(n=5, p=b), upper=3, observed=[1, 2]),
            ["Truncated", "some values are hidden or left out"],
        ),
        (lambda b: pm.CustomDist("bernoulli", b, logp=lambda x, b: pt.log(b) * x, observed=[0, 1]), ["CustomDist"]),
        (
            lambda b: pm.CustomDist(
                "binomial", b, dist=lambda b, size: pm.Binomial.dist(3, b, size=size), observed=[0, 1]
            ),
            ["Custom"],
        ),
    ],
)
def test_other_likelihoods(observe, words):
    with pm.Model():
        observed = observe(pm.Beta("b", 1, 1))
        refused(repr(observed.name), "not supported", "BetaBinomial for a Beta", *words)


def test_ordered_logistic():
    with pm.Model():
        pm.OrderedLogistic("y", eta=0.0, cutpoints=[-1.0, 1.0], observed=[0, 1, 2])
        refused("'y'", "no Dirichlet or Beta")


def test_a_subclass_of_a_known_op_may_have_another_likelihood():
    class Mine(pm.Bernoulli.rv_type):
        pass

    class MyDistribution(pm.Discrete):
        rv_op = Mine()

        @classmethod
        def dist(cls, p, **kwargs):
            return super().dist([p], **kwargs)

        def logp(value, p):  # noqa: N805 (PyMC calls it so)
            return value * pt.log(p)

    with pm.Model():
        b = pm.Beta("b", 1, 1)
        MyDistribution("bernoulli", b, observed=[0, 1])
        refused("'bernoulli'", "Mine", "not supported")


@pytest.mark.parametrize(
    "use",
    [
        lambda b, c: 2 - b,
        lambda b, c: b * c,
        lambda b, c: b + c,
        lambda b, c: 2 * b,
        lambda b, c: b / c,
        lambda b, c: pt.exp(b),
        lambda b, c: pt.stack([b[0], 0.5]),
        lambda b, c: pt.switch(pm.Data("half", [0, 1]), b, 0.5),
        lambda b, c: pt.switch(b > 0.5, b, c),
        lambda b, c: pt.clip(b, 0.1, 0.9),
        lambda b, c: b.astype("int64"),
        lambda b, c: pm.math.invlogit(b),
        lambda b, c: pm.Deterministic("d", b**2),
        lambda b, c: b.mean()[None],
        lambda b, c: b * pm.Data("scores", [0.5, 1.0]),
        lambda b, c: pt.cumprod(b),
        lambda b, c: pt.sort(b),
        lambda b, c: b[pytensor.shared(0, name="which")][None],
        lambda b, c: pm.math.logit(b),
        lambda b, c: b / (1 - b),
        lambda b, c: -b,
    ],
)
def test_parameter_that_is_changed_on_the_way(use):
    with pm.Model():
        b = pm.Beta("b", 1, 1, shape=2)
        c = pm.Beta("c", 1, 1, shape=2)
        p = use(b, c)
        pm.Bernoulli("z", p=c, observed=[0, 1])
        pm.Bernoulli("y", p=p, observed=np.ones((2,) * max(p.type.ndim, 1)))
        refused("'y'", "'b'", "is computed from", "private_model")


@pytest.mark.parametrize(
    "change",
    [
        lambda p: pm.math.softmax(p, axis=-1),
        lambda p: pm.math.softmax(pm.math.log(p), axis=None),
        lambda p: pm.math.softmax(pm.math.log(p), axis=0),
        # The first of the two axes holds the categories.
        lambda p: pm.math.softmax(pm.math.log(p.T), axis=(0, 1)).T,
        lambda p: pm.math.log_softmax(pm.math.log(p), axis=-1),
        lambda p: p * 2,
        lambda p: p / p.sum(),
        lambda p: p / p[:, :1],
    ],
)
def test_changed_simplex(change):
    with pm.Model():
        p = pm.Dirichlet("p", np.ones((2, 2)))
        pm.Categorical("y", p=change(p), observed=[0, 1])
        refused("'y'", "'p'", "is computed from", "private_model")


def test_dirichlet_as_a_row_of_binomials():
    with pm.Model():
        p = pm.Dirichlet("p", np.ones(3))
        pm.Binomial("y", n=3, p=p, observed=[1, 1, 1])
        refused("'y'", "'p', which is a Dirichlet", "conjugate only to a Beta")


@pytest.mark.parametrize("p_of", [lambda b: b, lambda b: b[0]])
def test_beta_as_the_probabilities_of_categories(p_of):
    with pm.Model():
        b = pm.Beta("b", 1, 1, shape=(2, 2))
        pm.Multinomial("y", n=3, p=pt.as_tensor(b), observed=[[1, 2], [1, 2]])
        refused("'y'", "'b', which is a Beta", "conjugate only to a Dirichlet")


def test_scalar_beta_as_the_probability_of_one_category():
    with pm.Model():
        b = pm.Beta("b", 1, 1)
        pm.Multinomial("y", n=3, p=b[None], observed=[3])
        refused("'y'", "'b', which is a Beta")


def test_parameter_that_is_no_variable_of_the_model():
    with pm.Model():
        pm.Bernoulli("y", p=pm.Beta.dist(1, 1), observed=[0, 1])
        refused("'y'", "no Dirichlet or Beta variable of this model")


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning", "ignore:invalid value encountered in cast")
@pytest.mark.parametrize("values", [[1, np.nan, 0], np.ma.masked_values([1, -1, 0], -1)])
def test_missing_values(values):
    with pm.Model():
        b = pm.Beta("b", 1, 1)
        pm.Bernoulli("y", p=b, observed=values)
        refused("'y'", "missing values", "category of their own")


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
def test_missing_cells():
    with pm.Model():
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("y", n=3, p=p, observed=np.ma.masked_values([[1, 1, 1], [2, -1, -1]], -1))
        refused("'y'", "missing values")


def test_minibatch():
    with pm.Model():
        b = pm.Beta("b", 1, 1)
        with pytest.warns(UserWarning, match="total_size"):
            pm.Bernoulli("y", p=b, observed=pm.Minibatch(np.zeros(10), batch_size=2))
        refused("'y'", "computed in the model")


@pytest.mark.parametrize("use", [lambda data: data * 2, lambda data: data[data], lambda data: data[None]])
def test_observations_that_are_computed(use):
    with pm.Model():
        b = pm.Beta("b", 1, 1)
        pm.Binomial("y", n=3, p=b, observed=use(pm.Data("data", [0, 1, 1])))
        refused("'y'", "computed in the model", "pm.Data")


def test_a_beta_with_two_dims_has_the_labels_of_both():
    coords = {"school": list("ab"), "year": [1, 2, 3]}
    with pm.Model(coords=coords) as model:
        p = pm.Beta("p", 1, 1, dims=("school", "year"))
        pm.Binomial("y", n=4, p=p, observed=np.ones((2, 3), dtype=int), dims=("school", "year"))
    (table,) = tables(model)
    assert table.dims == ("school", "year")
    assert {dim: list(labels) for dim, labels in table.coords.items()} == coords
    assert table.prior.shape == (2, 3, 2)
