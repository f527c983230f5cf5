"""From records to counts over a declared domain: the user declares the cells, and the data never decide them."""

from collections.abc import Sequence
from os import PathLike

from pymc_dirdp.counting.bounding import checked_bound
from pymc_dirdp.counting.categories import (
    Categories,
    Otherwise,
    checked_categories,
    checked_otherwise,
    checked_variables,
)
from pymc_dirdp.counting.codes import Frame
from pymc_dirdp.counting.counts import Counts
from pymc_dirdp.counting.families import count_families

__all__ = ["count"]


def count(
    records: Frame | str | PathLike[str],
    variables: Sequence[str],
    *,
    categories: Categories,
    unit: str | None = None,
    contribution: int | None = None,
    distinct: bool = False,
    otherwise: Otherwise | None = None,
) -> Counts:
    """How many records fall into each cell of the declared domain. The result is **secret**.

    Parameters
    ----------
    records : data frame, mapping of str to one-dimensional array, table of an engine, or path
        One entry of each column is one record. Tables that an engine holds, of DuckDB, Ibis, PySpark or Dask and lazy
        ones of polars, are grouped in the engine, and only the table comes back; this needs the extra `frames`. A path
        is that of a Parquet file or of a folder of them, which DuckDB reads; this needs the extra `duckdb`.
    variables : sequence of str
        The columns to count, each once, in the order of the result's axes.
    categories : mapping of str to sequence
        All values that each variable could take, in order: texts, numbers or members of an Enum. They are public, so
        they must not be read off the data. As in Python, 1, 1.0 and True are one label; "1" is another. A missing value
        is no label: see `otherwise`.
    unit : str, optional
        The column that says whose record it is, in texts or integers. Then at most `contribution` records of each
        unit are counted. Without it every record is counted.
    contribution : int, optional
        How many records of a unit are counted at most. With `unit` only.
    distinct : bool, default False
        Whether records of a unit that lie in one cell are counted as one, before the choice.
    otherwise : mapping of str to label, optional
        For some variables the label, one of the categories, that stands for missing and undeclared values.

    Returns
    -------
    counts : Counts, an ndarray of int64, shape ``tuple(len(categories[v]) for v in variables)``
        Cells without records hold a 0. It knows the unit and the contribution, and :func:`plan` uses them.

    Warns
    -----
    CategoriesFromDataWarning
        If categories are an object of pandas, polars or Arrow, which may have been made from data.

    Raises
    ------
    ArgumentError
        If a variable has no column or no categories or is named twice, or the domain is too large, or the columns have
        different indexes of pandas or xarray.
    DataError
        If a column holds a value that was not declared, or a missing one (None, NaN, NA, NaT, masked), or the columns
        are not of one length, or a record has no unit. The message names the column, and no value, position or number
        of records.
    ImportError
        If an extra is missing. The message says how to install it.

    Notes
    -----
    Values are compared, whatever the engine: dictionaries and categoricals of pandas, polars and Arrow are decoded.
    Dates, durations and intervals are no labels, because engines differ in what they make of them; nor is a
    floating-point number that may have been rounded, where labels are integers of that size.

    Which records of a unit are counted is decided by a hash of the record and the unit with a key of the operating
    system's random bits, which is not kept: a call chooses anew. After it the number of records depends on who the
    units are. It is private, unless one record of each unit is counted: then it is the number of units. See "At most m
    records of a person" on the page "Who is protected?".

    Examples
    --------
    >>> records = {"eye": ["blue", "green", "blue"], "left": [True, False, False]}
    >>> count(records, ["eye", "left"], categories={"eye": ["blue", "green", "grey"], "left": [False, True]}).tolist()
    [[1, 1], [1, 0], [0, 0]]

    One record of each patient:

    >>> visits = {"patient": ["ann", "ann", "bob"], "ill": ["yes", "yes", None]}
    >>> declared = {"ill": ["yes", "no", "unknown"]}
    >>> otherwise = {"ill": "unknown"}
    >>> count(visits, ["ill"], categories=declared, unit="patient", contribution=1, otherwise=otherwise).tolist()
    [1, 0, 1]
    """
    names = checked_variables(variables)
    labels = checked_categories(names, categories)
    bound = checked_bound(unit, contribution, distinct=distinct)
    (table,) = count_families(records, [names], labels, otherwise=checked_otherwise(otherwise, labels), bound=bound)
    return Counts.of(table, tuple((name, tuple(labels[name])) for name in names), bound)
