"""All entries of all ledgers: texts, exact sums, one state from any file, and a guarantee that the releases keep."""

import random
from collections import Counter
from fractions import Fraction

import pytest

from pymc_dirdp.accounting.budget import Balance
from pymc_dirdp.accounting.entries import Header
from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.errors import BudgetError
from pymc_dirdp.mechanisms import DirichletMechanism, DiscreteGaussianMechanism, GeometricMechanism
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import Bounded
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP

LIMITS = [
    ApproxDP(epsilon=1.0, delta=1e-6),
    PureDP(epsilon=1.0),
    RenyiDP(order=4, epsilon=0.3),
    TruncatedCDP(rho=0.1, omega=5),
    ZeroCDP(rho=0.1),
]
GEOMETRIC, GAUSSIAN = GeometricMechanism([1.0, 1.0], 8.0), DiscreteGaussianMechanism([1.0, 1.0], 10.0)
DRAW = DirichletMechanism([5.0, 5.0], 0.1)


def releases_of(limit):
    """Guarantees that may be spent against a limit, with the curves of what is released: a bare one at its worst."""
    bare = PureDP(epsilon=0.04)
    found = [(bare, None, Bounded(0.04, 0.0)), (limit.with_budget(GEOMETRIC.pure_epsilon), GEOMETRIC, GEOMETRIC)]
    if isinstance(limit, ApproxDP):
        leaking = ApproxDP(epsilon=0.03, delta=1e-8)
        found.append((leaking, None, Bounded(leaking.epsilon, leaking.delta)))
        found += [(ApproxDP(epsilon=curves.epsilon(1e-8), delta=1e-8), curves, curves) for curves in (DRAW, GAUSSIAN)]
    elif isinstance(limit, RenyiDP | TruncatedCDP):
        found += [(limit.with_budget(limit.least_budget(curves)), curves, curves) for curves in (DRAW, GAUSSIAN)]
    elif isinstance(limit, ZeroCDP):
        found.append((limit.with_budget(GAUSSIAN.rho(1e9)), GAUSSIAN, GAUSSIAN))
    return found


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: type(limit).__name__)
def test_entries_of_every_ledger(limit, adaptive, tmp_path):
    """Releases are reserved, used and spent until nothing fits; oracle: the composition of their curves."""
    draw, path = random.Random(7), tmp_path / "budget.db"
    ledger, plain = Ledger(limit, path, adaptive=adaptive, unit="person"), Ledger(limit, adaptive=adaptive)
    open_ones, refused = [], 0
    while refused < 3:
        guarantee, mechanism, _ = draw.choice(releases_of(limit))
        try:
            if draw.random() < 0.3:
                open_ones += ledger.reserve(guarantee, what="later", mechanism=mechanism, times=2)
                continue
            entry = open_ones.pop(draw.randrange(len(open_ones))) if open_ones and draw.random() < 0.5 else None
            if entry is None:
                ledger.spend(guarantee, what="größe", mechanism=mechanism)
            else:
                # It uses no more than was reserved for it.
                ledger.using(entry.number).spend(PureDP(epsilon=1e-3), what="used")
        except BudgetError:
            refused += 1
    entries = ledger.entries()
    used = {entry.uses for entry in entries}
    counting = [entry for entry in entries if entry.number not in used]
    assert len(entries) > 5

    # Every text is read as what was written.
    for line in (*entries, ledger._store._start.header):
        again = type(line).from_text(line.text)
        assert (again, again.text) == (line, line.text)
        assert "\n" not in line.text

    # Sums are exact; the fold in parts is that of the whole; reservations that were used leave nothing.
    start = Balance(Header(limit, adaptive, "replace-one", "person"), "The ledger", (0, "", ""))
    whole, balance, done = start.after(entries), start, 0
    while done < len(entries):
        step = draw.randint(1, 4)
        balance, done = balance.after(entries[done : done + step]), done + step
    assert balance == whole
    assert sorted(whole.reservations) == sorted(entry.number for entry in open_ones)
    for name in set.intersection(*(set(entry.cost) for entry in counting)):
        assert Fraction(whole.sum(name)) == sum(Fraction(repr(entry.cost[name])) for entry in counting)
    pairs = Counter((entry.cost.get("epsilon"), entry.cost.get("delta")) for entry in counting)
    assert whole.guarantees == ({} if adaptive else {pair: n for pair, n in pairs.items() if None not in pair})

    # A file has the same state, and a ledger without reservations too, whatever was reserved and in which order used.
    opened = Ledger(limit, path, adaptive=adaptive)
    assert (opened.spent, opened.entries(), opened.head) == (ledger.spent, entries, ledger.head)
    for entry in counting:
        plain.spend(entry.guarantee, what="again", mechanism=None if entry.what == "used" else curves_of(entry, limit))
    if plain.composition_rule == ledger.composition_rule:
        assert plain.spent == ledger.spent

    # The releases together keep the limit, and what the ledger states.
    together = Composition(tuple((curves, 1) for curves in [curves_at(entry, limit) for entry in counting]))
    for stated in (limit, ledger.guarantee):
        # A ledger takes 0.1 for a tenth, and the double of this text is a little more.
        loss, allowed = together.loss(stated)
        assert loss <= allowed * (1 + 1e-15)
    assert all(left >= 0 for left in ledger.left.values())


def curves_of(entry, limit):
    """The mechanism of an entry; None where a guarantee was released bare."""
    return next(mechanism for guarantee, mechanism, _ in releases_of(limit) if guarantee == entry.guarantee)


def curves_at(entry, limit):
    """The largest curves of what an entry stands for."""
    if entry.what == "used":
        return Bounded(1e-3, 0.0)
    return next(curves for guarantee, _, curves in releases_of(limit) if guarantee == entry.guarantee)
