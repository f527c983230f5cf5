"""The tables of a network end to end: sums, effects and marginals against the tables one by one."""

import numpy as np
import pytest

from pymc_dirdp.inference.effects import Effects
from pymc_dirdp.inference.flat_tables import FlatTables, JointCells
from pymc_dirdp.inference.margins import Family
from pymc_dirdp.inference.network_margins import NetworkMargins
from pymc_dirdp.inference.shrinkage import SCALES

FAMILIES = [
    Family("p_a", ("a",), (3,)),
    Family("p_b", ("a", "b"), (3, 4)),
    Family("p_c", ("a", "b", "c"), (3, 4, 2)),
]
SIZES = {"a": 3, "b": 4, "c": 2}


def shares(rng):
    return [rng.dirichlet(np.ones(family.shape[-1]), family.shape[:-1]) for family in FAMILIES]


def flat(tables):
    return np.concatenate([table.ravel() for table in tables])


@pytest.mark.parametrize("whole", [False, True])
def test_cells_are_summed_with_those_of_their_row_or_table(whole):
    tables, rng = FlatTables(FAMILIES, whole=whole), np.random.default_rng(0)
    values = [rng.random(family.shape) for family in FAMILIES]
    padded = np.append(flat(values), 0.0)[tables.sums]
    expected = [table.sum(axis=None if whole else -1).ravel() for table in values]
    np.testing.assert_allclose(padded.sum(axis=1), np.concatenate(expected), rtol=1e-14)
    np.testing.assert_array_equal(padded.ravel()[tables.places], flat(values))
    np.testing.assert_array_equal(tables.sum_of, tables.places // tables.sums.shape[1])


@pytest.mark.parametrize("whole", [False, True])
def test_logits_are_those_of_the_effects_of_each_table(whole):
    """Effects that are left out change no share."""
    tables, rng = FlatTables(FAMILIES, whole=whole), np.random.default_rng(1)
    found, expected, values = [], [], []
    for family, kept in zip(FAMILIES, tables.kept, strict=True):
        table = rng.normal(size=family.shape)
        values.append(table.ravel()[kept])
        expected.append(Effects(family.shape).logits(table))
    logits = tables.matrix @ np.concatenate(values)
    for family, start, stop, full in zip(FAMILIES, tables.starts, tables.starts[1:], expected, strict=False):
        off = logits[start:stop].reshape(family.shape) - full
        axes = None if whole else -1
        np.testing.assert_allclose(off - off.mean(axis=axes, keepdims=True), 0, atol=1e-12)
        found.append(off)
    assert np.ptp(found[0]) < 1e-12
    assert len(tables.scale_of) == tables.matrix.shape[1]
    assert FlatTables([Family("p", ("x", "y"), (40, 30))], whole=whole).matrix is None


def test_scales_are_named_by_what_the_effects_depend_on():
    tables = FlatTables(FAMILIES, whole=True)
    assert tables.scale_names[:4] == ("p_a: a", "p_b: a", "p_b: b", "p_b: a, b")
    orders = [name.count(",") + 1 for name in tables.scale_names]
    np.testing.assert_array_equal(tables.spreads, np.maximum(SCALES[orders], SCALES[-1]))
    many = FlatTables([Family("p", tuple("vwxyz"), (2,) * 5)], whole=False)
    assert [name for name in many.scale_names if name.endswith("more than 3")] == ["p: more than 3"]
    assert np.sum(many.scale_of == many.scale_names.index("p: more than 3")) == 5


def test_margins_of_one_table_are_its_sums():
    tables, rng = FlatTables(FAMILIES, whole=True), np.random.default_rng(2)
    values = [rng.random(family.shape) for family in FAMILIES]
    cells, to = tables.margins([(1, ("b",)), (2, ("a", "c")), (0, ("a",))])
    found = np.bincount(to, flat(values)[cells])
    expected = [values[1].sum(axis=0), values[2].sum(axis=1).ravel(), values[0]]
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-14)


def test_margins_of_all_combinations_are_those_of_elimination():
    tables, own = FlatTables(FAMILIES, whole=False), shares(np.random.default_rng(3))
    joint, wanted = JointCells(tables, SIZES), [("b",), ("c", "a"), ("a", "b", "c")]
    p = flat(own)[joint.factors].prod(axis=0)
    found = np.bincount(joint.margins(wanted).ravel(), np.tile(p, len(wanted)))
    margins = NetworkMargins(FAMILIES, wanted)
    expected = [margin.ravel() for margin in margins.values(margins.run(own))]
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-13)
    assert JointCells.fits(SIZES, 3, 9)
    assert not JointCells.fits(dict.fromkeys("abcdefghijklmno", 4), 15, 40)
