"""Draws packages, stages and the way of the parameters into `docs/house.md`, from the code as it is.

`python tools/draw_house.py` rewrites the page; `--check` says whether it is out of date (exit code 1).
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from costbench.params import load_yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "house.md"
_MARK = "<!-- {}: drawn by tools/draw_house.py -->"
_LEAVES = "leaves"


def packages(folder: Path) -> dict[str, list[Path]]:
    """Returns the modules of each first-level package; modules beside the packages are `leaves`."""
    modules: dict[str, list[Path]] = {_LEAVES: sorted(folder.glob("*.py"))}
    for inner in sorted(path.parent for path in folder.glob("*/__init__.py")):
        files = sorted(inner.rglob("*.py"))
        modules[inner.name] = [path for path in files if not path.name.endswith("_pb2.py")]
    return modules


def imports(modules: list[Path], top: str, names: Mapping[str, list[Path]]) -> set[str]:
    """Returns the first-level packages of `top` that modules import; imports for type checkers count."""
    reached = set()
    for module in modules:
        for name in _imported(ast.parse(module.read_text("utf-8"))):
            parts = name.split(".")
            if parts[0] == top and len(parts) > 1:
                reached.add(parts[1] if parts[1] in names else _LEAVES)
    return reached


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def reduce_arrows(arrows: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Returns the arrows that no longer way implies."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = sorted(arrows[start])
        while waiting:
            package = waiting.pop()
            if package not in seen:
                seen.add(package)
                waiting += arrows[package]
        return seen

    behind = {name: reach(name) for name in arrows}
    return {
        name: {end for end in ends if not any(end in behind[other] for other in ends - {end})}
        for name, ends in arrows.items()
    }


def draw_packages(top: str) -> str:
    """Returns a table of the packages of an import package, and their imports as a Mermaid graph."""
    modules_of = packages(ROOT / "src" / top)
    arrows = {name: imports(modules, top, modules_of) - {name} for name, modules in modules_of.items()}
    # Everything uses the leaves.
    reduced = reduce_arrows({name: ends - {_LEAVES} for name, ends in arrows.items() if name != _LEAVES})
    lines = ["| package | what is in it | modules | lines |", "|---|---|---|---|"]
    for name, modules in modules_of.items():
        lines.append(f"| `{name}` | {_purpose(top, name)} | {len(modules)} | {_lines(modules):,} |")
    total = [module for modules in modules_of.values() for module in modules]
    lines += [f"| together | | {len(total)} | {_lines(total):,} |", "", "```mermaid", "flowchart TD"]
    lines += [f"  {name} --> {end}" for name in sorted(reduced) for end in sorted(reduced[name])]
    return "\n".join([*lines, "```"])


def draw_modules(top: str) -> str:
    """Returns a table of the modules of an import package that has no packages."""
    modules = sorted((ROOT / "src" / top).glob("*.py"))
    lines = ["| module | what is in it | lines |", "|---|---|---|"]
    for module in modules:
        if module.name != "__init__.py":
            lines.append(f"| `{module.stem}` | {_first_sentence(module)} | {_lines([module]):,} |")
    return "\n".join([*lines, f"| together | | {_lines(modules):,} |"])


def _first_sentence(module: Path) -> str:
    text = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    return re.split(r"(?<=\.)\s", text)[0]


def _purpose(top: str, name: str) -> str:
    if name == _LEAVES:
        folder = ROOT / "src" / top
        return ", ".join(f"`{path.stem}`" for path in sorted(folder.glob("*.py")) if path.name[0] != "_")
    return _first_sentence(ROOT / "src" / top / name / "__init__.py")


def _lines(modules: list[Path]) -> int:
    """Returns the number of lines to two digits: the page need not change with every line."""
    lines = sum(len(module.read_text("utf-8").splitlines()) for module in modules)
    return round(lines, 2 - len(str(lines)))


def draw_stages() -> str:
    """Returns the stages of `dvc.yaml` and what passes between them as a Mermaid graph."""
    stages: Any = load_yaml(ROOT / "dvc.yaml")["stages"]
    lines = ["```mermaid", "flowchart LR"]
    for name, stage in stages.items():
        body = stage.get("do", stage)
        for dependency in body.get("deps", ()):
            source = re.sub(r"^\$\{run\.out\}/", "", dependency).split("/")[0]
            if source in stages and source != "inputs":
                lines.append(f"  {source} --> {name}")
    return "\n".join([*dict.fromkeys(lines), "```"])


def draw_parameters() -> str:
    """Returns which sections of the parameter file each stage is handed, as the stage `inputs` notes them."""
    source = (ROOT / "src/costbench/experiments/stages/inputs.py").read_text("utf-8")
    (value,) = (
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "_PARAMETERS" and node.value
    )
    lines = ["```mermaid", "flowchart LR", "  file[params.yaml] -->|load_params, once| Params"]
    for stage, sections in ast.literal_eval(value).items():
        names = dict.fromkeys(section.split(".")[0] for section in sections)
        lines.append(f"  Params -->|{', '.join(names)}| {stage}_stage[{stage}]")
    lines.append("  second[schedules.yaml] -->|schedules| schedules_stage[schedules]")
    return "\n".join([*lines, "```"])


def page(text: str) -> str:
    """Returns the page with every drawing made again; the rest stays as it is."""
    drawings = {name: draw_packages(name) for name in ("costbench", "costbench_schedules")}
    drawings |= {name: draw_modules(name) for name in ("costbench_kernels", "costbench_suite")}
    drawings |= {"stages": draw_stages(), "parameters": draw_parameters()}
    for name, drawing in drawings.items():
        start, end = _MARK.format(name), _MARK.format(f"end of {name}")
        before, _, rest = text.partition(start)
        _, has_end, after = rest.partition(end)
        if not has_end:
            raise SystemExit(f"{PAGE}: no lines {start} and {end}")
        text = f"{before}{start}\n{drawing}\n{end}{after}"
    return text


def main() -> None:
    """Writes the page, or checks it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit code 1 if it is out of date"
    )
    check = parser.parse_args().check
    before = PAGE.read_text("utf-8")
    after = page(before)
    if check and before != after:
        sys.exit(f"{PAGE} is out of date: run python tools/draw_house.py")
    if not check:
        PAGE.write_text(after, "utf-8")


if __name__ == "__main__":
    main()
