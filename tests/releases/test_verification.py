"""A file is not believed: what an edited release says is found out, and nothing follows from it."""

import json
import math

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.numerics.rounding import at_least_in_short as up
from pymc_dirdp.releases.interop import as_mechanism, to_dp_accounting
from pymc_dirdp.releases.report import Report
from pymc_dirdp.releases.verification import Check, Verification, verify

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
KINDS = {
    "approx": (TARGET, {}),
    "renyi": (dirdp.RenyiDP(order=4, epsilon=0.5), {"draws": 3}),
    "truncated": (dirdp.TruncatedCDP(rho=0.1, omega=8), {"adjacency": "add-remove", "n_records": 100}),
    "pure": (dirdp.PureDP(epsilon=1.0), {"mechanism": "geometric"}),
    "zero": (dirdp.ZeroCDP(rho=0.05), {"mechanism": "gaussian", "draws": 2}),
    "apart": (TARGET, {"disjoint": [["p"], ["rate"]]}),
    "many": (TARGET, {"contribution": 2}),
    "exact": (TARGET, {"sampler": "exact"}),
}


def two_tables():
    with pm.Model(coords={"hair": ["black", "brown", "red"], "where": ["here", "there"]}) as model:
        p = pm.Dirichlet("p", a=np.ones((2, 3)), dims=("where", "hair"))
        pm.Multinomial("x", n=[30, 20], p=p, observed=[[20, 6, 4], [10, 5, 5]])
        rate = pm.Beta("rate", 1, 1)
        pm.Binomial("z", n=50, p=rate, observed=5)
        pm.Deterministic("odds", rate / (1 - rate))
    return model


@pytest.fixture(scope="module")
def releases():
    return {name: dirdp.sample(target, two_tables(), **options) for name, (target, options) in KINDS.items()}


def edited(release, *edits):
    """A copy with attributes replaced, or all values of a variable: (path, name, value)."""
    tree = release.copy(deep=True)
    for path, name, value in edits:
        if name in tree[path].data_vars and name not in tree[path].attrs:
            tree[path].dataset = with_values(tree[path].to_dataset(), name, value)
        else:
            tree[path].attrs[name] = value
    return tree


def with_values(dataset, name, value):
    variable = dataset[name]
    return dataset.assign({name: xr.Variable(variable.dims, np.full(variable.shape, float(value)))})


def failed(release):
    return [check.name for check in verify(release).checks if not check.passed]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.thorough
def test_what_the_library_made_follows_also_from_its_file(releases, kind, tmp_path):
    release = releases[kind]
    found = verify(release)
    assert found.follows
    assert bool(found)
    assert failed(release) == []
    assert found.stated == KINDS[kind][0]
    assert as_mechanism(release).satisfies(found.kept)
    release.to_netcdf(tmp_path / "release.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "release.nc", engine="h5netcdf") as back:
        assert verify(back) == found
        assert str(verify(back)) == str(found)
        assert as_mechanism(back).epsilon(1e-6) == as_mechanism(release).epsilon(1e-6)


@pytest.mark.thorough
def test_a_store_may_change_the_order_of_the_groups(releases):
    """Found by a newcomer: Zarr gives groups back in the order of their names, and such a release was damaged."""
    release = releases["apart"]
    groups = {f"/{name}": node.to_dataset() for name, node in reversed(list(release.children.items()))}
    groups |= {
        f"/mechanism/{name}": node.to_dataset() for name, node in reversed(list(release["mechanism"].children.items()))
    }
    back = xr.DataTree.from_dict(groups)
    back.attrs = release.attrs
    assert list(back["mechanism"].children) == ["rate", "p"]
    assert verify(back) == verify(release)
    assert as_mechanism(back) == as_mechanism(release)
    assert dirdp.report(back).title.startswith("Private posterior draw")


# Each edit of finding 19, and the check that has to see it.
LIES = {
    "r": (("/mechanism/p", "r", 1.0), "guarantee"),
    "r, a little": (("/mechanism/p", "r", 0.2), "guarantee"),
    "alpha": (("/mechanism/p", "alpha", 0.01), "guarantee"),
    "epsilon": (("/privacy", "epsilon", 0.1), "guarantee"),
    "delta": (("/privacy", "delta", 1e-9), "guarantee"),
    "statement": (("/privacy", "statement", "(0.01, 1e-12)-differential privacy"), "statement"),
    "statement above": (("/", "guarantee", "(0.01, 1e-12)-differential privacy"), "statement"),
    "statement of the draws": (("/posterior", "guarantee", "perfect privacy"), "statement"),
    "adjacency": (("/privacy", "adjacency", "add-remove"), "adjacency"),
    "neighbours": (("/privacy", "neighbours", "any two data sets"), "adjacency"),
    "protected": (("/privacy", "protected", "every household in the country, with all of its records"), "people"),
    "a bigger unit": (("/privacy", "unit", "household"), "people"),
    "an assumption": (("/privacy", "assumptions", '["the moon is full"]'), "assumptions"),
    "arithmetic": (("/mechanism/p", "arithmetic", "proved to the last bit"), "sampler"),
    "bits": (("/mechanism/p", "randomness", "dice"), "sampler"),
    "a sampler": (("/mechanism/p", "sampler", "fast"), "sampler"),
    "steps": (("/mechanism/p", "steps", 10_001), "sampler"),
    "an attribute": (("/", "students", "108, 286, 71, 127"), "contents"),
    "an attribute of a table": (("/mechanism/p", "students", "108, 286, 71, 127"), "contents"),
    "an attribute of the draws": (("/posterior", "students", "108, 286, 71, 127"), "contents"),
    "an attribute of the promise": (("/privacy", "students", "108, 286, 71, 127"), "contents"),
    "contribution": (("/privacy", "contribution", 5), "assumptions"),
    "min_count": (("/mechanism/p", "min_count", 3.0), "assumptions"),
    "a curve": (("/privacy", "epsilon_at", 0.01), "curves"),
    "another curve": (("/privacy", "renyi_divergence", 0.0), "curves"),
    "a seed": (("/", "reproducible", "not private"), "randomness"),
    "a seed of the draws": (("/posterior", "reproducible", "not private"), "randomness"),
    "a seed of a table": (("/mechanism/p", "randomness", "seed"), "randomness"),
    "nobody made it": (("/", "inference_library", "another"), "library"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("lie", LIES)
def test_a_false_statement_is_found_and_not_repeated(releases, lie):
    (path, name, value), check = LIES[lie]
    release = edited(releases["approx"], (path, name, value))
    found = verify(release)
    assert not found
    assert check in failed(release)
    text = str(dirdp.report(release))
    first = " ".join(text[: text.index("===")].split())
    assert first == found.headline
    assert text.index("No promise") < text.index("Expected error")
    assert ("Not private" in first) if check == "randomness" else ("does not follow" in first)
    assert "to whom" not in text
    assert "all of them covered" not in text
    assert "No promise" in text


@pytest.mark.parametrize("path", ["/", "/posterior", "/mechanism", "/mechanism/p", "/privacy", "/utility"])
def test_data_beside_a_release_are_found_wherever_they_lie(releases, path):
    """Found by attack: labels, attributes, and variables of some groups, were not looked at."""
    dataset = releases["approx"][path].to_dataset()
    if path not in ("/posterior",):  # Which Deterministics there are, the file decides: they are listed.
        for added in (dataset.assign(students=("q", [108, 286])), dataset.assign(students=108)):
            release = releases["approx"].copy(deep=True)
            release[path].dataset = added
            assert failed(release) == ["contents"]
    release = releases["approx"].copy(deep=True)
    release[path].dataset = dataset.assign_coords(students=("q", [108, 286]))
    # Labels of a node above are those of a node below, too.
    assert failed(release) == ["contents"]
    assert "students" in str(verify(release))
    if dataset.variables:
        release = releases["approx"].copy(deep=True)
        name = next(iter(dataset.variables))
        marked = dataset.copy(deep=True)
        marked[name].attrs["students"] = "108, 286"
        release[path].dataset = marked
        assert failed(release) == ["contents"]
        assert verify(release).kept is None


@pytest.mark.parametrize(
    ("path", "name", "text"),
    [
        ("/", "estimate", "there are 108 students"),
        ("/posterior", "estimate", "the shares are fitted to noisy counts of margins, and are no draw"),
        ("/", "plan_digest", "there are 108 students"),
        ("/posterior", "plan_digest", "0" * 63),
        ("/utility", "note", "there are 108 students"),
        ("/utility", "records", "public"),
    ],
)
def test_texts_that_no_release_has_are_found(releases, path, name, text):
    """Found by attack: these attributes could say anything, and `records` decides what a number is taken for."""
    release = edited(releases["truncated"], (path, name, text))
    assert failed(release) == ["contents"]
    assert f"{name!r} of {path}" in str(verify(release)).replace("\n" + 15 * " ", " ")
    assert verify(release).kept is None


def test_a_release_without_a_number_to_plan_for_says_so_and_verifies():
    release = dirdp.sample(TARGET, two_tables(), mechanism="geometric", adjacency="add-remove")
    assert "n_records" in release["utility"].attrs["note"]
    assert verify(release)


def test_assumptions_that_a_promise_needs_cannot_be_left_out(releases):
    """Found by attack: a promise for groups of people was printed without what it assumes."""
    assert failed(edited(releases["apart"], ("/privacy", "assumptions", "[]"))) == ["assumptions"]
    text = " ".join(str(verify(edited(releases["apart"], ("/privacy", "assumptions", "[]")))).split())
    assert "the size of each group of disjoint is public" in text


def test_a_fast_draw_is_not_said_to_be_exact(releases):
    """Found by attack: copied words turned a draw in floating point into one in whole numbers."""
    fast = dirdp.sample(TARGET, two_tables(), sampler="fast")
    assert verify(fast)
    exact = releases["approx"]
    release = fast.copy(deep=True)
    for name in ("/mechanism/p", "/mechanism/rate"):
        release[name].attrs |= {
            what: exact[name].attrs[what] for what in ("sampler", "arithmetic", "randomness", "steps")
        }
    # The steps of an urn also bound its loss, which the file of a continuous draw does not state.
    assert failed(release) == ["curves", "sampler"]
    assert "grid" in str(verify(release))
    noise = edited(releases["pure"], ("/mechanism/p", "noisy_counts", 3.25))
    assert failed(noise) == ["totals", "sampler"]
    continuous = dirdp.sample(TARGET, two_tables(), mechanism="laplace", sampler="fast")
    words = [
        ("sampler", "exact"),
        ("randomness", "operating system"),
        ("arithmetic", exact["mechanism/p"].attrs["arithmetic"]),
    ]
    assert failed(edited(continuous, *(("/mechanism/p", *pair) for pair in words))) == ["sampler"]


def test_whom_a_release_of_people_protects_is_written_again():
    """Found by attack: all words on people could be replaced where the unit is not a record."""
    with pm.Model(coords={"person": range(4), "question": ["a", "b", "c"], "answer": ["no", "yes"]}) as model:
        theta = pm.Dirichlet("theta", np.ones((3, 2)), dims=("question", "answer"))
        pm.Categorical("answers", p=theta, observed=np.zeros((4, 3), dtype=int), dims=("person", "question"))
    release = dirdp.sample(TARGET, model, unit="person")
    assert verify(release)
    privacy = release["privacy"].attrs
    for name in ("protected", "neighbours"):
        assert (
            verify(edited(release, ("/privacy", name, privacy[name].replace("3 records", "300 records")))).follows
            is False
        )
    for name, value in (("unit", ["household"]), ("others", True), ("n_units", 400), ("max_records_per_person", 9)):
        people = json.dumps(json.loads(privacy["people"]) | {name: value})
        assert not verify(edited(release, ("/privacy", "people", people)))
    both = json.dumps(json.loads(privacy["people"]) | {"contribution": 3})
    with pytest.raises(ReleaseError, match="people"):
        verify(edited(release, ("/privacy", "people", both)))


@pytest.mark.parametrize("text", ["[]", "null", "{}", '"person"', '{"unit": 3}'])
def test_facts_on_people_that_are_none_are_damage(releases, text):
    with pytest.raises(ReleaseError, match="people"):
        verify(edited(releases["approx"], ("/privacy", "people", text)))


def test_one_table_with_more_records_than_the_promise_is_found(releases):
    fewer = '{"records": 1, "axes": []}'
    assert "people" in failed(edited(releases["many"], ("/mechanism/p", "contribution", fewer)))


def test_a_false_curve_of_delta_is_found(releases):
    """Its name is also that of an attribute."""
    release = releases["approx"].copy(deep=True)
    release["privacy"].dataset = with_values(release["privacy"].to_dataset(), "delta", 0.0)
    assert failed(release) == ["curves"]


def test_what_would_follow_instead_is_kept_and_is_near_the_least(releases):
    release = edited(releases["approx"], ("/mechanism/p", "r", 1.0))
    found = verify(release)
    curves = dirdp.mechanisms.DirichletMechanism(release["mechanism/p"]["alpha"].values, 1.0)
    rate = release["mechanism/rate"]
    other = dirdp.mechanisms.DirichletMechanism(rate["alpha"].values, float(rate["r"]))
    # Independent oracle: the loss of both is at least that of one, and at most the sum of their parts.
    assert curves.epsilon(1e-6) <= found.kept.epsilon
    assert found.kept.epsilon <= 1.001 * (curves.epsilon(0.5e-6) + other.epsilon(0.5e-6))
    assert str(found.kept) in str(found)
    stricter = edited(releases["renyi"], ("/privacy", "epsilon", 0.1))
    assert verify(stricter).kept.epsilon == pytest.approx(0.5, rel=2e-3)
    assert verify(stricter).kept.epsilon >= as_mechanism(releases["renyi"]).renyi(4.0)


@pytest.mark.parametrize("kind", ["apart", pytest.param("approx", marks=pytest.mark.slow)])
def test_numbers_that_are_too_large_for_any_curve_keep_nothing(releases, kind):
    for value in (1e-90, 1e9, 1e90):
        release = edited(releases[kind], ("/mechanism/p", "r", value))
        assert not verify(release)
        assert "does not follow" in str(dirdp.report(release)).splitlines()[0]
        with pytest.raises(ReleaseError):
            as_mechanism(release)
    # No mechanism has these.
    for value in (1e-300, 1e300):
        release = edited(releases[kind], ("/mechanism/p", "r", value))
        for read in (verify, dirdp.report, as_mechanism):
            with pytest.raises(ReleaseError, match="no such mechanism"):
                read(release)


UNFIT = {
    "a table left out": ("groups", json.dumps([["p"]])),
    "a table twice": ("groups", json.dumps([["p", "p", "rate"]])),
    "an unknown table": ("groups", json.dumps([["p", "rate", "q"]])),
    "no groups": ("groups", "[]"),
    "an empty group": ("groups", '[["p", "rate"], []]'),
    "no list": ("groups", '"p"'),
    "no JSON": ("groups", '[["p", "rate"'),
    "deep JSON": ("groups", "[" * 100_000),
    "no draws": ("draws", 0),
    "fewer draws": ("draws", -1),
    "other draws": ("draws", 2),
    "half a draw": ("draws", 1.5),
    "more draws than any": ("draws", 10**12),
    "draws in words": ("draws", "1"),
    "draws in a row": ("draws", [1, 1]),
    "draws beyond all numbers": ("draws", math.inf),
}


@pytest.mark.parametrize("what", UNFIT)
def test_groups_and_draws_that_do_not_fit_are_refused_by_all(releases, what):
    release = edited(releases["approx"], ("/privacy", *UNFIT[what]))
    for use in (verify, dirdp.report, as_mechanism, to_dp_accounting):
        with pytest.raises(ReleaseError, match="damaged"):
            use(release)


def test_people_who_were_said_to_be_others_are_found_by_the_curves(releases):
    """Two groups lose less than one, so an edit that splits the tables looks better than what was released."""
    release = edited(releases["approx"], ("/privacy", "groups", '[["p"], ["rate"]]'))
    assert "curves" in failed(release)
    for use in (as_mechanism, to_dp_accounting):
        with pytest.raises(ReleaseError, match="contradicts itself"):
            use(release)


def test_a_person_of_fewer_records_is_found_by_the_curves(releases):
    fewer = '{"records": 1, "axes": []}'
    edits = [(f"/mechanism/{name}", "contribution", fewer) for name in ("p", "rate")]
    assert failed(edited(releases["many"], *edits, ("/privacy", "contribution", 1))) == ["curves", "people"]
    assert "assumptions" in failed(edited(releases["many"], *edits))


def test_a_smaller_r_than_was_used_is_found_by_the_curves(releases):
    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=5, delta=1e-5))
    release = edited(releases["approx"], ("/mechanism/p", "r", 1e-6), ("/mechanism/rate", "r", 1e-6))
    assert failed(release) == ["curves"]
    with pytest.raises(ReleaseError, match="contradicts itself"):
        ledger.spend(TARGET, what="p", mechanism=as_mechanism(release))
    assert ledger.entries() == ()


def test_two_releases_in_one_are_two_draws(releases):
    """Found by attack: two releases put together along `chain` looked like one."""
    release = releases["approx"].copy(deep=True)
    posterior = release["posterior"].to_dataset()
    more = xr.concat([posterior, posterior.assign_coords(chain=[1])], dim="chain")
    groups = {f"/{name}": node.to_dataset() for name, node in release.children.items() if name != "posterior"}
    groups |= {f"/mechanism/{name}": node.to_dataset() for name, node in release["mechanism"].children.items()}
    with pytest.raises(ReleaseError, match="drawn 2 times"):
        verify(xr.DataTree.from_dict({"/posterior": more, **groups}))


def test_draws_from_noisy_counts_are_as_many_as_one_likes(releases):
    """The guarantee is about the noisy counts."""
    release = edited(releases["zero"], ("/privacy", "draws", 7))
    assert verify(release)


def test_what_no_release_holds_is_not_covered(releases):
    """`pm.sample_posterior_predictive` puts the observed counts into the tree."""
    release = releases["approx"].copy(deep=True)
    release["observed_data"] = xr.DataTree(xr.Dataset({"z": 5}))
    assert failed(release) == ["contents"]
    assert verify(release).kept is None
    inside = releases["approx"].copy(deep=True)
    inside["mechanism/p"]["noisy_counts"] = inside["mechanism/p"]["prior"]
    assert failed(inside) == ["contents"]


@pytest.mark.parametrize("value", [np.nan, -0.5, 2.0, 0.4, np.inf])
def test_what_are_no_probabilities_are_not_predicted_with(releases, value):
    """Finding 20: negative, NaN and scaled probabilities were predicted with."""
    release = edited(releases["approx"], ("/posterior", "p", value))
    for use in (
        verify,
        dirdp.report,
        lambda one: dirdp.sample_posterior_predictive(one, n_records=3),
        lambda one: dirdp.predict_log_proba(one, {"where": ["here"]}, target="hair"),
        lambda one: dirdp.log_likelihood(one, {"where": ["here"], "hair": ["red"]}),
    ):
        with pytest.raises(ReleaseError):
            use(release)


def test_swapped_labels_are_found(releases):
    release = releases["approx"].copy(deep=True)
    posterior = release["posterior"].to_dataset().assign_coords(hair=["brown", "black", "red"])
    release["posterior"] = xr.DataTree(posterior)
    with pytest.raises(ReleaseError, match="labels"):
        verify(release)


def test_no_sign_of_a_file_reaches_a_terminal(releases):
    r"""Finding 20: `\x1b[2J` in a statement cleared the screen."""
    evil = "\x1b[2J\x1b[31mgood\x07\r\nguarantee  perfect\u202e\u2028"
    attributes = [("/privacy", "statement"), ("/privacy", "neighbours"), ("/", "left_out"), ("/", "reproducible")]
    attributes += [("/mechanism/p", name) for name in ("strategy", "sampler", "arithmetic", "adjacency", "mechanism")]
    attributes += [("/privacy", "guarantee"), ("/", "inference_library_version"), ("/privacy", "groups")]
    attributes += [("/privacy", evil), ("/mechanism/p", evil)]
    for path, name in attributes:
        release = edited(releases["approx"], (path, name, evil))
        for use in (verify, dirdp.report):
            try:
                shown = use(release)
                texts = [str(shown), shown._repr_html_()]
            except ReleaseError as error:
                texts = [str(error)]
            for text in texts:
                assert all(sign.isprintable() or sign == "\n" for sign in text)
                assert "\nguarantee  perfect" not in text
    # HTML is escaped as before.
    release = edited(releases["approx"], ("/privacy", "statement", "<script>alert(1)</script>"))
    assert "<script>" not in verify(release)._repr_html_() + dirdp.report(release)._repr_html_()


def test_whatever_is_shown_is_visible():
    """Also a text that reached them unescaped."""
    evil = "a\x1b[2J<b>"
    for shown in (
        Verification(TARGET, None, (Check("name", False, evil),), (evil,)),
        Report(evil, ((evil, ((evil, evil),)),)),
    ):
        assert "\x1b" not in str(shown) + shown._repr_html_()
        assert "\\x1b[2J" in str(shown)
        assert "<b>" not in shown._repr_html_()


@pytest.mark.parametrize("what", [None, 3, "release.nc", {}, xr.Dataset(), xr.DataTree()])
def test_what_is_no_release_is_said_to_be_none(what):
    for use in (verify, dirdp.report, as_mechanism, lambda one: dirdp.sample_posterior_predictive(one, n_records=3)):
        with pytest.raises(ReleaseError, match="Expected a release"):
            use(what)


def test_the_verdict_is_readable(releases):
    found = verify(releases["apart"])
    text = str(found)
    assert text.splitlines()[0].startswith("The stated guarantee, (1, 1e-06)-differential privacy, follows")
    assert max(map(len, text.splitlines())) <= 80
    assert "Different people feed the groups" in text
    assert "'odds'" in text
    assert "<h4>" in found._repr_html_()


# Finding 18.
def to_whom(release):
    text = " ".join(str(dirdp.report(release)).split())
    return text[text.index("each of them: no conclusion") :].split(" Equivalent ")[0]


def test_a_pure_promise_has_no_probability_in_its_sentence(releases):
    sentence = to_whom(releases["pure"])
    assert "2.72 times" in sentence
    assert "probability" not in sentence
    assert "up to a probability of 1e-06" in to_whom(releases["approx"])
    pure = releases["approx"]["privacy"].attrs["pure_epsilon"]
    assert f"never more than {up(math.exp(pure), 3):.3g} times" in to_whom(releases["approx"])
    assert "never more" not in to_whom(dirdp.sample(TARGET, two_tables(), sampler="fast"))
    # One table of geometric noise for (1, 1e-6) is pure too, and many lose more in the worst case than usually.
    several = to_whom(dirdp.plan(TARGET, two_tables(), mechanism="geometric", draws=2))
    pure = dirdp.plan(TARGET, two_tables(), mechanism="geometric").composition.pure_epsilon
    assert f"never more than {math.exp(pure):.3g} times" in several or "probability" not in several


def test_a_pure_promise_composes(releases):
    curves = as_mechanism(releases["pure"])
    assert curves.satisfies(dirdp.ApproxDP(epsilon=1.0, delta=1e-12))
    assert curves.epsilon(1e-6) <= 1.0


@pytest.mark.thorough
def test_each_adjacency_has_its_own_words(releases):
    """A mutant that swapped them survived."""
    replaced, removed = to_whom(releases["approx"]), to_whom(releases["truncated"])
    assert "a different answer from that person" in replaced
    assert "no record in the data" not in replaced
    assert "no record in the data at all from that person" in removed
    assert "a different answer" not in removed
