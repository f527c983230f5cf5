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


# What is found


def test_tables_as_they_are_found():
    """In the order of the model, with the dims and labels of the variable; integrated priors have a name of theirs."""
    with pm.Model(coords={"row": ["a", "b"], "hair": HAIR, "secret": ["x"]}) as model:
        model.add_coord("batch", length=3)
        pm.BetaBinomial("k", n=5, alpha=1, beta=[2, 3], observed=[1, 2], dims="row")
        p = pm.Dirichlet("poisson", a=[1, 2, 3, 4], shape=(3, 2, 4), dims=("batch", "row", "hair"))
        # A copy is looked through, and other formulas do no harm.
        same = pm.Deterministic("same", p)
        pm.Deterministic("odds", p / (1 - p))
        b = pm.Beta("b", alpha=[1, 2, 3], beta=4, default_transform=None)
        # A likelihood is known by its op, and not by its name.
        pm.Bernoulli("normal", p=b, observed=np.ones((7, 3)))
        q = pm.Beta("q", 1, model.dim_lengths["row"], dims=("row", "cell"), shape=(2, 3))
        pm.Binomial("z", n=4, p=q, observed=np.ones((2, 3), dtype=int))
        pm.DirichletMultinomial("y", n=[1, 2], a=[1, 2, 3, 4], observed=np.ones((2, 4)), dims=("row", "hair"))
        # The rows land on the axes where they stand.
        pm.Categorical("x", p=same[:, None], observed=np.zeros((3, 9, 2), dtype=int))
    labels = {"row": ("a", "b"), "hair": HAIR, "batch": None, "cell": None}

    def table_with(name, family, prior, dims, *seen):
        coords = {dim: labels[dim] for dim in dims or ()}
        return Table(name, family, prior, dims, coords, (Likelihood(*seen),))

    assert list(tables(model)) == [
        table_with("k_p", "beta", [[1, 2], [1, 3]], ("row",), "k", "beta-binomial", (0,)),
        table_with(
            "poisson", "dirichlet", [[[1, 2, 3, 4]] * 2] * 3, ("batch", "row", "hair"), "x", "categorical", (0, 2)
        ),
        table_with("b", "beta", [[1, 4], [2, 4], [3, 4]], None, "normal", "bernoulli", (1,)),
        table_with("q", "beta", np.full((2, 3, 2), [1, 2]), ("row", "cell"), "z", "binomial", (0, 1)),
        table_with("y_p", "dirichlet", [[1, 2, 3, 4]] * 2, ("row", "hair"), "y", "dirichlet-multinomial", (0,)),
    ]
    found = tables(model)[1]
    assert found.prior.dtype == np.float64
    assert not found.prior.flags.writeable
    assert (found.shape, found.n_rows, found.n_categories) == ((3, 2, 4), 6, 4)


@pytest.mark.parametrize("spread", [{"nu": 10.0}, {"sigma": np.sqrt(0.3 * 0.7 / 11)}])
def test_a_beta_by_mean_and_spread(spread):
    for mu in (0.3, np.array([0.3, 0.3]), pt.as_tensor([0.3, 0.3])):
        with pm.Model():
            b = pm.Beta("b", mu=mu, **spread)
            pm.Binomial("y", n=3, p=b, observed=np.full(b.type.ndim * 2, 2) if b.type.ndim else 2)
            (table,) = tables()
        np.testing.assert_allclose(table.prior, np.broadcast_to([3.0, 7.0], table.shape), rtol=1e-14)


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


def test_a_table_keeps_no_reference_to_its_arguments_and_survives_pickling():
    prior, coords = np.ones(2), {"row": ("a", "b")}
    table = Table("p", "dirichlet", prior, ("row",), coords)
    prior[0] = 9
    coords["row"] = ("c", "d")
    assert table == Table("p", "dirichlet", np.ones(2), ("row",), {"row": ("a", "b")})
    with pytest.raises(TypeError):
        table.coords["row"] = ()
    copy = pickle.loads(pickle.dumps(table_of()))
    assert copy == table_of()
    assert not copy.prior.flags.writeable
    assert repr(copy) == "Table('p', dirichlet, shape=(2, 3), observed as 'y')"


# What is refused


def test_no_model_and_a_prior_that_is_not_positive():
    with pytest.raises(ArgumentError, match="inside `with model:`"):
        tables()
    with pytest.raises(ArgumentError, match="Expected a PyMC model"):
        tables("model")
    with pm.Model() as model:
        pm.Multinomial("y", n=3, p=pm.Dirichlet("p", [1.0, 0.0]), observed=[3, 0])
    with pytest.raises(ArgumentError, match=r"the prior of 'p' to be > 0"):
        tables(model)


def test_observe_and_do_make_models_like_any_other():
    with pm.Model() as model:
        p = pm.Dirichlet("p", pm.Gamma("scale", 1, 1) * np.ones(3))
        pm.Multinomial("y", n=4, p=p)
    given = pm.do(model, {"scale": 2.0})
    with pytest.raises(UnsupportedModelError, match=r"'p'.*depends on the data 'scale'.*public=\['scale'\]"):
        tables(given)
    with pytest.raises(UnsupportedModelError, match=r"'y' is an unobserved Multinomial.*sample_posterior_predictive"):
        tables(given, public=["scale"])
    (table,) = tables(pm.observe(given, {"y": [1, 1, 2]}), public=["scale"])
    assert table.prior.tolist() == [2.0, 2.0, 2.0]
    assert table.likelihoods == (Likelihood("y", "multinomial", ()),)
    with pytest.raises(UnsupportedModelError, match=r"'y'.*no Dirichlet or Beta"):
        tables(pm.do(pm.observe(given, {"y": [1, 1, 2]}), {"p": np.ones(3) / 3}))


def test_a_prior_of_a_shared_variable_is_one_of_data():
    with pm.Model() as model:
        prior = pytensor.shared(np.ones(3), name="a")
        pm.Multinomial("y", n=3, p=pm.Dirichlet("x", prior), observed=[1, 1, 1])
    with pytest.raises(UnsupportedModelError, match=r"'x'.*depends on the data 'a'.*as numbers"):
        tables(model)
