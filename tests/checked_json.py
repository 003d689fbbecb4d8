"""Changes JSON files that hold a checksum of themselves, as somebody would who means to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from costbench.artifacts import with_checksum


def rewrite_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the content of a file and gives it the right checksum."""
    content = json.loads(path.read_text())
    del content["sha256"]
    change(content)
    path.write_text(json.dumps(with_checksum(content)))
