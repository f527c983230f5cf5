"""Thompson sampling that is private for the whole run: batches that are released once, and never forgotten."""

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

    Each arm has an open batch of rewards. When it is full, its sum is released once with noise; the posterior of the
    arm is multiplied by the likelihood of the noisy sum, and nothing is forgotten. Between two releases arms are
    chosen by draws from the posteriors, which cost nothing.

    Parameters
    ----------
    arms : sequence of labels
        At least one; different from one another.
    guarantee : Guarantee
        Of the whole run: all choices and all that is released, whatever its length.
    prior : sequence of float, optional
        The two parameters of the Beta prior of each mean reward, 1 by default. With `mechanism="counts"` those of the
        Dirichlet prior of the shares of the categories, in the order of `utilities`.
    mechanism : {"geometric", "counts"}, optional
        `"geometric"`, the default, adds integer noise to each sum. `"counts"` adds it to the counts of all categories
        of `utilities`: mean rewards are then known as well as the worths vary, and not as well as a coin does.
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
    schedule : {"batches", "every-round"}, default "batches"
        `"every-round"` takes a private posterior draw of every arm in every round instead, as the rest of this library
        does it once. The draws of all rounds share the guarantee, so it hardly learns; it is there for studies, without
        a file, a posterior, or several rewards of a person.
    horizon : int, optional
        For `"every-round"`: the number of rounds that the guarantee is for. No more are played.
    utilities : mapping of str to float, optional
        For rewards that are categories: the public worth of each, such as `{"left": 0, "bought": 1, "subscribed": 12}`.
        A reward is then one of these names, and mean rewards are in the units of the worth. The category is rounded to
        the least or the largest worth by a coin, without bias; or counted, with `mechanism="counts"`, which is better
        where the worths vary less than the coin and some `15 / epsilon**2` rewards of an arm are expected.
    ledger : Ledger, optional
        Is charged once, now, for the whole run.
    path : path-like, optional
        A new file for the state. Each release is written to it before anybody acts on it.
    random_seed : int, optional
        For tests and lessons: the run can be computed again by anyone who knows the seed, so it is **not private**.

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
            # What a file cannot hold is refused before the charge.
            settings.to_json()
            StateFile(path).refuse_unless_free()
        check_ledger_type(ledger)
        if ledger is not None and ledger.adjacency != "replace-one":
            raise ArgumentError(
                f"The ledger is for adjacency={ledger.adjacency!r}, and a bandit protects a reward that is replaced: "
                "without its round all later batches would shift. Give a person who asks to be left out the reward 0 "
                "instead, and keep a ledger for 'replace-one'."
            )
        if seed is not None:
            warn(
                "A bandit with random_seed can be computed again by anyone who knows the seed, so it is not private. "
                "Leave random_seed out for people's rewards.",
                SeededReleaseWarning,
            )
        # The file is made after the charge: a run that was not paid for must not be loaded from it.
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
            A draw of all mean rewards from a model of your own, such as that of :meth:`model`; the arm with the largest
            is chosen.

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
            An arm that was not selected here counts as pulled, too.
        reward : float or str, or array_like of them
            In [0, 1], or the name of a category if `utilities` were given. A reward that is not 0 or 1 is rounded to
            one of them by a coin, without bias.
        person : hashable, or list of hashables
            Whose reward it is, if `contribution` was given: a text or an integer. Texts that differ in letter case,
            Unicode form, spaces, or zeros before an integer alone are the same person, and so are an integer and its
            decimal text.

        Raises
        ------
        DataError
            If a reward is missing or outside of [0, 1]. The message contains no reward.
        ArgumentError
            If an arm is unknown, or `person` is missing.
        ReleaseError
            If a batch is full and the file cannot be written. Then no reward of this call was counted: report all of
            them again, unless the message says that their file holds them.
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
        """Choose among one more arm from now on: a new one, or one that was retired, with all that is known of it.

        The set of arms is public, and so is the moment at which it changes. The guarantee stays as it is, if that was
        decided by what was released, or for reasons that have nothing to do with rewards.

        Parameters
        ----------
        arm : label
            A text or an integer.

        Raises
        ------
        ArgumentError
            If it is one of `arms`, or with `schedule="every-round"`.
        ReleaseError
            If the file cannot be written. Then the arms are as they were; try again.

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
        """Do not choose an arm any more. Rewards of visitors for whom it was chosen before are still counted.

        Its open batch stays a secret until it is full, and for ever if that never happens. Never retire an arm
        because of rewards that are not released: everybody sees that it is gone.

        Parameters
        ----------
        arm : label
            One of `arms`, but not the only one.

        Raises
        ------
        ArgumentError
            If there is no such arm, or no other one, or with `schedule="every-round"`.
        ReleaseError
            If the file cannot be written. Then the arms are as they were; try again.
        """
        with self._lock:
            self._place(arm)
            if arm in self.retired:
                raise ArgumentError(f"The arm {arm!r} is retired already.")
            self._settle(self._settings.without_arm(arm))

    def _settle(self, settings: Settings[Design | EveryRound]) -> None:
        self._refuse_copies()
        if not isinstance(self._run, BatchRun):
            raise ArgumentError("With schedule='every-round' the arms stay the same. Leave schedule= out for batches.")
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
                "This bandit was copied by os.fork(), and both copies would release the same rewards. Give it a path= "
                "and load it in the process that continues."
            )

    def __reduce__(self) -> str:
        raise TypeError("A bandit cannot be copied or pickled: the copy would release the same rewards again.")

    @user_facing
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
            current = self._run.file
            if path is None:
                if current is None:
                    raise ArgumentError("This bandit has no file. Use save(path).")
                current.save(self._run.state)
            elif current is not None:
                raise ArgumentError(
                    f"This bandit has the file {current.path}. A second one could release the same rewards again. Use "
                    "save() alone."
                )
            else:
                file = StateFile(path)
                file.create(self._settings.to_json(), self._run.state)
                self._run.file = file

    def transcript(self) -> Transcript:
        """What was released by now, as a text for anybody, see :func:`pymc_dirdp.save`. Open batches are not in it.

        Raises
        ------
        ArgumentError
            With `schedule="every-round"`, whose draws are no batches.
        """
        self._settings.design.to_dict()  # Rules that no text can hold say so here.
        return cast(Transcript, self._published())

    @classmethod
    @user_facing
    def load(cls, path: str | os.PathLike[str]) -> "ThompsonSampler":
        """Go on with the run of a file. The process that had it before can release nothing more.

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
