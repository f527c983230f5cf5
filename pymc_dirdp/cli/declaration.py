"""What is declared in a TOML file before anybody looks at the data."""

import codecs
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, final

from pymc_dirdp.checks import MAX_RECORDS, integer, one_of
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.literals import AdjacencyName
from pymc_dirdp.mechanisms.registry import SETTINGS
from pymc_dirdp.privacy.guarantees import KINDS, Guarantee
from pymc_dirdp.privacy.people import adjacency_by_name

_DATA = ("counts", "records", "delimiter", "encoding")
"""The names in [data]."""


@final
@dataclass(frozen=True, eq=False)
class Declaration:
    """A declaration, checked as far as this is possible without a model.

    Attributes
    ----------
    guarantee : Guarantee
    categories : dict of str to list
        The labels of each variable: all texts, or all integers.
    structure : dict of str to list of str
        The variables that each is conditional on.
    crosses : dict of str to list of str
        By the name of a cross-table its variables, which have no table of their own.
    prior : dict of str to number or list
        Of those variables and cross-tables that have another one than 1.
    otherwise : dict of str to str or int
        The category that stands for missing and undeclared values, of variables that have one.
    contribution : int
        How many records one person has at most, or with a unit, how many of a person's records are counted at most.
    unit : str or None
        The column that says whose record it is.
    options : dict
        Further options of :func:`pymc_dirdp.plan`. A mechanism is named, or has settings.
    counts : str or None
        The column that says how many records a row of the data stands for.
    records : int or None
        How many records there are, where anybody may know it, for planning without the data.
    delimiter, encoding : str
        What separates the fields of a CSV file, and how it writes letters.
    ledger : Path or None
        Where the budget is stored.
    limit : Guarantee or None
        The budget.
    """

    guarantee: Guarantee
    categories: dict[str, list[str | int]]
    structure: dict[str, list[str]]
    crosses: dict[str, list[str]]
    prior: dict[str, Any]
    otherwise: dict[str, str | int]
    contribution: int
    unit: str | None
    options: dict[str, Any]
    counts: str | None
    records: int | None
    delimiter: str
    encoding: str
    ledger: Path | None
    limit: Guarantee | None

    @property
    def adjacency(self) -> AdjacencyName:
        """What one person can change."""
        return adjacency_by_name(self.options.get("adjacency", "replace-one")).name

    @property
    def columns(self) -> list[str]:
        """The columns of the data that are read."""
        return [*self.categories, *(name for name in (self.unit, self.counts) if name is not None)]


def declared(path: Path) -> Declaration:
    """The declaration in a TOML file.

    Raises
    ------
    ArgumentError
        If it is no TOML, or says what no declaration says.
    OSError
        If the file cannot be read.
    """
    sections = _parsed(path)
    _known("the declaration", sections, ("guarantee", "people", "variables", "tables", "options", "data", "ledger"))
    for name in ("guarantee", "people", "variables"):
        if name not in sections:
            raise ArgumentError(
                f"{path} has no section [{name}]. `dirdp init` writes a declaration from what you type."
            )
    variables = {name: _table(f"variables.{name}", facts) for name, facts in sections["variables"].items()}
    for name, facts in variables.items():
        _known(f"[variables.{name}]", facts, ("categories", "given", "prior", "otherwise"))
    if not variables:
        raise ArgumentError("Declare at least one variable, such as [variables.hair] with categories = [...].")
    categories = {name: _categories(name, facts.get("categories")) for name, facts in variables.items()}
    structure = {
        name: _names(f"given in [variables.{name}]", facts.get("given", []), variables)
        for name, facts in variables.items()
    }
    tables = {name: _table(f"tables.{name}", facts) for name, facts in sections.get("tables", {}).items()}
    for name, facts in tables.items():
        _known(f"[tables.{name}]", facts, ("variables", "prior"))
    crosses = {
        name: _names(f"variables in [tables.{name}]", facts.get("variables"), variables)
        for name, facts in tables.items()
    }
    _refuse_two_tables(variables, crosses)
    people = _people(sections["people"], variables)
    data = _data(sections.get("data", {}), variables)
    if people["unit"] is not None and data["counts"] is not None:
        raise ArgumentError(
            "Leave counts in [data] or unit in [people] out: with a unit each line of the data is one record."
        )
    options = _options(sections.get("options", {}))
    if data["records"] is not None and options.get("adjacency", "replace-one") != "replace-one":
        raise ArgumentError(
            "records in [data] is for adjacency = 'replace-one'. Under 'add-remove' the number of records is private, "
            "and whether the data hold as many would tell it. Leave records out; n_records in [options] says what to "
            "plan for."
        )
    ledger = _known("[ledger]", sections.get("ledger", {}), ("path", "limit"))
    if ledger and (not isinstance(ledger.get("path"), str) or "limit" not in ledger):
        raise ArgumentError('Expected path and limit in [ledger], such as path = "budget.db".')
    return Declaration(
        guarantee=_guarantee("[guarantee]", sections["guarantee"]),
        categories=categories,
        structure=structure,
        crosses=crosses,
        prior={name: facts["prior"] for name, facts in (variables | tables).items() if "prior" in facts},
        otherwise={
            name: _otherwise(name, facts["otherwise"], categories[name])
            for name, facts in variables.items()
            if "otherwise" in facts
        },
        options=options,
        ledger=path.parent / ledger["path"] if ledger else None,
        limit=_guarantee("limit of [ledger]", ledger["limit"]) if ledger else None,
        **people,
        **data,
    )


def _names(where: str, names: object, variables: Mapping[str, Any]) -> list[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"Expected {where} to list names of variables.")
    for name in names:
        one_of(variables, **{f"variable in {where}": name})
    if len(set(names)) < len(names):
        raise ArgumentError(f"Expected {where} to list each variable once.")
    return names


def _refuse_two_tables(variables: Mapping[str, dict[str, Any]], crosses: Mapping[str, list[str]]) -> None:
    """Refuse cross-tables without variables or with the name of one, and what variables say of tables they lack."""
    for name, of_table in crosses.items():
        if not of_table:
            raise ArgumentError(
                f'Expected variables in [tables.{name}], such as variables = ["sex", "hair"]: each of their '
                "combinations is a cell."
            )
        if name in variables and of_table != [name]:
            raise ArgumentError(f"[tables.{name}] has the name of a variable. Give the table another one.")
        for variable in of_table:
            for what in ("given", "prior"):
                if what in variables[variable]:
                    raise ArgumentError(
                        f"Leave {what} out of [variables.{variable}]: {variable!r} is in [tables.{name}], and has no "
                        "table of its own."
                    )
    alone = {of_table[0] for of_table in crosses.values() if len(of_table) == 1}
    crossed = {variable: name for name, of_table in crosses.items() for variable in of_table}
    for name, facts in variables.items():
        for parent in facts.get("given", []):
            if parent in crossed and parent not in alone:
                raise ArgumentError(
                    f"[variables.{name}] is given {parent!r}, which is in [tables.{crossed[parent]}] and has no table "
                    f"of its own. Add {name!r} to [tables.{crossed[parent]}], or leave given out."
                )


def _people(section: object, variables: Mapping[str, Any]) -> dict[str, Any]:
    people = _known("[people]", _table("people", section), ("contribution", "unit"))
    if "contribution" not in people:
        raise ArgumentError(
            "Expected contribution in [people]: how many records of the data one person has at most, such as "
            "contribution = 1. With unit it is how many of a person's records are counted at most."
        )
    unit = people.get("unit")
    if unit is not None and (not isinstance(unit, str) or unit in variables):
        raise ArgumentError("Expected unit in [people] to be the name of a column that is no variable.")
    return {"contribution": integer(1, contribution=people["contribution"]), "unit": unit}


def _data(section: object, variables: Mapping[str, Any]) -> dict[str, Any]:
    data = _known("[data]", _table("data", section), _DATA)
    counts, delimiter, encoding = data.get("counts"), data.get("delimiter", ","), data.get("encoding", "utf-8")
    if counts is not None and (not isinstance(counts, str) or counts in variables):
        raise ArgumentError("Expected counts in [data] to be the name of a column that is no variable.")
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise ArgumentError('Expected delimiter in [data] to be one character, such as ";".')
    records = None if "records" not in data else integer(0, records=data["records"])
    if records is not None and records > MAX_RECORDS:
        raise ArgumentError("Expected records in [data] to be at most 2**53: no larger table can be released.")
    return {
        "counts": counts,
        "records": records,
        "delimiter": delimiter,
        "encoding": _encoding(encoding),
    }


def _encoding(name: object) -> str:
    """The name of an encoding of texts, as Python has it."""
    with suppress(LookupError, ValueError, TypeError):
        found: Any = codecs.lookup(name if isinstance(name, str) else "")
        # Other codecs, such as compressions and escapes, are no way to write letters of a file.
        if found._is_text_encoding and found.name not in _NO_FILES:
            return str(found.name)
    raise ArgumentError(
        'Expected encoding in [data] to be the name of an encoding, such as "utf-8", "latin-1", "cp1252" or "utf-16".'
    )


_NO_FILES = ("idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape", "utf-7")


def _options(section: object) -> dict[str, Any]:
    names = ("adjacency", "mechanism", "min_count", "n_records", "objective", "released_draws", "weights")
    options = dict(_known("[options]", _table("options", section), names))
    if isinstance(settings := options.get("mechanism"), dict):
        # A mechanism with settings of its own.
        kind = SETTINGS[one_of(SETTINGS, **{"kind of mechanism in [options]": settings.get("kind")})]
        _known("mechanism in [options]", settings, ("kind", *(field.name for field in fields(kind))))
        options["mechanism"] = kind(**{name: value for name, value in settings.items() if name != "kind"})
    return options


def _otherwise(name: str, label: object, labels: list[str | int]) -> str | int:
    # True is 1 in Python, and no label.
    if type(label) not in (str, int) or label not in labels:
        raise ArgumentError(
            f"Expected otherwise in [variables.{name}] to be one of its categories: that which stands for missing and "
            "undeclared values."
        )
    return label


def written(
    *,
    variables: Sequence[str],
    given: Sequence[str] = (),
    tables: Sequence[str] = (),
    otherwise: Sequence[str] = (),
    separator: str = ",",
    **numbers: Any,
) -> str:
    """A declaration as TOML, from what somebody typed.

    Parameters
    ----------
    variables : sequence of str
        A name, `=` and labels, with a separator between them.
    given : sequence of str
        A name, `=` and the names of the variables that it is conditional on.
    tables : sequence of str
        The name of a cross-table, `=` and those of its variables.
    otherwise : sequence of str
        A name, `=` and the label that stands for missing and undeclared values.
    separator : str
    **numbers
        `epsilon` and `delta`, `contribution`, and `unit`, `counts`, `records`, `delimiter`, `encoding` and `n_records`,
        each of which may be None. The last one is what to plan for under add-remove.
    """

    def listed(typed: str) -> list[str]:
        return [one.strip() for one in typed.split(separator)] if separator else [typed]

    labels: dict[str, list[str | int]] = {}
    for typed in variables:
        name, values = _split("--variable", typed, f"--variable sex=female{separator}male")
        if name in labels:
            raise ArgumentError(f"--variable declares {name!r} twice. Give all its labels at once.")
        if not all(listed(values)):
            raise ArgumentError(
                f"A label of --variable {name}={values} is empty. Type none between two separators or after the last "
                f'one. If an empty field, which is a missing value, is a category of its own, write "" among the '
                f"categories of [variables.{name}] by hand."
            )
        whole = all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", label) for label in listed(values))
        # They are integers if all are written as Python writes them, else texts.
        labels[name] = [int(label) if whole else label for label in listed(values)]
    facts: dict[str, list[str]] = {name: [f"categories = {_array(values)}"] for name, values in labels.items()}
    parents: dict[str, list[str]] = {}
    for typed in given:
        name, those = _split("--given", typed, f"--given hair=sex or --given hair=sex{separator}age")
        for one in (name, *listed(those)):
            one_of(labels, **{"variable in --given": one})
        parents.setdefault(name, []).extend(listed(those))
    for name, listed_parents in parents.items():
        facts[name].append(f"given = {_array(listed_parents)}")
    for typed in otherwise:
        name, label = _split("--otherwise", typed, "--otherwise hair=other")
        one_of(labels, **{"variable in --otherwise": name})
        if any(line.startswith("otherwise") for line in facts[name]):
            raise ArgumentError(f"--otherwise names {name!r} twice. Give it once.")
        one_of(list(map(str, labels[name])), **{f"category of {name!r} in --otherwise": label})
        facts[name].append(f"otherwise = {_quoted(labels[name][list(map(str, labels[name])).index(label)])}")
    sections = {f"variables.{_quoted(name)}": lines for name, lines in facts.items()}
    for typed in tables:
        name, those = _split("--table", typed, f"--table both=sex{separator}hair")
        for one in listed(those):
            one_of(labels, **{"variable in --table": one})
        if (section := f"tables.{_quoted(name)}") in sections:
            raise ArgumentError(f"--table declares {name!r} twice. Give all its variables at once.")
        sections[section] = [f"variables = {_array(listed(those))}"]
    return _as_toml(sections, numbers)


def _as_toml(sections: Mapping[str, list[str]], numbers: Mapping[str, Any]) -> str:
    """The text of a declaration with these sections of variables and tables."""
    epsilon, delta, n_records = numbers["epsilon"], numbers["delta"], numbers.get("n_records")
    kind = ['kind = "PureDP"'] if delta == 0 else ['kind = "ApproxDP"', f"delta = {delta!r}"]
    known = {name: numbers[name] for name in (*_DATA, "unit") if numbers.get(name) is not None}
    people = [f"contribution = {numbers['contribution']}"]
    people += [f"unit = {_quoted(known.pop('unit'))}"] if "unit" in known else []
    # The least error of a prediction would be that of marginals, from which `dirdp analyse` has no intervals.
    options = ['mechanism = "auto"', 'objective = "estimate"']
    if n_records is not None:
        options += ['adjacency = "add-remove"', f"n_records = {n_records}"]
    whole = {"guarantee": [*kind, f"epsilon = {epsilon!r}"], "people": people, **sections, "options": options}
    if known:
        # A tab is written as \t.
        whole["data"] = [
            f"{name} = {json.dumps(value) if name == 'delimiter' else _quoted(value)}" for name, value in known.items()
        ]
    return "\n".join(line for name, lines in whole.items() for line in (f"[{name}]", *lines, ""))


def _array(values: Sequence[str | int]) -> str:
    return f"[{', '.join(map(_quoted, values))}]"


def _split(option: str, typed: str, example: str) -> tuple[str, str]:
    name, equals, values = typed.partition("=")
    if not (equals and name.strip() and values.strip()):
        raise ArgumentError(f"Expected {option} to be a name, = and what belongs to it, such as {example}.")
    return name.strip(), values.strip()


def _quoted(value: str | int) -> str:
    """A value as TOML writes it, which takes the escapes of JSON."""
    if isinstance(value, int):
        return str(value)
    if not value.isprintable():
        raise ArgumentError("A name or a label holds a character that cannot be printed. Edit the declaration by hand.")
    return json.dumps(value, ensure_ascii=False)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        sections = tomllib.loads(path.read_bytes().decode("utf-8"))
    except tomllib.TOMLDecodeError as error:
        # The rest of the message may repeat what stands there, and somebody may have passed the data.
        line = re.search(r"at line \d+", str(error))
        raise ArgumentError(f"{path} is not valid TOML{f': see {line[0][3:]}' if line else ''}.") from None
    except (UnicodeDecodeError, RecursionError, ValueError):
        raise ArgumentError(f"{path} is not valid TOML, or not in UTF-8.") from None
    return {name: _table(name, section) for name, section in sections.items()}


def _table(name: str, section: object) -> dict[str, Any]:
    if not isinstance(section, dict):
        raise ArgumentError(f"Expected [{name}] to be a section of its own, got {type_name(section)}.")
    return section


def _known(where: str, facts: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    for name in facts:
        one_of(names, **{f"name in {where}": name})
    return facts


def _guarantee(where: str, facts: object) -> Guarantee:
    if not isinstance(facts, Mapping) or "kind" not in facts:
        raise ArgumentError(f'Expected {where} to have a kind, such as kind = "ApproxDP", and its numbers.')
    numbers = {name: value for name, value in facts.items() if name != "kind"}
    kind = KINDS[one_of(KINDS, **{f"kind in {where}": facts["kind"]})]
    if set(numbers) != set(kind.domains):
        raise ArgumentError(f"Expected {where} of the kind {facts['kind']} to have {' and '.join(kind.domains)}.")
    return kind(**numbers)


def _categories(name: str, labels: object) -> list[str | int]:
    kinds = {type(label) for label in labels} if isinstance(labels, list) else set()
    if not isinstance(labels, list) or kinds not in ({str}, {int}):
        raise ArgumentError(
            f"Expected categories in [variables.{name}] to list all values that {name!r} could take: all texts, or all "
            "integers."
        )
    return labels
