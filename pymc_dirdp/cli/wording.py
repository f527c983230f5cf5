"""The output of commands: errors in the words of a declaration, and the next step as a command."""

import re

from pymc_dirdp.errors import BudgetError, DataError, DirdpError, LedgerError, UnattainableError

CODES = {
    0: "done",
    1: "verify: the guarantee does not follow from the file",
    2: "wrong use: an argument, the declaration, or a file that is missing or invalid",
    3: "the data do not fit the declaration",
    4: "refused: the guarantee is not attainable, or the ledger does not allow it",
    5: "an error of this library",
}
DONE, FALSE, WRONG, DATA, REFUSED, OWN = CODES

# The sections of a declaration and the options of commands that stand for arguments of functions.
_PLACES = {
    **dict.fromkeys(
        ("adjacency", "mechanism", "min_count", "n_records", "objective", "released_draws", "weights"), "[options]"
    ),
    **dict.fromkeys(("contribution", "unit"), "[people]"),
    **dict.fromkeys(("counts", "records"), "[data]"),
    **dict.fromkeys(("categories", "otherwise"), "[variables]"),
}
_OPTIONS = {"n_prior": "--n-prior", "columns": "--columns", "overwrite": "--overwrite"}
# The names of types in errors.
_TYPES = {
    "str": "a text",
    "int": "an integer",
    "float": "a number",
    "bool": "a truth value",
    "dict": "a section",
    "tuple": "a list",
    "datetime": "a date",
    "NoneType": "nothing",
}
# Replacements before and after arguments of functions are renamed to those of a declaration.
_WITH_ARGUMENTS = (
    (r", as in otherwise=\{[^}]*\}", ', as in otherwise = "unknown" in its section of [variables]'),
    (
        r"(?:Open )?(\S+) by xarray\.open_datatree: it is a netCDF file.*",
        r"\1 is a netCDF file. Pass the file of the release, which the command release wrote.",
    ),
    (r"\s*For example: .*", ""),
    (r"\bcategories\['?([^\]']*)'?\]", r"categories of [variables.\1]"),
    (r"\bprior\[('[^']*')\]", r"prior of \1"),
)
_WITHOUT = (
    (r"\b(?:Add|Pass) (?=\w+ = )", "Declare "),
    (r"\bn_prior\b", "--n-prior"),
    (r"\b[Cc]all plan\(\) again\b", "plan again"),
    (r", or the weights of 0, 1, 2, \.\.\. as an array", ""),
    (r"\bby ledger\.reserve\([^)]*\), or leave using\(\) out", "in Python, or leave --reservation out"),
    (r"\blook at entries\(\)", "look at the entries that the command ledger prints"),
    (r"\bcall verify\(\) with", "check it by the command ledger and --head, with"),
    (r",? release\.attrs\['ledger_head'\]", ", which its file has in `entry` as number:hash"),
    (r"the labels are of the type str, and True is no 'True'", "the labels are texts"),
    (r"the labels are of the type int, and True is no 'True'", "the labels are integers"),
    (r"; 1, 1\.0 and True are the same", ""),
    (r"\b(analyse|report|verify|plan)\(\)", r"the command \1"),
    (r"`?\bdirdp\.(report|statement|analyse|verify|plan)\b(?:\([^)]*\))?`?", r"the command \1"),
    (r"such as dirdp\.save writes", "such as the commands write"),
    (r"`?\bdirdp\.estimate\b(?:\([^)]*\))?`?", "the command analyse"),
    (r"`?\bdirdp\.sample\b(?:\([^)]*\))?`?", "the command release"),
)


def code_and_line(error: Exception) -> tuple[int, str]:
    """The exit code and the line for an error. Errors of other libraries may contain data, so they are not quoted."""
    if isinstance(error, DirdpError):
        refused = isinstance(error, BudgetError | LedgerError | UnattainableError)
        return DATA if isinstance(error, DataError) else REFUSED if refused else WRONG, in_a_declaration(str(error))
    if isinstance(error, ImportError) and "pip install" in str(error):
        return WRONG, str(error)
    if isinstance(error, FileExistsError) and error.strerror is None:
        return WRONG, str(error).replace("pass overwrite=True", "--overwrite")
    if isinstance(error, OSError):
        return WRONG, f"{error.filename or 'a file'}: {error.strerror or 'cannot be read or written'}"
    return OWN, (
        f"{type(error).__name__} in this library or in one that it uses. Report it with the declaration, and without "
        "the data."
    )


def in_a_declaration(message: str) -> str:
    """The error of a function, with the names of a declaration or a command instead of its arguments.

    Examples
    --------
    >>> in_a_declaration("Expected n_records=1.5 to be an integer, got a float. Leave unit= out.")
    'Expected n_records = 1.5 to be an integer, got a number. Leave unit in [people] out.'
    """
    for pattern, text in _WITH_ARGUMENTS:
        message = re.sub(pattern, text, message)

    def rename(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        if name is None:
            return match[0]
        if name in _OPTIONS:
            return f"{_OPTIONS[name]} {value}" if value else _OPTIONS[name]
        return f"{name} = {value}" if value else f"{name} in {_PLACES[name]}" if name in _PLACES else name

    # Values that were typed after an option are not changed.
    value = r"'[^']*'|\"[^\"]*\"|-?\d[\w.+-]*\w|\d|\w+"
    message = re.sub(rf"--[\w-]+ \S+=\S*|\b([^\W\d]\w*)=(?!=)({value})?", rename, message)
    for pattern, text in _WITHOUT:
        message = re.sub(pattern, text, message)
    return re.sub(r"\ban? (\w+)\b", lambda match: _TYPES.get(match[1], match[0]), message)


def as_commands(text: str) -> str:
    """A result whose last line, the next step, is a command."""
    from pymc_dirdp.releases.wording import NEXT  # Showing help does not need this slow import.

    text = re.sub(r"print\(dirdp\.verify\(\w+\)\.full\)", "dirdp verify --full", text)
    for of_python, of_command in (*NEXT.values(), ("ledger.remaining()", "dirdp ledger DECLARATION")):
        text = text.replace(of_python, of_command)
    return text
