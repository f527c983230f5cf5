"""A budget that cannot be overspent by accident: every release is recorded before it is drawn."""

import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final, override

from pymc_dirdp.accounting.budget import cost_of
from pymc_dirdp.accounting.entries import Entry, Header, Receipt
from pymc_dirdp.accounting.facts import deployment_of, lines_of, title_of, use_of
from pymc_dirdp.accounting.store import Store
from pymc_dirdp.checks import file_path, integer
from pymc_dirdp.display import Facts, Tabular, selected
from pymc_dirdp.errors import ArgumentError, BudgetError, LedgerError
from pymc_dirdp.literals import AdjacencyName
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.deployment import Deployment
from pymc_dirdp.privacy.guarantees import ApproxDP, Guarantee
from pymc_dirdp.signatures import user_facing


@user_facing
@final
class Ledger(Tabular):
    """A limit, and all that was released under it.

    A ledger with a path is an SQLite file. It can be used by many processes at once, and survives their death: an entry
    is on the disk before :meth:`spend` returns, so before anything is drawn. It holds public numbers only. A ledger in
    memory belongs to the process that made it, and refuses to be copied or used after a fork.

    Parameters
    ----------
    limit : ApproxDP, RenyiDP, TruncatedCDP, ZeroCDP or PureDP
        What all releases together guarantee the same people.
    path : path-like, optional
        The path of the file, which is made if there is none. A relative path is resolved now, not when it is used.
        Without it the ledger lives in memory.
    adaptive : bool, default True
        Whether a release may be chosen after seeing earlier ones. False states that all of them were fixed in advance;
        then the tightest of all ways of adding up is used.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one unit can change. Guarantees for different relations do not add up.
    unit : str, optional
        Whom the guarantees are about, such as "person". Guarantees about different units do not add up. Without it the
        first release decides.

    Raises
    ------
    LedgerError
        If the file is no ledger, is damaged, or has another limit, adjacency or unit.

    Notes
    -----
    Under an ApproxDP limit there are two ways of adding up that hold for adaptive choices: epsilons and deltas, or
    Rényi divergences at one order that the limit decides. The rule under which the first release costs less is fixed
    then. To choose the better of the two in the end, after seeing what was released, is not known to be valid.

    To record a release takes the same time after 10 and after 10,000 others. To open, print or verify a ledger takes
    time for each entry. With `adaptive=False` the text and :attr:`left` show the tightest of all rules, and a release
    is tried by the optimal composition once neither sums nor divergences at one order stay within the limit. That takes
    a second or two for 1,000 different epsilons. Above that number each is rounded up by at most 0.1 %, so 10,000 take
    about ten seconds. A balance is computed once for the same entries.

    Entries are chained by hashes (see :meth:`verify`). Anyone who can write to the file can write all of it again, or
    put an older copy in its place; only a :attr:`head` that was noted elsewhere, or a ledger that was open meanwhile,
    notices that.

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
        adjacency: AdjacencyName = "replace-one",
        unit: str | None = None,
    ) -> None:
        header = Header(limit, bool(adaptive), adjacency, unit)
        self._store = Store(None if path is None else file_path(path=path), header)

    @property
    def limit(self) -> Guarantee:
        """What all releases together guarantee."""
        return self._store.header.limit

    @property
    def path(self) -> Path | None:
        """Where the ledger is stored; None for one in memory."""
        return self._store.path

    @property
    def adaptive(self) -> bool:
        """Whether releases may be chosen after seeing earlier ones."""
        return self._store.header.adaptive

    @property
    def adjacency(self) -> str:
        """What one unit can change."""
        return self._store.header.adjacency

    @property
    def unit(self) -> str | None:
        """Whom the guarantees are about; None while nobody has said it."""
        return self._store.balance.unit

    @property
    def composition_rule(self) -> str | None:
        """How releases are added up; None while several ways are open, before the first release."""
        return self._store.balance.rule

    @property
    def guarantee(self) -> Guarantee:
        """What all entries keep together.

        The limit, which also holds for releases that were chosen after seeing others; or less, where that is proved:
        the sum of pure guarantees, or what fixed releases (`adaptive=False`) add up to. See
        :func:`pymc_dirdp.statement`.
        """
        return self._store.balance.together

    @property
    def head(self) -> str:
        """The number and the hash of the last entry: a text to be noted elsewhere, for :meth:`verify`."""
        return self._store.balance.head

    def entries(self) -> tuple[Entry, ...]:
        """All releases and reservations that were recorded, in order."""
        return self._store.verified()[1]

    @user_facing
    def receipt(self, entry: Entry) -> Receipt:
        """That this ledger holds an entry, for :meth:`holds`."""
        receipt = self._store.receipt(entry.number)
        if receipt is None:
            raise ArgumentError(f"There is no entry {entry.number} in this ledger.")
        return receipt

    @user_facing
    def issued(self, receipt: Receipt) -> bool:
        """Whether a receipt is one of this ledger, and its entry is there."""
        return receipt == self._store.receipt(receipt.number)

    @user_facing
    def holds(self, receipt: Receipt, digest: str) -> bool:
        """Whether a receipt is one of this ledger, for an entry that states this digest."""
        stated = {entry.number: entry.digest for entry in self.entries()}
        return stated.get(receipt.number) == digest and self.issued(receipt)

    def _verified(self, head: str | None = None) -> str:
        """The present head, after :func:`pymc_dirdp.verify` has compared all entries with their hashes.

        Raises
        ------
        LedgerError
            If an entry was changed, removed, added or reordered since the head; it says from which entry on.
        """
        # SQLite has numbers of 18 digits, and no ledger has more entries.
        if head is not None and not (isinstance(head, str) and re.fullmatch("[0-9]{1,18}:[0-9a-f]{64}", head)):
            raise ArgumentError("Expected head to be a text such as ledger.head gives: a number, a colon and a hash.")
        self._store.verified(head)
        return self.head

    @property
    def spent(self) -> dict[str, float]:
        """What has been spent or is reserved, by the names of what is added up."""
        return {amount.label: float(amount.spent) for amount in self._store.balance.amounts}

    @property
    def left(self) -> dict[str, float]:
        """What is left, by the names of what is added up."""
        return {amount.label: float(amount.left) for amount in self._store.balance.amounts}

    @user_facing
    def remaining(self, delta: float | None = None) -> Guarantee | None:
        """The largest guarantee that one more release could have, in the words of the limit, to three digits.

        A release whose mechanism is known costs no more than its guarantee, and often less.

        Parameters
        ----------
        delta : float, optional
            Of an :class:`~pymc_dirdp.ApproxDP`, which this then is. By default the guarantee is of the limit's own
            kind, and for a limit that is an `ApproxDP` a tenth of its delta is taken.

        Returns
        -------
        guarantee : Guarantee or None
            None if nothing is left for such a release.

        Examples
        --------
        >>> from pymc_dirdp import ApproxDP
        >>> ledger = Ledger(ApproxDP(epsilon=1, delta=1e-5))
        >>> entry = ledger.spend(ApproxDP(epsilon=0.4, delta=1e-6), what="hair")
        >>> ledger.remaining(delta=1e-6)
        ApproxDP(epsilon=0.6, delta=1e-06)
        """
        like: Guarantee = self.limit
        if delta is not None or like.stated_delta:
            # A tenth of 1e-5 in doubles is 1.0000000000000002e-06.
            tenth = float(f"{(like.stated_delta or 0.0) / 10:.3g}")
            like = ApproxDP(epsilon=1.0, delta=tenth if delta is None else delta)
        return self._store.balance.largest_admitted(like)

    @user_facing
    def spend(
        self,
        guarantee: Guarantee,
        *,
        what: str,
        mechanism: PrivacyCurves | None = None,
        adjacency: str | None = None,
        unit: str | None = None,
        contribution: int | str | None = None,
        min_count: float | None = None,
        groups: Iterable[Iterable[str]] | None = None,
        digest: str | None = None,
    ) -> Entry:
        """Record a release, before it is drawn.

        Parameters
        ----------
        guarantee : Guarantee
            What the release guarantees.
        what : str
            A short public text that says what is released, in one line.
        mechanism : PrivacyCurves, optional
            The curves of the release, which cost less than what the guarantee implies. They have to keep the guarantee.
        adjacency : str, optional
            The adjacency of the release, which has to be the ledger's.
        unit : str, optional
            Whom the guarantee is about. Without it, the ledger's unit.
        contribution : int or str, optional
            How many records of a unit are in one table at most, or a text that says it table by table.
        min_count : float, optional
            The number of records that every cell is assumed to hold.
        groups : iterable of iterables of str, optional
            The tables of each group, where no unit feeds two groups.
        digest : str, optional
            A fingerprint of the plan.

        Returns
        -------
        entry : Entry
            It is durable once this returns.

        Raises
        ------
        BudgetError
            If the release does not fit; it says what is spent, requested and left. Nothing was recorded.
        LedgerError
            If the file cannot be written, or is not what was written to it. Release nothing then.
        ArgumentError
            If the guarantee says nothing about what the limit adds up, the mechanism does not keep it, it is about
            another unit, there is no such reservation, or a text has characters that cannot be seen.

        Notes
        -----
        All releases together keep the limit if the assumptions of each of them hold: those of `contribution`,
        `min_count` and `groups`. The ledger's text lists them.
        """
        facts = {"contribution": contribution, "min_count": min_count, "groups": groups or (), "digest": digest}
        asked = self._asked(what, guarantee, mechanism, unit=unit, uses=self._uses, **facts)
        (entry,) = self._recorded([asked], adjacency)
        return entry

    @user_facing
    def reserve(
        self,
        guarantee: Guarantee | Sequence[Guarantee],
        *,
        what: str,
        times: int = 1,
        mechanism: PrivacyCurves | None = None,
        adjacency: str | None = None,
        unit: str | None = None,
    ) -> tuple[Entry, ...]:
        """Keep a part of the limit for releases that will come.

        Parameters
        ----------
        guarantee : Guarantee or sequence of Guarantee
            What each of them will guarantee; or one for each release, all of which are reserved or none.
        what : str
            A short public text that says what will be released, in one line.
        times : int, default 1
            How many releases with each guarantee; each has a reservation of its own.
        mechanism : PrivacyCurves, optional
            The curves that each of them will have, such as `plan.composition`: they cost less than the guarantee.
        adjacency, unit : str, optional
            As in :meth:`spend`; the unit is needed where the reservation is the first entry of a ledger without one.

        Returns
        -------
        reservations : tuple of Entry
            Pass the number of one to :meth:`using`, as in `sample(..., ledger=ledger.using(number))`.

        Raises
        ------
        BudgetError
            If they do not fit together. Nothing was reserved.
        LedgerError, ArgumentError
            The same errors as those of :meth:`spend`.

        Notes
        -----
        A reservation counts as spent until a release uses it. Then the limit holds what the release costs in its place,
        so what the release leaves of it can be spent again. A release that costs more than was reserved is admitted if
        the rest of the limit is enough for it. A reservation that is never used is not given back; another release may
        use it.

        Examples
        --------
        >>> from pymc_dirdp import PureDP
        >>> ledger = Ledger(PureDP(epsilon=1))
        >>> entries = ledger.reserve(PureDP(epsilon=0.2), what="hair, each quarter", times=4, unit="record")
        >>> [entry.number for entry in entries], ledger.left
        ([1, 2, 3, 4], {'epsilon': 0.2})
        >>> ledger.using(1).spend(PureDP(epsilon=0.2), what="hair, first quarter").number
        5
        >>> ledger.left
        {'epsilon': 0.2}
        """
        guarantees = [guarantee] if isinstance(guarantee, Guarantee) else list(guarantee)
        asked = [self._asked(what, asked_for, mechanism, unit=unit, reserved=True) for asked_for in guarantees]
        return self._recorded(asked * integer(1, times=times), adjacency)

    @user_facing
    def using(self, reservation: int) -> "Ledger":
        """The same ledger, whose next release uses a reservation.

        Parameters
        ----------
        reservation : int
            The number of an entry that :meth:`reserve` made. Its cost is given back when that of the release is added,
            in one step, and it cannot be used again.

        Returns
        -------
        ledger : Ledger
            Pass it wherever a ledger is asked for. A second release through it is refused.
        """
        view = object.__new__(Ledger)
        view._store, view._uses = self._store, integer(1, reservation=reservation)
        return view

    def _asked(self, what: str, guarantee: Guarantee, mechanism: PrivacyCurves | None = None, **facts: Any) -> Entry:
        """An entry for a release or a reservation, which no ledger holds yet."""
        guarantee = Guarantee.checked(guarantee=guarantee)
        if mechanism is not None and not mechanism.satisfies(guarantee):
            raise ArgumentError(f"The mechanism does not keep {guarantee}, so it cannot be recorded as that.")
        cost = cost_of(self.limit, guarantee, mechanism, adaptive=self.adaptive)
        return Entry(0, _now(), what, guarantee, cost, **facts)

    def _recorded(self, asked: Sequence[Entry], adjacency: str | None) -> tuple[Entry, ...]:
        """The entries of some releases or reservations, which are durable once this returns."""
        if adjacency not in (None, self.adjacency):
            raise ArgumentError(
                f"The release is for adjacency={adjacency!r} and the ledger for {self.adjacency!r}; their guarantees "
                "do not add up. Keep a ledger for each."
            )
        try:
            return self._store.record(lambda balance: balance.admitted(asked, _now()))
        except BudgetError as error:
            # Here, because a search takes long and nobody else could write to the file meanwhile.
            balance = self._store.balance
            for like in (asked[-1].guarantee, self.limit):
                if most := balance.largest_admitted(like):
                    way_out = f"{most} would fit, with any mechanism. Or stop releasing data about these people."
                    break
            else:
                way_out = "Nothing is left: stop releasing data about these people."
            together = " and ".join(dict.fromkeys(str(entry.guarantee) for entry in asked))
            raise BudgetError(f"{together} does not fit, so nothing was recorded. {way_out} {error}") from None

    def __repr__(self) -> str:
        header = self._store.header
        where = "" if self.path is None else f", {str(self.path)!r}"
        fixed = "" if self.adaptive else ", adaptive=False"
        unit = "" if header.unit is None else f", unit={header.unit!r}"
        used = "" if self._uses is None else f".using({self._uses})"
        return f"Ledger({self.limit!r}{where}{fixed}, adjacency={self.adjacency!r}{unit}){used}"

    _columns = ("number", "recorded", "what", "guarantee")
    # The reservation that the next release uses.
    _uses: int | None = None

    @override
    def _parts(self) -> tuple[list[str], list[dict[str, Any]], list[str]]:
        balance, entries = self._store.verified()
        rows = [
            {column: getattr(entry, column) for column in self._columns} | {"what": entry.what + use_of(entry, balance)}
            for entry in entries
        ]
        shown = selected(lines_of(balance, entries), ("Budget", "Guarantee"), 1, 2)
        return [title_of(balance)], rows, list(map(": ".join, shown))

    def _facts(self) -> tuple[str, Facts]:
        """The title and all lines about a ledger; for a report."""
        balance, entries = self._store.verified()
        return title_of(balance), lines_of(balance, entries)

    def _statement(self) -> tuple[Deployment, Facts]:
        """What all releases of the ledger state together, and all lines; for a statement."""
        balance, entries = self._store.verified()
        stated = deployment_of(balance, entries)
        return stated, lines_of(balance, entries, stated)

    def __getstate__(self) -> dict[str, Any]:
        if self.path is None:
            raise LedgerError("A ledger in memory cannot be copied: both copies could spend it. Give it a path.")
        return {"path": self.path, "header": self._store.header, "head": self.head, "uses": self._uses}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._uses = state.pop("uses")
        self._store = Store(**state)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
