"""Tables whose output tells how many records each block of rows holds, against all tables there are."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.observed_table import Beliefs, MechanismOutput
from pymc_dirdp.inference.tables import TablePosterior, posterior_of, rows_are_divided
from pymc_dirdp.mechanisms import GeometricMechanism
from pymc_dirdp.mechanisms.geometric import ZeroSumGeometricMechanism
from pymc_dirdp.mechanisms.outputs import NoisyTable
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.releases.opened import LoadedRelease, open_release
from tests.planned import planned_sample

ANSWERS = np.array([[0, 1], [1, 1], [0, 0], [1, 1], [1, 1]])
PRIOR = np.array([[1.0, 0.5], [2.0, 1.0]])


def survey(**options):
    with pm.Model(coords={"person": range(5), "item": ["a", "b"], "answer": ["no", "yes"]}):
        p = pm.Dirichlet("p", a=PRIOR, dims=("item", "answer"))
        pm.Categorical("x", p=p, observed=ANSWERS, dims=("person", "item"))
        guarantee = options.pop("guarantee", dirdp.PureDP(epsilon=4.0))
        return planned_sample(guarantee, **{"mechanism": "geometric", **options})


def output_of(release):
    return open_release(release).tables["p"]


def dirichlet_multinomial(x, prior):
    """Logarithm of the probability of counts."""
    n, a = x.sum(), prior.sum()
    constant = gammaln(n + 1) + gammaln(a) - gammaln(n + a)
    return constant + np.sum(gammaln(x + prior) - gammaln(prior) - gammaln(x + 1))


def test_blocks_of_several_rows_are_put_into_the_order_of_the_table():
    """Classes by features, where everybody has one record of each feature: the blocks are the features."""
    unit = Contribution(1, ("any", "each"))
    mechanism = ZeroSumGeometricMechanism(np.ones((2, 3, 2)), 0.02, contribution=unit)
    counts = np.array([[[4, 9], [20, 3], [8, 8]], [[20, 7], [10, 7], [11, 13]]])
    # Noise of this scale is always 0, so the distribution is that of the very counts.
    noisy = mechanism.release(counts)
    released = output_of(survey(unit="person"))
    table = replace(released.part.table, prior=mechanism.prior, dims=None, coords={})
    part = replace(released.part, table=table, mechanism=mechanism, n_records=120, totals=(40, 40, 40))
    release = replace(released.stored.release, output={"p": NoisyTable({"noisy_counts": noisy})})
    output = replace(released, part=part, stored=LoadedRelease(released.stored.plan, release)).observed_table
    assert [(rows.tolist(), total) for rows, total in output.blocks] == [([0, 3], 40), ([1, 4], 40), ([2, 5], 40)]
    assert rows_are_divided(output)
    posterior = posterior_of(output, Beliefs(row_prior=np.arange(1.0, 7.0).reshape(2, 3)))
    drawn = posterior.draw(50, np.random.default_rng(1))
    np.testing.assert_array_equal(drawn.counts, np.broadcast_to(counts, (50, 2, 3, 2)))
    found = posterior.estimate([0.8])
    np.testing.assert_allclose(found.count_means, counts.ravel(), atol=1e-9)
    # The shares of the rows in a block have the prior that belongs to them.
    row_prior, evidence = np.arange(1.0, 7.0).reshape(2, 3), 0.0
    for feature in range(3):
        evidence += dirichlet_multinomial(counts[:, feature].sum(axis=1), row_prior[:, feature])
        evidence += sum(dirichlet_multinomial(row, np.ones(2)) for row in counts[:, feature])
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-7)


def test_beliefs_are_checked():
    output = output_of(survey(unit="person")).observed_table
    with pytest.raises(ArgumentError, match="Leave row_prior out"):
        posterior_of(output, Beliefs(row_prior=[1.0, 2.0]))
    with pytest.raises(ArgumentError, match="shape of the table"):
        posterior_of(output, Beliefs(prior=[1.0, 2.0]))
    with pytest.raises(ArgumentError, match="n_prior"):
        posterior_of(output, Beliefs(n_prior=10))
    other = posterior_of(output, Beliefs(prior=2 * PRIOR)).estimate([0.5])
    assert not np.allclose(other.share_means, posterior_of(output, Beliefs()).estimate([0.5]).share_means)


def test_without_known_totals_the_posterior_is_in_one_piece():
    private = output_of(survey(unit="person", contribution=2, n_records=10)).observed_table
    assert isinstance(posterior_of(private, Beliefs(n_prior=30)), TablePosterior)
    assert rows_are_divided(private)
    one = output_of(survey(contribution=2)).observed_table
    assert isinstance(posterior_of(one, Beliefs()), TablePosterior)
    assert [total for _, total in one.blocks] == [10]


@pytest.mark.parametrize("mechanism", ["gaussian", "dirichlet"])
def test_every_reading_of_a_complete_survey_has_its_public_totals(mechanism, tmp_path, edited):
    """Sixty people answer two items each: each item has sixty answers, whatever noise there is."""
    rng = np.random.default_rng(5)
    with pm.Model(coords={"person": range(60), "item": ["a", "b"], "answer": range(3)}) as model:
        p = pm.Dirichlet("p", np.ones((2, 3)), dims=("item", "answer"))
        pm.Categorical("x", p=p, observed=rng.integers(0, 3, (60, 2)), dims=("person", "item"))
    dirdp.save(
        dirdp.sample(dirdp.ApproxDP(epsilon=1, delta=1e-6), model, unit="person", mechanism=mechanism),
        tmp_path / "r.json",
    )
    release = dirdp.load(tmp_path / "r.json")
    assert release["mechanism/p"]["public_totals"].dims == ("item",)
    assert dirdp.verify(release)
    assert "60 in each of 2 parts of its rows" in " ".join(str(dirdp.report(release, full=True)).split())
    assert "60 in each of 2 parts of its rows" in dirdp.estimate(release).conditions[0]
    drawn = dirdp.analyse(release, 200, chains=1)["latent_counts"]["p"].values.sum(axis=-1)
    np.testing.assert_array_equal(drawn, 60)
    idata = dirdp.analyse(release, 5, chains=1)
    np.testing.assert_array_equal(dirdp.releases.latent_counts(idata, release)["p"].values.sum(axis=-1), 60)
    # Totals that are not those of the release are found.
    for totals in ([61, 60], [60.5, 59.5], [120], []):
        with pytest.raises(dirdp.errors.ReleaseError):
            dirdp.verify(edited(release, (("plan", "tables", 0, "totals"), totals)))


def test_shares_are_asked_for_after_everything_else():
    """Found by comparison: the evidence of no shares was kept, and called that of these."""
    prior, noisy = np.ones((2, 3)), np.array([[30.0, 11, 9], [4, 21, 25]])
    output = MechanismOutput(
        GeometricMechanism(prior, 2.0, adjacency="replace-one"), noisy, prior=prior, n_records=100
    ).observed_table
    fresh, asked = (posterior_of(output, Beliefs()) for _ in range(2))
    asked.estimate([0.5])
    asked.counts(2, np.random.default_rng(1))
    logs = np.log(np.random.default_rng(2).dirichlet(np.ones(output.prior.shape[-1]), output.prior.shape[:-1]))
    one, other = fresh.with_shares(logs), asked.with_shares(logs)
    assert one.log_evidence == other.log_evidence != asked.log_evidence
    draws = [each.counts(5, np.random.default_rng(3)) for each in (one, other)]
    np.testing.assert_array_equal(*draws)
