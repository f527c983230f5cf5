"""Data sets with the categories of their code books, and with edges of bins that were chosen without looking at them.

The data are those of the UCI repository (South German Credit, Nursery, Adult, Default of Credit Card Clients, Optical
Recognition of Handwritten Digits), with the names of its descriptions as the first line. `benchmarks` reads them
by this file, too.
"""

import numpy as np
import pandas as pd

# The edges of the bins of a number are a list. The categories of a text are one string, and those of a code a range.
GERMAN = {
    "duration": [6, 9, 12, 15, 18, 24, 30, 36, 48],
    "amount": [1000, 1500, 2000, 2500, 3000, 4000, 5000, 7500, 10000],
    "age": [25, 30, 35, 40, 45, 50, 55, 60, 65],
    **{name: range(1, 5) for name in ("status", "installment_rate", "personal_status_sex", "present_residence")},
    **{name: range(1, 5) for name in ("property", "number_credits", "job")},
    **{name: range(1, 6) for name in ("savings", "employment_duration")},
    **{name: range(1, 4) for name in ("other_debtors", "other_installment_plans", "housing")},
    **{name: range(1, 3) for name in ("people_liable", "telephone", "foreign_worker")},
    "credit_history": range(5),
    "purpose": range(11),
    "credit_risk": range(2),
}
NURSERY = {
    "parents": "usual pretentious great_pret",
    "has_nurs": "proper less_proper improper critical very_crit",
    "form": "complete completed incomplete foster",
    "children": "1 2 3 more",
    "housing": "convenient less_conv critical",
    "finance": "convenient inconv",
    "social": "nonprob slightly_prob problematic",
    "health": "recommended priority not_recom",
    "class": "not_recom recommend very_recom priority spec_prior",
}
ADULT = {
    "age": [25, 30, 35, 40, 45, 50, 55, 60, 65],
    "workclass": "? Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc State-gov Without-pay",
    "education": "10th 11th 12th 1st-4th 5th-6th 7th-8th 9th Assoc-acdm Assoc-voc Bachelors Doctorate HS-grad Masters "
    "Preschool Prof-school Some-college",
    "marital-status": "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married "
    "Separated Widowed",
    "occupation": "? Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing Handlers-cleaners "
    "Machine-op-inspct Other-service Priv-house-serv Prof-specialty Protective-serv Sales Tech-support "
    "Transport-moving",
    "relationship": "Husband Not-in-family Other-relative Own-child Unmarried Wife",
    "race": "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White",
    "sex": "Female Male",
    "capital-gain": [1, 2500, 5000, 7500, 10000, 20000],
    "capital-loss": [1, 1500, 1750, 2000, 2500],
    "hours-per-week": [20, 30, 35, 40, 41, 45, 50, 60],
    "income": "<=50K >50K",
}
# Months of delay, and amounts in New Taiwan dollars.
CREDIT_CARD = {
    "LIMIT_BAL": [20_000, 50_000, 100_000, 150_000, 200_000, 300_000, 500_000],
    "SEX": range(1, 3),
    "EDUCATION": range(7),
    "MARRIAGE": range(4),
    "AGE": [25, 30, 35, 40, 45, 50, 55, 60, 65],
    **{f"PAY_{i}": range(-2, 9) for i in (0, 2, 3, 4, 5, 6)},
    **{f"BILL_AMT{i}": [0, 1, 1000, 5000, 20_000, 50_000, 100_000, 200_000] for i in range(1, 7)},
    **{f"PAY_AMT{i}": [1, 1000, 2000, 5000, 10_000, 20_000, 50_000] for i in range(1, 7)},
    "default payment next month": range(2),
}
# P1's digits: 64 numbers of dark points, from 0 to 16.
DIGIT = {**{f"X{i}": [1, 3, 5, 7, 9, 11, 13, 15, 16] for i in range(1, 65)}, "class": range(10)}
DATA = {
    "german_credit": (GERMAN, "credit_risk"),
    "nursery": (NURSERY, "class"),
    "adult": (ADULT, "income"),
    "credit_card": (CREDIT_CARD, "default payment next month"),
    "digit": (DIGIT, "class"),
}


def read(folder, name):
    """The declared columns of the records with binned numbers, the declared categories, and the class."""
    # The numbers of children are 1, 2, 3 and "more": they are texts.
    texts = {column: str for column, domain in DATA[name][0].items() if isinstance(domain, str)}
    return cut(pd.read_csv(folder / f"{name}.csv.gz", dtype=texts), name)


def cut(frame, name):
    """The same for records that come from elsewhere."""
    declared, target = DATA[name]
    frame, categories = frame[list(declared)].copy(), {}
    for column, domain in declared.items():
        if isinstance(domain, list):
            frame[column] = np.searchsorted(domain, frame[column], side="right")
            categories[column] = range(len(domain) + 1)
        else:
            categories[column] = domain.split() if isinstance(domain, str) else domain
    return frame, categories, target


def train_and_test(frame, rng):
    """Seven tenths of the records to train, and the rest to test."""
    order = rng.permutation(len(frame))
    at = int(0.7 * len(frame))
    return frame.iloc[order[:at]], frame.iloc[order[at:]]
