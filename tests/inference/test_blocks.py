"""Tables whose output tells how many records each block of rows holds; `test_contract.py` has blocks of one row."""

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.observed_table import Beliefs, MechanismOutput
from pymc_dirdp.inference.tables import posterior_of, rows_are_divided
from pymc_dirdp.mechanisms.geometric import GeometricMechanism, ZeroSumGeometricMechanism
from pymc_dirdp.privacy.people import Contribution

from .posteriors import log_multinomial_dirichlet


def observed(mechanism, noisy, prior, **known):
    return MechanismOutput(mechanism, noisy, prior=prior, **known).observed_table


def test_blocks_of_several_rows_are_put_into_the_order_of_the_table():
    """Classes by features, where everybody has one record of each feature: the blocks are the features."""
    prior, unit = np.ones((2, 3, 2)), Contribution(1, ("any", "each"))
    counts = np.array([[[4, 9], [20, 3], [8, 8]], [[20, 7], [10, 7], [11, 13]]])
    # Noise of this scale is always 0, so the distribution is that of the very counts.
    mechanism = ZeroSumGeometricMechanism(prior, 0.02, contribution=unit)
    output = observed(mechanism, mechanism.release(counts), prior, n_records=120)
    assert [(rows.tolist(), total) for rows, total in output.blocks] == [([0, 3], 40), ([1, 4], 40), ([2, 5], 40)]
    assert rows_are_divided(output)
    row_prior = np.arange(1.0, 7.0).reshape(2, 3)
    posterior = posterior_of(output, Beliefs(row_prior=row_prior))
    drawn = posterior.draw(50, np.random.default_rng(1))
    np.testing.assert_array_equal(drawn.counts, np.broadcast_to(counts, (50, 2, 3, 2)))
    np.testing.assert_allclose(posterior.estimate([0.8]).count_means, counts.ravel(), atol=1e-9)
    # The shares of the rows in a block have the prior that belongs to them.
    evidence = log_multinomial_dirichlet(counts, prior).sum()
    evidence += log_multinomial_dirichlet(counts.sum(axis=2).T, row_prior.T).sum()
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-7)


@pytest.mark.parametrize(
    ("beliefs", "words"),
    [
        ({"row_prior": [1.0, 2.0]}, "Leave row_prior out"),
        ({"prior": [1.0, 2.0]}, "shape of the table"),
        ({"n_prior": 10}, "n_prior"),
    ],
)
def test_beliefs_are_checked(beliefs, words):
    prior = np.array([[1.0, 0.5], [2.0, 1.0]])
    mechanism = ZeroSumGeometricMechanism(prior, 2.0, contribution=Contribution(1, ("each",)))
    output = observed(mechanism, [[2, 3], [4, 1]], prior, n_records=10)
    with pytest.raises(ArgumentError, match=words):
        posterior_of(output, Beliefs(**beliefs))
    # A prior of one's own is used.
    other, own = (posterior_of(output, Beliefs(prior=of)).estimate([0.5]) for of in (2 * prior, None))
    assert not np.allclose(other.share_means, own.share_means)


@pytest.mark.parametrize("mechanism", ["gaussian", "dirichlet"])
def test_every_reading_of_a_complete_survey_has_its_public_totals(mechanism, tmp_path, edited):
    """Sixty people answer two items each: each item has sixty answers, whatever noise there is."""
    rng = np.random.default_rng(5)
    with pm.Model(coords={"person": range(60), "item": ["a", "b"], "answer": range(3)}) as model:
        p = pm.Dirichlet("p", np.ones((2, 3)), dims=("item", "answer"))
        pm.Categorical("x", p=p, observed=rng.integers(0, 3, (60, 2)), dims=("person", "item"))
    guarantee = dirdp.ApproxDP(epsilon=1, delta=1e-6)
    dirdp.save(dirdp.sample(guarantee, model, unit="person", mechanism=mechanism), tmp_path / "r.json")
    release = dirdp.load(tmp_path / "r.json")
    assert release["mechanism/p"]["public_totals"].dims == ("item",)
    assert dirdp.verify(release)
    for text in (str(dirdp.report(release, full=True)), dirdp.estimate(release).conditions[0]):
        assert "60 in each of 2 parts of its rows" in " ".join(text.split())
    idata = dirdp.analyse(release, 50, chains=1)
    for counts in (idata["latent_counts"], dirdp.releases.latent_counts(idata, release)):
        np.testing.assert_array_equal(counts["p"].values.sum(axis=-1), 60)
    # Totals that are not those of the release are found.
    for totals in ([61, 60], [60.5, 59.5], [120], []):
        with pytest.raises(dirdp.errors.ReleaseError):
            dirdp.verify(edited(release, (("plan", "tables", 0, "totals"), totals)))


def test_shares_are_asked_for_after_everything_else():
    """Found by comparison: the evidence of no shares was kept, and called that of these."""
    prior, noisy = np.ones((2, 3)), np.array([[30.0, 11, 9], [4, 21, 25]])
    output = observed(GeometricMechanism(prior, 2.0), noisy, prior, n_records=100)
    fresh, asked = (posterior_of(output, Beliefs()) for _ in range(2))
    asked.estimate([0.5])
    asked.counts(2, np.random.default_rng(1))
    logs = np.log(np.random.default_rng(2).dirichlet(np.ones(3), 2))
    one, other = fresh.with_shares(logs), asked.with_shares(logs)
    assert one.log_evidence == other.log_evidence != asked.log_evidence
    np.testing.assert_array_equal(*(each.counts(5, np.random.default_rng(3)) for each in (one, other)))
