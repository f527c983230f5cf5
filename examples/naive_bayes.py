"""Who survived the Titanic? A private naive Bayes classifier: four tables, one guarantee, one budget.

Data: Dawson (1995), The "unusual episode" data revisited, Journal of Statistics Education 3(3),
https://doi.org/10.1080/10691898.1995.11910499; 2201 people aboard.
"""

import itertools

import numpy as np
from scipy.special import log_softmax

import pymc_dirdp as dirdp

CATEGORIES = {
    "survived": ["no", "yes"],
    "age": ["child", "adult"],
    "sex": ["male", "female"],
    "class": ["1st", "2nd", "3rd", "crew"],
}
PEOPLE = [0, 0, 35, 0, 0, 0, 17, 0, 118, 154, 387, 670, 4, 13, 89, 3]
PEOPLE += [5, 11, 13, 0, 1, 13, 14, 0, 57, 14, 75, 192, 140, 80, 76, 20]

cells = list(itertools.product(*CATEGORIES.values()))
records = {name: np.repeat([cell[i] for cell in cells], PEOPLE) for i, name in enumerate(CATEGORIES)}
survived = records.pop("survived")


def not_private():
    """The same classifier at the posterior mean, from the counts themselves: for comparison, not for publication."""
    everyone = records | {"survived": survived}
    smoothed = dirdp.count(everyone, ["survived"], categories=CATEGORIES) + 1
    log_joint = np.log(smoothed / smoothed.sum())
    for name, column in records.items():
        smoothed = dirdp.count(everyone, ["survived", name], categories=CATEGORIES) + 1
        p = smoothed / smoothed.sum(axis=1, keepdims=True)
        log_joint = log_joint + np.log(p[:, [CATEGORIES[name].index(value) for value in column]]).T
    return log_softmax(log_joint, axis=1)


# Measured on the records themselves, so these numbers are not covered by a guarantee either.
def quality(log_proba):
    right = (survived == "yes").astype(int)
    accuracy = np.mean(log_proba.argmax(axis=1) == right)
    return f"{accuracy:8.3f}  {-log_proba[np.arange(len(right)), right].mean():.3f}"


model = dirdp.naive_bayes(records, survived, categories=CATEGORIES, target="survived")
ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=2.0, delta=1e-5))

print("epsilon  accuracy  cross-entropy")
for epsilon in (0.1, 0.5, 1.0):
    release = dirdp.sample(dirdp.ApproxDP(epsilon=epsilon, delta=1e-6), model, ledger=ledger)
    print(f"{epsilon:7}  {quality(dirdp.predict_log_proba(release, records).values)}")
print(f"   none  {quality(not_private())}")
print("\n", dirdp.report(release), "\n\n", ledger, sep="")

# Three releases about the same people. What does not fit into the rest is refused before anything is drawn.
try:
    dirdp.sample(dirdp.ApproxDP(epsilon=2.0, delta=1e-6), model, ledger=ledger)
except dirdp.errors.BudgetError as error:
    print(f"\n{error}")
