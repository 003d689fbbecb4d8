"""Chosen memory orders: what a layout config says about the nodes that it configures.

A node is named by computation and position, as in `HloModule`.
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
        output: of its result.
        operands: of what it reads: input and kernel of a convolution or dot, input of a reshape.
    """

    output: MinorToMajor
    operands: tuple[MinorToMajor, ...]


@dataclass(frozen=True)
class Choices:
    """What is chosen for a program.

    Attributes:
        layouts: of every configurable node.
        pins: the order that a class of values (its number in `ValueClasses`) is to have.
        changed: nodes for which something else than the default is chosen.
    """

    layouts: Mapping[Node, NodeLayouts] = field(default_factory=dict)
    pins: Mapping[int, MinorToMajor] = field(default_factory=dict)
    changed: frozenset[Node] = frozenset()


NO_CHOICES = Choices()
