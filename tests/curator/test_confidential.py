"""A number that was computed from the data keeps its mark, or is refused, wherever it goes."""

import copy
import json
import math
import operator
import pickle
import statistics

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pymc_dirdp.curator.confidential import Confidential

LOSS = Confidential(0.123456)


@pytest.mark.parametrize(
    ("shown", "number"),
    [
        (repr(LOSS), "0.123456"),
        (str(LOSS), "0.123456"),
        (f"{LOSS}", "0.123456"),
        (f"{LOSS!r}", "0.123456"),
        (f"{LOSS:.3f}", "0.123"),
        (f"{LOSS:>10.2e}", "  1.23e-01"),
        (format(LOSS, ".0%"), "12%"),
        ("%s" % LOSS, "0.123456"),  # noqa: UP031
        (f"{[LOSS]}", "0.123456"),
        (str({"kl": LOSS}), "0.123456"),
        (str(np.array([LOSS])), "0.123456"),
        (str(pd.Series([LOSS])), "0.123456"),
        (pd.DataFrame({"kl": [LOSS]}).to_csv(), "0.123456"),
        (pd.DataFrame({"kl": [LOSS]}).to_html(), "0.123456"),
        (str(xr.DataArray([LOSS])), "0.123456"),
        (json.dumps({"kl": LOSS}, default=str), "0.123456"),
    ],
)
def test_texts_are_marked(shown, number):
    """At 0.1.0 `f"{loss:.3f}"` was "0.123"."""
    assert number in shown
    assert "confidential" in shown


@pytest.mark.parametrize(
    "lose",
    [
        float,
        int,
        complex,
        json.dumps,
        lambda x: json.dumps({"kl": x}),
        lambda x: json.dumps({x: 1}),
        math.sqrt,
        math.exp,
        statistics.mean,
        np.float64,
        np.sqrt,
        np.exp,
        lambda x: np.add(x, 1.0),
        lambda x: np.array([1.0, 2.0]) * x,
        lambda x: np.asarray(x, dtype=float),
        lambda x: np.array([x, 1.0]).astype(float),
        lambda x: np.array([0.0, 0.0]).__setitem__(0, x),
        lambda x: np.array([0.0]) + x,
        lambda x: pd.Series([x]).astype(float),
        lambda x: "%.3f" % x,  # noqa: UP031
        lambda x: "%d" % x,  # noqa: UP031
        operator.index,
        lambda x: x + "1",
        lambda x: x + np.array([1.0, 2.0]),
    ],
)
def test_what_would_take_the_number_without_its_mark_is_refused(lose):
    """At 0.1.0 all of these gave the plain number."""
    with pytest.raises(TypeError) as caught:
        lose(LOSS)
    assert "0.12" not in str(caught.value)


def test_a_file_does_not_take_it(tmp_path):
    with pytest.raises((TypeError, ValueError)):
        xr.Dataset(attrs={"kl": LOSS}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with pytest.raises((TypeError, ValueError)):
        xr.Dataset({"kl": ((), np.array(LOSS))}).to_netcdf(tmp_path / "b.nc", engine="h5netcdf")


@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow])
@pytest.mark.parametrize("other", [3, 2.5, True, np.float64(1.5), np.float32(0.5), np.int64(2), Confidential(2.0)])
def test_arithmetic_is_that_of_floats_and_marked(operation, other):
    plain = other.value if isinstance(other, Confidential) else float(other)
    for found, expected in [
        (operation(LOSS, other), operation(LOSS.value, plain)),
        (operation(other, LOSS), operation(plain, LOSS.value)),
    ]:
        assert type(found) is Confidential
        assert found.value == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (-LOSS, -0.123456),
        (abs(Confidential(-2.0)), 2.0),
        (round(LOSS, 2), 0.12),
        (round(Confidential(1.6)), 2.0),
        (sum([LOSS, LOSS]), 0.246912),
        (max([LOSS, Confidential(2)]), 2.0),
        (np.array([LOSS, LOSS]).sum(), 0.246912),
        (np.mean([LOSS, LOSS]), 0.123456),
        (pickle.loads(pickle.dumps(LOSS)), 0.123456),
        (copy.deepcopy({"a": LOSS})["a"], 0.123456),
        (copy.copy(LOSS), 0.123456),
        (Confidential(LOSS), 0.123456),
        (Confidential(np.float32(0.5)), 0.5),
    ],
)
def test_what_is_made_of_it_is_marked(found, expected):
    assert type(found) is Confidential
    assert found.value == pytest.approx(expected, rel=1e-12)


def test_it_is_compared_and_counted_as_a_number():
    assert Confidential(1.0) == 1
    assert 1 == Confidential(1.0)  # noqa: SIM300
    assert Confidential(1.0) != "1"
    assert LOSS < 1 < Confidential(2)
    assert Confidential(2) >= LOSS
    assert np.float64(0.5) >= LOSS
    assert len({Confidential(1.0), 1}) == 1
    assert LOSS
    assert not Confidential(0.0)


def test_the_one_way_out_has_a_name_and_the_number_cannot_be_changed():
    assert type(LOSS.value) is float
    for name in ("value", "_value", "mark"):
        with pytest.raises(AttributeError):
            setattr(LOSS, name, 0.0)
    with pytest.raises(TypeError, match=r"\.value"):
        float(LOSS)
