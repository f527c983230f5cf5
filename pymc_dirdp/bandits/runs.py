"""Runs of a bandit, by batches or by rounds, and their tables."""

from collections import ChainMap
from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn, final

import numpy as np

from pymc_dirdp.bandits.batch_release import BatchCounts, BatchMechanism, Output, coin
from pymc_dirdp.bandits.beliefs import GridBelief, expected_losses
from pymc_dirdp.bandits.categories import infer_shares
from pymc_dirdp.bandits.design import Design, EveryRound
from pymc_dirdp.bandits.settings import Settings, Worth
from pymc_dirdp.bandits.store import OpenBatch, State, StateFile
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.sampling.bits import Bits

if TYPE_CHECKING:
    import xarray as xr


def batches_table(
    arms: Sequence[Hashable], released: Sequence[Sequence[tuple[int, Output]]], mechanism: BatchMechanism, worth: Worth
) -> "xr.Dataset":
    """One row for each batch with its arm, its number in the arm, its size and its output."""
    import xarray as xr

    rows = [
        (label, number, size, output)
        for label, batches in zip(arms, released, strict=True)
        for number, (size, output) in enumerate(batches)
    ]
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []]
    names = ("arm", "number", "size", mechanism.output)
    table = {name: ("batch", column) for name, column in zip(names, columns, strict=True)}
    if not isinstance(mechanism, BatchCounts):
        return xr.Dataset(table)
    counts = np.array(columns[-1], dtype=np.int64).reshape(-1, len(mechanism.worths))
    worths = worth.back(np.array(mechanism.worths))
    return xr.Dataset(table | {mechanism.output: (("batch", "worth"), counts)}, {"worth": worths})


def draws_table(arms: Sequence[Hashable], draws: Sequence[Sequence[float]]) -> "xr.Dataset":
    """One row for each round with the private draw of each arm."""
    import xarray as xr

    values = np.array(draws, dtype=np.float64).reshape(-1, len(arms))
    return xr.Dataset({"draw": (("round", "arm"), values)}, {"arm": list(arms)})


def decision_tree(
    arms: Sequence[Hashable], beliefs: Sequence[GridBelief], worth: Worth, draws: int, rng: np.random.Generator
) -> "xr.DataTree":
    """Draws of the mean rewards, and for each arm its mean, its probability to be the best, and its expected loss."""
    import xarray as xr

    shares = np.stack([belief.draw(draws, rng) for belief in beliefs], axis=-1)
    best_shares, losses = expected_losses(beliefs)
    coords = {"arm": list(arms)}
    posterior = xr.Dataset(
        {"mean_reward": (("chain", "draw", "arm"), worth.back(shares)[None])},
        coords | {"chain": [0], "draw": np.arange(draws)},
    )
    decision = {
        "mean": [worth.back(belief.mean) for belief in beliefs],
        "best": best_shares,
        "loss": worth.span * losses,
    }
    return xr.DataTree.from_dict(
        {
            "/posterior": posterior,
            "/decision": xr.Dataset({name: ("arm", values) for name, values in decision.items()}, coords),
        }
    )


@final
class BatchRun:
    """A run in batches, each of which is released once, and the posteriors of the mean rewards.

    Parameters
    ----------
    design : Design
        The public rules.
    state : State
        The released and the open batches.
    bits : Bits
        Random bits for noise and coins.
    rng : numpy Generator
        Random numbers for choices, which depend on released batches only.
    places : sequence of int
        The active arms.
    """

    def __init__(
        self, design: Design, state: State, bits: Bits, rng: np.random.Generator, places: Sequence[int]
    ) -> None:
        self.design, self.state, self._bits, self._rng, self._chosen = design, state, bits, rng, list(places)
        self.file: StateFile | None = None
        # Computed on demand, because a text of many batches may be opened only for display.
        self._beliefs: dict[int, GridBelief] = {}
        self._ahead: list[int] = []

    def _belief(self, place: int) -> GridBelief:
        if place not in self._beliefs:
            batches = tuple(self.state.released[place])
            self._beliefs[place] = infer_shares(self.design.prior, self.design.mechanism, batches)
        return self._beliefs[place]

    def settle(self, settings: Settings[Design]) -> None:
        """Change the active arms. New arms have no rewards yet."""
        if self.file is not None:
            self.file.settle(settings.to_json())
        cells = len(self.design.mechanism.worths)
        for _ in settings.arms[len(self.state.released) :]:
            self.state.released.append([])
            self.state.open.append(OpenBatch((0,) * cells))
        self._chosen = settings.places
        self._ahead.clear()

    def choose(self, size: int) -> list[int]:
        """The arms of the next visitors, each by a draw of all mean rewards from their posteriors."""
        while len(self._ahead) < size:
            # Arms are drawn in advance, and discarded when a batch is released.
            theta = np.stack([self._belief(place).draw(max(512, size), self._rng) for place in self._chosen])
            self._ahead += [self._chosen[arm] for arm in theta.argmax(axis=0).tolist()]
        return [self._ahead.pop() for _ in range(size)]

    def add(self, rewards: Iterable[tuple[int, Fraction, str | None]]) -> None:
        """Add rewards in [0, 1] to the open batches of their arms, all of them or none.

        A copy of the state counts them, and replaces the state once its outputs are in the file. Rewards of a person
        beyond the maximum are ignored.
        """
        previous_state, finished = self.state, list[tuple[int, int, int, Output]]()
        people = ChainMap({}, previous_state.people)  # Writes go to the first mapping.
        after = State(list(previous_state.released), list(previous_state.open), people)
        for arm, reward, fingerprint in rewards:
            finished += self._closed(after, arm)
            if fingerprint is not None:
                n_used = people.get(fingerprint, 0)
                if n_used >= self.design.mechanism.rewards:
                    continue
                people[fingerprint] = n_used + 1
            after.open[arm] = after.open[arm].plus(self.design.mechanism.cell(reward, self._bits))
            finished += self._closed(after, arm)
        beliefs = dict(self._beliefs)
        for arm, _, size, output in finished:
            if arm in beliefs:
                beliefs[arm] = beliefs[arm].and_batch(size, output)
        # Everything that can fail comes before this line.
        if self.file is not None and finished:
            self.file.release(after, finished)
        previous_state.people.update(people.maps[0])
        after.people = previous_state.people
        self.state, self._beliefs = after, beliefs
        if finished:
            self._ahead.clear()

    def _closed(self, state: State, arm: int) -> list[tuple[int, int, int, Output]]:
        """Release the open batch of an arm if it is full, and return its arm, number, size and output."""
        released, batch = state.released[arm], state.open[arm]
        size = self.design.next_size(sum(pulls for pulls, _ in released))
        if batch.pulls < size:
            return []
        output = self.design.mechanism.release(batch.counts, self._bits)
        state.released[arm], state.open[arm] = [*released, (size, output)], OpenBatch((0,) * len(batch.counts))
        return [(arm, len(released), size, output)]

    def beliefs(self, *, everywhere: bool = False) -> Sequence[GridBelief]:
        """The posterior of each active arm, and of retired arms if `everywhere`."""
        return tuple(self._belief(place) for place in (range(len(self.state.released)) if everywhere else self._chosen))

    def table(self, arms: Sequence[Hashable], worth: Worth) -> "xr.Dataset":
        """The released batches."""
        return batches_table(arms, self.state.released, self.design.mechanism, worth)

    def so_far(self, arms: Sequence[Hashable]) -> Sequence[tuple[str, str]]:
        """The progress of the run, for a report."""
        counts = [len(item) for item in self.state.released]
        return [(str(arm), f"{n} batch{'es' * (n != 1)} released") for arm, n in zip(arms, counts, strict=True)]


@final
class RoundRun:
    """A run with a private draw of every arm in every round, each from all rewards.

    Parameters
    ----------
    design : EveryRound
        The public rules.
    state : State
        Its open batches hold all rewards, and are never closed.
    bits : Bits
        Random bits for draws and coins.
    """

    def __init__(self, design: EveryRound, state: State, bits: Bits) -> None:
        self.design, self.state, self._bits = design, state, bits
        self.file: StateFile | None = None
        self._draws: list[tuple[float, ...]] = []

    def choose(self, size: int) -> list[int]:
        """The arms of the next visitors, with one round for each visitor."""
        n_left = self.design.horizon - len(self._draws)
        if size > n_left:
            raise ArgumentError(
                f"The guarantee is for {self.design.horizon} rounds, and {n_left} are left. Use batches, whose "
                "guarantee is for a run of any length, or start a new run with a longer horizon."
            )
        return [self._round() for _ in range(size)]

    def _round(self) -> int:
        draws = tuple(self.design.draw(item.counts, self._bits) for item in self.state.open)
        self._draws.append(draws)
        best_arms = [arm for arm, item in enumerate(draws) if item == max(draws)]
        return best_arms[self._bits.uniform(len(best_arms))]

    def add(self, rewards: Iterable[tuple[int, Fraction, str | None]]) -> None:
        """Count rewards in [0, 1] of their arms, all of them or none."""
        counted = list(self.state.open)
        for arm, reward, _ in rewards:
            counted[arm] = counted[arm].plus(coin(reward, self._bits))
        self.state.open = counted

    def beliefs(self, *, everywhere: bool = False) -> NoReturn:
        """Raise an error, because a run by rounds has only its draws."""
        raise ArgumentError(
            "Leave schedule= out to use batches: with schedule='every-round' all draws come from the same rewards, so "
            "there is no posterior except the draws in `released`."
        )

    def table(self, arms: Sequence[Hashable], worth: Worth) -> "xr.Dataset":
        """The released draws."""
        return draws_table(arms, self._draws)

    def so_far(self, arms: Sequence[Hashable]) -> Sequence[tuple[str, str]]:
        """The progress of the run, for a report."""
        return [("rounds", f"{len(self._draws)} of {self.design.horizon} are over")]
