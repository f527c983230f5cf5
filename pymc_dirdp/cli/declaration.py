"""Declarations: TOML files that are written before anybody looks at the data."""

import codecs
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
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
    """A declaration, validated as far as this is possible without a model.

    Attributes
    ----------
    guarantee : Guarantee
    categories : dict of str to list
        The labels of each variable, which are all texts or all integers.
    structure : dict of str to list of str
        The parents of each variable.
    crosses : dict of str to list of str
        The variables of each cross-table, by its name. They have no separate tables.
    prior : dict of str to number or list
        The priors of variables and cross-tables that differ from 1.
    otherwise : dict of str to str or int
        The category of a variable that missing and undeclared values are counted as, if there is one.
    contribution : int
        The maximum number of records of a person. With a unit, at most this number of them is counted.
    unit : str or None
        The column that identifies the person of a record.
    options : dict
        Further options of :func:`pymc_dirdp.plan`. A mechanism is a name or an object with settings.
    counts : str or None
        The column with the number of records of each row of the data.
    records : int or None
        The number of records if it is public, for planning without the data.
    delimiter, encoding : str
        The delimiter of the fields of a CSV file, and the encoding of its characters.
    ledger : Path or None
        The file of the ledger.
    limit : Guarantee or None
        The privacy budget of the ledger.
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
        """The relation between neighbouring data sets."""
        return adjacency_by_name(self.options.get("adjacency", "replace-one")).name

    @cached_property
    def columns(self) -> list[str]:
        """The columns of the data that are read."""
        return [*self.categories, *(name for name in (self.unit, self.counts) if name is not None)]


def read_declaration(path: Path) -> Declaration:
    """Read a declaration from a TOML file.

    Raises
    ------
    ArgumentError
        If it is not valid TOML, or not a valid declaration.
    OSError
        If the file cannot be read.
    """
    sections = _parsed(path)
    _validate("the declaration", sections, ("guarantee", "people", "variables", "tables", "options", "data", "ledger"))
    for name in ("guarantee", "people", "variables"):
        if name not in sections:
            raise ArgumentError(
                f"{path} has no section [{name}]. `dirdp init` writes a declaration from what you type."
            )
    variables = {name: _table(f"variables.{name}", facts) for name, facts in sections["variables"].items()}
    for name, facts in variables.items():
        _validate(f"[variables.{name}]", facts, ("categories", "given", "prior", "otherwise"))
    if not variables:
        raise ArgumentError("Declare at least one variable, such as [variables.hair] with categories = [...].")
    categories = {name: _categories(name, facts.get("categories")) for name, facts in variables.items()}
    structure = {
        name: _names(f"given in [variables.{name}]", facts.get("given", []), variables)
        for name, facts in variables.items()
    }
    tables = {name: _table(f"tables.{name}", facts) for name, facts in sections.get("tables", {}).items()}
    for name, facts in tables.items():
        _validate(f"[tables.{name}]", facts, ("variables", "prior"))
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
            "and comparing it with the data would reveal it. Leave records out; n_records in [options] is the planning "
            "size."
        )
    ledger = _validate("[ledger]", sections.get("ledger", {}), ("path", "limit"))
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
    """Refuse cross-tables without variables or with the name of a variable, and options of tables that do not exist."""
    for name, members in crosses.items():
        if not members:
            raise ArgumentError(
                f'Expected variables in [tables.{name}], such as variables = ["sex", "hair"]: each of their '
                "combinations is a cell."
            )
        if name in variables and members != [name]:
            raise ArgumentError(f"[tables.{name}] has the name of a variable. Give the table another one.")
        for variable in members:
            for what in ("given", "prior"):
                if what in variables[variable]:
                    raise ArgumentError(
                        f"Leave {what} out of [variables.{variable}]: {variable!r} is in [tables.{name}], and has no "
                        "table of its own."
                    )
    single = {members[0] for members in crosses.values() if len(members) == 1}
    crossed = {variable: name for name, members in crosses.items() for variable in members}
    for name, facts in variables.items():
        for parent in facts.get("given", []):
            if parent in crossed and parent not in single:
                raise ArgumentError(
                    f"[variables.{name}] is given {parent!r}, which is in [tables.{crossed[parent]}] and has no table "
                    f"of its own. Add {name!r} to [tables.{crossed[parent]}], or leave given out."
                )


def _people(section: object, variables: Mapping[str, Any]) -> dict[str, Any]:
    people = _validate("[people]", _table("people", section), ("contribution", "unit"))
    if "contribution" not in people:
        raise ArgumentError(
            "Expected contribution in [people]: the maximum number of records of a person, such as contribution = 1. "
            "With unit, at most this number of a person's records is counted."
        )
    unit = people.get("unit")
    if unit is not None and (not isinstance(unit, str) or unit in variables):
        raise ArgumentError("Expected unit in [people] to be the name of a column that is no variable.")
    return {"contribution": integer(1, contribution=people["contribution"]), "unit": unit}


def _data(section: object, variables: Mapping[str, Any]) -> dict[str, Any]:
    data = _validate("[data]", _table("data", section), _DATA)
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
    """Python's name of an encoding of texts."""
    with suppress(LookupError, ValueError, TypeError):
        codec: Any = codecs.lookup(name if isinstance(name, str) else "")
        # Other codecs, such as compressions and escapes, are not encodings of files.
        if codec._is_text_encoding and codec.name not in _NO_FILES:
            return str(codec.name)
    raise ArgumentError(
        'Expected encoding in [data] to be the name of an encoding, such as "utf-8", "latin-1", "cp1252" or "utf-16".'
    )


_NO_FILES = ("idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape", "utf-7")


def _options(section: object) -> dict[str, Any]:
    names = ("adjacency", "mechanism", "min_count", "n_records", "objective", "released_draws", "weights")
    options = dict(_validate("[options]", _table("options", section), names))
    if isinstance(settings := options.get("mechanism"), dict):
        # A mechanism with settings of its own.
        kind = SETTINGS[one_of(SETTINGS, **{"kind of mechanism in [options]": settings.get("kind")})]
        _validate("mechanism in [options]", settings, ("kind", *(field.name for field in fields(kind))))
        options["mechanism"] = kind(**{name: value for name, value in settings.items() if name != "kind"})
    return options


def _otherwise(name: str, label: object, labels: list[str | int]) -> str | int:
    # True is 1 in Python, and no label.
    if type(label) not in (str, int) or label not in labels:
        raise ArgumentError(
            f"Expected otherwise in [variables.{name}] to be one of its categories, which missing and undeclared "
            "values are counted as."
        )
    return label


def to_toml(
    *,
    variables: Sequence[str],
    parents: Sequence[str] = (),
    tables: Sequence[str] = (),
    otherwise: Sequence[str] = (),
    separator: str = ",",
    **numbers: Any,
) -> str:
    """A declaration as TOML, from typed arguments.

    Parameters
    ----------
    variables : sequence of str
        A name, `=` and labels, with a separator between them.
    parents : sequence of str
        A name, `=` and the names of the variables that it is conditional on.
    tables : sequence of str
        The name of a cross-table, `=` and the names of its variables.
    otherwise : sequence of str
        A name, `=` and the label that missing and undeclared values are counted as.
    separator : str
    **numbers
        `epsilon`, `delta` and `contribution`, and `unit`, `counts`, `records`, `delimiter`, `encoding` and `n_records`,
        which may be None. The last is the planning size under add-remove.
    """

    def split(argument: str) -> list[str]:
        return [label.strip() for label in argument.split(separator)] if separator else [argument]

    labels: dict[str, list[str | int]] = {}
    for argument in variables:
        name, values = _split("--variable", argument, f"--variable sex=female{separator}male")
        if name in labels:
            raise ArgumentError(f"--variable declares {name!r} twice. Give all its labels at once.")
        if not all(split(values)):
            raise ArgumentError(
                f"A label of --variable {name}={values} is empty. Remove separators that are doubled or at an end. If "
                f'an empty field, which is a missing value, is a category, write "" among the categories of '
                f"[variables.{name}] by hand."
            )
        are_integers = all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", label) for label in split(values))
        # They are integers if all of them are written as in Python, otherwise texts.
        labels[name] = [int(label) if are_integers else label for label in split(values)]
    facts: dict[str, list[str]] = {name: [f"categories = {_array(values)}"] for name, values in labels.items()}
    structure: dict[str, list[str]] = {}
    for argument in parents:
        name, members = _split("--given", argument, f"--given hair=sex or --given hair=sex{separator}age")
        for variable in (name, *split(members)):
            one_of(labels, **{"variable in --given": variable})
        structure.setdefault(name, []).extend(split(members))
    for name, names in structure.items():
        facts[name].append(f"given = {_array(names)}")
    for argument in otherwise:
        name, label = _split("--otherwise", argument, "--otherwise hair=other")
        one_of(labels, **{"variable in --otherwise": name})
        if any(line.startswith("otherwise") for line in facts[name]):
            raise ArgumentError(f"--otherwise names {name!r} twice. Give it once.")
        one_of(list(map(str, labels[name])), **{f"category of {name!r} in --otherwise": label})
        facts[name].append(f"otherwise = {_quoted(labels[name][list(map(str, labels[name])).index(label)])}")
    sections = {f"variables.{_quoted(name)}": lines for name, lines in facts.items()}
    for argument in tables:
        name, members = _split("--table", argument, f"--table both=sex{separator}hair")
        for variable in split(members):
            one_of(labels, **{"variable in --table": variable})
        if (section := f"tables.{_quoted(name)}") in sections:
            raise ArgumentError(f"--table declares {name!r} twice. Give all its variables at once.")
        sections[section] = [f"variables = {_array(split(members))}"]
    return _as_toml(sections, numbers)


def _as_toml(sections: Mapping[str, list[str]], numbers: Mapping[str, Any]) -> str:
    """The text of a declaration with these sections of variables and tables."""
    epsilon, delta, n_records = numbers["epsilon"], numbers["delta"], numbers.get("n_records")
    kind = ['kind = "PureDP"'] if delta == 0 else ['kind = "ApproxDP"', f"delta = {delta!r}"]
    data = {name: numbers[name] for name in (*_DATA, "unit") if numbers.get(name) is not None}
    people = [f"contribution = {numbers['contribution']}"]
    people += [f"unit = {_quoted(data.pop('unit'))}"] if "unit" in data else []
    # For predictions, marginals would have the smallest error, but `dirdp analyse` has no intervals from marginals.
    options = ['mechanism = "auto"', 'objective = "estimate"']
    if n_records is not None:
        options += ['adjacency = "add-remove"', f"n_records = {n_records}"]
    contents = {"guarantee": [*kind, f"epsilon = {epsilon!r}"], "people": people, **sections, "options": options}
    if data:
        # A tab is written as \t.
        contents["data"] = [
            f"{name} = {json.dumps(value) if name == 'delimiter' else _quoted(value)}" for name, value in data.items()
        ]
    return "\n".join(line for name, lines in contents.items() for line in (f"[{name}]", *lines, ""))


def _array(values: Sequence[str | int]) -> str:
    return f"[{', '.join(map(_quoted, values))}]"


def _split(option: str, argument: str, example: str) -> tuple[str, str]:
    name, equals, values = argument.partition("=")
    if not (equals and name.strip() and values.strip()):
        raise ArgumentError(f"Expected {option} to be a name, = and its values, such as {example}.")
    return name.strip(), values.strip()


def _quoted(value: str | int) -> str:
    """A value as TOML, which accepts the escapes of JSON."""
    if isinstance(value, int):
        return str(value)
    if not value.isprintable():
        raise ArgumentError("A name or a label has a character that cannot be printed. Edit the declaration by hand.")
    return json.dumps(value, ensure_ascii=False)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        sections = tomllib.loads(path.read_bytes().decode("utf-8"))
    except tomllib.TOMLDecodeError as error:
        # The rest of the message may quote the file, and somebody may have passed the data.
        line = re.search(r"at line \d+", str(error))
        raise ArgumentError(f"{path} is not valid TOML{f': see {line[0][3:]}' if line else ''}.") from None
    except (UnicodeDecodeError, RecursionError, ValueError):
        raise ArgumentError(f"{path} is not valid TOML, or not in UTF-8.") from None
    return {name: _table(name, section) for name, section in sections.items()}


def _table(name: str, section: object) -> dict[str, Any]:
    if not isinstance(section, dict):
        raise ArgumentError(f"Expected [{name}] to be a section of its own, got {type_name(section)}.")
    return section


def _validate(where: str, facts: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
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
