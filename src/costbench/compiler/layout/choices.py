"""A decoded layout config: the memory orders chosen for the nodes that it configures.

A node is identified by computation and position, as in `HloModule`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from costbench.compiler.tiled_memory import MinorToMajor

Node = tuple[int, int]


@dataclass(frozen=True, slots=True)
class NodeLayouts:
    """Memory orders of one node, fastest axis first.

    Attributes:
        output: order of its result.
        operands: orders of its operands: input and kernel of a convolution or dot, input of a reshape.
    """

    output: MinorToMajor
    operands: tuple[MinorToMajor, ...]


@dataclass(frozen=True)
class Choices:
    """The choices of a layout config for one program.

    Attributes:
        layouts: chosen orders of every configurable node.
        pins: required order by class of values (its number in `ValueClasses`).
        changed: nodes whose choice is not the default.
    """

    layouts: Mapping[Node, NodeLayouts] = field(default_factory=dict)
    pins: Mapping[int, MinorToMajor] = field(default_factory=dict)
    changed: frozenset[Node] = frozenset()


NO_CHOICES = Choices()
