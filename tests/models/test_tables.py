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


def likelihood(name, kind, *rows):
    return Likelihood(name, kind, rows)


def refused(*words, model=None):
    """The refusal names the variable and the reason: every one of these words."""
    with pytest.raises(UnsupportedModelError) as info:
        tables(model)
    for word in words:
        assert word in str(info.value)


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
        pm.Categorical("x", p=same[:, None], observed=np.zeros((3, 9, 2), dtype=int))
    labels = {"row": ("a", "b"), "hair": HAIR}
    expected = [
        Table(
            "k_p", "beta", [[1, 2], [1, 3]], ("row",), {"row": labels["row"]}, (likelihood("k", "beta-binomial", 0),)
        ),
        Table(
            "poisson",
            "dirichlet",
            np.broadcast_to([1, 2, 3, 4], (3, 2, 4)),
            ("batch", "row", "hair"),
            labels | {"batch": None},
            (likelihood("x", "categorical", 0, 2),),
        ),
        Table("b", "beta", [[1, 4], [2, 4], [3, 4]], None, {}, (likelihood("normal", "bernoulli", 1),)),
        Table(
            "q",
            "beta",
            np.full((2, 3, 2), [1, 2]),
            ("row", "cell"),
            {"row": ("a", "b"), "cell": None},
            (likelihood("z", "binomial", 0, 1),),
        ),
        Table(
            "y_p",
            "dirichlet",
            [[1, 2, 3, 4]] * 2,
            ("row", "hair"),
            labels,
            (likelihood("y", "dirichlet-multinomial", 0),),
        ),
    ]
    assert list(tables(model)) == expected
    found = tables(model)[1]
    assert found.prior.dtype == np.float64
    assert not found.prior.flags.writeable
    assert (found.shape, found.n_rows, found.n_categories) == ((3, 2, 4), 6, 4)


@pytest.mark.parametrize("spread", [{"nu": 10.0}, {"sigma": np.sqrt(0.3 * 0.7 / 11)}])
@pytest.mark.parametrize("mu", [0.3, np.array([0.3, 0.3]), pt.as_tensor([0.3, 0.3])])
def test_a_beta_by_mean_and_spread(mu, spread):
    with pm.Model():
        b = pm.Beta("b", mu=mu, **spread)
        pm.Binomial("y", n=3, p=b, observed=np.full(b.type.ndim * 2, 2) if b.type.ndim else 2)
        (table,) = tables()
    np.testing.assert_allclose(table.prior, np.broadcast_to([3.0, 7.0], table.shape), rtol=1e-14)


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


def test_no_observed_value_is_read():
    def model(counts):
        with pm.Model() as model:
            b = pm.Beta("b", 1, 1, shape=2)
            pm.Binomial("y", n=9, p=b, observed=pm.Data("data", counts))
            pm.DirichletMultinomial("z", n=9, a=np.ones(2), observed=counts)
        return model

    assert tables(model(np.array([9, 0]))) == tables(model(np.array([-3, 77])))


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
    refused("'p'", "depends on the data 'scale'", "public=['scale']", model=given)
    with pytest.raises(UnsupportedModelError, match=r"'y' is an unobserved Multinomial.*sample_posterior_predictive"):
        tables(given, public=["scale"])
    (table,) = tables(pm.observe(given, {"y": [1, 1, 2]}), public=["scale"])
    assert table.prior.tolist() == [2.0, 2.0, 2.0]
    assert table.likelihoods == (likelihood("y", "multinomial"),)
    refused("'y'", "no Dirichlet or Beta", model=pm.do(pm.observe(given, {"y": [1, 1, 2]}), {"p": np.ones(3) / 3}))


def tossed(p, observed=(0, 1), **options):
    return pm.Bernoulli("y", p=p, observed=np.array(observed), **options)


@pytest.mark.parametrize("make", [lambda a: pm.Data("a", a), lambda a: pytensor.shared(a, name="a")])
@pytest.mark.parametrize(
    "build",
    [
        lambda a: pm.Multinomial("y", n=3, p=pm.Dirichlet("x", a), observed=[1, 1, 1]),
        lambda a: pm.Multinomial("y", n=3, p=pm.Dirichlet("x", np.ones(3) * a.shape[0] * a[0]), observed=[1, 1, 1]),
        lambda a: tossed(pm.Beta("x", 1, 1, shape=(a[0].astype("int64"),)), [1]),
        lambda a: pm.BetaBinomial("x", n=5, alpha=a[0], beta=2, observed=1),
    ],
)
def test_a_prior_of_data(build, make):
    with pm.Model():
        build(make(np.ones(3)))
        refused("'x'", "depends on the data 'a'", "as numbers")


SEEN = {"observed": [1, 2]}


def binomial(b):
    return pm.Binomial.dist(n=5, p=b)


@pytest.mark.parametrize(
    ("observe", "words"),
    [
        (lambda b: pm.Poisson("y", mu=b, **SEEN), "Poisson"),
        (lambda b: pm.NegativeBinomial("y", n=3, p=b, **SEEN), "NegBinomial"),
        (lambda b: pm.HyperGeometric("y", N=10, k=5, n=3, **SEEN), "HyperGeometric"),
        (lambda b: pm.ZeroInflatedBinomial("y", psi=b, n=3, p=0.5, **SEEN), "no record says which component"),
        (
            lambda b: pm.Mixture("y", w=pt.stack([b, 1 - b]), comp_dists=pm.Poisson.dist([1, 9]), **SEEN),
            "no record says which component",
        ),
        (lambda b: pm.Censored("y", binomial(b), lower=1, upper=3, **SEEN), "Censored"),
        (lambda b: pm.Truncated("y", binomial(b), upper=3, **SEEN), "some values are hidden or left out"),
        (lambda b: pm.CustomDist("y", b, logp=lambda x, b: pt.log(b) * x, **SEEN), "CustomDist"),
        (lambda b: pm.CustomDist("y", b, dist=lambda b, size: pm.Binomial.dist(3, b, size=size), **SEEN), "Custom"),
    ],
)
def test_other_likelihoods(observe, words):
    with pm.Model():
        observe(pm.Beta("b", 1, 1))
        refused("'y'", "not supported", "BetaBinomial for a Beta", words)


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


def missing_cells():
    values = np.ma.masked_values([[1, 1, 1], [2, -1, -1]], -1)
    pm.Multinomial("y", n=3, p=pm.Dirichlet("p", np.ones(3)), observed=values)


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning", "ignore:invalid value encountered in cast")
@pytest.mark.filterwarnings("ignore:total_size not provided:UserWarning")
@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: pm.OrderedLogistic("y", eta=0.0, cutpoints=[-1.0, 1.0], observed=[0, 1, 2]), "no Dirichlet or Beta"),
        (lambda: tossed(pm.Beta.dist(1, 1)), "no Dirichlet or Beta variable of this model"),
        (
            lambda: pm.Binomial("y", n=3, p=pm.Dirichlet("p", np.ones(3)), observed=[1, 1, 1]),
            "'p', which is a Dirichlet variable.*conjugate only to a Beta",
        ),
        (
            lambda: pm.Multinomial("y", n=3, p=pm.Beta("b", 1, 1, shape=(2, 2))[0], observed=[1, 2]),
            "'b', which is a Beta variable.*conjugate only to a Dirichlet",
        ),
        (lambda: pm.Multinomial("y", n=3, p=pm.Beta("b", 1, 1)[None], observed=[3]), "'b', which is a Beta"),
        (lambda: pm.Bernoulli("y", p=pm.Beta("b", 1, 1), observed=[1, np.nan, 0]), "missing values.*of their own"),
        (missing_cells, "missing values.*category of their own"),
        (
            lambda: pm.Bernoulli("y", p=pm.Beta("b", 1, 1), observed=pm.Minibatch(np.zeros(10), batch_size=2)),
            "computed in the model",
        ),
        (lambda: tossed_by(lambda data: data * 2), "computed in the model.*pm.Data"),
        (lambda: tossed_by(lambda data: data[data]), "computed in the model.*pm.Data"),
        (lambda: tossed_by(lambda data: data[None]), "computed in the model.*pm.Data"),
    ],
)
def test_observations_and_parameters_of_another_kind(build, words):
    with pm.Model() as model:
        build()
    with pytest.raises(UnsupportedModelError, match=f"(?s)'y'.*{words}"):
        tables(model)


def tossed_by(use):
    pm.Bernoulli("y", p=pm.Beta("b", 1, 1), observed=use(pm.Data("data", [0, 1, 1])))
