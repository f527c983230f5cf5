"""All that is said about a plan or a release: one list of lines, from which reports, statements and pages select.

Every line follows from the plan and its outputs; numbers of privacy are upper bounds, rounded up. A line of depth 0
fits on a screen of 80 columns, one of depth 1 stands under a published table, and one of depth 2 is for an auditor.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from pymc_dirdp.display import Facts, Line, visible
from pymc_dirdp.mechanisms.outputs import Draws, Marginals, NoisyTable
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.planning.choosing import TableFacts, Terms, noise_instead
from pymc_dirdp.privacy.deployment import Deployment
from pymc_dirdp.privacy.odds import Odds, delta_of
from pymc_dirdp.privacy.people import NOT_PROTECTED, protected_by, secret_of, who
from pymc_dirdp.releases.choices import curves_of
from pymc_dirdp.releases.opened import LoadedRelease, ReleasedTable
from pymc_dirdp.releases.plan_types import PlannedTable
from pymc_dirdp.releases.view import ARITHMETIC
from pymc_dirdp.releases.wording import NEXT, NO_NUMBER, believed, records_word, totals_in_words

ERRORS = "Expected error, without the data"
"""The heading of what can be said of a release before it is drawn."""
DRAWING = "Mechanism"
"""That of how it was drawn."""
# Of posteriors, draws and estimates.
_DIVERGENCES = "expected_kl_posterior", "expected_kl_estimate", "estimate_kl"
type Lines = Iterator[Line]


def lines_of(stored: LoadedRelease, failures: Sequence[tuple[str, str]]) -> Facts:
    """The lines about a plan or a release, by heading.

    Parameters
    ----------
    stored : LoadedRelease
    failures : sequence of (str, str)
        The checks that failed, see :attr:`Verification.failures`. Where there are any, no guarantee is stated.
    """
    advice = {} if failures else _advice(stored)
    errors = _typical_errors(stored)
    guaranteed: Facts = {
        "Guarantee": [*_guarantee(stored), *_rests_on(stored)],
        "Equivalent": [*_equivalents(stored)],
    }
    if failures:
        guaranteed = no_guarantee(failures)
    expected: Facts = {ERRORS: [*_errors(stored, errors)]}
    return {
        "Answer": [*_answer(stored, errors), *_better(advice)],
        **({**guaranteed, **expected} if failures else {**expected, **guaranteed}),
        DRAWING: [*_mechanism(stored), *_utility(stored)],
        "Tables": [*_tables(stored)],
        "Marginals": [*_marginals(stored)],
        "Notes": [*_notes(stored), *_grouped(advice, "tables")],
        "Use": [*_use(stored), Line("next", NEXT[_next(stored, follows=not failures)][0], 0)],
    }


def no_guarantee(failures: Sequence[tuple[str, str]]) -> Facts:
    """What is said instead of a guarantee that does not follow."""
    brief = (("problem", ": ".join(failures[0])), failures[-1])
    problems = [Line(label, text, 2) for label, text in failures]
    return {"No guarantee": [*problems, *(Line(*line, 0) for line in brief)]}


def title_of(stored: LoadedRelease) -> str:
    """What a release or a plan is, of which tables."""
    noisy = len(stored.plan.publishing(NoisyTable)) == len(stored.plan.parts)
    what = "estimate" if stored.is_estimate else "table of noisy counts" if noisy else "posterior draw"
    names = tuple(stored.tables)
    # Tables that a title names.
    shown, more = (names[:4], f" and {len(names) - 4} more tables") if len(names) > 5 else (names, "")
    return f"{'Plan of a private' if stored.release is None else 'Private'} {what} of {', '.join(shown)}{more}"


def deployment_of(stored: LoadedRelease) -> Deployment:
    """What a release or a plan states to a register; it is computed once, and the lines say the same."""
    return stored.once("deployment", lambda: _deployment(stored))


def _deployment(stored: LoadedRelease) -> Deployment:
    plan, names = stored.plan, ", ".join(stored.tables)
    observed = dict.fromkeys(name for table in stored.tables.values() for name in table.observed_names)
    reading = plan.reading
    return Deployment(
        product=names,
        description=f"Shares of the categories of {names}, from {', '.join(observed)}",
        guarantee=plan.guarantee,
        unit=reading.label,
        neighbours=reading.neighbours,
        odds=Odds(stored.curves, delta_of(plan.guarantee), secret_of(reading.label, reading.relation)),
        accounting="privacy curves of all tables and draws together, computed from the published numbers",
        digest=plan.digest,
        version=plan.library_version,
    )


def in_range(values: Sequence[float], digits: int = 5) -> str:
    """The least and the largest of some numbers, or one number if they are equal."""
    low, high = f"{min(values):.{digits}g}", f"{max(values):.{digits}g}"
    return low if low == high else f"{low} to {high}"


# What is released, and how accurate it is expected to be.


def _answer(stored: LoadedRelease, errors: dict[str, str]) -> Lines:
    """The shares of the first table, if it is a row that fits into a line, and the typical error."""
    name, *others = stored.tables
    if stored.release is not None:
        shape, more = (
            stored.tables[name].part.table.released_shape,
            f"; {_more(len(others), 'more table')}" * bool(others),
        )
        # Others are looked up in the release, and not drawn for this.
        text = f"shape {shape}, see release['posterior'][{name!r}]"
        if len(shape) < 2 and math.prod(shape) <= 6:
            shares = stored.draws[name].mean(axis=0)
            ((_, labels),) = stored.tables[name].share_labels or (("", None),)
            named = [""] if not shares.ndim else range(shares.size) if labels is None else labels
            text = ", ".join(f"{label} {share:.3f}".strip() for label, share in zip(named, shares.ravel(), strict=True))
        yield Line(name, text + more, 0)
    if _is_unplanned(stored):
        yield Line("error", NO_NUMBER, 0)
    elif errors:
        whose = "the draw" if "the draw" in errors else next(iter(errors))
        # What is said after a comma does not fit into a line.
        yield Line("error", f"{errors[whose].partition(',')[0]} ({whose})", 0)


def _typical_errors(stored: LoadedRelease) -> dict[str, str]:
    """How far a share is typically off, in the estimate or the mean, and in a draw that is itself the release."""
    by_table = ", by table" * (len(stored.tables) > 1)
    errors = {"dirdp.estimate": _expected(stored, "share_error"), "the draw": _expected(stored, "draw_error")}
    if stored.is_estimate:
        # Tables of one category have no error, and large networks are not simulated.
        fitted = [stored.errors[part.table.name].share_error for part in stored.plan.publishing(Marginals)]
        errors = {"the fit": _known(fitted, all_of_them=True)}
        by_table += ", in made-up networks"
    return {
        whose: f"a share is typically off by {in_range(known, 2)}{by_table}" for whose, known in errors.items() if known
    }


def _errors(stored: LoadedRelease, typical: dict[str, str]) -> Lines:
    """The typical errors first, and then the numbers for those who plan."""
    yield from (Line("expected error", f"{text} ({whose})", 1) for whose, text in typical.items())
    if _is_unplanned(stored):
        yield Line("expected error", NO_NUMBER, 2)
        return
    by_table, in_all = (words * (len(stored.tables) > 1) for words in (", by table", ", all tables"))
    # Noise that is nearly always 0 hides nothing.
    if shares := [share for share in _expected(stored, "smallest_share") if share > 0]:
        yield Line(
            "smallest share",
            f"below {in_range(shares, 2)}{by_table}, of the records of its row, a cell may be taken for an empty one "
            "that shows the prior alone",
            2,
        )
    yield Line("records", f"{in_range(_expected(stored, 'n_records'))} ({records_word(stored.plan.reading)})", 2)
    if effective := _expected(stored, "effective_records"):
        yield Line("effective records", f"r N = {in_range(effective)}", 2)
    posterior, draw, estimate = (_expected(stored, name, all_of_them=True) for name in _DIVERGENCES)
    if posterior:
        yield Line("KL of posteriors", f"{sum(posterior):.4g} nats expected, private from yours{in_all}", 2)
    if draw:
        yield Line("KL of the draw", f"{in_range(draw)} nats expected, from the frequencies{by_table}", 2)
    if estimate:
        yield Line("KL of the estimate", f"{in_range(estimate, 3)} nats expected, from the shares{by_table}", 2)
    variances, weights = (_expected(stored, name) for name in ("grid_variance", "grid_weight"))
    if variances and weights:
        middle = f"draws it to the middle by {100 * max(weights):.2g} %"
        yield Line("grid", f"adds at most {100 * max(variances):.2g} % to the variance of a draw, and {middle}", 2)


def _utility(stored: LoadedRelease) -> Lines:
    posterior, draw, estimate = (_expected(stored, name, all_of_them=True) for name in _DIVERGENCES)
    parts = [
        *([f"{in_range(draw, 3)} nats (draw, frequencies)"] if draw else []),
        *([f"{sum(posterior):.3g} (posteriors)"] if posterior else []),
    ]
    if estimate and not parts:
        parts = [f"{in_range(estimate, 3)} nats (estimate, shares)"]
    if parts:
        yield Line("utility", f"KL {', '.join(parts)}", 0)


def _expected(stored: LoadedRelease, number: str, *, all_of_them: bool = False) -> list[float]:
    """An expected error of the tables of which it is known; of none if all of them were to be known and are not."""
    return _known([getattr(error, number) for error in stored.errors.values()], all_of_them=all_of_them)


def _known(values: Sequence[float | None], *, all_of_them: bool = False) -> list[float]:
    """The numbers among some values; none if all of them were to be known and are not."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return known if len(known) == len(values) or not all_of_them else []


def _is_unplanned(stored: LoadedRelease) -> bool:
    return any(part.n_records is None for part in stored.plan.parts)


# What is guaranteed, to whom.


def _guarantee(stored: LoadedRelease) -> Lines:
    plan, curves, stated = stored.plan, stored.curves, deployment_of(stored)
    delta = stated.odds.delta
    epsilon, pure = float(curves.epsilon(delta)), float(curves.pure_epsilon)
    most = [f"epsilon {up(epsilon, 4):.4g} at delta {delta:g}", f"{up(pure, 4):.4g} at delta 0"]
    if plan.guarantee.is_pure or pure <= epsilon:
        most = [f"epsilon {most[1]}"]
    most = most if math.isfinite(pure) else most[:1]
    yield from stated.lines(protects=_protects(stored), protected=plan.reading.protected, most="; ".join(most))
    if implied := _implied(stored, delta):
        yield Line("implies", implied, 0)
        yield Line("implies", implied, 2)


def _rests_on(stored: LoadedRelease) -> Lines:
    """What is not covered, what was chosen before, and what has to be believed."""
    plan, (truths, *others) = stored.plan, NOT_PROTECTED
    parts = [truths]
    if plan.reading.n_records_is_public:
        parts.append("the number of records, and who took part")
    elif plan.reading.relation.records_are_public:
        parts.append("how many there are, and who took part")
    yield Line("not protected", "; ".join([*parts, "the categories and the prior", *others]), 1)
    yield from (Line(choice.kind, choice.in_words, 1) for choice in plan.after)
    yield Line("assumed", "; ".join(believed(plan, released=stored.release is not None)), 1)
    yield Line("adjacency", plan.adjacency, 2)
    yield Line("draws", f"{plan.released_draws}, all of them covered", 2)


def _protects(stored: LoadedRelease) -> str:
    """Who is protected, and what is public about them, in two lines."""
    reading = stored.plan.reading
    if reading.label != "record" or reading.options.unit or reading.options.counted:
        return f"every {who(reading.label)}: {reading.neighbours}"
    if not reading.relation.records_are_public:
        return f"{protected_by(reading.label)}, and whether it is in the data"
    rows = ", also of each row," * any(part.totals for part in stored.plan.parts)
    sizes = in_range(_expected(stored, "n_records"), 15)
    return f"{protected_by(reading.label)}; the number of records, {sizes}{rows or ','} is public"


def _implied(stored: LoadedRelease, delta: float) -> str:
    """The guarantee as divergences, at the order that it states or that suits its delta."""
    order = stored.plan.guarantee.largest_order
    if not 1 < order < math.inf:
        # As it is printed: an order next to 1 would be 1 there.
        best = float(f"{float(stored.curves.best_order(delta)):.3g}")
        # A bounded loss has no best order, and orders above this one say the same as delta 0.
        order = best if 1 < best < 256.0 else 10.0
    renyi, rho = float(stored.curves.renyi(order)), float(stored.curves.rho(order))
    parts = [
        *([f"RDP: {up(renyi, 3):.3g} at order {order:g}"] * math.isfinite(renyi)),
        *([f"tCDP: rho {up(rho, 3):.3g}, omega {order:g}"] * math.isfinite(rho)),
    ]
    return "; ".join(parts)


def _equivalents(stored: LoadedRelease, *, deltas: Sequence[float] = (1e-4, 1e-5, 1e-6, 1e-8, 1e-10)) -> Lines:
    curves, pure = stored.curves, float(stored.curves.pure_epsilon)
    if math.isfinite(pure):
        yield Line("delta 0", f"epsilon {up(pure, 4):.4g}, for every single output", 2)
    # Many points together may take as long as one.
    epsilons, orders = (np.asarray(curve(np.array(deltas))).tolist() for curve in (curves.epsilon, curves.best_order))
    for delta, epsilon, order in zip(deltas, epsilons, orders, strict=True):
        yield Line(f"delta {up(delta):g}", f"epsilon {up(epsilon, 4):.4g} (best Rényi order {order:.3g})", 2)


# How it was drawn.


def _mechanism(stored: LoadedRelease) -> Lines:
    tables, plan, release = tuple(stored.tables.values()), stored.plan, stored.release
    kinds = [table.mechanism for table in tables]
    first, *others = dict.fromkeys(
        one.summary if one.tempered is None else f"{one.formula.partition(',')[0]}, {one.summary}" for one in kinds
    )
    more = f" and {_more(len(others), 'other')}" if others else ""
    yield Line("mechanism", f"{first}{more}; {plan.sampler} sampler", 0)
    yield Line("distribution", "; ".join(dict.fromkeys(f"{type(one).__name__}: {one.formula}" for one in kinds)), 2)
    # Noise has one setting only, so it has no strategy.
    if any(one.tempered is not None for one in kinds):
        suits = f", for the {plan.objective}" * (plan.strategy == "optimal")
        yield Line("strategy", f"{plan.strategy}{suits}", 2)
    steps = _known([table.steps for table in tables])
    grid = f"; on a grid of {in_range(steps, 15)} steps" if steps else ""
    yield Line("sampler", f"{plan.sampler}; {ARITHMETIC[plan.sampler]}{grid}", 2)
    if release is not None:
        yield Line("randomness", release.randomness, 2)


def _tables(stored: LoadedRelease) -> Lines:
    """How each table is released, and what it is counted from. What is the same for several is said once."""
    sources = {name: ", ".join(table.observed_names) for name, table in stored.tables.items()}
    for text, names in _alike((name, _table(table)) for name, table in stored.tables.items()).items():
        listed = ", ".join(f"{name} from {sources[name]}" for name in names)
        if len(names) == 1:
            yield Line(names[0], f"{text}, from {sources[names[0]]}", 2)
        else:
            yield Line(f"{len(names)} tables", f"{text}: {listed}", 2)


def _table(table: ReleasedTable) -> str:
    drawn = table.mechanism.tempered
    parts = [f"{table.mechanism.summary}, shape {table.prior.shape}"]
    if table.totals:
        parts[0] += f", publicly {totals_in_words(table.totals)}"
    if table.part.choice is not None:
        parts.append(_chosen(table.part))
    if drawn is not None and drawn.r > 1:
        parts.append("with r above 1 the draw is more concentrated than the posterior")
    if (possible := table.possible_records) is not None:
        parts.append(f"{possible[0]} to {possible[-1]} records taken for possible")
    return "; ".join(parts)


def _chosen(part: PlannedTable) -> str:
    (best, least), *others = part.choice.expected_kl if part.choice else ()
    if not others:
        return f"{best} by auto, nothing else can satisfy the guarantee"
    second, kl = others[0]
    times = f"{kl / least:.3g} times" if least > 0 else "more than"
    return f"{best} by auto: next is {second} with {times} its expected KL"


def _marginals(stored: LoadedRelease) -> Lines:
    """The marginals that are measured, with the standard deviation of the noise in their cells."""
    lines = []
    fitted = [part.table.name for part in stored.plan.publishing(Marginals)]
    for name, table in ((name, stored.tables[name]) for name in fitted):
        dims, n = [dim for dim, _ in table.cell_labels], stored.errors[name].n_records
        for measured in getattr(table.mechanism, "noisy_marginals", ()):
            axes, sd = measured.axes, measured.noise.sd
            share = f", {sd / n:.2g} of all records" if n else ""
            text = f"noise of standard deviation {sd:.4g} a cell{share}"
            lines.append((" x ".join(dims[axis] for axis in axes), text))
    yield from _grouped(_alike(lines), "marginals")


def _notes(stored: LoadedRelease) -> Lines:
    """What the draws are, and what they are not."""
    # Tables of one category are beside an estimate, and hold no draw either.
    fitted = [part.table.name for part in stored.plan.publishing(Marginals)]
    by_text = _alike((name, stored.tables[name].mechanism.draws_note) for name in fitted or stored.tables)
    for text, names in by_text.items():
        # Where all tables are alike, there is no need to name them again.
        yield Line(f"draws of {', '.join(names)}" if len(by_text) > 1 else "draws", text, 2)
    if stored.reproducible:
        yield Line("reproducible", "not private: drawn with a seed, do not publish", 2)


def _advice(stored: LoadedRelease) -> dict[str, list[str]]:
    """The tables for which noise on counts has a clearly smaller expected KL, in plans with the same guarantee."""
    plan = stored.plan
    open_to_it = {
        name: table
        for name, table in stored.tables.items()
        # What loses nothing cannot lose less.
        if table.mechanism.output_kind is Draws
        and table.part.choice is None
        and table.mechanism.pure_epsilon > 0
        and (table.part.n_records or 0) > 0
    }
    facts = {
        name: TableFacts(one.prior, one.part.n_records, one.mechanism.contributed) for name, one in open_to_it.items()
    }
    terms = Terms(
        groups=plan.groups,
        adjacency=plan.adjacency,
        public_totals=plan.reading.n_records_is_public,
        draws=plan.released_draws,
        before=curves_of(plan.after),
    )
    # A file may hold numbers of which nothing can be computed.
    with np.errstate(all="ignore"):
        better = noise_instead(plan.guarantee, facts, terms, {name: one.mechanism for name, one in open_to_it.items()})
    # Smaller ratios are not reported: they are within the error of the simulation or a matter of taste.
    return _alike(
        (name, f"mechanism='auto': a {times:.2g} times smaller expected KL ({kind} noise)")
        for name, (kind, times) in better.items()
        if times > 1.25
    )


def _better(advice: dict[str, list[str]]) -> Lines:
    if advice:
        (text, *_), (_, *others) = advice, advice.values()
        more = sum(map(len, others))
        yield Line("better", text + f"; {_more(more, 'more table')}" * bool(more), 0)


# What to do with it.


def _use(stored: LoadedRelease) -> Lines:
    plan, drawn = stored.plan, bool(stored.plan.publishing(Draws))
    kinds = dict.fromkeys(f"{type(part.mechanism).__name__}: {part.mechanism.summary}" for part in plan.parts)
    how = (
        "pymc_dirdp.estimate(release) gives shares with their errors, and pymc_dirdp.analyse(release) draws from the "
        "posterior given what was published"
        + "; do not read a single draw as the truth, nor average over publications"
        * drawn
    )
    if plan.is_of_model:
        how = "pymc_dirdp.private_model(path, model) gives the model, with the likelihood of the noisy counts"
    elif stored.is_estimate:
        how = (
            "the shares are one estimate, fitted to the noisy counts of all tables; pymc_dirdp.estimate(release) gives "
            "intervals, and pymc_dirdp.analyse(release) draws from the posterior"
        )
    yield Line("mechanism", "; ".join(kinds), 1)
    yield Line("to compute with it", f"pymc_dirdp.load(path) opens the file; {how}", 1)
    yield Line("to check it", "pymc_dirdp.verify(release), without the data", 1)
    yield Line("software", f"pymc_dirdp {visible(plan.library_version)}", 1)
    yield Line("digest of the plan", plan.digest, 1)


def _next(stored: LoadedRelease, *, follows: bool) -> str:
    if stored.release is None:
        return "plan of a model" if stored.plan.is_of_model else "plan"
    if not follows:
        return "false"
    return "model" if stored.plan.is_of_model else "estimate" if stored.is_estimate else "inference"


def _alike(lines: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Each text once, with the names of all that it is about."""
    by_text: dict[str, list[str]] = {}
    for name, text in lines:
        by_text.setdefault(text, []).append(name)
    return by_text


def _grouped(by_text: dict[str, list[str]], several: str) -> Lines:
    """A line for each text: its label is the name that it is about, or how many these are."""
    for text, (name, *others) in by_text.items():
        label, listed = (f"{1 + len(others)} {several}", f": {', '.join([name, *others])}") if others else (name, "")
        yield Line(label, text + listed, 2)


def _more(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number > 1)}"
