"""The rooms of the package and who uses whom, read from the imports when the documentation is built."""

import ast
import html
from pathlib import Path

import matplotlib.pyplot as plt

import pymc_dirdp

PACKAGE = Path(pymc_dirdp.__file__).parent


def rooms() -> dict[str, set[str]]:
    """For each room, the rooms that it imports from; those that need nothing first."""
    uses: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts == ("__init__",):
            continue
        room = uses.setdefault(parts[0], set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pymc_dirdp."):
                room.add(node.module.split(".")[1])
        room.discard(parts[0])
    ordered: dict[str, set[str]] = {}
    while uses:
        # What is ready uses only what is in order already. Imports for types alone may point up; they come last.
        ready = [room for room, others in uses.items() if others <= set(ordered)] or [
            min(uses, key=lambda r: len(uses[r]))
        ]
        for room in ready:
            ordered[room] = uses.pop(room)
    return ordered


def floors() -> list[list[str]]:
    """Rooms by floor: one above the highest that it uses."""
    found: dict[str, int] = {}
    for room, others in rooms().items():
        found[room] = 1 + max((found[other] for other in others if other in found), default=-1)
    return [[room for room, floor in found.items() if floor == level] for level in range(1 + max(found.values()))]


def question(room: str) -> str:
    """The first line of a room's own documentation."""
    path = PACKAGE / room / "__init__.py" if (PACKAGE / room).is_dir() else PACKAGE / f"{room}.py"
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0]


def table() -> str:
    """Each room with its question, its files and its lines, the highest floor first, as HTML."""
    rows = [("room", "what it answers", "files", "lines")]
    for floor in reversed(floors()):
        for room in floor:
            paths = list((PACKAGE / room).glob("*.py")) or [PACKAGE / f"{room}.py"]
            length = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
            rows.append((room, question(room), str(sum(path.stem != "__init__" for path in paths)), str(length)))
    cells = ("".join(f"<td>{html.escape(cell).replace('`', '')}</td>" for cell in row) for row in rows)
    return f"<table class='rooms'>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def draw() -> None:
    """The rooms on their floors. A room uses what its arrows lead to, also over others."""
    uses, levels = rooms(), floors()
    below: dict[str, set[str]] = {}
    for room, others in uses.items():
        below[room] = others.union(*(below[other] for other in others))
    place = {
        room: ((i + 0.5) / len(floor) * 10, 1.2 * level)
        for level, floor in enumerate(levels)
        for i, room in enumerate(floor)
    }
    _, ax = plt.subplots(figsize=(9, 0.9 * len(levels)))
    for room, others in uses.items():
        for other in others:
            if any(other in below[between] for between in others):
                continue  # An arrow over another room says it already.
            ax.annotate(
                "",
                xy=(place[other][0], place[other][1] + 0.22),
                xytext=(place[room][0], place[room][1] - 0.22),
                arrowprops={"arrowstyle": "->", "color": "0.5", "lw": 0.9},
            )
    for room, (x, y) in place.items():
        ax.text(
            x, y, room, ha="center", va="center", fontsize=9, bbox={"boxstyle": "round", "fc": "white", "ec": "0.4"}
        )
    ax.set(xlim=(0, 10), ylim=(-0.6, 1.2 * len(levels) - 0.4))
    ax.axis("off")
