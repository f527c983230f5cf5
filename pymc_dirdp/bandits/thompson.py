"""Thompson sampling that is private for the whole run, with batches that are released once."""

import os
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.accounting.budget import check_ledger_type
from pymc_dirdp.bandits.design import Design, EveryRound
from pymc_dirdp.bandits.runs import BatchRun
from pymc_dirdp.bandits.settings import Settings, Worth, as_list, checked_labels, checked_utilities, rules_of, unit_of
from pymc_dirdp.bandits.store import State, StateFile
from pymc_dirdp.bandits.view import BanditView, Transcript
from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ArgumentError, ReleaseError, SeededReleaseWarning, warn
from pymc_dirdp.literals import BanditMechanism, Schedule
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.signatures import user_facing

if TYPE_CHECKING:
    from pymc_dirdp.accounting.ledger import Ledger


@user_facing
@final
class ThompsonSampler(BanditView):
    """A bandit whose whole run, of any length, satisfies one guarantee for each reward.

    Each arm has an open batch of rewards. When it is full, its sum is released once with noise, and the posterior of
    the arm is multiplied by the likelihood of the noisy sum. No data are discarded. Between two releases arms are
    chosen by draws from the posteriors, at no privacy cost.

    Parameters
    ----------
    arms : sequence of labels
        Distinct labels, at least one.
    guarantee : Guarantee
        The guarantee of the whole run of any length, for all choices and all outputs.
    prior : sequence of float, optional
        The two parameters of the Beta prior of each mean reward, 1 by default. With `mechanism="counts"` those of the
        Dirichlet prior of the shares of the categories, in the order of `utilities`.
    mechanism : {"geometric", "counts"}, optional
        `"geometric"`, the default, adds integer noise to each sum. `"counts"` adds it to the counts of all categories
        of `utilities`. The variance of mean rewards is then that of the worths, and not that of a coin.
    first_batch : int, optional
        Pulls in the first batch of an arm. By default twice the scale of the noise.
    growth : float, default 1.0
        Ratio of the size of the next batch to all earlier pulls of the arm. With 1 the number of pulls doubles.
    contribution : int, optional
        The maximum number of rewards of one person. Protects people instead of single rewards, with noise in
        proportion. `update` then needs `person=`, and ignores further rewards of a person.
    unit : str, optional
        The name of the people of `contribution` in the ledger; "person" by default. Without `contribution` the unit is
        "reward", and a ledger for people refuses the run.
    schedule : {"batches", "every-round"}, default "batches"
        `"every-round"` takes a private posterior draw of every arm in every round instead. The draws of all rounds
        share the guarantee, so the run hardly learns. It is for studies, and has no file, no posterior and no
        `contribution`.
    horizon : int, optional
        For `"every-round"`, the maximum number of rounds, which the guarantee covers.
    utilities : mapping of str to float, optional
        For rewards that are categories, the public worth of each, such as `{"left": 0, "bought": 1, "subscribed": 12}`.
        A reward is then one of these names, and mean rewards are in the units of the worth. A coin rounds a category to
        the smallest or the largest worth without bias. `mechanism="counts"` counts categories instead, which is better
        if the worths vary less than the coin and you expect at least about `15 / epsilon**2` rewards of an arm.
    ledger : Ledger, optional
        A ledger to charge now, once for the whole run.
    path : path-like, optional
        A new file for the state. Each release is written to it before it is used.
    random_seed : int, optional
        For tests and lessons. Anyone who knows the seed can reproduce the run, so it is **not private**.

    Raises
    ------
    UnattainableError
        If the mechanism does not reach the guarantee.
    BudgetError, LedgerError
        If the ledger refuses.

    Notes
    -----
    Two runs are neighbours if one reward (or the rewards of one person) differs, for the same visitors and arms. The
    guarantee requires that only the number of pulls determines when a batch ends. **Report rewards in the order of the
    choices, at a deadline that does not depend on them, and a missing one as 0**: a batch that fills up faster because
    of its rewards would reveal them. Add-remove neighbours are not covered; a visitor who leaves has a reward of 0.

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
        prior: Sequence[float] | None = None,
        *,
        mechanism: BanditMechanism | None = None,
        first_batch: int | None = None,
        growth: float = 1.0,
        contribution: int | None = None,
        unit: str | None = None,
        schedule: Schedule = "batches",
        horizon: int | None = None,
        utilities: Mapping[str, float] | None = None,
        ledger: "Ledger | None" = None,
        path: str | os.PathLike[str] | None = None,
        random_seed: int | None = None,
    ) -> None:
        names = checked_utilities(utilities)
        design = rules_of(
            guarantee,
            schedule=schedule,
            horizon=horizon,
            prior=prior,
            worth=Worth(names),
            mechanism=mechanism,
            first_batch=first_batch,
            growth=growth,
            contribution=contribution,
        )
        seed = None if random_seed is None else integer(0, random_seed=random_seed)
        settings = Settings(
            checked_labels(arms),
            guarantee,
            design,
            unit_of(contribution, unit),
            names,
            seeded=seed is not None,
        )
        if path is not None:
            # Refuse settings that a file cannot hold before the charge.
            settings.to_json()
            StateFile(path).refuse_unless_free()
        check_ledger_type(ledger)
        if ledger is not None and ledger.adjacency != "replace-one":
            raise ArgumentError(
                f"Use a ledger for 'replace-one': this one is for adjacency={ledger.adjacency!r}, but a bandit "
                "protects a reward against replacement, because removing its round would shift all later batches. "
                "Report the reward 0 for a person who asks to be left out."
            )
        if seed is not None:
            warn(
                "Leave random_seed out for people's rewards: anyone who knows the seed can reproduce the bandit, so it "
                "is not private.",
                SeededReleaseWarning,
            )
        # Create the file after the charge, so that it never has a run without a charge.
        if ledger is not None:
            ledger.spend(
                guarantee,
                what=f"Thompson sampling over {len(settings.arms)} arms",
                mechanism=design.privacy,
                adjacency="replace-one",
                unit=settings.unit,
                contribution=settings.contribution,
            )
        cells = len(design.mechanism.worths) if isinstance(design, Design) else 2
        super().__init__(settings, State.empty(len(settings.arms), cells), seed)
        if path is not None:
            self.save(path)

    @user_facing
    def select(self, size: int | None = None, *, theta: ArrayLike | None = None) -> Any:
        """The arm for the next visitor, or the arms for the next `size` visitors before any feedback.

        Parameters
        ----------
        size : int, optional
            The number of visitors.
        theta : array_like, shape (arms,), optional
            A draw of all mean rewards from a model of your own, such as :meth:`model`. The arm with the largest is
            chosen.

        Returns
        -------
        arm : label, or list of labels
        """
        if theta is not None:
            values = np.asarray(theta, dtype=np.float64)
            if values.shape != (len(self.arms),) or np.isnan(values).any() or size is not None:
                raise ArgumentError(
                    f"Expected theta to be one number for each of {len(self.arms)} arms. Leave size= out."
                )
            return self.arms[int(values.argmax())]
        n_arms = 1 if size is None else integer(1, size=size)
        with self._lock:
            self._refuse_copies()
            chosen = [self._settings.arms[place] for place in self._run.choose(n_arms)]
        return chosen[0] if size is None else chosen

    @user_facing
    def update(self, arm: Any, reward: Any, *, person: Any = None) -> None:
        """Report a reward, or the rewards of several visitors in the order of their choices.

        Parameters
        ----------
        arm : label, or list of labels
            An arm that was not selected here also counts as pulled.
        reward : float or str, or array_like of them
            A number in [0, 1], or the name of a category with `utilities`. A coin rounds other rewards to 0 or 1
            without bias.
        person : hashable, or list of hashables
            With `contribution`, the person of the reward, a text or an integer. Texts that differ only in letter case,
            Unicode form, spaces, or zeros before an integer are the same person, and so are an integer and its decimal
            text.

        Raises
        ------
        DataError
            If a reward is missing or outside [0, 1]. The message contains no reward.
        ArgumentError
            If an arm is unknown, or `person` is missing.
        ReleaseError
            If a batch is full and the file cannot be written. No reward of this call was then counted. Report all of
            them again, unless the message says that the file has them.
        """
        with self._lock:
            self._refuse_copies()
            arms, rewards, people = as_list(arm, reward, person)
            # Everything is checked before anything is counted.
            places = [self._place(label) for label in arms]
            values = [self._worth.checked(value) for value in rewards]
            fingerprints = [self._settings.fingerprint(person) for person in people]
            self._run.add(zip(places, values, fingerprints, strict=True))

    @user_facing
    def add_arm(self, arm: Hashable) -> None:
        """Add a new arm, or make a retired arm active again, with its releases.

        The set of arms and the times of its changes are public. The guarantee still holds if you base this decision
        on released numbers, or on reasons that are independent of rewards.

        Parameters
        ----------
        arm : label
            A text or an integer.

        Raises
        ------
        ArgumentError
            If it is one of `arms`, or with `schedule="every-round"`.
        ReleaseError
            If the file cannot be written. The arms are then unchanged; try again.

        Examples
        --------
        >>> import pymc_dirdp as dirdp
        >>> bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
        >>> bandit.add_arm("c")
        >>> bandit.retire_arm("a")
        >>> bandit.arms, bandit.retired
        (('b', 'c'), ('a',))
        """
        with self._lock:
            self._settle(self._settings.with_arm(arm))

    @user_facing
    def retire_arm(self, arm: Hashable) -> None:
        """Stop choosing an arm. Rewards of visitors for whom it was chosen before are still counted.

        Its open batch stays secret until it is full. Never retire an arm because of rewards that are not released,
        because everybody sees that it is retired.

        Parameters
        ----------
        arm : label
            One of `arms`, but not the only one.

        Raises
        ------
        ArgumentError
            If there is no such arm, or no other one, or with `schedule="every-round"`.
        ReleaseError
            If the file cannot be written. The arms are then unchanged; try again.
        """
        with self._lock:
            self._place(arm)
            if arm in self.retired:
                raise ArgumentError(f"The arm {arm!r} is retired already.")
            self._settle(self._settings.without_arm(arm))

    def _settle(self, settings: Settings[Design | EveryRound]) -> None:
        self._refuse_copies()
        if not isinstance(self._run, BatchRun):
            raise ArgumentError("Leave schedule= out for batches: with schedule='every-round' the arms cannot change.")
        self._run.settle(cast(Settings[Design], settings))
        self._settings = settings
        self._places = {label: place for place, label in enumerate(settings.arms)}

    def _place(self, label: Any) -> int:
        if not isinstance(label, str | int) or label not in self._places:
            raise ArgumentError(f"Unknown arm; expected one of {', '.join(map(repr, self.arms))}.")
        return self._places[label]

    def _refuse_copies(self) -> None:
        if os.getpid() != self._process:
            raise ReleaseError(
                "This bandit was copied by os.fork(), and both copies would release the same rewards. Create it "
                "with path=, and load the file in the process that continues."
            )

    def __reduce__(self) -> str:
        raise TypeError("A bandit cannot be copied or pickled: the copy would release the same rewards again.")

    @user_facing
    def save(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write the open batches to the file too, so that you can resume the run.

        The file then contains sums that are not released, so keep it as secret as the rewards. A crash loses the
        rewards reported after the last save, and never releases a reward twice.

        Parameters
        ----------
        path : path-like, optional
            A new file, for a bandit without one.
        """
        with self._lock:
            self._refuse_copies()
            current = self._run.file
            if path is None:
                if current is None:
                    raise ArgumentError("This bandit has no file. Call save(path).")
                current.save(self._run.state)
            elif current is not None:
                raise ArgumentError(
                    f"Call save() without a path: this bandit has the file {current.path}, and a second file could "
                    "release the same rewards again."
                )
            else:
                file = StateFile(path)
                file.create(self._settings.to_json(), self._run.state)
                self._run.file = file

    def transcript(self) -> Transcript:
        """The released batches as a public text, see :func:`pymc_dirdp.save`. It has no open batches.

        Raises
        ------
        ArgumentError
            With `schedule="every-round"`, which has no batches.
        """
        self._settings.design.to_dict()  # Raises an error for rules that a text cannot hold.
        return cast(Transcript, self._published())

    @classmethod
    @user_facing
    def load(cls, path: str | os.PathLike[str]) -> "ThompsonSampler":
        """Resume the run of a file. The process that had it before can release nothing more.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ReleaseError
            If the file is damaged, or of another version.
        """
        file = StateFile(path)
        settings, state = file.take_over()
        bandit = cls.__new__(cls)
        BanditView.__init__(bandit, settings, state)
        bandit._run.file = file
        return bandit
