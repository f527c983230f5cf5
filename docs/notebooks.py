# /// script
# requires-python = ">=3.12"
# dependencies = ["myst-nb>=1.3"]
# ///
"""The teaching pages as Jupyter notebooks: `uv run docs/notebooks.py OUT [--without-solutions] [--from PLACE]`.

PLACE is where the first cell of each notebook installs the library from if it is missing: a path, such as
`/content/pymc_dirdp`, or an address, such as `git+https://...`. Nothing is installed by a name, because anybody may
have registered it.
"""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Write the notebooks, and say where."""
    sys.path.insert(0, str(HERE / "_ext"))
    from as_notebook import FOLDER, write_all

    line = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    line.add_argument("out", type=Path, help="folder for the notebooks")
    line.add_argument("--without-solutions", action="store_true", help="an empty cell in the place of each solution")
    line.add_argument("--from", dest="place", help="a path or an address to install the library from")
    given = line.parse_args()
    try:
        written = write_all(HERE / FOLDER, given.out, solutions=not given.without_solutions, place=given.place)
    except ValueError as error:
        line.error(str(error))
    print(f"{len(written)} notebooks in {given.out}, {written[0].name} to {written[-1].name}.")


if __name__ == "__main__":
    main()
