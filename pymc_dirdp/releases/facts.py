"""All facts about a plan or a release in one list of lines, from which reports, statements and pages select.

Every line follows from the plan and its outputs; numbers of privacy are upper bounds, rounded up. A line of depth 0
fits on a screen of 80 columns, one of depth 1 stands under a published table, and one of depth 2 is for an auditor.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from pymc_dirdp.display import Facts, Line, escape_invisible
from pymc_dirdp.mechanisms.outputs import Draws, Marginals, NoisyTable
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.planning.choosing import TableFacts, Terms, noise_instead
from pymc_dirdp.privacy.deployment import Deployment
from pymc_dirdp.privacy.odds import Odds, delta_of
from pymc_dirdp.privacy.people import NOT_PROTECTED, TO_CHECK, protected_by, secret_of, who
from pymc_dirdp.releases.choices import curves_of
from pymc_dirdp.releases.opened import LoadedRelease, ReleasedTable
from pymc_dirdp.releases.plan_types import PlannedTable
from pymc_dirdp.releases.view import ARITHMETIC
from pymc_dirdp.releases.wording import NEXT, NO_NUMBER, plan_assumptions, records_word, totals_text

ERRORS = "Expected error, without the data"
"""The heading of the facts that are available before a release is drawn."""
DRAWING = "Mechanism"
"""The heading of the facts about how it was drawn."""
# The expected KL divergences of posteriors, draws and estimates.
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
        "Guarantee": [*_guarantee(stored), *_assumptions(stored)],
        "Equivalent": [*_equivalents(stored)],
    }
    if failures:
        guaranteed = no_guarantee(failures)
    expected: Facts = {ERRORS: [*_errors(stored, errors)]}
    return {
        "Answer": [*_answer(stored, errors), *_better_mechanism(advice)],
        **({**guaranteed, **expected} if failures else {**expected, **guaranteed}),
        DRAWING: [*_mechanism(stored), *_utility(stored)],
        "Tables": [*_tables(stored)],
        "Marginals": [*_marginals(stored)],
        "Notes": [*_notes(stored), *_grouped(advice, "tables")],
        "Use": [*_use(stored), Line("next", NEXT[_next(stored, follows=not failures)][0], 0)],
    }


def no_guarantee(failures: Sequence[tuple[str, str]]) -> Facts:
    """The lines that replace a guarantee that does not follow."""
    short_lines = (("problem", ": ".join(failures[0])), failures[-1])
    problems = [Line(label, text, 2) for label, text in failures]
    return {"No guarantee": [*problems, *(Line(*line, 0) for line in short_lines)]}


def title_of(stored: LoadedRelease) -> str:
    """The title: the kind of release or plan, and the names of its tables."""
    noisy = len(stored.plan.publishing(NoisyTable)) == len(stored.plan.parts)
    what = "estimate" if stored.is_estimate else "table of noisy counts" if noisy else "posterior draw"
    names = tuple(stored.tables)
    # A title names at most five tables.
    shown, rest = (names[:4], f" and {len(names) - 4} more tables") if len(names) > 5 else (names, "")
    return f"{'Plan of a private' if stored.release is None else 'Private'} {what} of {', '.join(shown)}{rest}"


def deployment_of(stored: LoadedRelease) -> Deployment:
    """The entry of a release or a plan for a deployment registry. It is computed once, and the lines agree with it."""
    return stored.once("deployment", lambda: _deployment(stored))


def _deployment(stored: LoadedRelease) -> Deployment:
    plan, names = stored.plan, ", ".join(stored.tables)
    observed = dict.fromkeys(name for table in stored.tables.values() for name in table.observed_names)
    unit = plan.privacy_unit
    return Deployment(
        product=names,
        description=f"Shares of the categories of {names}, from {', '.join(observed)}",
        guarantee=plan.guarantee,
        unit=unit.label,
        neighbours=unit.neighbours,
        odds=Odds(stored.curves, delta_of(plan.guarantee), secret_of(unit.label, unit.relation)),
        accounting="privacy curves of all tables and draws together, computed from the published numbers",
        digest=plan.digest,
        version=plan.library_version,
    )


def range_text(values: Sequence[float], digits: int = 5) -> str:
    """The smallest and the largest number, or one number if both are printed the same."""
    low, high = f"{min(values):.{digits}g}", f"{max(values):.{digits}g}"
    return low if low == high else f"{low} to {high}"


# What is released, and its expected error.


def _answer(stored: LoadedRelease, errors: dict[str, str]) -> Lines:
    """The shares of the first table, if it is a row that fits into a line, and the typical error."""
    name, *others = stored.tables
    if stored.release is not None:
        shape, rest = (
            stored.tables[name].part.table.released_shape,
            f"; {_number_of(len(others), 'more table')}" * bool(others),
        )
        # Larger tables are only referred to, so nothing is drawn for this line.
        text = f"shape {shape}, see release['posterior'][{name!r}]"
        if len(shape) < 2 and math.prod(shape) <= 6:
            shares = stored.draws[name].mean(axis=0)
            ((_, labels),) = stored.tables[name].share_labels or (("", None),)
            named = [""] if not shares.ndim else range(shares.size) if labels is None else labels
            text = ", ".join(f"{label} {share:.3f}".strip() for label, share in zip(named, shares.ravel(), strict=True))
        yield Line(name, text + rest, 0)
    if _lacks_n_records(stored):
        yield Line("error", NO_NUMBER, 0)
    elif errors:
        source = "the draw" if "the draw" in errors else next(iter(errors))
        # The text after a comma does not fit on a line.
        yield Line("error", f"{errors[source].partition(',')[0]} ({source})", 0)


def _typical_errors(stored: LoadedRelease) -> dict[str, str]:
    """The typical error of a share, in the estimate and in a released draw."""
    by_table = ", by table" * (len(stored.tables) > 1)
    errors = {"dirdp.estimate": _expected(stored, "share_error"), "the draw": _expected(stored, "draw_error")}
    if stored.is_estimate:
        # Tables of one category have no error, and large networks are not simulated.
        fitted = [stored.errors[part.table.name].share_error for part in stored.plan.publishing(Marginals)]
        errors = {"the fit": _finite(fitted, require_all=True)}
        by_table += ", in made-up networks"
    return {
        source: f"a share is typically off by {range_text(known, 2)}{by_table}"
        for source, known in errors.items()
        if known
    }


def _errors(stored: LoadedRelease, typical: dict[str, str]) -> Lines:
    """The typical errors, then the numbers that help to plan a release."""
    yield from (Line("expected error", f"{text} ({source})", 1) for source, text in typical.items())
    if _lacks_n_records(stored):
        yield Line("expected error", NO_NUMBER, 2)
        return
    by_table, over_tables = (words * (len(stored.tables) > 1) for words in (", by table", ", all tables"))
    # Noise that is almost always 0 has no smallest share.
    if shares := [share for share in _expected(stored, "smallest_share") if share > 0]:
        yield Line(
            "smallest share",
            f"below {range_text(shares, 2)}{by_table}, of the records of its row, a cell may be taken for an empty one "
            "that shows the prior alone",
            2,
        )
    yield Line("records", f"{range_text(_expected(stored, 'n_records'))} ({records_word(stored.plan.privacy_unit)})", 2)
    if effective := _expected(stored, "effective_records"):
        yield Line("effective records", f"r N = {range_text(effective)}", 2)
    posterior, draw, estimate = (_expected(stored, name, require_all=True) for name in _DIVERGENCES)
    if posterior:
        yield Line("KL of posteriors", f"{sum(posterior):.4g} nats expected, private from yours{over_tables}", 2)
    if draw:
        yield Line("KL of the draw", f"{range_text(draw)} nats expected, from the frequencies{by_table}", 2)
    if estimate:
        yield Line("KL of the estimate", f"{range_text(estimate, 3)} nats expected, from the shares{by_table}", 2)
    variances, weights = (_expected(stored, name) for name in ("grid_variance", "grid_weight"))
    if variances and weights:
        middle = f"draws it to the middle by {100 * max(weights):.2g} %"
        yield Line("grid", f"adds at most {100 * max(variances):.2g} % to the variance of a draw, and {middle}", 2)


def _utility(stored: LoadedRelease) -> Lines:
    posterior, draw, estimate = (_expected(stored, name, require_all=True) for name in _DIVERGENCES)
    parts = [
        *([f"{range_text(draw, 3)} nats (draw, frequencies)"] if draw else []),
        *([f"{sum(posterior):.3g} (posteriors)"] if posterior else []),
    ]
    if estimate and not parts:
        parts = [f"{range_text(estimate, 3)} nats (estimate, shares)"]
    if parts:
        yield Line("utility", f"KL {', '.join(parts)}", 0)


def _expected(stored: LoadedRelease, number: str, *, require_all: bool = False) -> list[float]:
    """The known values of an expected error, by table. Empty if all are required and some are unknown."""
    return _finite([getattr(error, number) for error in stored.errors.values()], require_all=require_all)


def _finite(values: Sequence[float | None], *, require_all: bool = False) -> list[float]:
    """The finite values. Empty if all are required and some are not finite."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return known if len(known) == len(values) or not require_all else []


def _lacks_n_records(stored: LoadedRelease) -> bool:
    return any(part.n_records is None for part in stored.plan.parts)


# The guarantee, and whom it protects.


def _guarantee(stored: LoadedRelease) -> Lines:
    plan, curves, stated = stored.plan, stored.curves, deployment_of(stored)
    delta = stated.odds.delta
    epsilon, pure = float(curves.epsilon(delta)), float(curves.pure_epsilon)
    most = [f"epsilon {up(epsilon, 4):.4g} at delta {up(delta):g}", f"{up(pure, 4):.4g} at delta 0"]
    if plan.guarantee.is_pure or pure <= epsilon:
        most = [f"epsilon {most[1]}"]
    most = most if math.isfinite(pure) else most[:1]
    yield from stated.lines(protects=_protects(stored), protected=plan.privacy_unit.protected, most="; ".join(most))
    if implied := _implied(stored, delta):
        yield Line("implies", implied, 0)
        yield Line("implies", implied, 2)


def _assumptions(stored: LoadedRelease) -> Lines:
    """What the guarantee does not cover, earlier private choices, and assumptions."""
    plan, (first, *others) = stored.plan, NOT_PROTECTED
    parts = [first]
    if plan.privacy_unit.n_records_is_public:
        parts.append("the number of records, and who took part")
    elif plan.privacy_unit.relation.records_are_public:
        parts.append("how many there are, and who took part")
    yield Line("not protected", "; ".join([*parts, "the categories and the prior", *others]), 1)
    yield from (Line(choice.kind, choice.description, 1) for choice in plan.after)
    yield Line("assumed", "; ".join(plan_assumptions(plan, released=stored.release is not None)), 1)
    yield Line("adjacency", plan.adjacency, 2)
    yield Line("draws", f"{plan.released_draws}, all of them covered", 2)


def _protects(stored: LoadedRelease) -> str:
    """Who is protected, and what is public about them."""
    unit = stored.plan.privacy_unit
    if unit.label != "record" or unit.options.unit or unit.options.counted:
        return f"every {who(unit.label)}: {unit.neighbours}"
    if not unit.relation.records_are_public:
        return f"{protected_by(unit.label)}, and whether it is in the data"
    rows = ", also of each row," * any(part.totals for part in stored.plan.parts)
    sizes = range_text(_expected(stored, "n_records"), 15)
    return f"{protected_by(unit.label)}; the number of records, {sizes}{rows or ','} is public"


def _implied(stored: LoadedRelease, delta: float) -> str:
    """The implied Rényi guarantees, at the stated order or at the best order for its delta."""
    order = stored.plan.guarantee.largest_order
    if not 1 < order < math.inf:
        # Rounded as it is printed, because an order close to 1 would be printed as 1.
        best = float(f"{float(stored.curves.best_order(delta)):.3g}")
        # A bounded loss has no best order. Orders above 256 add nothing to the guarantee at delta 0.
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
    # The curves are evaluated at all points in one call, which may take as long as one point.
    epsilons, orders = (np.asarray(curve(np.array(deltas))).tolist() for curve in (curves.epsilon, curves.best_order))
    for delta, epsilon, order in zip(deltas, epsilons, orders, strict=True):
        yield Line(f"delta {up(delta):g}", f"epsilon {up(epsilon, 4):.4g} (best Rényi order {order:.3g})", 2)


# The mechanism and the sampler.


def _mechanism(stored: LoadedRelease) -> Lines:
    tables, plan, release = tuple(stored.tables.values()), stored.plan, stored.release
    kinds = [table.mechanism for table in tables]
    first, *others = dict.fromkeys(
        mechanism.summary
        if mechanism.tempered is None
        else f"{mechanism.formula.partition(',')[0]}, {mechanism.summary}"
        for mechanism in kinds
    )
    rest = f" and {_number_of(len(others), 'other')}" if others else ""
    yield Line("mechanism", f"{first}{rest}; {plan.sampler} sampler", 0)
    yield Line(
        "distribution",
        "; ".join(dict.fromkeys(f"{type(mechanism).__name__}: {mechanism.formula}" for mechanism in kinds)),
        2,
    )
    # Additive noise has a single parameter, so it has no strategy.
    if any(mechanism.tempered is not None for mechanism in kinds):
        purpose = f", for the {plan.objective}" * (plan.strategy == "optimal")
        yield Line("strategy", f"{plan.strategy}{purpose}", 2)
    steps = _finite([table.steps for table in tables])
    grid = f"; on a grid of {range_text(steps, 15)} steps" if steps else ""
    yield Line("sampler", f"{plan.sampler}; {ARITHMETIC[plan.sampler]}{grid}", 2)
    if release is not None:
        yield Line("randomness", release.randomness, 2)


def _tables(stored: LoadedRelease) -> Lines:
    """The mechanism of each table and the variables that it counts. Equal texts share a line."""
    sources = {name: ", ".join(table.observed_names) for name, table in stored.tables.items()}
    for text, names in _names_by_text((name, _table(table)) for name, table in stored.tables.items()).items():
        listed = ", ".join(f"{name} from {sources[name]}" for name in names)
        if len(names) == 1:
            yield Line(names[0], f"{text}, from {sources[names[0]]}", 2)
        else:
            yield Line(f"{len(names)} tables", f"{text}: {listed}", 2)


def _table(table: ReleasedTable) -> str:
    drawn = table.mechanism.tempered
    parts = [f"{table.mechanism.summary}, shape {table.prior.shape}"]
    if table.totals:
        parts[0] += f", publicly {totals_text(table.totals)}"
    if table.part.choice is not None:
        parts.append(_choice_text(table.part))
    if drawn is not None and drawn.r > 1:
        parts.append("with r above 1 the draw is more concentrated than the posterior")
    if (possible := table.possible_records) is not None:
        parts.append(f"{possible[0]} to {possible[-1]} records taken for possible")
    return "; ".join(parts)


def _choice_text(part: PlannedTable) -> str:
    (best, least), *others = part.choice.expected_kl if part.choice else ()
    if not others:
        return f"{best} by auto, nothing else can satisfy the guarantee"
    second, kl = others[0]
    times = f"{kl / least:.3g} times" if least > 0 else "more than"
    return f"{best} by auto: next is {second} with {times} its expected KL"


def _marginals(stored: LoadedRelease) -> Lines:
    """The measured marginals, with the standard deviation of the noise in their cells."""
    lines = []
    fitted = [part.table.name for part in stored.plan.publishing(Marginals)]
    for name, table in ((name, stored.tables[name]) for name in fitted):
        dims, n = [dim for dim, _ in table.cell_labels], stored.errors[name].n_records
        for measured in getattr(table.mechanism, "noisy_marginals", ()):
            axes, sd = measured.axes, measured.noise.sd
            share = f", {sd / n:.2g} of all records" if n else ""
            text = f"noise of standard deviation {sd:.4g} a cell{share}"
            lines.append((" x ".join(dims[axis] for axis in axes), text))
    yield from _grouped(_names_by_text(lines), "marginals")


def _notes(stored: LoadedRelease) -> Lines:
    """What the draws represent, and how not to use them."""
    # Tables of one category are not fitted, and have no draws to describe.
    fitted = [part.table.name for part in stored.plan.publishing(Marginals)]
    by_text = _names_by_text((name, stored.tables[name].mechanism.draws_note) for name in fitted or stored.tables)
    for text, names in by_text.items():
        # If the text applies to all tables, it does not name them.
        yield Line(f"draws of {', '.join(names)}" if len(by_text) > 1 else "draws", text, 2)
    if stored.reproducible:
        yield Line("reproducible", "not private: drawn with a seed, do not publish", 2)


def _advice(stored: LoadedRelease) -> dict[str, list[str]]:
    """The tables for which noise on counts has a clearly smaller expected KL under the same guarantee."""
    plan = stored.plan
    eligible = {
        name: table
        for name, table in stored.tables.items()
        # A mechanism without privacy loss cannot be improved.
        if table.mechanism.output_kind is Draws
        and table.part.choice is None
        and table.mechanism.pure_epsilon > 0
        and (table.part.n_records or 0) > 0
    }
    facts = {
        name: TableFacts(table.prior, table.part.n_records, table.mechanism.contributed)
        for name, table in eligible.items()
    }
    terms = Terms(
        groups=plan.groups,
        adjacency=plan.adjacency,
        public_totals=plan.privacy_unit.n_records_is_public,
        draws=plan.released_draws,
        before=curves_of(plan.after),
    )
    # Numbers from a malformed file can overflow or be undefined.
    with np.errstate(all="ignore"):
        better = noise_instead(
            plan.guarantee, facts, terms, {name: table.mechanism for name, table in eligible.items()}
        )
    # Smaller ratios are not reported, because they are within the error of the simulation or do not matter.
    return _names_by_text(
        (name, f"mechanism='auto': a {times:.2g} times smaller expected KL ({kind} noise)")
        for name, (kind, times) in better.items()
        if times > 1.25
    )


def _better_mechanism(advice: dict[str, list[str]]) -> Lines:
    if advice:
        (text, *_), (_, *others) = advice, advice.values()
        n_others = sum(map(len, others))
        yield Line("better", text + f"; {_number_of(n_others, 'more table')}" * bool(n_others), 0)


# How to use it.


def _use(stored: LoadedRelease) -> Lines:
    plan, drawn = stored.plan, bool(stored.plan.publishing(Draws))
    kinds = dict.fromkeys(f"{type(part.mechanism).__name__}: {part.mechanism.summary}" for part in plan.parts)
    how = (
        "pymc_dirdp.estimate(release) gives shares with their errors, and pymc_dirdp.analyse(release) draws from the "
        "posterior given what was published; dirdp analyse FILE gives shares on a command line"
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
    yield Line("to check it", TO_CHECK, 1)
    yield Line("software", f"pymc_dirdp {escape_invisible(plan.library_version)}", 1)
    yield Line("digest of the plan", plan.digest, 1)


def _next(stored: LoadedRelease, *, follows: bool) -> str:
    if stored.release is None:
        return "plan of a model" if stored.plan.is_of_model else "plan"
    if not follows:
        return "false"
    return "model" if stored.plan.is_of_model else "estimate" if stored.is_estimate else "inference"


def _names_by_text(lines: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The names to which each text applies, by text."""
    by_text: dict[str, list[str]] = {}
    for name, text in lines:
        by_text.setdefault(text, []).append(name)
    return by_text


def _grouped(by_text: dict[str, list[str]], several: str) -> Lines:
    """A line for each text. Its label is the name, or the number of names if there are several."""
    for text, (name, *others) in by_text.items():
        label, listed = (f"{1 + len(others)} {several}", f": {', '.join([name, *others])}") if others else (name, "")
        yield Line(label, text + listed, 2)


def _number_of(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number > 1)}"
