"""The bounds and statements of the papers, by paper and theorem, beside which the exact curves stand."""

from pymc_dirdp.published.accuracy import p1_equation_22, p1_theorem_2, p2_theorem_3, p2_theorem_4
from pymc_dirdp.published.privacy import (
    p1_sample_size,
    p1_theorem_1,
    p1_theorem_1_concentration,
    p2_theorem_1,
    p2_theorem_2,
)

__all__ = [
    "p1_equation_22",
    "p1_sample_size",
    "p1_theorem_1",
    "p1_theorem_1_concentration",
    "p1_theorem_2",
    "p2_theorem_1",
    "p2_theorem_2",
    "p2_theorem_3",
    "p2_theorem_4",
]
