"""Finds chips of the user's own, which have a file in place of one that ships with the package."""

from __future__ import annotations

from collections.abc import Sequence

from costbench.experiments.parameter_file import Params
from costbench.target import Target, available_targets, load_target


def chip_files(params: Params) -> dict[str, str]:
    """Returns the YAML file of each chip of section `generate` that has one, by the chip's name.

    Raises:
        TargetError: for a file that describes no chip.
    """
    section = params.sections.get("generate")
    listed = section.get("chips") if isinstance(section, dict) else None
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        return {}
    files = [str(one) for one in listed if str(one) not in available_targets()]
    return {load_target(file).name: file for file in files}


def chip_of(name: str, file: str) -> Target:
    """Returns the chip that a file describes, or the one of the package where the file is empty.

    Raises:
        TargetError: for a name that no chip has, or a file that describes none.
    """
    return load_target(file or name)
