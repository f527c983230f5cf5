"""Wide tables of real records as data frames of category numbers, with public categories.

Edges of bins are written down here, and were not read off the records. Each function takes the folder of the files.
"""

import json

import numpy as np
import pandas as pd

# Upper ends of bins, in the currency of the records, in seconds or in counts.
LIMITS = (*range(20_000, 60_001, 10_000), *range(80_000, 300_001, 20_000), 340_000, 360_000, 400_000, 450_000)
LIMITS = (*LIMITS, 500_000, 600_000)
BILLS = (0, 1, 500, 1000, 2000, 3000, 5000, 7500, 10_000, 15_000, 20_000, 25_000, 30_000, 40_000, 50_000, 60_000)
BILLS = (*BILLS, 80_000, 100_000, 125_000, 150_000, 175_000, 200_000, 250_000, 300_000, 400_000)
PAID = (1, 200, 500, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 6000, 8000, 10_000, 15_000, 20_000, 30_000, 50_000)
PAID = (*PAID, 100_000)
AMOUNTS = (500, 750, 1000, 1250, 1500, 1750, 2000, 2500, 3000, 3500, 4000, 5000, 6000, 7000, 8000, 10_000, 12_000)
AMOUNTS = (*AMOUNTS, 15_000)
SECONDS = (1, 10, 30, 60, 90, 120, 180, 240, 300, 400, 500, 700, 1000, 1500, 2000, 3000, 5000, 10_000)
PAGES = (1, 2, 3, 4, 5, 7, 9, 12, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200, 300)


def adult(folder):
    lengths = json.loads((folder / "adult_wide_domain.json").read_text())
    frame = pd.read_csv(folder / "adult_wide.csv.gz")[list(lengths)]
    return frame, {name: list(range(length)) for name, length in lengths.items()}


def credit(folder):
    def column(name, values):
        if name == "LIMIT_BAL":
            return binned(values, LIMITS)
        if name == "AGE":
            return binned(values, range(24, 69, 3))
        if name.startswith("BILL"):
            return binned(values, BILLS)
        if name.startswith("PAY_AMT"):
            return binned(values, PAID)
        codes = {"SEX": (1, 2), "EDUCATION": range(7), "MARRIAGE": range(4)}
        return coded(values, range(-2, 10) if name.startswith("PAY_") else codes.get(name, (0, 1)))

    return _of(pd.read_csv(folder / "credit_card.csv.gz"), column)


def german(folder):
    def column(name, values):
        edges = {"duration": range(6, 73, 3), "amount": AMOUNTS, "age": range(22, 72, 3)}
        if name in edges:
            return binned(values, edges[name])
        return coded(values, range(11) if name == "purpose" else range(int(values.min()), int(values.max()) + 1))

    return _of(pd.read_csv(folder / "german_credit.csv.gz"), column)


def shopper(folder):
    def column(name, values):
        edges = {"ProductRelated": PAGES, "Administrative": range(1, 16), "Informational": range(1, 10)}
        edges |= {"PageValues": (1, 3, 5, 8, 12, 16, 20, 30, 40, 60, 100), "ProductRelated_Duration": SECONDS}
        if name in edges or name.endswith("Duration"):
            return binned(values, edges.get(name, SECONDS[:-2]))
        return coded(values, sorted(set(values)))

    frame = pd.read_csv(folder / "shopper_paper_rounded.csv.gz").drop(columns=["BounceRates", "ExitRates"])
    return _of(frame, column)


def binned(values, edges):
    return np.digitize(values, edges), len(edges) + 1


def coded(values, labels):
    place = {label: i for i, label in enumerate(labels)}
    return np.array([place[value] for value in values.tolist()]), len(place)


def _of(frame, column):
    found = {name: column(name, frame[name].to_numpy()) for name in frame}
    codes = pd.DataFrame({name: values for name, (values, _) in found.items()})
    return codes, {name: list(range(length)) for name, (_, length) in found.items()}


SOURCES = {"adult": adult, "credit": credit, "german": german, "shopper": shopper}
