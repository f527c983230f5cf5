"""Whether the promise of a release of a sparse table follows from its own numbers."""

import math
from contextlib import suppress

from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.releases.arithmetic import arithmetic
from pymc_dirdp.releases.sparse import sparse_neighbours
from pymc_dirdp.releases.verification import SEEDED, Check, Verification, kept_of
from pymc_dirdp.sampling.entropy import SOURCES
from pymc_dirdp.stored.sparse import StoredSparse
from pymc_dirdp.stored.untrusted import computable

__all__ = ["verified_sparse"]

# Another version of SciPy rounds differently; the promise itself is decided without a tolerance.
_ROUNDING = 1e-9


def verified_sparse(stored: StoredSparse) -> Verification:
    """Verify the checked facts of a release of a sparse table."""
    mechanism, privacy = stored.mechanism, stored.privacy
    keeps, kept = False, None
    with suppress(ReleaseError), computable():
        keeps, kept = mechanism.satisfies(stored.guarantee), kept_of(stored.guarantee, mechanism)
    instead = "no other of its kind could be computed that does" if kept is None else f"{kept} does"
    unit = privacy.text("unit")
    checks = [
        Check(
            "randomness",
            not stored.reproducible,
            SEEDED if stored.reproducible else "Nothing says that a seed was used.",
        ),
        Check(
            "guarantee",
            keeps,
            f"{stored.guarantee} holds on the curve of the numbers."
            if keeps
            else f"{stored.guarantee} does not hold; {instead}.",
        ),
        _agree(
            "statement",
            {privacy.text("statement"), stored.root.text("guarantee")} == {str(stored.guarantee)}
            and math.isclose(privacy.number("pure_epsilon"), mechanism.pure_epsilon, rel_tol=_ROUNDING),
            "what the fields of the guarantee and the scale say",
        ),
        _agree(
            "adjacency",
            {privacy.text("adjacency"), stored.root.text("adjacency")} == {mechanism.adjacency},
            f"those for {adjacency_named(mechanism.adjacency).name}",
        ),
        _agree(
            "people",
            privacy.number("contribution") == mechanism.contribution
            and privacy.text("neighbours") == sparse_neighbours(mechanism, unit)
            and (mechanism.contribution == 1 or unit != "record"),
            "those of the numbers",
        ),
        _agree(
            "sampler",
            stored.group.text("sampler") == "exact"
            and stored.group.text("arithmetic") == arithmetic(mechanism.dense, "exact")
            and stored.group.text("randomness") in (*SOURCES["exact"], "seed"),
            "those of the sampler",
        ),
    ]
    believed = (
        f"Who is protected: one {unit[:100]}, with {mechanism.contribution} of the records of the table at most.",
        "The cells, the threshold and the promise were chosen without the data.",
        "Every cell got its noise, also the empty ones.",
        "Nothing else was published about the same people; the losses of several releases add up.",
    )
    return Verification(stored.guarantee, None if stored.reproducible else kept, tuple(checks), believed)


def _agree(name: str, agrees: bool, with_what: str) -> Check:
    return Check(name, agrees, f"The texts are {'' if agrees else 'not '}{with_what}.")
