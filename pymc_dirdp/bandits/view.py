"""The public view of a bandit, and the text of its public rules and finished batches."""

import os
import secrets
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast, final, override

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.bandits.batch_release import BatchCounts, Output
from pymc_dirdp.bandits.beliefs import log_likelihood
from pymc_dirdp.bandits.design import Design, EveryRound
from pymc_dirdp.bandits.runs import BatchRun, RoundRun, decision_tree
from pymc_dirdp.bandits.settings import REWARD, Settings, Worth
from pymc_dirdp.bandits.store import State
from pymc_dirdp.checks import integer
from pymc_dirdp.display import Facts, Line
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.deployment import Deployment
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.odds import Odds, delta_of
from pymc_dirdp.releases.claims import Claim
from pymc_dirdp.releases.report import report
from pymc_dirdp.sampling.bits import Bits, generator
from pymc_dirdp.signatures import user_facing
from pymc_dirdp.texts.codec import facts_of, fields_of, value_of
from pymc_dirdp.texts.grammar import Text, checked_version, library_version

if TYPE_CHECKING:
    import pymc as pm
    import xarray as xr


def _protected(unit: str, rewards: int) -> str:
    if unit == REWARD:
        return (
            "one reward: an observer cannot tell it from another reward in [0, 1]. A person with several rewards is "
            "protected less; contribution= protects people"
        )
    if rewards == 1:
        return f"one {unit} with at most 1 reward: an observer cannot tell it from another reward in [0, 1]"
    return f"one {unit} with at most {rewards} rewards: an observer cannot tell them from other rewards in [0, 1]"


def lines_of(settings: Settings[Design | EveryRound], state: Sequence[tuple[str, str]]) -> Facts:
    """The lines of a report on a bandit, from public numbers only.

    Parameters
    ----------
    settings : Settings
    state : sequence of (str, str)
        The public progress of the run, in words.
    """
    design = settings.design
    privacy = [
        ("guarantee", f"{settings.guarantee}, for {design.span}"),
        ("protects", _protected(settings.unit, settings.rewards)),
        (
            "holds if",
            "rewards are reported in the order of the choices, at a deadline that does not depend on them, a missing "
            "one as 0; and observers of the choices have no other access to the rewards",
        ),
        (
            "not covered",
            "who was a visitor and when; the sum of all rewards, unless another mechanism releases it",
        ),
    ]
    if settings.unit != REWARD:
        privacy.append(("assumed", f"one {settings.unit} has the same name in every update"))
    sections = {"Guarantee": privacy, "Rules": design.facts(), "So far": state}
    lines = {heading: [Line(label, text, 1) for label, text in lines] for heading, lines in sections.items()}
    (_, guarantee), (_, protected) = privacy[:2]
    # The short report has the first part of each.
    lines["Guarantee"] += [
        Line("guarantee", guarantee.partition(": ")[0], 0),
        Line("protects", protected.partition(". ")[0], 0),
    ]
    lines["So far"] += [Line(label, text, 0) for label, text in state[:4]]
    following = Line("next", "bandit.posterior() says which arm is best; full=True says more", 0)
    return {"Answer": [], **lines, "Use": [following]}


class BanditView:
    """The public view of a run, from released numbers only. :class:`pymc_dirdp.ThompsonSampler` adds methods to run it.

    Parameters
    ----------
    settings : Settings
    state : State
        The current state of the run.
    seed : int, optional
        For runs that are not private.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    >>> isinstance(bandit, dirdp.bandits.BanditView)
    True
    >>> bandit.arms
    ('a', 'b')
    """

    def __init__(self, settings: Settings[Design | EveryRound], state: State, seed: int | None = None) -> None:
        self._settings = settings
        self._worth = Worth(settings.utilities)
        self._places = {label: place for place, label in enumerate(settings.arms)}
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._rng = generator(seed)
        bits, design = Bits(None if seed is None else np.random.SeedSequence([seed, 1])), settings.design
        self._run: BatchRun | RoundRun = (
            BatchRun(design, state, bits, self._rng, settings.places)
            if isinstance(design, Design)
            else RoundRun(design, state, bits)
        )

    @property
    def arms(self) -> tuple[Hashable, ...]:
        """The labels of the active arms."""
        return tuple(self._settings.arms[place] for place in self._settings.places)

    @property
    def retired(self) -> tuple[Hashable, ...]:
        """The labels of the retired arms."""
        return self._settings.retired

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the whole run."""
        return self._settings.guarantee

    @property
    def design(self) -> Design | EveryRound:
        """The public rules."""
        return self._settings.design

    @property
    def privacy(self) -> PrivacyCurves:
        """The curves of a whole run."""
        return self.design.privacy

    def __repr__(self) -> str:
        return f"ThompsonSampler({len(self.arms)} arms, {self.guarantee})"

    def _repr_html_(self) -> str:
        return report(self)._repr_html_()

    @property
    def released(self) -> "xr.Dataset":
        """The released batches of all arms, including retired ones. You may publish them.

        The dim is `batch`, and the variables are `arm`, `number` (of the batch in its arm), `size`, and `noisy_sum` or,
        with dims `batch` and `worth`, `noisy_counts`. With `schedule="every-round"` the dims are `round` and `arm`, and
        the variable is `draw`.
        """
        with self._lock:
            data = self._run.table(self._settings.arms, self._worth)
        data.attrs = {"guarantee": str(self.guarantee), **dict(self.design.facts())}
        if self._settings.seeded:
            data.attrs["reproducible"] = "drawn with a seed, so not private"
        return data

    @user_facing
    def posterior(self, draws: int = 1000) -> "xr.DataTree":
        """The posterior of the mean rewards given the released batches, and numbers for a decision.

        Returns
        -------
        tree : xarray.DataTree
            `posterior` has independent draws of `mean_reward` with dims chain, draw, arm. `decision` has for each arm
            its `mean`, the probability `best` of having the largest mean reward, and the expected `loss` in mean reward
            of always choosing this arm from now on.
        """
        draws = integer(1, draws=draws)
        with self._lock:
            return decision_tree(self.arms, self._run.beliefs(), self._worth, draws, self._rng)

    def _released_pulls(self, draws: int, rng: np.random.Generator) -> tuple[list[Hashable], Integers, Array]:
        """Labels, pulls in finished batches, and posterior draws of mean rewards from 0 to 1, of all and retired arms.

        The draws have the shape (draws, arms), and do not use the bandit's own random numbers.
        """
        with self._lock:
            beliefs = self._run.beliefs(everywhere=True)
        pulls = [sum(size for size, _ in belief.batches) for belief in beliefs]
        shares = np.stack([belief.draw(draws, rng) for belief in beliefs], axis=-1)
        return list(self._settings.arms), np.array(pulls, dtype=np.int64), shares

    @user_facing
    def release_logp(self, mean_reward: Any) -> Any:
        """Log-likelihood of the released batches, as a term of your own PyMC model.

        Parameters
        ----------
        mean_reward : tensor, shape (arms,)
            Mean rewards in (0, 1), in the order of `arms`. With `utilities` 0 is the smallest and 1 the largest worth.
            With `mechanism="counts"` the shares of the worths of each arm, shape (arms, worths), in the order of
            `released.worth`.

        Returns
        -------
        logp : PyTensor scalar
            The log-likelihood of all batches released so far, with its gradient; for `pm.Potential`. Open batches are
            not used.
        """
        with self._lock:
            beliefs = self._run.beliefs()
        mechanism = cast(Design, self.design).mechanism  # A run without batches has no beliefs.
        return log_likelihood([belief.batches for belief in beliefs], mean_reward, mechanism)

    def model(self) -> "pm.Model":
        """The PyMC model behind :meth:`posterior`, with a prior for each arm and the batches released so far.

        To share information among arms write your own model with :meth:`release_logp`, and pass its draws to
        :meth:`select`.
        """
        import pymc as pm

        with self._lock:
            self._run.beliefs()
        design = cast(Design, self.design)
        prior, worths = np.array(design.prior), np.array(design.mechanism.worths)
        with pm.Model(coords={"arm": list(self.arms)}) as model:
            if isinstance(design.mechanism, BatchCounts):
                model.add_coord("worth", self._worth.back(worths))
                shares = pm.Dirichlet("shares", prior, dims=("arm", "worth"))
                pm.Deterministic("mean_reward", self._worth.back(shares @ worths), dims="arm")
                pm.Potential("released", self.release_logp(shares))
            else:
                mean_reward = pm.Beta("mean_reward", *prior, dims="arm")
                pm.Potential("released", self.release_logp(mean_reward))
        return model

    def _facts(self) -> tuple[str, Facts]:
        """The title and the lines of a report."""
        with self._lock:
            state = list(self._run.so_far(self._settings.arms))
            if self.retired:
                state.append(("retired", ", ".join(map(str, self.retired))))
            return "Private Thompson sampling", lines_of(self._settings, state)

    def _statement(self) -> tuple[Deployment, Facts]:
        """The statement of a run for its visitors and for a register, and the lines of a report."""
        unit, arms, transcript = self._settings.unit, len(self._settings.arms), self._published()
        secret = "one reward" if unit == REWARD else f"the rewards of one {unit}"
        title, facts = self._facts()
        stated = Deployment(
            product=f"The choices of Thompson sampling over {arms} arm{'s' * (arms > 1)}",
            description=f"{title}: all choices and all outputs",
            guarantee=self.guarantee,
            unit=unit,
            neighbours="the visitors and the arms are the same, and rewards differ",
            odds=Odds(self.privacy, delta_of(self.guarantee), secret),
            accounting="privacy curves of the whole run, computed from the public rules",
            digest=transcript.digest if transcript is not None else "",
            version=self._claim().library_version,
        )
        odds = Line("posterior odds", f"times {stated.odds}, about {stated.odds.secret}", 1)
        return stated, {**facts, "Guarantee": [*facts["Guarantee"], odds]}

    def _published(self) -> "Transcript | None":
        """The transcript; None for a schedule without batches."""
        if not isinstance(self.design, Design):
            return None
        with self._lock:
            return Transcript(cast(Settings[Design], self._settings), self._run.state.released)

    def _claim(self) -> Claim:
        """The guarantee of the whole run and its assumptions, for a verification."""
        reported = "rewards are reported in the order of the choices, at a deadline that does not depend on them"
        version = getattr(self, "_version", library_version())
        return Claim("bandit", self.guarantee, self.privacy, (reported,), version, is_seeded=self._settings.seeded)


@final
class Transcript(BanditView, Text):
    """The public record of the batches released so far, from :meth:`pymc_dirdp.ThompsonSampler.transcript`.

    It has the public view of the bandit, but cannot resume the run, and has no open batches and no data on people.
    Write it by :func:`pymc_dirdp.save`, and read it by :func:`pymc_dirdp.load`.

    Parameters
    ----------
    settings : Settings
    released : sequence of sequence of (int, Output)
        For each arm the sizes and outputs of its finished batches.
    version : str, optional
        Version of the library that drew them.

    Examples
    --------
    >>> import tempfile
    >>> import pymc_dirdp as dirdp
    >>> bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    >>> bandit.update(["a"] * 200, [1] * 200)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dirdp.save(bandit.transcript(), f"{folder}/run.json")
    ...     found = dirdp.load(f"{folder}/run.json")
    >>> found.released.equals(bandit.released)
    True
    """

    kind: ClassVar[str] = "bandit"
    created_by: ClassVar[str] = "ThompsonSampler.transcript"

    def __init__(
        self, settings: Settings[Design], released: Sequence[Sequence[tuple[int, Output]]], version: str | None = None
    ) -> None:
        state = State.empty(len(settings.arms), len(settings.design.mechanism.worths))
        state.released = [list(batches) for batches in released]
        self._batches, self._version = state.released, version or library_version()
        # The key of the fingerprints of people is a secret of the bandit, so its transcript has another one.
        super().__init__(replace(settings, key=secrets.token_bytes(len(settings.key))), state)

    def __repr__(self) -> str:
        return f"Transcript({len(self.arms)} arms, {sum(map(len, self._batches))} batches, {self.guarantee})"

    @override
    def _published(self) -> "Transcript":
        return self

    @property
    @override
    def body(self) -> dict[str, Any]:
        names = ("guarantee", "unit", "arms", "retired", "utilities", "design", "seeded")
        return {
            "statement": str(self.guarantee),
            "library_version": self._version,
            **{name: facts_of(getattr(self._settings, name)) for name in names},
            # A tuple in a list is written on one line.
            "released": [[list(batch) for batch in batches] for batches in self._batches],
        }

    @classmethod
    @override
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        fields = {name: facts[name] for name in ("guarantee", "unit", "arms", "retired", "utilities", "seeded")}
        design = Design.from_dict(facts["design"])
        settings = Settings(design=design, **fields_of(Settings, fields, without=("design", "key")))
        released = value_of(tuple[tuple[tuple[int, Output], ...], ...], facts["released"])
        if len(released) != len(settings.arms):
            raise ArgumentError("there must be one list of batches for each arm.")
        for batches in released:
            settings.design.refuse_others(batches)
        return cls(settings, released, checked_version(facts["library_version"]))

    @override
    def check_guarantee(self) -> None:
        if not self.privacy.satisfies(self.guarantee):
            raise UnattainableError(f"The bandit does not satisfy {self.guarantee}, although its transcript says so.")
