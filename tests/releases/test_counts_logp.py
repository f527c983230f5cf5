"""The log-probability of noisy counts as operations of PyTensor."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import NullTypeGradError
from pytensor.link.numba.dispatch.basic import numba_funcify_and_cache_key

from pymc_dirdp.inference.joint_rows import JointRows
from pymc_dirdp.inference.noisy_rows import NoisyRows
from pymc_dirdp.releases.counts_logp import RowsLogp, rows_logp

NOISY, NOISE = np.array([[3.0, -1.0, 6.0], [2.0, 2.0, 1.0]]), np.array([0.0, 0.5, 0.0])
TOTALS, LOGS = np.array([8, 5]), np.log([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])


def term(logs, totals=TOTALS):
    return rows_logp(NoisyRows, logs, NOISY, NOISE, np.empty((0, 0, 0)), totals)


@pytest.mark.parametrize("totals", [TOTALS, np.empty(0, dtype=np.int64)], ids=["public", "private"])
def test_python_and_numba_give_the_same_bits(totals):
    logs = pt.dmatrix("logs")
    value = term(logs, totals)
    outputs = [value, pytensor.grad(value.sum(), logs)]
    python, numba = (pytensor.function([logs], outputs, mode=mode)(LOGS) for mode in ("FAST_COMPILE", "NUMBA"))
    for this, that in zip(python, numba, strict=True):
        np.testing.assert_array_equal(this, that)


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA"])
def test_shapes_are_checked_before_memory_is_read(mode):
    logs = pt.dmatrix("logs")
    function = pytensor.function([logs], term(logs), mode=mode)
    with pytest.raises(ValueError, match="as many weights of cells as noisy counts"):
        function(LOGS[:, :2])


def test_no_second_derivative():
    logs = pt.dmatrix("logs")
    gradient = pytensor.grad(term(logs).sum(), logs)
    with pytest.raises(NullTypeGradError, match="no second derivatives"):
        pytensor.grad(gradient.sum(), logs)


def test_what_was_compiled_is_known_by_its_kind_alone():
    """Equal operations have equal keys, which do not change from one process to the next, and other kinds others."""
    keys = []
    for kind, arrays in ((NoisyRows, (np.empty((0, 0, 0)), TOTALS)), (NoisyRows, (np.empty((0, 0, 0)), TOTALS + 1))):
        node = RowsLogp(kind).make_node(LOGS, NOISY, NOISE, *arrays)
        keys.append(numba_funcify_and_cache_key(node.op, node=node)[1])
    assert keys[0] == keys[1] is not None
    assert RowsLogp(NoisyRows) == RowsLogp(NoisyRows)
    assert RowsLogp(NoisyRows) != RowsLogp(JointRows)
