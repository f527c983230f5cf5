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
from pymc_dirdp.display import Facts, TabularResult, select_lines
from pymc_dirdp.errors import ArgumentError, BudgetError, LedgerError
from pymc_dirdp.literals import AdjacencyName
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.deployment import Deployment
from pymc_dirdp.privacy.guarantees import ApproxDP, Guarantee
from pymc_dirdp.signatures import user_facing


@user_facing
@final
class Ledger(TabularResult):
    """A privacy budget, and all releases under it.

    A ledger with a path is an SQLite file. Many processes can use it at once, and it survives their crashes, because an
    entry is on the disk before :meth:`spend` returns and before any draw. It contains public numbers only. A ledger in
    memory belongs to the process that created it, and cannot be copied or used after a fork.

    Parameters
    ----------
    limit : ApproxDP, RenyiDP, TruncatedCDP, ZeroCDP or PureDP
        The guarantee that all releases about the same people must satisfy together.
    path : path-like, optional
        The path of the file, which is created if it does not exist. A relative path is resolved now, not on use. By
        default the ledger is in memory.
    adaptive : bool, default True
        Whether a release may be chosen after seeing earlier ones. False states that all releases were fixed in advance,
        which allows the tightest composition rule.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        The neighbouring relation. Guarantees under different relations do not compose.
    unit : str, optional
        The unit of privacy, such as "person". Guarantees about different units do not compose. By default the first
        release decides.

    Raises
    ------
    LedgerError
        If the file is not a ledger, is damaged, or has another limit, adjacency or unit.

    Notes
    -----
    Under an ApproxDP limit two composition rules are valid for adaptive choices: sums of epsilons and deltas, and sums
    of Rényi divergences at one order, which the limit determines. The first release fixes the rule under which it costs
    less. Choosing the better rule after seeing releases is not known to be valid.

    Recording a release takes the same time after 10 and after 10,000 others. The time to open, print or verify a ledger
    grows with the number of entries. With `adaptive=False` the text and :attr:`left` show the tightest of all rules,
    and the optimal composition is computed once neither sums nor divergences at one order stay within the limit. That
    takes a second or two for 1,000 different epsilons. Above that number each is rounded up by at most 0.1 %, so 10,000
    take about ten seconds. A balance is computed once for the same entries.

    Entries are chained by hashes (see :meth:`verify`). Anyone who can write to the file can rewrite all of it, or
    replace it by an older copy. Only a :attr:`head` that was noted elsewhere, or a ledger that was open meanwhile,
    reveals that.

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
        """The guarantee that all releases together must satisfy."""
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
        """The neighbouring relation."""
        return self._store.header.adjacency

    @property
    def unit(self) -> str | None:
        """The unit of privacy; None until it is stated."""
        return self._store.balance.unit

    @property
    def composition_rule(self) -> str | None:
        """The composition rule; None before the first release, if several are possible."""
        return self._store.balance.rule

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee that all entries satisfy together.

        This is the limit, which also holds for releases that were chosen after seeing others. It is tighter if there is
        a proof: the sum of pure guarantees, or the composition of fixed releases (`adaptive=False`). See
        :func:`pymc_dirdp.statement`.
        """
        return self._store.balance.joint_guarantee

    @property
    def head(self) -> str:
        """The number and the hash of the last entry. Note this text elsewhere, for :meth:`verify`."""
        return self._store.balance.head

    def entries(self) -> tuple[Entry, ...]:
        """All recorded releases and reservations, in order."""
        return self._store.verify()[1]

    @user_facing
    def receipt(self, entry: Entry) -> Receipt:
        """A receipt for an entry of this ledger, for :meth:`holds`."""
        receipt = self._store.receipt(entry.number)
        if receipt is None:
            raise ArgumentError(f"There is no entry {entry.number} in this ledger.")
        return receipt

    @user_facing
    def issued(self, receipt: Receipt) -> bool:
        """Whether this ledger issued a receipt, and still has its entry."""
        return receipt == self._store.receipt(receipt.number)

    @user_facing
    def holds(self, receipt: Receipt, digest: str) -> bool:
        """Whether this ledger issued a receipt for an entry with this digest."""
        stated = {entry.number: entry.digest for entry in self.entries()}
        return stated.get(receipt.number) == digest and self.issued(receipt)

    def _verified(self, head: str | None = None) -> str:
        """The present head, after :func:`pymc_dirdp.verify` has compared all entries with their hashes.

        Raises
        ------
        LedgerError
            If an entry was changed, removed, added or reordered since the head. It names the first such entry.
        """
        # SQLite has numbers of 18 digits, and no ledger has more entries.
        if head is not None and not (isinstance(head, str) and re.fullmatch("[0-9]{1,18}:[0-9a-f]{64}", head)):
            raise ArgumentError("Expected head to be a text such as ledger.head: a number, a colon and a hash.")
        self._store.verify(head)
        return self.head

    @property
    def spent(self) -> dict[str, float]:
        """The amounts that are spent or reserved, by the names of the sums."""
        return {amount.label: float(amount.spent) for amount in self._store.balance.amounts}

    @property
    def left(self) -> dict[str, float]:
        """The remaining amounts, by the names of the sums."""
        return {amount.label: float(amount.left) for amount in self._store.balance.amounts}

    @user_facing
    def remaining(self, delta: float | None = None) -> Guarantee | None:
        """The largest guarantee that one more release could have, in the definition of the limit, to three digits.

        A release whose mechanism is known costs no more than its guarantee, and often less.

        Parameters
        ----------
        delta : float, optional
            The delta of the result, which then is an :class:`~pymc_dirdp.ApproxDP`. By default the result has the type
            of the limit; if that is an `ApproxDP`, its delta is a tenth of the limit's.

        Returns
        -------
        guarantee : Guarantee or None
            None if no budget is left for such a release.

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
            The guarantee of the release.
        what : str
            A short public text that says what is released, in one line.
        mechanism : PrivacyCurves, optional
            The privacy curves of the release, which cost less than the guarantee implies. They have to satisfy the
            guarantee.
        adjacency : str, optional
            The adjacency of the release, which has to be the ledger's.
        unit : str, optional
            The unit of privacy. By default the ledger's unit.
        contribution : int or str, optional
            The maximum number of records of a unit in one table, or a text that states it table by table.
        min_count : float, optional
            The number of records that every cell is assumed to contain.
        groups : iterable of iterables of str, optional
            Groups of tables, if no unit has records in two groups.
        digest : str, optional
            A fingerprint of the plan.

        Returns
        -------
        entry : Entry
            The entry, which is durable now.

        Raises
        ------
        BudgetError
            If the release does not fit. The error states the spent, requested and remaining amounts. Nothing was
            recorded.
        LedgerError
            If the file cannot be written, or differs from what was written to it. Do not release anything then.
        ArgumentError
            If the guarantee implies no cost under the limit, the mechanism does not satisfy it, it is about another
            unit, there is no such reservation, or a text has invisible characters.

        Notes
        -----
        All releases together satisfy the limit if the assumptions of each of them hold: those of `contribution`,
        `min_count` and `groups`. The ledger's text lists them.
        """
        facts = {"contribution": contribution, "min_count": min_count, "groups": groups or (), "digest": digest}
        request = self._new_entry(what, guarantee, mechanism, unit=unit, uses=self._uses, **facts)
        (entry,) = self._record([request], adjacency)
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
        """Reserve a part of the limit for later releases.

        Parameters
        ----------
        guarantee : Guarantee or sequence of Guarantee
            The guarantee of each release. In a sequence, one for each release; all of them are reserved or none.
        what : str
            A short public text that says what will be released, in one line.
        times : int, default 1
            The number of releases with each guarantee. Each has its own reservation.
        mechanism : PrivacyCurves, optional
            The privacy curves of each release, such as `plan.composition`: they cost less than the guarantee.
        adjacency, unit : str, optional
            See :meth:`spend`. The unit is required if the reservation is the first entry of a ledger without a unit.

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
        A reservation counts as spent until a release uses it. Then the cost of the release replaces that of the
        reservation, so the rest can be spent again. A release that costs more than its reservation is admitted if the
        remaining budget suffices. A reservation that is never used is not freed, but another release may use it.

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
        requests = [self._new_entry(what, item, mechanism, unit=unit, reserved=True) for item in guarantees]
        return self._record(requests * integer(1, times=times), adjacency)

    @user_facing
    def using(self, reservation: int) -> "Ledger":
        """The same ledger, whose next release uses a reservation.

        Parameters
        ----------
        reservation : int
            The number of an entry of :meth:`reserve`. The cost of the release replaces its cost, in one step, and it
            cannot be used again.

        Returns
        -------
        ledger : Ledger
            Pass it wherever a ledger is expected. A second release through it is refused.
        """
        view = object.__new__(Ledger)
        view._store, view._uses = self._store, integer(1, reservation=reservation)
        return view

    def _new_entry(
        self, what: str, guarantee: Guarantee, mechanism: PrivacyCurves | None = None, **facts: Any
    ) -> Entry:
        """An entry for a release or a reservation that is not recorded yet."""
        guarantee = Guarantee.checked(guarantee=guarantee)
        if mechanism is not None and not mechanism.satisfies(guarantee):
            raise ArgumentError(f"The mechanism does not satisfy {guarantee}, so it cannot be recorded as that.")
        cost = cost_of(self.limit, guarantee, mechanism, adaptive=self.adaptive)
        return Entry(0, _utc_time(), what, guarantee, cost, **facts)

    def _refuse_unaffordable(
        self, guarantee: Guarantee, mechanism: PrivacyCurves | None, adjacency: str, **facts: Any
    ) -> None:
        """Raise the error of :meth:`spend` if the release does not fit. Nothing is recorded."""
        request = self._new_entry("a release", guarantee, mechanism, uses=self._uses, **facts)
        self._record([request], adjacency, dry_run=True)

    def _record(self, requests: Sequence[Entry], adjacency: str | None, *, dry_run: bool = False) -> tuple[Entry, ...]:
        """Record releases or reservations durably, unless it is a dry run, and return their entries."""
        if adjacency not in (None, self.adjacency):
            raise ArgumentError(
                f"Keep a ledger for each adjacency: the release is for adjacency={adjacency!r} and the ledger for "
                f"{self.adjacency!r}, and their guarantees do not compose."
            )
        try:
            if dry_run:
                return tuple(self._store.balance.admit(requests, _utc_time()))
            return self._store.record(lambda balance: balance.admit(requests, _utc_time()))
        except BudgetError as error:
            # Outside the transaction, because the search is slow and would block other writers.
            balance = self._store.balance
            for template in (requests[-1].guarantee, self.limit):
                if largest := balance.largest_admitted(template):
                    way_out = f"{largest} would fit, with any mechanism. Or stop releasing data about these people."
                    break
            else:
                way_out = "Nothing is left: stop releasing data about these people."
            guarantees = " and ".join(dict.fromkeys(str(entry.guarantee) for entry in requests))
            raise BudgetError(f"{guarantees} does not fit, so nothing was recorded. {way_out} {error}") from None

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
        balance, entries = self._store.verify()
        rows = [
            {column: getattr(entry, column) for column in self._columns} | {"what": entry.what + use_of(entry, balance)}
            for entry in entries
        ]
        lines = select_lines(lines_of(balance, entries), ("Budget", "Guarantee"), 1, 2)
        return [title_of(balance)], rows, list(map(": ".join, lines))

    def _facts(self) -> tuple[str, Facts]:
        """The title and all lines about a ledger; for a report."""
        balance, entries = self._store.verify()
        return title_of(balance), lines_of(balance, entries)

    def _statement(self) -> tuple[Deployment, Facts]:
        """The joint statement of all releases, and all lines; for a statement."""
        balance, entries = self._store.verify()
        deployment = deployment_of(balance, entries)
        return deployment, lines_of(balance, entries, deployment)

    def __getstate__(self) -> dict[str, Any]:
        if self.path is None:
            raise LedgerError("A ledger in memory cannot be copied: both copies could spend it. Create it with a path.")
        return {"path": self.path, "header": self._store.header, "head": self.head, "uses": self._uses}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._uses = state.pop("uses")
        self._store = Store(**state)


def _utc_time() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
