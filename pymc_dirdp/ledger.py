"""A budget that cannot be overspent by accident: every release is recorded before it is drawn."""

import html
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from pymc_dirdp.adjacency import adjacency_named
from pymc_dirdp.errors import ArgumentError, BudgetError, LedgerError
from pymc_dirdp.guarantees import Guarantee
from pymc_dirdp.ledger_store import Entry, Header, Store
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.spending import Amount, balances, cost_of, kept_ways

__all__ = ["Entry", "Ledger"]


@final
class Ledger:
    """A limit, and all that was released under it.

    A ledger with a path is an SQLite file. It can be used by many processes at once, and survives their death: an entry
    is on the disk before :meth:`spend` returns, so before anything is drawn. It holds public numbers only.

    Parameters
    ----------
    limit : ApproxDP, RenyiDP, TruncatedCDP, ZeroCDP or PureDP
        What all releases together promise the same people.
    path : path-like, optional
        Of the file, which is made if there is none. Without it the ledger lives in memory.
    adaptive : bool, default True
        Whether a release may be chosen after seeing earlier ones. False states that all of them were fixed in advance;
        then the tightest of all ways of adding up is used.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change. Guarantees for different relations do not add up.

    Raises
    ------
    LedgerError
        If the file is no ledger, is damaged, or has another limit or adjacency.

    Notes
    -----
    Under an ApproxDP limit there are two ways of adding up that hold for adaptive choices: epsilons and deltas, or
    Rényi divergences at one order that the limit decides. The first release decides which, by what it costs less of; to
    choose the better of the two in the end, after seeing what was released, is not known to be valid.

    References
    ----------
    Rogers, Roth, Ullman and Vadhan (2016), Privacy odometers and filters. Feldman and Zrnic (2021), Individual privacy
    accounting via a Rényi filter. Kairouz, Oh and Viswanath (2017), The composition theorem for differential privacy.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> ledger = Ledger(ApproxDP(epsilon=1, delta=1e-6))
    >>> ledger.spend(ApproxDP(epsilon=0.4, delta=1e-7), what="hair").number
    1
    >>> ledger.left
    {'epsilon': 0.6, 'delta': 9e-07}
    """

    def __init__(
        self,
        limit: Guarantee,
        path: str | os.PathLike[str] | None = None,
        *,
        adaptive: bool = True,
        adjacency: str = "replace-one",
    ) -> None:
        ways = kept_ways(limit, adaptive=adaptive)
        header = Header(limit, bool(adaptive), adjacency_named(adjacency).name)
        self._store = Store(None if path is None else Path(path), header, ways[0] if len(ways) == 1 else None)

    @property
    def limit(self) -> Guarantee:
        """What all releases together promise."""
        return self._store.header.limit

    @property
    def path(self) -> Path | None:
        """Where the ledger is kept; None for one in memory."""
        return self._store.path

    @property
    def adaptive(self) -> bool:
        """Whether releases may be chosen after seeing earlier ones."""
        return self._store.header.adaptive

    @property
    def adjacency(self) -> str:
        """What one person can change."""
        return self._store.header.adjacency

    @property
    def way(self) -> str | None:
        """How releases are added up; None while several ways are open, before the first release."""
        with self._store.transaction() as connection:
            way, entries = self._store.read(connection)
        return self._balance(way, entries)[0] if entries else way

    def entries(self) -> tuple[Entry, ...]:
        """All releases that were recorded, in order."""
        with self._store.transaction() as connection:
            return self._store.read(connection)[1]

    @property
    def spent(self) -> dict[str, float]:
        """What has been spent, by the names of what is added up."""
        return {amount.label: float(amount.spent) for amount in self._amounts()}

    @property
    def left(self) -> dict[str, float]:
        """What is left, likewise."""
        return {amount.label: float(amount.limit - amount.spent) for amount in self._amounts()}

    def spend(
        self, guarantee: Guarantee, *, what: str, mechanism: PrivacyCurves | None = None, adjacency: str | None = None
    ) -> Entry:
        """Record a release, before it is drawn.

        Parameters
        ----------
        guarantee : Guarantee
            What the release promises.
        what : str
            A short public text that says what is released.
        mechanism : PrivacyCurves, optional
            The curves of the release, which cost less than what the promise implies. They have to keep the promise.
        adjacency : str, optional
            That of the release, to be compared with the ledger's.

        Returns
        -------
        entry : Entry
            It is durable once this returns.

        Raises
        ------
        BudgetError
            If the release does not fit; it says what is spent, asked and left. Nothing was recorded.
        LedgerError
            If the file cannot be written. Release nothing then.
        ArgumentError
            If the promise says nothing about what the limit adds up, or the mechanism does not keep it.
        """
        if adjacency not in (None, self.adjacency):
            raise ArgumentError(
                f"The release is for adjacency={adjacency!r} and the ledger for {self.adjacency!r}; their guarantees "
                "do not add up. Keep a ledger for each."
            )
        if not isinstance(guarantee, Guarantee):
            raise ArgumentError(
                f"Expected a guarantee such as ApproxDP(epsilon=1, delta=1e-6), got a {type(guarantee).__name__}."
            )
        if mechanism is not None and not mechanism.satisfies(guarantee):
            raise ArgumentError(f"The mechanism does not keep {guarantee}, so it cannot be recorded as that.")
        cost = cost_of(self.limit, guarantee, mechanism, adaptive=self.adaptive)
        with self._store.transaction(writing=True) as connection:
            way, entries = self._store.read(connection)
            recorded = datetime.now(UTC).isoformat(timespec="seconds")
            entry = Entry(len(entries) + 1, recorded, str(what), guarantee, cost)
            chosen, after = self._balance(way, (*entries, entry))
            if not all(amount.within for amount in after):
                before = self._balance(chosen if self.adaptive else None, entries)[1]
                raise BudgetError(_refusal(before, after, guarantee, chosen))
            self._store.append(connection, entry, chosen if self.adaptive else None)
        return entry

    def _balance(self, way: str | None, entries: tuple[Entry, ...]) -> tuple[str, tuple[Amount, ...]]:
        """The way that adds up these entries, and what they come to: the one that is fixed, or the tightest."""
        found = balances(self.limit, [entry.cost for entry in entries], adaptive=self.adaptive)
        if way is None:
            if not found:
                raise ArgumentError("The promise of this release says nothing about what the limit adds up.")
            way = min(found, key=lambda name: max(amount.share for amount in found[name]))
        if way not in found:
            raise BudgetError(
                f"This ledger adds up by the way {way!r}, and the release has no finite cost there. "
                "State it as the ledger's own kind of guarantee, or keep a ledger of its own for it."
            )
        return way, found[way]

    def _amounts(self) -> tuple[Amount, ...]:
        with self._store.transaction() as connection:
            way, entries = self._store.read(connection)
        return self._balance(way, entries)[1]

    def __repr__(self) -> str:
        where = "" if self.path is None else f", {str(self.path)!r}"
        fixed = "" if self.adaptive else ", adaptive=False"
        return f"Ledger({self.limit!r}{where}{fixed}, adjacency={self.adjacency!r})"

    def __str__(self) -> str:
        rows = [("number", "recorded", "what", "guarantee"), *self._rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self._heading(), *lines, *self._footing()])

    def _repr_html_(self) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in [("number", "recorded", "what", "guarantee"), *self._rows()]
        )
        footing = "".join(f"<p>{html.escape(line)}</p>" for line in self._footing())
        return f"<h4>{html.escape(self._heading())}</h4><table>{rows}</table>{footing}"

    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [(str(entry.number), entry.recorded, entry.what, str(entry.guarantee)) for entry in self.entries()]

    def _heading(self) -> str:
        fixed = "" if self.adaptive else "; releases fixed in advance"
        return f"Ledger of {self.limit}, {self.adjacency}{fixed}"

    def _footing(self) -> list[str]:
        way = self.way
        lines = [f"{amount.label}: {_shown(amount)}" for amount in self._amounts()]
        return [*lines, f"added up by the way: {way}"] if way else lines

    def __getstate__(self) -> dict[str, Any]:
        if self.path is None:
            raise LedgerError("A ledger in memory cannot be copied: both copies could spend it. Give it a path.")
        return {"limit": self.limit, "path": str(self.path), "adaptive": self.adaptive, "adjacency": self.adjacency}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Ledger.__init__(self, state.pop("limit"), state.pop("path"), **state)


def _shown(amount: Amount) -> str:
    spent, limit = float(amount.spent), float(amount.limit)
    return f"{spent:.6g} of {limit:.6g} spent, {float(amount.limit - amount.spent):.6g} left"


def _refusal(before: tuple[Amount, ...], after: tuple[Amount, ...], guarantee: Guarantee, way: str) -> str:
    now = "; ".join(f"{amount.label}: {_shown(amount)}" for amount in before)
    then = "; ".join(f"{amount.label}: {float(amount.spent):.6g}" for amount in after)
    return (
        f"A release of {guarantee} was asked for and does not fit, so nothing was recorded. Now {now}. With it {then} "
        f"(added up by the way {way!r}). Ask for less, or for nothing more from these people."
    )
