"""Tables as they are found, as objects, and their labels: a file gives them back as they were, or they are refused."""

import datetime
import decimal
import enum
import pickle

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.models.table import Likelihood, Table, View, check_labels, plain_labels
from pymc_dirdp.models.tables import tables
from tests.planned import counts_of

HAIR = ("black", "brown", "red", "blond")
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
NAMED = dirdp.RenyiDP(order=3, epsilon=0.2)


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
            pm.Multinomial("y", n=4, p=p, observed=[1, 2, 0, 1])
        pm.BetaBinomial("k", n=4, alpha=1, beta=1, observed=1)
        with inner:
            assert tables() == tables(inner) == tables(outer)
        table, other = tables()
    assert other.name == "k_p"
    assert table.name == "sub::p"
    assert table.likelihoods[0].name == "sub::y"
    assert table.coords == {"hair": HAIR}
    assert counts_of(outer)["sub::p"].tolist() == [1, 2, 0, 1]


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


def add_table(labels, name, dim, seen):
    """A table with a dim of these labels, in the model that is being built."""
    pm.modelcontext(None).add_coord(dim, labels)
    p = pm.Dirichlet(name, a=np.ones(len(labels)), dims=dim)
    pm.Multinomial(seen, n=6, p=p, observed=[6, *[0] * (len(labels) - 1)])


def model_of(labels=("a", "b", "c"), name="p", dim="k", seen="seen"):
    with pm.Model() as model:
        add_table(labels, name, dim, seen)
    return model


TIMES = np.array(["2020-01-31", "2021-05-06T01:02:03.123456789", "2022"], "M8[ns]")
# Labels, and the kind of their type in a file.
LABELS = {
    "odd texts": (["", "größe €", "ä\u200d a/b"], "U"),
    "bytes": ([b"a", b"bc", b"\xff"], "S"),
    "integers": ([3, -1, 2**62], "i"),
    "unsigned": (np.array([1, 2**64 - 1, 3], np.uint64), "u"),
    "truth values": ([True, False], "b"),
    "numbers": ([0.1, 2, np.inf], "f"),
    "times in nanoseconds": (TIMES, "M"),
    "durations of Python": ([datetime.timedelta(day) for day in (1, 2, 3)], "m"),
    "a categorical": (pd.Categorical(["a", "b", "c"]), "U"),
    "texts of an enum": (list(enum.StrEnum("Text", "RED BLUE GREEN")), "U"),
    "truth values among numbers": ([True, False, 2], "i"),
    "numbers of 32 bits": (np.array([0.1, 2, -1e30], np.float32), "f"),
    "times in days": (np.array(["1700-01-01", "1992-01-01", "1800-01-01"], "M8[D]"), "M"),
    "an index of times": (pd.date_range("2020", periods=3, freq="36h"), "M"),
    "times of Python": ([datetime.datetime(2020, 1, day, 7) for day in (1, 2, 3)], "M"),
    "durations": (np.array([1, 2, 3], "m8[h]"), "m"),
}


# Names of tables that work to the end, too.
NAMES = {called: f"größe::{called}.p" for called in LABELS} | {"integers": "posterior", "unsigned": "mechanism"}


# Each type in both formats, and the kinds of some in one.
@pytest.mark.parametrize(("store", "kinds"), [("netcdf", list(LABELS)), ("zarr", list(LABELS)[:8])])
# Zarr says of some types that its third version does not specify them.
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning:zarr")
def test_a_file_gives_labels_back_and_passes_everything(store, kinds, tmp_path):
    with pm.Model() as model:
        for i, called in enumerate(kinds):
            add_table(LABELS[called][0], name=NAMES[called], dim=called, seen=f"seen {i}")
    release = dirdp.sample(dirdp.PureDP(epsilon=1.0), model, mechanism="geometric")
    if store == "netcdf":
        release.to_netcdf(tmp_path / "release.nc")
        back = xr.open_datatree(tmp_path / "release.nc")
    else:
        release.to_zarr(tmp_path / "release.zarr", zarr_format=2)
        back = xr.open_datatree(tmp_path / "release.zarr", engine="zarr", consolidated=True)
    with back:
        assert dirdp.verify(back)
        assert str(dirdp.report(back, full=True)) == str(dirdp.report(release, full=True))
        # Draws of the posterior, which take their time, of one of them.
        trees = [dirdp.analyse(one, 5, chains=1, random_seed=1) for one in (release, back) if store == "netcdf"]
        for called in kinds:
            labels, dtype = LABELS[called]
            written = release["posterior"][called].values
            assert all(one == other for one, other in zip(written, plain_labels(labels), strict=True)), called
            for tree in (release, back, *trees):
                assert tree["posterior"][called].dtype.kind == dtype, called
                assert np.array_equal(tree["posterior"][called].values, written), called
            for same in ((release, back), trees):
                assert len({tree["posterior"][NAMES[called]].values.tobytes() for tree in same}) <= 1, called


LOST = {
    "objects": [
        list(pd.interval_range(0, 3)),
        pd.interval_range(0, 3),
        pd.period_range("2020", periods=3, freq="M"),
        list(enum.Enum("Colour", "RED BLUE GREEN")),
        [object(), object()],
        [decimal.Decimal(1), decimal.Decimal(2)],
        [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)],
        [datetime.time(1), datetime.time(2)],
        [None, "a"],
        [1j, 2.0],
    ],
    "equal to themselves": [[pd.NA, "a"], [pd.NaT, pd.Timestamp("2020")], [1.0, np.nan, 3.0]],
    "several types": [[1, "a"], [True, "a"], [2**60 + 1, 0.5], [b"a\0", b"b"]],
    "time zone": [pd.date_range("2020", periods=3, tz="Europe/Berlin")],
    "1678 to 2262": [np.array(["1677", "2020"], "M8[D]"), np.array(["2020", "2263"], "M8[s]")],
    "292 years apart": [np.array(["1700", "1993"], "M8[D]"), np.array(["1993", "1700"], "M8[D]")],
    "objects or numbers": [[np.longdouble(0.1), np.longdouble(2)]],
    "tuples": [[(1, 2), (3, 4), (5, 6)]],
    "no file can hold": [[2**64, 1, 2]],
    "two Unicode forms": [["caf\u00e9", "cafe\u0301", "c"]],
    "control characters": [[f"a{sign}b", "b"] for sign in "\n\0\ud800\u202e\u2067\u200f\u200b\u2028"],
}


@pytest.mark.parametrize(("word", "labels"), [(word, labels) for word, many in LOST.items() for labels in many])
def test_labels_that_a_file_would_change_are_refused_before_they_are_paid_for(labels, word):
    ledger = dirdp.Ledger(TARGET)
    with pytest.raises(UnsupportedModelError, match=f"abels of the dim 'k' of 'p' .*{word}"):
        dirdp.sample(TARGET, model_of(labels), ledger=ledger)
    assert ledger.entries() == ()


def test_the_ways_out_work_and_times_keep_their_nanoseconds():
    zones = pd.date_range("2020", periods=3, tz="Europe/Berlin")
    for labels in (map(str, zones), zones.tz_localize(None), ["0001", "2020"], ["1", "a"]):
        check_labels("k", list(labels), "p")
    assert plain_labels(TIMES) == list(TIMES)
    assert plain_labels(list(map(pd.Timestamp, TIMES))) == list(TIMES)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"dim": "x/y"}, "x/y"),
        ({"dim": "table"}, "table"),
        ({"dim": "."}, "dim"),
        *(({"dim": f"a{sign}b"}, "control characters") for sign in "\\\n\ud800\u202e"),
        *(({"name": name}, "cannot name a group") for name in (".", "..", "a\\b", "a\nb", "a\0b", "a\x1b[2Jb")),
        *(({"name": name}, "Rename the variable: not chain or draw") for name in ("chain", "draw")),
        ({"seen": "a\nb"}, "control characters"),
    ],
)
def test_what_no_release_can_hold_is_refused_before_it_is_paid_for(options, word):
    """A table called as the draws are was charged for, and its draws were not in the release."""
    ledger = dirdp.Ledger(dirdp.RenyiDP(order=3, epsilon=1.0))
    with pytest.raises(UnsupportedModelError, match=word):
        dirdp.sample(NAMED, model_of(**options), ledger=ledger)
    assert ledger.entries() == ()


def test_names_that_a_release_makes_itself_are_taken():
    with pm.Model(coords={"q_dim_0": list("abc")}) as model:
        pm.Multinomial("y", n=6, p=pm.Dirichlet("p", np.ones(3), dims="q_dim_0"), observed=[1, 2, 3])
        pm.Multinomial("z", n=6, p=pm.Dirichlet("q", np.ones(2)), observed=[3, 3])
    with pytest.raises(UnsupportedModelError, match="'q_dim_0' of 'p' is also the name of an axis of 'q'"):
        dirdp.plan(NAMED, model)
    with pm.Model(coords={"p_outcome": list("ab")}) as model:
        pm.Binomial("y", n=9, p=pm.Beta("p", 1, 1, dims="p_outcome"), observed=[4, 5])
    with pytest.raises(UnsupportedModelError, match="reserved for success and failure"):
        dirdp.plan(NAMED, model)
