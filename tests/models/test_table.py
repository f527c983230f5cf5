"""Labels and names: a file gives them back as they were, or they are refused before anything is spent."""

import datetime
import decimal
import enum

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import UnsupportedModelError
from pymc_dirdp.models.table import check_labels, plain_labels

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2
    GREEN = 3


class Text(enum.StrEnum):
    RED = "red"
    BLUE = "blue"
    GREEN = "green"


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
    "texts of an enum": (list(Text), "U"),
    "truth values among numbers": ([True, False, 2], "i"),
    "small": (np.array([1, 2, 3], np.int8), "i"),
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
        list(Colour),
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
    """What the errors offer, applied literally."""
    zones = pd.date_range("2020", periods=3, tz="Europe/Berlin")
    for labels in (map(str, zones), zones.tz_localize(None), ["0001", "2020"], ["1", "a"]):
        check_labels("k", list(labels), "p")
    assert plain_labels(TIMES) == list(TIMES)
    assert plain_labels(list(map(pd.Timestamp, TIMES))) == list(TIMES)


# Odd names: those that a release can hold work to the end, the others are refused before anything is spent.

NAMED = dirdp.RenyiDP(order=3, epsilon=0.2)


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
