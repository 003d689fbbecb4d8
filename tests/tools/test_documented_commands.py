"""Every command and every option that the documentation names is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.command_line import click_command

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted(
    [*(REPOSITORY / "docs").glob("*.md"), REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"]
)
_SPAN = re.compile(r"`(?:\.venv/bin/)?costbench ([^`\n]+)`")
_LINE = re.compile(r"^(?:\$ |    )(?:\.venv/bin/)?costbench (.+)$", re.MULTILINE)
_TARGET = re.compile(r"`make ([a-z-]+)\b[^`]*`")


def commands_in(page: Path) -> list[str]:
    """Returns what follows `costbench` in code of a page, up to a comment, a pipe or an alternative."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    return [re.split(r" #|[|;&>\\]", found)[0] for found in (*_SPAN.findall(text), *_LINE.findall(text))]


def unknown_part(words: list[str]) -> str | None:
    """Returns the first word that should be a command or an option and is none; None if all are."""
    command = click_command()
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return words[0]
        command, words = command.commands[words[0]], words[1:]
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    named = [match[0] for word in words if (match := re.match(r"\[?(--[a-z][a-z-]*)", word))]
    return next((name for name in named if name.lstrip("[") not in {*options, "--help"}), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_are_there(page: Path) -> None:
    commands = [command for command in commands_in(page) if re.match("[a-z]", command)]
    assert [command for command in commands if unknown_part(shlex.split(command.replace("'", "")))] == []


def test_targets_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {target for page in PAGES for target in _TARGET.findall(page.read_text("utf-8"))} <= targets
