"""What a bandit shows: what it released, and what to decide."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_dirdp.bandits.beliefs import Belief, expected_losses
from pymc_dirdp.bandits.rewards import Worth

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["batches_table", "decision_tree", "draws_table"]


def batches_table(arms: Sequence[Hashable], released: Sequence[Sequence[tuple[int, int]]], output: str) -> "xr.Dataset":
    """One row a batch: its arm, its number in its arm, its size, and what was released under the name `output`."""
    import xarray as xr

    rows = [
        (label, number, size, put_out)
        for label, batches in zip(arms, released, strict=True)
        for number, (size, put_out) in enumerate(batches)
    ]
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []]
    names = ("arm", "number", "size", output)
    return xr.Dataset({name: ("batch", column) for name, column in zip(names, columns, strict=True)})


def draws_table(arms: Sequence[Hashable], draws: Sequence[Sequence[float]]) -> "xr.Dataset":
    """One row a round: the private draw of each arm."""
    import xarray as xr

    values = np.array(draws, dtype=np.float64).reshape(-1, len(arms))
    return xr.Dataset({"draw": (("round", "arm"), values)}, {"arm": list(arms)})


def decision_tree(
    arms: Sequence[Hashable], beliefs: Sequence[Belief], worth: Worth, draws: int, rng: np.random.Generator
) -> "xr.DataTree":
    """Draws of the mean rewards, and for each arm its mean, its chance to be the best, and what it loses."""
    import xarray as xr

    shares = np.stack([belief.draw(draws, rng) for belief in beliefs], axis=-1)
    best, losses = expected_losses(beliefs)
    coords = {"arm": list(arms)}
    posterior = xr.Dataset(
        {"mean_reward": (("chain", "draw", "arm"), worth.back(shares)[None])},
        coords | {"chain": [0], "draw": np.arange(draws)},
    )
    decision = {"mean": [worth.back(belief.mean) for belief in beliefs], "best": best, "loss": worth.span * losses}
    return xr.DataTree.from_dict(
        {
            "/posterior": posterior,
            "/decision": xr.Dataset({name: ("arm", values) for name, values in decision.items()}, coords),
        }
    )
