"""When rewards are released: once in a batch, or in every round."""

from typing import Any

from pymc_dirdp.bandits.design import Design
from pymc_dirdp.bandits.every_round import EveryRound
from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.guarantees import Guarantee

__all__ = ["rules_of"]

# What is only for batches, and what it is if nobody says it.
_OF_BATCHES = {"mechanism": (None, "dirichlet"), "first_batch": (None,), "growth": (1.0,), "contribution": (None,)}


def rules_of(
    guarantee: Guarantee, *, schedule: str, horizon: int | None, prior: tuple[float, float], **of_batches: Any
) -> Design | EveryRound:
    """The public rules of a run.

    Parameters
    ----------
    guarantee : Guarantee
    schedule, horizon, prior
        As for :class:`pymc_dirdp.ThompsonSampler`.
    **of_batches
        `mechanism`, `first_batch`, `growth` and `contribution`, which are for batches only.
    """
    guarantee = Guarantee.checked(guarantee=guarantee)
    if one_of(("batches", "every-round"), schedule=schedule) == "batches":
        if horizon is not None:
            raise ArgumentError(
                "horizon= is for schedule='every-round'. Batches keep their guarantee for a run of any length: leave "
                "horizon= out."
            )
        contribution = of_batches.pop("contribution")
        return Design.of(guarantee, prior=prior, rewards=1 if contribution is None else contribution, **of_batches)
    for name, value in of_batches.items():
        if value not in _OF_BATCHES[name]:
            raise ArgumentError(f"{name}= is for batches: leave it out, or leave schedule='every-round' out.")
    if horizon is None:
        raise ArgumentError(
            "schedule='every-round' draws from the same rewards in each round, so it keeps its guarantee for a number "
            "of rounds only: pass horizon=. Or leave schedule= out, for a run of any length."
        )
    return EveryRound(guarantee, horizon, prior)
