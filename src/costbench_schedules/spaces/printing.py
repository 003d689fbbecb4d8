"""Schedules as text: the loops of one, for people."""

from __future__ import annotations

from costbench_schedules.spaces.nest import LoopStatement, ScheduledNest

_INDENT = "  "
_WHAT = {
    "padding": "{1} = {0}, zeros around it",
    "init": "{0} = 0",
    "compute": "{2} += {0} * {1}",
    "write": "{1} = {0}",
}


def nest_text(nest: ScheduledNest) -> str:
    """Returns the loops of a schedule as indented lines; loops that statements share are written once."""
    lines: list[str] = []
    compute = next(one for one in nest.statements if one.name == "compute")
    before = {one.name: one for one in nest.statements if one.name in ("padding", "init")}
    after = [one for one in nest.statements if one.name == "write"]
    for depth, loop in enumerate((*compute.loops, None)):
        for one in before.values():
            if one.shared == depth:
                lines += _own(one, depth)
        if loop is not None:
            lines.append(_line(loop.name, loop.extent, loop.annotation, depth))
    lines.append(_INDENT * len(compute.loops) + _statement(compute))
    for one in after:
        lines += _own(one, one.shared)
    return "\n".join(lines)


def _own(one: LoopStatement, depth: int) -> list[str]:
    """Returns the lines of a statement's own loops and of itself."""
    loops = one.loops[one.shared :]
    lines = [_line(loop.name, loop.extent, loop.annotation, depth + i) for i, loop in enumerate(loops)]
    return [*lines, _INDENT * (depth + len(loops)) + _statement(one)]


def _line(name: str, extent: int, annotation: str, depth: int) -> str:
    note = "" if annotation == "none" else f"  # {annotation}"
    return f"{_INDENT * depth}for {name} in {extent}:{note}"


def _statement(one: LoopStatement) -> str:
    return _WHAT[one.name].format(*(name for name, _, _ in one.buffers))
