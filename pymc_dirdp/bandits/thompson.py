"""Thompson sampling that is private for the whole run: batches that are released once, and never forgotten."""

import hashlib
import os
import secrets
import threading
import warnings
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.accounting.entries import understood, written
from pymc_dirdp.bandits.beliefs import Belief, expected_losses
from pymc_dirdp.bandits.design import Design
from pymc_dirdp.bandits.rewards import REWARD, Worth, checked_labels, checked_utilities, listed, unit_of
from pymc_dirdp.bandits.store import OpenBatch, State, StateFile
from pymc_dirdp.bandits.wording import BanditReport, told
from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ArgumentError, DirdpError, ReleaseError, SeededReleaseWarning
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.entropy import generator

if TYPE_CHECKING:
    import pymc as pm
    import xarray as xr

    from pymc_dirdp.accounting.ledger import Ledger

__all__ = ["ThompsonSampler"]

# Arms are drawn so many at a time; they are thrown away when a batch is released.
_AHEAD = 512


@final
class ThompsonSampler:
    """A bandit whose whole run, of any length, keeps one guarantee for each reward.

    Each arm has an open batch of rewards. When it is full, its sum is released once with noise; the posterior of the
    arm is multiplied by the likelihood of the noisy sum, and nothing is forgotten. Between two releases arms are
    chosen by draws from the posteriors, which cost nothing.

    Parameters
    ----------
    arms : sequence of labels
        At least one; different from one another.
    guarantee : Guarantee
        Of the whole run: all choices and all that is released, whatever its length.
    prior : (float, float), default (1, 1)
        Beta prior of each mean reward.
    mechanism : {"geometric", "dirichlet"}, default "geometric"
        `"geometric"` puts whole noise on each sum. `"dirichlet"` takes one private posterior draw of each batch, which
        is less accurate; it is there for studies.
    first_batch : int, optional
        Pulls in the first batch of an arm. By default twice the scale of the noise.
    growth : float, default 1.0
        The next batch has this many times the pulls of all earlier ones: with 1 the number of pulls doubles.
    contribution : int, optional
        Protects people instead of single rewards: each gives at most so many, and the noise grows as much. Then
        `update` needs `person=`, and further rewards of a person are left out.
    unit : str, optional
        Who the people of `contribution` are, in the words of the ledger; "person" by default. Without `contribution`
        the unit is "reward", and a ledger for people refuses the run.
    utilities : mapping of str to float, optional
        For rewards that are categories: the public worth of each, such as `{"left": 0, "bought": 1, "subscribed": 12}`.
        A reward is then one of these names, and mean rewards are in the units of the worth. The category is rounded to
        the least or the largest worth by a coin, without bias.
    ledger : Ledger, optional
        Is charged once, now, for the whole run.
    path : path-like, optional
        A new file for the state. Each release is written to it before anybody acts on it.
    random_seed : int, optional
        For tests and lessons: the run can be computed again by whoever knows the seed, so it is **not private**.

    Raises
    ------
    UnattainableError
        If the mechanism does not reach the guarantee.
    BudgetError, LedgerError
        If the ledger refuses.

    Notes
    -----
    Two runs are neighbours if one reward (or the rewards of one person) differs, for the same visitors and arms. The
    guarantee rests on batches that end by the number of pulls alone. **Report rewards in the order of the choices, at a
    deadline that does not depend on them, and a missing one as 0**: a batch that fills up faster because of its
    rewards would tell about them. Add-remove neighbours are not covered; a visitor who leaves counts as a reward of 0.

    References
    ----------
    Theory, section 17. Azize, Wu, Honda, Orabona, Ito and Basu (2025) for the lower bound; Hu and Hegde (2022), Azize
    and Basu (2022) for batches.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    >>> arm = bandit.select()
    >>> bandit.update(arm, reward=1)
    >>> bandit.released.sizes["batch"]
    0
    """

    def __init__(
        self,
        arms: Sequence[Hashable],
        guarantee: Guarantee,
        prior: tuple[float, float] = (1.0, 1.0),
        *,
        mechanism: str = "geometric",
        first_batch: int | None = None,
        growth: float = 1.0,
        contribution: int | None = None,
        unit: str | None = None,
        utilities: Mapping[str, float] | None = None,
        ledger: "Ledger | None" = None,
        path: str | os.PathLike[str] | None = None,
        random_seed: int | None = None,
    ) -> None:
        labels = checked_labels(arms)
        whom = unit_of(contribution, unit)
        design = Design.of(
            Guarantee.checked(guarantee=guarantee),
            mechanism=mechanism,
            prior=prior,
            first_batch=first_batch,
            growth=growth,
            rewards=1 if contribution is None else contribution,
        )
        seed = None if random_seed is None else integer(0, random_seed=random_seed)
        settings = {
            "arms": list(labels),
            "guarantee": written(guarantee),
            "design": design.to_json(),
            "unit": whom,
            "utilities": checked_utilities(utilities),
            "key": secrets.token_hex(32),
            "seeded": seed is not None,
        }
        state = State([[] for _ in labels], [OpenBatch() for _ in labels])
        file = None if path is None else StateFile(path)
        if file is not None:
            file.refuse_unless_free()
        if seed is not None:
            warnings.warn(
                "A bandit with random_seed can be computed again by whoever knows the seed, so it is not private. "
                "Leave random_seed out for people's rewards.",
                SeededReleaseWarning,
                stacklevel=2,
            )
        # The file is made after the charge: a run that was not paid for must not be loaded from it.
        if ledger is not None:
            ledger.spend(
                guarantee,
                what=f"Thompson sampling over {len(labels)} arms",
                mechanism=design.mechanism,
                adjacency="replace-one",
                unit=whom,
                contribution=None
                if contribution is None
                else f"{contribution} reward{'s' * (contribution > 1)} of a run",
            )
        if file is not None:
            file.create(settings, state)
        self._begin(settings, state, file, seed)

    def _begin(
        self, settings: dict[str, Any], state: State, file: StateFile | None = None, seed: int | None = None
    ) -> None:
        self._settings, self._state = settings, state
        self._file: StateFile | None = file
        self.arms: tuple[Hashable, ...] = tuple(settings["arms"])
        self.guarantee: Guarantee = understood(settings["guarantee"])
        self.design = Design.from_json(settings["design"])
        if not self.privacy.satisfies(self.guarantee):
            raise ReleaseError(f"The mechanism does not keep {self.guarantee}: the state was edited.")
        self._worth = Worth(settings["utilities"])
        self._index = {label: k for k, label in enumerate(self.arms)}
        self._rng = generator(seed)
        self._bits = Bits(None if seed is None else np.random.SeedSequence([seed, 1]))
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._beliefs = [self._belief(k) for k in range(len(self.arms))]
        self._ahead: list[int] = []

    @property
    def privacy(self) -> PrivacyCurves:
        """The curves of a whole run, of any length."""
        return self.design.mechanism

    def _belief(self, arm: int) -> Belief:
        return Belief(self.design.prior, self.design.mechanism, tuple(self._state.released[arm])).narrowed()

    def select(self, size: int | None = None, *, theta: ArrayLike | None = None) -> Any:
        """The arm for the next visitor, or the arms for the next `size` visitors before any feedback.

        Parameters
        ----------
        size : int, optional
            How many visitors.
        theta : array_like, shape (arms,), optional
            A draw of all mean rewards from a model of your own, such as that of :meth:`model`; the arm with the largest
            is chosen.

        Returns
        -------
        arm : label, or list of labels
        """
        if theta is not None:
            values = np.asarray(theta, dtype=np.float64)
            if values.shape != (len(self.arms),) or np.isnan(values).any() or size is not None:
                raise ArgumentError(f"Expected theta to be one number for each of {len(self.arms)} arms, and no size.")
            return self.arms[int(values.argmax())]
        with self._lock:
            wanted = 1 if size is None else integer(1, size=size)
            while len(self._ahead) < wanted:
                theta = np.stack([belief.draw(max(_AHEAD, wanted), self._rng) for belief in self._beliefs])
                self._ahead += theta.argmax(axis=0).tolist()
            chosen = [self.arms[self._ahead.pop()] for _ in range(wanted)]
        return chosen[0] if size is None else chosen

    def update(self, arm: Any, reward: Any, *, person: Any = None) -> None:
        """Report a reward, or the rewards of several visitors in the order of their choices.

        Parameters
        ----------
        arm : label, or list of labels
            An arm that was not selected here counts as pulled, too.
        reward : float or str, or array_like of them
            In [0, 1], or the name of a category if `utilities` were given. A reward that is not 0 or 1 is rounded to
            one of them by a coin, without bias.
        person : hashable, or list of hashables
            Whose reward it is, if `contribution` was given: a text or a whole number.

        Raises
        ------
        DataError
            If a reward is missing or outside of [0, 1]. The message holds no reward.
        ArgumentError
            If an arm is unknown, or `person` is missing.
        """
        with self._lock:
            self._refuse_copies()
            arms, rewards, people = listed(arm, reward, person)
            # Everything is checked before anything is counted.
            places = [self._place(label) for label in arms]
            values = [self._worth.checked(value) for value in rewards]
            prints = [self._fingerprint(one) for one in people]
            for k, value, fingerprint in zip(places, values, prints, strict=True):
                self._add(k, value, fingerprint)

    def _place(self, label: Any) -> int:
        if not isinstance(label, str | int) or label not in self._index:
            raise ArgumentError(f"Unknown arm; expected one of {', '.join(map(repr, self.arms))}.")
        return self._index[label]

    def _fingerprint(self, person: Any) -> str | None:
        if self._settings["unit"] == REWARD:
            if person is not None:
                raise ArgumentError("person= is for a bandit with contribution=, which protects people.")
            return None
        if not isinstance(person, str | int) or isinstance(person, bool):
            raise ArgumentError(
                "This bandit protects people, so it has to know whose reward this is: pass person=, a text or a whole "
                "number."
            )
        key = bytes.fromhex(self._settings["key"])
        return hashlib.blake2b(f"{type(person).__name__} {person}".encode(), key=key, digest_size=16).hexdigest()

    def _add(self, arm: int, value: Fraction, fingerprint: str | None) -> None:
        self._close_if_full(arm)
        if fingerprint is not None:
            used = self._state.people.get(fingerprint, 0)
            if used >= self.design.mechanism.rewards:
                return
            self._state.people[fingerprint] = used + 1
        batch = self._state.open[arm]
        batch.pulls += 1
        batch.sum += int(self._bits.uniform(value.denominator) < value.numerator)
        self._close_if_full(arm)

    def _close_if_full(self, arm: int) -> None:
        """Release the sum of a batch once. It is in the file before it is anywhere else."""
        released, batch = self._state.released[arm], self._state.open[arm]
        size = self.design.next_size(sum(pulls for pulls, _ in released))
        if batch.pulls < size:
            return
        output = self.design.mechanism.release(batch.sum, size, self._bits)
        if self._file is not None:
            self._file.release(self._state, arm, size, output)
        released.append((size, output))
        self._state.open[arm] = OpenBatch()
        self._beliefs[arm] = self._beliefs[arm].and_batch(size, output)
        self._ahead.clear()

    def _refuse_copies(self) -> None:
        if os.getpid() != self._process:
            raise ReleaseError(
                "This bandit was copied by os.fork(), and both copies would release the same rewards. Give it a path= "
                "and load it in the process that continues."
            )

    def __reduce__(self) -> str:
        raise TypeError("A bandit cannot be copied or pickled: the copy would release the same rewards again.")

    def __repr__(self) -> str:
        batches = sum(map(len, self._state.released))
        return f"ThompsonSampler({len(self.arms)} arms, {self.guarantee}, {batches} batches released)"

    @property
    def released(self) -> "xr.Dataset":
        """What was released, batch by batch: it may be published.

        Dims `batch`; variables `arm`, `number` (of the batch of its arm), `size`, and `noisy_sum` or `urn_successes`.
        """
        import xarray as xr

        with self._lock:
            rows = [
                (label, number, size, output)
                for label, batches in zip(self.arms, self._state.released, strict=True)
                for number, (size, output) in enumerate(batches)
            ]
        columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []]
        names = ("arm", "number", "size", self.design.mechanism.output)
        data = xr.Dataset({name: ("batch", column) for name, column in zip(names, columns, strict=True)})
        data.attrs = {"guarantee": str(self.guarantee), **dict(self.design.mechanism.facts())}
        if self._settings["seeded"]:
            data.attrs["reproducible"] = "drawn with a seed, so not private"
        return data

    def posterior(self, draws: int = 1000) -> "xr.DataTree":
        """The mean rewards given what was released, and what to decide.

        Returns
        -------
        tree : xarray.DataTree
            `posterior` holds independent draws of `mean_reward` with dims chain, draw, arm. `decision` holds for each
            arm its `mean`, the probability `best` of having the largest mean reward, and the expected `loss` in mean
            reward of keeping to this arm from now on.
        """
        import xarray as xr

        draws = integer(1, draws=draws)
        with self._lock:
            shares = np.stack([belief.draw(draws, self._rng) for belief in self._beliefs], axis=-1)
            theta = self._worth.back(shares)
            means = [self._worth.back(belief.mean) for belief in self._beliefs]
            best, losses = expected_losses(self._beliefs)
        coords = {"arm": list(self.arms)}
        return xr.DataTree.from_dict(
            {
                "/posterior": xr.Dataset(
                    {"mean_reward": (("chain", "draw", "arm"), theta[None])},
                    coords | {"chain": [0], "draw": np.arange(draws)},
                ),
                "/decision": xr.Dataset(
                    {"mean": ("arm", means), "best": ("arm", best), "loss": ("arm", self._worth.span * losses)}, coords
                ),
            }
        )

    def log_likelihood(self, mean_reward: Any) -> Any:
        """What was released, as a term of a PyMC model of your own.

        Parameters
        ----------
        mean_reward : tensor, shape (arms,)
            Mean rewards in (0, 1), in the order of `arms`. With `utilities` 0 stands for the least and 1 for the
            largest worth.

        Returns
        -------
        log_likelihood : PyTensor scalar
            Of all batches that are released by now, with its gradient; for `pm.Potential`. Open batches are not used.
        """
        from pymc_dirdp.bandits.likelihood_op import log_likelihood

        with self._lock:
            return log_likelihood(self._state.released, mean_reward, self.design.mechanism)

    def model(self) -> "pm.Model":
        """The model behind :meth:`posterior` in PyMC: a Beta prior for each arm, and what was released by now.

        To let arms learn from one another write a model of your own with :meth:`log_likelihood`, and hand its draws to
        :meth:`select`.
        """
        import pymc as pm

        a, b = self.design.prior
        with pm.Model(coords={"arm": list(self.arms)}) as model:
            mean_reward = pm.Beta("mean_reward", a, b, dims="arm")
            pm.Potential("released", self.log_likelihood(mean_reward))
        return model

    def report(self) -> BanditReport:
        """What a run promises to whom, what breaks the promise, and how far it has come."""
        with self._lock:
            batches = [len(one) for one in self._state.released]
            return told(self, batches, unit=self._settings["unit"], seeded=self._settings["seeded"])

    def save(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write the open batches to the file too, so that a run can go on after a pause.

        The file then holds sums that are not released: keep it as secret as the rewards. What was reported after the
        last save is lost in a crash, and never released twice.

        Parameters
        ----------
        path : path-like, optional
            A new file, for a bandit that was made without one.
        """
        with self._lock:
            self._refuse_copies()
            if path is not None:
                if self._file is not None:
                    raise ArgumentError(
                        f"This bandit has the file {self._file.path}. A second one could release the same rewards "
                        "again. Use save() alone."
                    )
                file = StateFile(path)
                file.create(self._settings, self._state)
                self._file = file
            elif self._file is None:
                raise ArgumentError("This bandit has no file. Use save(path).")
            else:
                self._file.save(self._state)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "ThompsonSampler":
        """Go on with the run of a file. Whoever held it before can release nothing more.

        Raises
        ------
        ReleaseError
            If the file is missing, damaged, or of another version.
        """
        file = StateFile(path)
        settings, state = file.take_over()
        bandit = cls.__new__(cls)
        try:
            bandit._begin(settings, state, file)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            said = error if isinstance(error, DirdpError) else type(error).__name__
            raise ReleaseError(f"{file.path} is damaged: its rules cannot be understood ({said}).") from None
        return bandit
