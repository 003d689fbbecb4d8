"""The example that `docs/tour.md` shows prints what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.follow_a_kernel import main


@pytest.mark.slow
def test_the_page_shows_what_the_example_prints(capsys: pytest.CaptureFixture[str], repository: Path) -> None:
    main()
    page = (repository / "docs" / "tour.md").read_text("utf-8")
    assert f"$ python examples/follow_a_kernel.py\n{capsys.readouterr().out}```" in page
