"""The command line: `dirdp`, or `python -m pymc_dirdp`."""

from pymc_dirdp.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
