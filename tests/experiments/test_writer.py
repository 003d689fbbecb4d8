"""Writer tags say whether a process has ended, for processes of this machine alone."""

from __future__ import annotations

import subprocess
import sys

from costbench.experiments.writer import is_gone, machine, this_process


def test_this_process_is_not_gone() -> None:
    assert not is_gone(this_process())
    assert this_process().startswith(machine())


def test_a_process_that_has_ended_is_gone() -> None:
    code = "from costbench.experiments.writer import this_process; print(this_process())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    writer = done.stdout.strip()
    assert is_gone(writer)
    # The same number on another machine says nothing.
    assert not is_gone(f"elsewhere/{writer}")


def test_what_names_no_process_is_not_gone() -> None:
    assert [name for name in ("", "nobody", f"{machine()} ", f"{machine()} x") if is_gone(name)] == []
