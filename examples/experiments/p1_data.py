"""The data sets of P1's experiments, cut and split as P1 does it.

Quantile bins, and the categories of texts, are read off the data: no guarantee covers that (see "bins at quantiles" in
the table of statements). It is done here to show what P1 shows.

Each data set is a file `NAME.csv.gz` with the names of its columns in the first line, as its public description has
them. `bank` is `bank-additional-full` of Bank Marketing (41,188 records, 20 attributes and `y`); `spam` is Spambase
(4,601 records, 57 numbers and `spam`); `thyroid` is `ann-thyroid` of Thyroid Disease (7,200 records, 15 attributes with
two values, the six numbers that are named below, and `class`). These three were run on made-up records of that form
only.
"""

import declared_data
import numpy as np
import pandas as pd
from common import SEED, present

# The class, the columns that are left out, and those that are cut at deciles.
BILLS = [f"{kind}_AMT{i}" for kind in ("BILL", "PAY") for i in range(1, 7)]
VISITS = ["Administrative", "Informational", "ProductRelated"]
INDICATORS = ["emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed"]
DATA = {
    "credit_card": ("default payment next month", [], ["LIMIT_BAL", "AGE", *BILLS]),
    "thyroid": ("class", [], ["age", "TSH", "T3", "TT4", "T4U", "FTI"]),
    "shopper_paper_rounded": (
        "Revenue",
        [],
        [*VISITS, *(f"{name}_Duration" for name in VISITS), "BounceRates", "ExitRates", "PageValues", "SpecialDay"],
    ),
    "digit": ("class", [], [f"X{i}" for i in range(1, 65)]),
    "german_credit": ("credit_risk", [], ["duration", "amount", "age"]),
    "bank": (
        "y",
        [],
        ["age", "duration", "campaign", "pdays", "previous", *INDICATORS],
    ),
    "spam": ("spam", [], None),  # all but the class
    # P1 has 13 attributes of Adult and this file 14. The weight of a record in the survey is left out.
    "adult": ("income", ["fnlwgt"], ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"]),
}


def sets(given):
    """The names of the data sets that are there and asked for; of a quick run, one."""
    found = present(given.data, given.only or DATA)
    return sorted(found, key=lambda name: name != "german_credit")[:1] if given.quick else found


def frame(folder, name, *, apart=False):
    """Codes of every column, with numbers cut into at most ten bins at their quantiles, and the class.

    Bins are closed below, so a column has one bin if nine tenths of its records have its least value. With `apart` they
    are closed above, and that value stands apart from larger ones.
    """
    target, dropped, numbers = DATA[name]
    table = pd.read_csv(folder / f"{name}.csv.gz")
    if missing := sorted({target, *dropped, *(numbers or ())} - set(table)):
        raise SystemExit(f"{name}.csv.gz has no column {missing[0]!r}; `p1_data.py` says which columns it needs.")
    table = table.drop(columns=dropped)
    for column in table.columns.drop(target) if numbers is None else numbers:
        inner = np.unique(np.quantile(table[column], np.linspace(0, 1, 11)[1:-1]))
        table[column] = np.searchsorted(inner, table[column], side="left" if apart else "right")
    codes = {column: pd.factorize(table[column], sort=True)[0] for column in table}
    return pd.DataFrame(codes), target


def split(table):
    """Seven tenths of the records to train, and the rest."""
    return declared_data.train_and_test(table, np.random.default_rng(SEED))
