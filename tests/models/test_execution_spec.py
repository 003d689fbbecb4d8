"""Settings of a CPU refuse what cannot be."""

from __future__ import annotations

import pytest

from costbench.models.execution_spec import Execution


def test_a_processor_needs_a_thread() -> None:
    with pytest.raises(ValueError, match="threads is 0, must be at least 1"):
        Execution(threads=0)
