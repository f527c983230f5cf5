"""The scripts of `examples/experiments` that release real data sets, on made-up ones of the same form."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "examples" / "experiments"
NEEDED = {"real_classifiers": ["german_credit"], "real_networks": ["networks"], "open_bandit": ["open_bandit"]}
# Whether the credit was repaid, and who rents, owns or neither: one variable says much of the other.
SHARES = {0: [0.8, 0.15, 0.05], 1: [0.1, 0.2, 0.7]}


@pytest.fixture(autouse=True)
def _scripts_find_one_another(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))


@pytest.fixture
def run(monkeypatch, tmp_path):
    """What a quick run of a script writes; None if it writes nothing."""

    def made(name, *options):
        monkeypatch.setattr(sys, "argv", [name, "--data", str(tmp_path), "--out", str(tmp_path), "--quick", *options])
        importlib.import_module(name).main()
        path = tmp_path / f"{name}.csv"
        assert path.exists() == path.with_suffix(".png").exists()
        return pd.read_csv(path) if path.exists() else None

    return made


@pytest.fixture
def credit(monkeypatch, tmp_path):
    """Two of the columns of the German credit data, one that is not declared, and a network of the two."""
    declared = importlib.import_module("declared_data")
    columns, target = declared.DATA["german_credit"]
    few = {name: columns[name] for name in ("housing", target)}
    monkeypatch.setitem(declared.DATA, "german_credit", (few, target))
    for name in ("real_classifiers", "real_networks"):
        monkeypatch.setattr(importlib.import_module(name), "QUICK", (10.0,))
    rng = np.random.default_rng(20261123)
    repaid = rng.integers(0, 2, 900)
    housing = [rng.choice([1, 2, 3], p=SHARES[value]) for value in repaid]
    frame = pd.DataFrame({"other": rng.integers(0, 9, 900), "housing": housing, target: repaid})
    frame.to_csv(tmp_path / "german_credit.csv.gz", index=False)
    network = {"german_credit": {target: [], "housing": [target]}}
    (tmp_path / "networks.json").write_text(json.dumps(network), encoding="utf-8")
    # What anybody finds without the library: shares of the records that train, one more in each cell, on the others.
    order = np.random.default_rng(1).permutation(900)
    train, test = frame.iloc[order[:630]], frame.iloc[order[630:]]
    table = pd.crosstab(train[target], train["housing"]).to_numpy() + 1
    own = train.groupby(target).size().to_numpy() + 1
    shares = own[:, None] / own.sum() * table / table.sum(axis=1, keepdims=True)
    joint = shares[:, test["housing"] - 1]
    at = np.arange(len(test))
    return {
        "cross_entropy": -np.log(joint / joint.sum(axis=0))[test[target], at].mean(),
        "accuracy": np.mean(joint.argmax(axis=0) == test[target]),
        "log_likelihood": np.log(joint[test[target], at]).mean(),
    }


MEASURED = {"real_classifiers": ("cross_entropy", "accuracy"), "real_networks": ("log_likelihood",)}


@pytest.mark.parametrize("script", MEASURED)
def test_a_release_with_a_large_epsilon_says_what_the_records_say(script, credit, run):
    first, *others = MEASURED[script]
    table = run(script, *([] if others else ["--only", "german_credit"]))
    assert list(table) == ["data", "epsilon", "reading", "release", first, *others]
    assert set(table["data"]) == {"german_credit"}
    plain, private = table[np.isinf(table["epsilon"])], table[np.isfinite(table["epsilon"])]
    for name in (first, *others):
        assert plain[name].to_numpy() == pytest.approx([credit[name]], rel=1e-9)
    # Algorithm 1 has a bound for P1's guarantee alone.
    readings = set(importlib.import_module(script).READINGS) - {"Algorithm 1, treated as the data"}
    assert sorted(private.groupby(["epsilon", "reading", "release"]).size().index) == sorted(
        (10.0, reading, release) for reading in readings for release in (0, 1)
    )
    private = private[private["reading"] != "class alone"]
    assert private[first].to_numpy() == pytest.approx(credit[first], abs=0.06)
    if others:
        right = private["accuracy"].to_numpy() * 270
        assert right == pytest.approx(np.round(right), abs=1e-9)
        assert private["accuracy"].min() > credit["accuracy"] - 0.1


def test_bandits(tmp_path, run, capsys):
    """Impressions of six items. Those that a policy chose are not shown at random, and do not count."""
    rng = np.random.default_rng(20261123)
    logs = []
    for campaign, rate in (("men", 0.05), ("women", 0.2)):
        for policy, clicks in (("random", rng.random(3000) < rate), ("bts", np.ones(500, bool))):
            items = np.arange(len(clicks)) % 6
            log = {"policy": policy, "campaign": campaign, "item_id": items, "click": clicks.astype(int)}
            logs.append(pd.DataFrame(log))
    log = pd.concat(logs)
    log.to_csv(tmp_path / "open_bandit.csv.gz", index=False)
    table = run("open_bandit")
    columns = ["regret_q05", "regret_median", "regret_q95", "clicks", "clicks_at_random"]
    assert list(table) == ["campaign", "epsilon", *columns]
    assert list(zip(table["campaign"], table["epsilon"], strict=True)) == [
        (campaign, epsilon) for campaign in ("men", "women") for epsilon in (0.1, 1.0, 10.0)
    ]
    said = capsys.readouterr().out
    at_random = log[log["policy"] == "random"].groupby("campaign")["click"].mean()
    for campaign, rows in table.groupby("campaign"):
        assert f"{campaign}: 6 items, mean {at_random[campaign]:.4f}, worth" in said
        # The rates are drawn near the mean: as if of at most 3000 impressions, but there may be fewer.
        assert rows["clicks_at_random"].nunique() == 1
        assert rows["clicks_at_random"].iloc[0] / 10_000 == pytest.approx(at_random[campaign], abs=0.02)
        # The best item would have had the clicks of all visitors and the regret.
        best = (rows["clicks"] + rows["regret_median"]).to_numpy()
        assert best == pytest.approx(best[0], rel=1e-12)
        assert best[0] > rows["clicks_at_random"].iloc[0]
        assert (rows["regret_q05"] >= 0).all()
        assert (rows["regret_q05"] <= rows["regret_median"]).all()
        assert (rows["regret_median"] <= rows["regret_q95"]).all()


@pytest.mark.parametrize("name", NEEDED)
def test_data_sets_that_are_not_there_are_named_and_not_replaced(name, run, capsys):
    assert run(name) is None
    said = capsys.readouterr().out
    for needed in NEEDED[name]:
        assert f"{needed}: not in" in said
    assert "nothing is written" in said
