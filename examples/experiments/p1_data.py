"""The data sets of P1's experiments, cut and split as P1 does it.

Quantile bins, and the categories of texts, are read off the data: no guarantee covers that (see "bins at quantiles" in
the table of statements). It is done here to show what P1 shows.

Each data set is a file `NAME.csv.gz` with the names of its columns in the first line. Three may also lie there as they
are published: `bank` as `bank-additional-full.csv` of Bank Marketing (41,188 records), `spam` as `spambase.data` of
Spambase (4,601) and `thyroid` as `ann-train.data` and `ann-test.data` of Thyroid Disease (7,200). These three were run
on made-up records of that form only.
"""

import declared_data
import numpy as np
import pandas as pd
from common import SEED

# The class, the columns that are left out, and those that are cut at deciles.
BILLS = [f"{kind}_AMT{i}" for kind in ("BILL", "PAY") for i in range(1, 7)]
VISITS = ["Administrative", "Informational", "ProductRelated"]
INDICATORS = ["emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed"]
TESTS = ["TSH", "T3", "TT4", "T4U", "FTI"]
DATA = {
    "credit_card": ("default payment next month", [], ["LIMIT_BAL", "AGE", *BILLS]),
    "thyroid": ("class", [], ["age", *TESTS]),
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


# Those of which P1 has a Bayesian network.
NETWORKS = ("german_credit", "adult", "bank")
# Published files without names of columns, and how they are separated.
TREATED = ["on_thyroxine", "query_on_thyroxine", "on_antithyroid_medication", "sick", "pregnant", "thyroid_surgery"]
SUSPECTED = ["I131_treatment", "query_hypothyroid", "query_hyperthyroid", "lithium", "goitre", "tumor"]
PUBLISHED = {
    "bank": (["bank-additional-full.csv"], {"sep": ";"}),
    "spam": (["spambase.data"], {"names": [*(f"x{i}" for i in range(1, 58)), "spam"]}),
    "thyroid": (
        ["ann-train.data", "ann-test.data"],
        {"sep": r"\s+", "names": ["age", "sex", *TREATED, *SUSPECTED, "hypopituitary", "psych", *TESTS, "class"]},
    ),
}


def files(folder, name):
    """The files of a data set, and how to read them; no files where they are not in the folder."""
    published, form = PUBLISHED.get(name, ([], {}))
    for names, options in (([f"{name}.csv.gz"], {}), (published, form)):
        paths = [folder / one for one in names]
        if all(path.exists() for path in paths):
            return paths, options
    return [], {}


def read(folder, name):
    """The table of a data set."""
    paths, options = files(folder, name)
    return pd.concat([pd.read_csv(path, **options) for path in paths], ignore_index=True)


def present(folder, names):
    """The data sets whose files are in the folder; for the others it is said which files, and what needs them."""
    found = [name for name in names if files(folder, name)[0]]
    for name in names:
        if name not in found:
            published = f", nor {' and '.join(PUBLISHED[name][0])}" if name in PUBLISHED else ""
            drawn = "4, 5, 7, 9, 10 and 11" if name in NETWORKS else "4, 5, 9 and 10"
            print(
                f"{name}: {name}.csv.gz is not in {folder}{published}, so it is left out; P1's Table 1 and Figures "
                f"{drawn} need it."
            )
    return found


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
    table = read(folder, name)
    if missing := sorted({target, *dropped, *(numbers or ())} - set(table)):
        raise SystemExit(f"{name} has no column {missing[0]!r}; `p1_data.py` says which columns it needs.")
    table = table.drop(columns=dropped)
    for column in table.columns.drop(target) if numbers is None else numbers:
        inner = np.unique(np.quantile(table[column], np.linspace(0, 1, 11)[1:-1]))
        table[column] = np.searchsorted(inner, table[column], side="left" if apart else "right")
    codes = {column: pd.factorize(table[column], sort=True)[0] for column in table}
    return pd.DataFrame(codes), target


def split(table):
    """Seven tenths of the records to train, and the rest."""
    return declared_data.train_and_test(table, np.random.default_rng(SEED))
