"""What an attack sees of each mechanism: `uv run benchmarks/audit_table.py`. Takes half a minute."""

import time

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.attack import audit
from pymc_dirdp.auditing.result import check_curve
from pymc_dirdp.mechanisms.registry import Dirichlet

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-3)
DOMAIN = dirdp.papers.SimplexDomain(2, eta=0.2, etabar=0.2, b=0.1, weight=0.1)
SUBJECTS = {
    "Dirichlet, replace-one": (
        dirdp.calibrate(TARGET, prior=[1, 1, 1, 1], mechanism=Dirichlet(strategy="temper")),
        400_000,
    ),
    "Dirichlet, add-remove": (
        dirdp.calibrate(TARGET, prior=[1, 1, 1, 1], adjacency="add-remove", mechanism=Dirichlet(strategy="temper")),
        400_000,
    ),
    "Dirichlet, two rows": (
        dirdp.calibrate(TARGET, prior=[[1, 4, 4], [4, 1.2, 4]], mechanism=Dirichlet(strategy="temper")),
        400_000,
    ),
    "Gaussian": (dirdp.mechanisms.DiscreteGaussianMechanism.for_guarantee(TARGET, prior=[1, 1, 1, 1]), 400_000),
    "Geometric": (dirdp.mechanisms.GeometricMechanism.for_guarantee(TARGET, prior=[1, 1, 1, 1]), 400_000),
    "Hellinger, smooth": (
        dirdp.papers.HellingerMechanism.for_guarantee(TARGET, prior=[1, 1], n_records=60),
        20_000,
    ),
    "Truncated geometric, d = 2": (
        dirdp.papers.TruncatedNoiseMechanism.for_guarantee(TARGET, prior=[1, 1], n_records=60),
        40_000,
    ),
    "Truncated geometric, d = 3": (
        dirdp.papers.TruncatedNoiseMechanism.for_guarantee(TARGET, prior=[1, 1, 1], n_records=20),
        40_000,
    ),
    "Truncated Laplace, d = 2": (
        dirdp.papers.TruncatedNoiseMechanism.for_guarantee(TARGET, prior=[1, 1], n_records=60, noise_kind="laplace"),
        40_000,
    ),
    "Simplex": (dirdp.papers.SimplexMechanism.for_guarantee(TARGET, DOMAIN), 400_000),
}


def table():
    """One line for each mechanism.

    The claim, the exact epsilon, what was found, and the distribution against the curve.
    """
    yield (
        f"{'mechanism':<28}{'claimed':>9}{'exact':>9}{'found':>9}{'refutable':>11}{'ceiling':>9}{'n':>9}"
        f"  {'verdict':<12}{'shortfall of curve':>19}{'seconds':>9}"
    )
    for name, (mechanism, n) in SUBJECTS.items():
        start = time.perf_counter()
        result = audit(mechanism, sampler="fast", claim=TARGET, delta=TARGET.delta, n=n, random_seed=20)
        bound = result.bounds[1]
        distribution = check_curve(mechanism, claim=TARGET)
        yield (
            f"{name:<28}{TARGET.epsilon:>9.4f}{bound.stated:>9.4f}{bound.lower:>9.4f}{bound.refutable:>11.3f}{bound.ceiling:>9.2f}{n:>9}"
            f"  {result.verdict:<12}{distribution.shortfall:>19.1e}{time.perf_counter() - start:>9.1f}"
        )


if __name__ == "__main__":
    print(f"{TARGET}; false alarm of each line below 1e-6")
    for line in table():
        print(line)
