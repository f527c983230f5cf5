"""The same as `outside.py` for numbers that come out of simulated tables and of the data sets of P1.

`VALUES` needs no data; `OF_DATA` has functions of the folder of the data sets, whose files it reads by itself. Noisy
counts are estimated from by sums over all counts. The figures take the normal approximation that planning has.
"""

import csv
import gzip
import json
import math
from functools import cache, partial

import numpy as np
import outside
from outside import SIMULATED, balance, concentration, gohari, kl_of_dirichlets, renyi_part, truncated_rho
from scipy import optimize
from scipy.special import digamma, gammaln, log_expit, log_softmax, polygamma

SEED, APPROXIMATED = 20261122, 0.15
TABLE_1 = {
    "credit_card": "default payment next month",
    "shopper_paper_rounded": "Revenue",
    "digit": "class",
    "german_credit": "credit_risk",
    "adult": "income",
}


def scale_of(loss, target):
    """The least scale of two-sided geometric noise whose loss is the target."""
    return math.exp(optimize.brentq(lambda log: loss(math.exp(log)) / target - 1, -3, 15))


def divergence_of_noise(order, scale):
    """Of two counts that move by 1: twice that of one."""
    a = -1 / scale
    pair = np.logaddexp(order * a, (1 - order) * a) - np.log1p(np.exp(a))
    return 2 * pair / (order - 1)


def concentrated(scale):
    orders = 1 + np.geomspace(1e-4, 300, 3000)
    return float((divergence_of_noise(orders, scale) / orders).max())


def composed_delta(scale, tables, epsilon):
    """Each noisy count loses 1 / scale or gains it, as randomised response does: a binomial sum."""
    cells = 2 * tables
    k = np.arange(cells + 1)
    losses = (2 * k - cells) / scale
    pmf = np.exp(
        gammaln(cells + 1)
        - gammaln(k + 1)
        - gammaln(cells - k + 1)
        + k * log_expit(1 / scale)
        + (cells - k) * log_expit(-1 / scale)
    )
    return float(pmf @ np.maximum(-np.expm1(np.minimum(epsilon - losses, 0)), 0))


def estimates(noisy, scale, n, rows=1, prior=1.0):
    """Expected shares of one of some rows of a table with n records, given its noisy counts.

    All divisions of the records among the rows are as likely as one another. `others` is the product of the weights of
    all cells but one, as a polynomial whose degree is the total of the row.
    """
    x, d = np.arange(n + 1.0), len(noisy)
    cells = np.exp(gammaln(x + prior) - gammaln(x + 1) - np.abs(noisy[:, None] - x) / scale)
    cells /= cells.max(axis=1, keepdims=True)

    def times(a, b):
        found = np.convolve(a, b)[: n + 1]
        return found / found.max()

    before, after = [np.eye(1, n + 1)[0]], [np.eye(1, n + 1)[0]]
    for forth, back in zip(cells[:-1], cells[:0:-1], strict=True):
        before.append(times(before[-1], forth))
        after.append(times(after[-1], back))
    if rows == 1:
        log_totals = np.where(x == n, 0, -np.inf)
    else:
        log_totals = gammaln(n - x + rows - 1) - gammaln(n - x + 1) + gammaln(x + 1) - gammaln(x + d * prior)
    totals, shares = np.exp(log_totals - log_totals.max()), []
    for cell, left, right in zip(cells, before, after[::-1], strict=True):
        others = times(left, right)
        weight, count = (np.convolve(one, others)[: n + 1] for one in (cell, x * cell))
        shares.append(totals @ ((prior * weight + count) / (x + d * prior)) / (totals @ weight))
    return np.array(shares)


def geometric(rng, scale, shape):
    q = -math.expm1(-1 / scale)
    return rng.geometric(q, shape) - rng.geometric(q, shape)


@cache
def figure_2(line, d, n=100, rho=0.1, prior=5.0):
    """P2's largest error of a frequency."""
    rng, times = np.random.default_rng(1), 400
    x = rng.multinomial(n, rng.dirichlet(np.full(d, prior), times)).astype(float)
    if line == "printed":
        alpha = 1 + optimize.brentq(lambda a: float(polygamma(1, a)) - rho, 1e-3, 1000)
        y = rng.standard_gamma(x + alpha)
    elif line == "estimated":
        scale = scale_of(concentrated, rho)
        y = np.array([estimates(one, scale, n, prior=prior) for one in x + geometric(rng, scale, x.shape)])
        y = (y * (n + prior * d) - prior) / n
    else:
        y = x + rng.normal(0, 1 / math.sqrt(rho), x.shape)
        y = y / n if line == "as it comes" else np.maximum(y, 0)
    y = y if line in ("estimated", "as it comes") else y / y.sum(axis=1, keepdims=True)
    return float(np.abs(y - x / n).max(axis=1).mean())


@cache
def figure_3(line, eta, n=1000, d=10, rho=0.1):
    """P2's divergence of a private posterior from the posterior."""
    rng = np.random.default_rng(1)
    x = rng.multinomial(n, rng.dirichlet(np.full(d, eta), 200 if line == "estimated" else 20_000)).astype(float)
    if line == "printed":
        private = x + 2 + optimize.brentq(lambda a: float(polygamma(1, a)) - rho, 1, 1000)
    elif line == "least prior":
        private = x + optimize.brentq(lambda a: truncated_rho(1.0, a) - rho, 2.1, 1000)
    elif line == "balanced":
        r, alpha, _ = balance(rho)
        private = r * x + alpha
    elif line == "estimated":
        scale = scale_of(concentrated, rho)
        noisy = x + geometric(rng, scale, x.shape)
        private = np.array([estimates(one, scale, n) for one in noisy]) * (n + d)
    else:
        private = np.maximum(x + rng.normal(0, 1 / math.sqrt(rho), x.shape), 0) + 1
    return float(kl_of_dirichlets(x + 1, private).mean())


@cache
def columns(folder, name):
    with gzip.open(folder / f"{name}.csv.gz", "rt", encoding="utf-8", newline="") as file:
        names, *rows = csv.reader(file)
    return dict(zip(names, np.array(rows).T, strict=True))


def described(folder, name, what):
    """The numbers of P1's Table 1."""
    table = columns(folder, name)
    _, sizes = np.unique(table[TABLE_1[name]], return_counts=True)
    return {
        "records": sizes.sum(),
        # The survey weight of Adult is left out.
        "attributes": len(table) - 1 - ("fnlwgt" in table),
        "classes": len(sizes),
        "rarer class": sizes.min() / sizes.sum(),
    }[what]


class German:
    """The South German Credit data in train and test, with numbers cut at their deciles."""

    def __init__(self, folder, side):
        self.codes = {}
        for name, column in columns(folder, "german_credit").items():
            values = column
            if name in ("duration", "amount", "age"):
                numbers = column.astype(float)
                values = np.searchsorted(np.unique(np.quantile(numbers, np.arange(1, 10) / 10)), numbers, side)
            self.codes[name] = np.unique(values, return_inverse=True)[1]
        order = np.random.default_rng(SEED).permutation(len(values))
        self.train, self.test = np.split(order, [int(0.7 * len(order))])
        self.n = len(self.train)

    def size(self, name):
        return int(self.codes[name].max()) + 1

    def counts(self, child, parents, part):
        """A row for each configuration of the parents."""
        row = np.zeros(len(part), int)
        for parent in parents:
            row = row * self.size(parent) + self.codes[parent][part]
        rows = math.prod(self.size(parent) for parent in parents)
        found = np.zeros((rows, self.size(child)))
        np.add.at(found, (row, self.codes[child][part]), 1)
        return found


def publish(how, setting, counts, n, rng, times):
    """So many releases of the shares of a table."""
    if how == "draw":
        r, alpha = setting
        y = rng.standard_gamma(np.broadcast_to(r * counts + alpha, (times, *counts.shape)))
        return y / y.sum(axis=-1, keepdims=True)
    if how == "clipped":
        y = np.maximum(counts + rng.normal(0, setting, (times, *counts.shape)), 1e-6)
        return y / y.sum(axis=-1, keepdims=True)
    noisy = counts + geometric(rng, setting, (times, *counts.shape))
    return np.array([[estimates(row, setting, n, len(counts)) for row in table] for table in noisy])


def algorithm_1(epsilon, tables, order=5):
    r = concentration(epsilon / tables, order)
    return r, 1 + 4 * (order - 1) * r


def converted(epsilon, tables):
    """Algorithm 1 by way of equation 14, at the best of sixteen orders."""
    orders = (2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 400, 800, 1600, 3200, 6400)
    found = [(renyi_part(epsilon, order), order) for order in orders]
    pairs = [algorithm_1(part, tables, order) for part, order in found if part > 0]
    return max(pairs, key=lambda pair: pair[0] / pair[1])


def of_gohari(epsilon, tables, n, cells):
    r = gohari(epsilon / tables, 1e-5 / tables, n, max(int(cells), 3), 5)
    return r, 1 + 16 * r


def setting_of(line, epsilon, data, shapes, *, approximate):
    """How a line of P1's figures publishes, and with what."""
    tables = len(shapes)
    if line == "estimated":
        if approximate:
            return "estimate", scale_of(lambda scale: composed_delta(scale, tables, epsilon), 1e-5)
        return "estimate", scale_of(lambda scale: divergence_of_noise(5.0, scale), epsilon / tables)
    if line == "clipped":
        return "clipped", math.sqrt(5 * tables / epsilon)
    if line == "Gohari":
        return "draw", of_gohari(epsilon, tables, data.n, np.median([shape[1] for shape in shapes]))
    return "draw", converted(epsilon, tables) if approximate else algorithm_1(epsilon, tables)


@cache
def naive_bayes(folder, line, epsilon, *, approximate=False):
    """The cross-entropy and the accuracy of a classifier of the German credit data."""
    data, rng, target = German(folder, "right"), np.random.default_rng(1), "credit_risk"
    features = [name for name in data.codes if name != target and data.size(name) > 1]
    tables = [data.counts(target, [], data.train)] + [data.counts(name, [target], data.train) for name in features]
    how, setting = setting_of(line, epsilon, data, [table.shape for table in tables], approximate=approximate)
    classes, *others = (
        np.log(np.maximum(publish(how, setting, table, data.n, rng, 100 if line == "estimated" else 400), 1e-300))
        for table in tables
    )
    joint = classes[:, 0, :, None]
    for name, logs in zip(features, others, strict=True):
        joint = joint + logs[:, :, data.codes[name][data.test]]
    right = data.codes[target][data.test]
    of_right = log_softmax(joint, axis=1)[:, right, np.arange(len(right))]
    return float(-of_right.mean()), float((joint.argmax(axis=1) == right).mean())


@cache
def network(folder, line, epsilon, *, approximate=False):
    """The mean logarithm of the probability of a test record; of draws its expectation."""
    data, rng, found = German(folder, "left"), np.random.default_rng(1), 0.0
    parents_of = json.loads((folder / "networks.json").read_text(encoding="utf-8"))["german_credit"]
    families = [(child, parents) for child, parents in parents_of.items() if data.size(child) > 1]
    tables = [data.counts(*family, data.train) for family in families]
    how, setting = setting_of(line, epsilon, data, [table.shape for table in tables], approximate=approximate)
    for family, table in zip(families, tables, strict=True):
        tested = data.counts(*family, data.test) / len(data.test)
        if how == "draw":
            parameters = setting[0] * table + setting[1]
            logs = digamma(parameters) - digamma(parameters.sum(axis=-1, keepdims=True))
        else:
            times = 10 if how == "estimate" else 400
            logs = np.log(publish(how, setting, table, data.n, rng, times)).mean(axis=0)
        found += float((logs * tested).sum())
    return found


def edges(folder, name):
    networks = json.loads((folder / "networks.json").read_text(encoding="utf-8"))
    return sum(len(parents) for parents in networks[name].values())


VALUES = {
    **{
        ("p2_figure_2", f"1000 categories, {theirs}"): partial(figure_2, line, 1000)
        for theirs, line in (
            ("printed", "printed"),
            ("Gaussian noise", "as it comes"),
            ("Gaussian noise, smoothed", "clipped"),
        )
    },
    **{
        ("p2_figure_2", f"10 categories, {theirs}"): partial(figure_2, line, 10, rho=1.0)
        for theirs, line in (
            ("printed", "printed"),
            ("Gaussian noise", "as it comes"),
            ("geometric noise, estimated", "estimated"),
        )
    },
    **{
        ("p2_figure_3", f"eta {eta:g}, {theirs}"): partial(figure_3, line, eta)
        for eta in (0.1, 10.0)
        for theirs, line in (
            ("printed", "printed"),
            ("corrected", "least prior"),
            ("exact", "balanced"),
            ("Gaussian noise", "clipped"),
            ("geometric noise, estimated", "estimated"),
        )
    },
}
OF_DATA = {
    **{
        ("p1_table_1", f"{name}, {what}"): partial(described, name=name, what=what)
        for name in TABLE_1
        for what in ("records", "attributes", "classes", "rarer class")
        if (name, what) != ("digit", "rarer class")
    },
    **{("p1_figure_6", f"{name}, edges"): partial(edges, name=name) for name in ("adult", "german_credit")},
    **{
        ("p1_figures_4_5", f"german_credit, {what}"): lambda folder, line=line, i=i: naive_bayes(folder, line, 0.1)[i]
        for what, line, i in (
            ("draw", "draw", 0),
            ("clipped Gaussian", "clipped", 0),
            ("estimated noise", "estimated", 0),
            ("accuracy of the draw", "draw", 1),
            ("accuracy of estimated noise", "estimated", 1),
        )
    },
    **{
        ("p1_figures_9_10", f"german_credit, {what}"): lambda folder, line=line: naive_bayes(
            folder, line, 10.0, approximate=True
        )[0]
        for what, line in (("draw", "draw"), ("Gohari et al.", "Gohari"), ("estimated noise", "estimated"))
    },
    **{
        ("p1_figure_7", f"german_credit, {what}"): partial(network, line=line, epsilon=1.0)
        for what, line in (
            ("printed", "draw"),
            ("Gaussian noise", "clipped"),
            ("geometric noise, estimated", "estimated"),
        )
    },
    **{
        ("p1_figure_11", f"german_credit, {what}"): partial(network, line=line, epsilon=1.0, approximate=True)
        for what, line in (
            ("printed", "draw"),
            ("Gohari et al.", "Gohari"),
            ("geometric noise, estimated", "estimated"),
        )
    },
}


def every(folder):
    """A function for each number that is computed here and in `outside.py`; those of data if there is a folder."""
    of_data = {} if folder is None else {key: partial(value, folder) for key, value in OF_DATA.items()}
    return outside.VALUES | VALUES | of_data


def tolerance(key):
    """How near both have to be. On the German credit data the approximation costs up to a tenth at epsilon 0.1."""
    if key in outside.VALUES or key[0] in ("p1_table_1", "p1_figure_6"):
        return outside.TOLERANCE.get(key, outside.NEAR)
    return APPROXIMATED if "estimated" in key[1] else SIMULATED
