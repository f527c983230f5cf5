"""Curves of one kind for every mechanism: what they are asked, they answer or refuse."""

import pytest

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.dominating_pairs import AddRemovePair
from pymc_dirdp.privacy.guarantees import ApproxDP

PAIR = AddRemovePair(1.0, 0.1)


@pytest.mark.parametrize("other", ["epsilon", 1.0, None, ApproxDP])
def test_what_is_no_guarantee_is_refused(other):
    with pytest.raises(ArgumentError, match="guarantee"):
        PAIR.satisfies(other)


def test_a_guarantee_holds_up_to_its_last_bit():
    """No tolerance: the least epsilon passes, and what the curve says of a smaller one does not."""
    epsilon = PAIR.epsilon(1e-6)
    assert PAIR.satisfies(ApproxDP(epsilon=epsilon, delta=1e-6))
    delta = PAIR.delta(epsilon)
    assert PAIR.satisfies(ApproxDP(epsilon=epsilon, delta=delta))
    assert not PAIR.satisfies(ApproxDP(epsilon=epsilon, delta=delta * (1 - 1e-15)))
