"""Change the package in one place at a time, and see whether the nearest tests notice.

    uv run python tests/mutation/run.py --mutants 400 --seed 57 --table tests/mutation/mutants.tsv
    uv run python tests/mutation/run.py accounting/entries.py accounting/budget.py --mutants 40 --seed 2
    uv run python tests/mutation/run.py accounting/entries.py --at 57

Each argument is a room or a file of the package; none is all of it. Mutants are drawn with a fixed seed, each with the
same probability. A copy of the repository is changed, never the repository itself. First every test but the thorough
and the slow ones runs once, for `--cap` seconds of a file, and notes which lines of the package it runs; the notes are
in `--work`. A mutant is then given to the tests that run its line, those of the mirrored file first and then the
quickest, until one of them fails or they have taken `--seconds` of processor time.

A line of the table is a mutant: `killed`, `survived`, `timeout` (a test that never ends is noticed) or `untested` (no
test runs the line). What is in the table already is not run again. `README.md` says what was found.
"""

import argparse
import ast
import copy
import hashlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "pymc_dirdp"
# Imported once, so that a mutant's process, which is a copy of this one, starts with them.
HEAVY = ["numpy", "scipy.stats", "scipy.special", "mpmath", "hypothesis", "pandas", "pymc", "dp_accounting"]
# No assertion is rewritten: it would take longer than most tests.
QUIETLY = ["-n0", "-q", "-p", "no:cacheprovider", "--assert=plain"]

FORK = multiprocessing.get_context("fork")

COMPARED = {ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE)}
COMPARED |= {ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,)}
COMPARED |= {ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,)}
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
COMPUTED |= {ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr}
SWAPPED = {"min": "max", "minimum": "maximum", "all": "any", "floor": "ceil", "up": "down", "first": "last"}
SWAPPED |= {"ceil_to_digits": "floor_to_digits"}
SWAPPED |= {new: old for old, new in SWAPPED.items()}


@dataclass(frozen=True)
class Mutant:
    """One change: the bytes from `start` to `end` of a file become `new`."""

    file: str
    lines: tuple[int, int]
    start: int
    end: int
    old: str
    new: str
    in_function: bool = True


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """What a node is replaced with, one change for each."""
    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                yield from (
                    _with(node, lambda new, i=i, to=to: new.ops.__setitem__(i, to())) for to in COMPARED[type(op)]
                )
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in COMPUTED:
            yield _with(node, lambda new: setattr(new, "op", COMPUTED[type(op)]()))
        case ast.BoolOp(op=op):
            yield _with(node, lambda new: setattr(new, "op", ast.Or() if isinstance(op, ast.And) else ast.And()))
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Constant(value=float(value)):
            yield from (ast.Constant(2 * value if value else 1.0), ast.Constant(value / 2 if value else -1.0))
        case ast.Name(id=name) if name in SWAPPED:
            yield ast.Name(SWAPPED[name])
        case ast.Attribute(attr=name) if name in SWAPPED:
            yield _with(node, lambda new: setattr(new, "attr", SWAPPED[name]))
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, _]) if name == "nextafter":
            yield first
        case ast.Call(keywords=keywords) if keywords:
            for i in range(len(keywords)):
                yield _with(node, lambda new, i=i: new.keywords.pop(i))
        case ast.If(test=test, body=[*_, ast.Return() | ast.Raise() | ast.Continue() | ast.Break()]):
            # The guard is never true; its place is that of the condition.
            yield ast.copy_location(ast.Constant(False), test)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield _with(node, lambda new: setattr(new, "value", ast.Constant(None)))
        case ast.Raise():
            yield ast.Pass()


def _with(node: ast.AST, edit: Callable[[Any], Any]) -> ast.AST:
    new = copy.deepcopy(node)
    edit(new)
    return new


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes whose change is a change of what the code does: no annotations, no texts."""
    if isinstance(node, ast.JoinedStr):
        return
    yield node
    if isinstance(node, ast.Raise):
        return
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST):
                yield from _nodes(child)


def mutants_of(file: str) -> list[Mutant]:
    """All mutants of a file of the package."""
    source = (ROOT / PACKAGE / file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)]
    bodies = {line for one in functions for line in range(one.lineno, one.end_lineno + 1)}
    for node in _nodes(tree):
        for new in changed(node):
            at = node.test if isinstance(node, ast.If) else node
            start, end = starts[at.lineno - 1] + at.col_offset, starts[at.end_lineno - 1] + at.end_col_offset
            text = ast.unparse(ast.fix_missing_locations(new))
            text = f"({text})" if isinstance(new, ast.expr) and not isinstance(node, ast.Attribute) else text
            lines = (at.lineno, at.end_lineno)
            old = source[start:end].decode()
            found.append(Mutant(file, lines, start, end, old, text, at.lineno in bodies))
    return found


def sample(files: list[str], n: int, seed: int) -> list[Mutant]:
    """So many mutants in random order, each of all of them with the same probability."""
    mutants = [mutant for file in files for mutant in mutants_of(file)]
    return random.Random(seed).sample(mutants, min(n, len(mutants)))


class Notes:
    """A plugin of pytest that notes which lines of the package each test runs, and how long it takes."""

    def __init__(self, copied: Path, cap: float) -> None:
        self.prefix, self.cap, self.passed = str(copied / PACKAGE) + os.sep, cap, True
        self.tests: dict[str, dict[str, Any]] = {}
        self.lines: dict[str, set[int]] = defaultdict(set)
        monitoring = sys.monitoring
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "mutants")
        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, self.line)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)

    def line(self, code: Any, number: int) -> Any:
        if code.co_filename.startswith(self.prefix):
            self.lines[code.co_filename[len(self.prefix) :]].add(number)
        return sys.monitoring.DISABLE

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        self.lines, self.passed = defaultdict(set), True
        sys.monitoring.restart_events()
        start = time.process_time()
        result = yield
        if self.passed:
            lines = {file: sorted(lines) for file, lines in self.lines.items()}
            self.tests[item.nodeid] = {"seconds": time.process_time() - start, "lines": lines}
        return result

    def pytest_runtest_setup(self) -> None:
        if sum(about["seconds"] for about in self.tests.values()) > self.cap:
            pytest.skip("enough is noted of this file")

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.passed &= report.passed


class Copy:
    """A copy of the repository in which processes run tests."""

    def __init__(self, work: Path, number: int) -> None:
        self.path = work / f"copy-{number}"
        shutil.rmtree(self.path, ignore_errors=True)
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, self.path, ignore=ignored)

    def run(self, act: Callable[[], int], seconds: float) -> str:
        """What becomes of a function in a process of its own: `survived` if it returns 0, `killed` or `timeout`.

        The seconds are of processor time, so a busy machine is no timeout; a process that waits has ten times as many.
        """
        process = FORK.Process(target=self._silently, args=(act, seconds))
        process.start()
        process.join(10 * seconds)
        if process.exitcode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
            return "timeout"
        return {0: "survived", -signal.SIGXCPU: "timeout"}.get(process.exitcode, "killed")

    def _silently(self, act: Callable[[], int], seconds: float) -> None:
        os.setpgid(0, 0)
        output = os.open(self.path / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.chdir(self.path)
        sys.path.insert(0, str(self.path))
        os.environ["PYTHONPATH"] = str(self.path)
        sys.dont_write_bytecode = True
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        resource.setrlimit(resource.RLIMIT_CPU, (int(used + seconds) + 1, resource.RLIM_INFINITY))
        code = act()
        sys.stdout.flush()
        # No thread that a test has left is waited for.
        os._exit(code)

    def note(self, tests: str, answer: Path, cap: float) -> None:
        """Write down which lines a file of tests, or the examples of a room, run."""

        def act() -> int:
            notes = Notes(self.path, cap)
            pytest.main([*QUIETLY, tests], plugins=[notes])
            answer.write_text(json.dumps(notes.tests))
            return 0

        if self.run(act, 3600) != "survived":
            raise RuntimeError((self.path / "output.txt").read_text()[-3000:])

    def judge(self, mutant: Mutant, stages: list[list[str]], seconds: float) -> str:
        """Run the tests with the mutant in place, a stage after the other until one fails."""
        file = self.path / PACKAGE / mutant.file
        source, status = file.read_bytes(), file.stat()
        file.write_bytes(source[: mutant.start] + mutant.new.encode() + source[mutant.end :])
        try:
            for tests in stages:
                became = self.run(lambda tests=tests: int(pytest.main(["-x", *QUIETLY, *tests])), 3 * seconds)
                if became != "survived":
                    break
        finally:
            file.write_bytes(source)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        return became


def in_copies[Thing](act: Callable[[Copy, Thing], object], things: list[Thing], work: Path, workers: int) -> None:
    """Do something with each thing, in so many processes that have a copy of the repository each."""

    def some(number: int) -> None:
        copied = Copy(work, number)
        for thing in things[number::workers]:
            act(copied, thing)

    processes = [FORK.Process(target=some, args=(i,)) for i in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError("A process has failed; its error is above.")


def noted(work: Path, workers: int, cap: float) -> dict[str, dict[str, Any]]:
    """For each test the lines it runs and its time. A file of tests that is as it was is not run again."""
    rooms = [room for room in (ROOT / PACKAGE).iterdir() if room.suffix == ".py" or (room / "__init__.py").exists()]
    files = sorted(rooms) + sorted((ROOT / "tests").rglob("test_*.py"))
    code = b"".join(file.read_bytes() for file in sorted((ROOT / PACKAGE).rglob("*.py")))
    cached = {}
    for file in files:
        tests, text = str(file.relative_to(ROOT)), file.read_bytes() if file.is_file() else b""
        cached[tests] = work / (hashlib.sha256(code + tests.encode() + text).hexdigest()[:24] + ".json")
    new = [(tests, file) for tests, file in cached.items() if not file.exists()]
    if new:
        in_copies(lambda copied, one: copied.note(*one, cap), new, work, workers)
    return {test: about for file in cached.values() for test, about in json.loads(file.read_text()).items()}


def nearest(mutant: Mutant, tests: dict[str, dict[str, Any]], seconds: float) -> list[list[str]]:
    """Up to three stages of tests, the quickest first, each with half of the seconds.

    Those of the mirrored file that run the line, all others that do, and what is left of the mirrored file: code that
    is compiled runs unseen. A line that runs on import is every test's of the file.
    """
    room, _, name = mutant.file.rpartition("/")
    mirrored = (f"tests/{room}/test_{name}::".replace("//", "/"), f"{PACKAGE}/{mutant.file}::")
    lines = range(mutant.lines[0], mutant.lines[1] + 1) if mutant.in_function else range(10**9)
    stages: tuple[list[str], list[str], list[str]] = ([], [], [])
    totals = [0.0, 0.0, 0.0]
    for test in sorted(tests, key=lambda test: tests[test]["seconds"]):
        near, runs = test.startswith(mirrored), any(line in lines for line in tests[test]["lines"].get(mutant.file, ()))
        if near or runs:
            stage = 2 if not runs else 0 if near else 1
            totals[stage] += tests[test]["seconds"]
            if totals[stage] <= seconds / 2 or not stages[stage]:
                stages[stage].append(test)
    return [stage for stage in stages if stage]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("where", nargs="*", default=["."], help="rooms or files of the package")
    parser.add_argument("--mutants", type=int, default=60)
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--at", type=int, nargs="*", help="only the mutants that begin at these lines, all of them")
    parser.add_argument("--table", type=Path, help="append the lines to this file")
    parser.add_argument("--seconds", type=float, default=60.0, help="of processor time, for one mutant")
    parser.add_argument("--cap", type=float, default=20.0, help="seconds for the notes of one file of tests")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path(os.environ.get("TMPDIR", "/tmp")) / "dirdp-mutants")
    options = parser.parse_args()
    for module in HEAVY:
        __import__(module)
    options.work.mkdir(parents=True, exist_ok=True)
    package = ROOT / PACKAGE
    places = [package / where for where in options.where]
    paths = [file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("*.py")))]
    files = [str(file.relative_to(package)) for file in paths]
    if options.at:
        mutants = [mutant for file in files for mutant in mutants_of(file) if mutant.lines[0] in options.at]
    else:
        mutants = sample(files, options.mutants, options.seed)
    done = options.table.read_text() if options.table and options.table.exists() else ""
    mutants = [mutant for mutant in mutants if "\t".join(described(mutant)) not in done]
    tests = noted(options.work, options.workers, options.cap)
    # A change that changes nothing: every test has to be found again by its name.
    none, copied = Mutant(files[0], (1, 1), 0, 0, "", ""), Copy(options.work, 0)
    if copied.judge(none, [["--collect-only", *tests]], 900) != "survived":
        raise RuntimeError((copied.path / "output.txt").read_text()[-3000:])

    def judge(copied: Copy, mutant: Mutant) -> None:
        stages = nearest(mutant, tests, options.seconds)
        became = copied.judge(mutant, stages, options.seconds) if stages else "untested"
        line = "\t".join([became, *described(mutant)])
        print(line, flush=True)
        if options.table:
            with options.table.open("a") as table:
                print(line, file=table)

    in_copies(judge, mutants, options.work, options.workers)


def described(mutant: Mutant) -> tuple[str, str, str]:
    """The place, and the text before and after on one line."""
    return f"{mutant.file}:{mutant.lines[0]}", " ".join(mutant.old.split()), " ".join(mutant.new.split())


if __name__ == "__main__":
    main()
