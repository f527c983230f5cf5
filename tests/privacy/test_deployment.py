"""The row of a register states a guarantee as an epsilon at a delta, from above, and the lines say the same odds."""

from pymc_dirdp.display import Line
from pymc_dirdp.privacy.curves import convert
from pymc_dirdp.privacy.deployment import Deployment
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP
from pymc_dirdp.privacy.odds import DELTA, Odds


def stated(guarantee, name="p"):
    odds = Odds.of_guarantee(guarantee, "the records of one person")
    return Deployment(name, f"shares of {name}", guarantee, name, "one record moves", odds, "sums", "1:0", "1.0")


def test_an_epsilon_and_a_delta_stand_there_as_they_are_stated_and_any_other_kind_from_above():
    """Oracle: the conversion of the guarantee."""
    for guarantee in (ApproxDP(epsilon=0.5, delta=1e-9), PureDP(epsilon=0.5)):
        row = stated(guarantee, "a\x1b[2J").row
        assert (row["epsilon"], row["delta"]) == (guarantee.epsilon, guarantee.stated_delta)
        assert row["flavor"] == guarantee.flavour
        # A terminal obeys no name.
        assert all(str(value).isprintable() for value in row.values())
    for guarantee in (ZeroCDP(rho=0.1), RenyiDP(order=4, epsilon=0.5), TruncatedCDP(rho=0.1, omega=20)):
        row, exact = stated(guarantee).row, convert(guarantee, ApproxDP, delta=DELTA).epsilon
        assert row["delta"] == DELTA
        assert exact <= row["epsilon"] <= exact * (1 + 1e-5)
    # JSON lacks infinity.
    assert stated(RenyiDP(order=1, epsilon=0.5)).row["epsilon"] is None


def test_lines_for_a_screen_and_for_a_page_have_one_source():
    found = stated(ApproxDP(epsilon=0.5, delta=1e-9))
    lines = list(found.lines(protects="every person", protected="every person at all", most="0.5", together=", in all"))
    by_depth = {depth: {line.label: line.text for line in lines if line.depth == depth} for depth in (0, 1)}
    assert by_depth[0] == {"protects": "every person", "at most": "0.5", "odds": f"times {found.odds}"}
    assert by_depth[1]["guarantee"] == f"{found.guarantee}, in all"
    assert by_depth[1]["posterior odds"] == f"times {found.odds}, about the records of one person"
    assert Line("protected", "every person at all", 1) in lines
