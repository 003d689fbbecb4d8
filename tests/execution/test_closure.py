"""What a module runs, on a small package made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.execution.closure import Closure, find_closure, read_sources

FILES = {
    "__init__.py": '"""A package."""\n',
    "top.py": '"""Docstring."""\nimport json\nfrom pack.sub import middle\nRESULT = middle.value()\n',
    "sub/__init__.py": "",
    "sub/middle.py": "def value():\n    from pack.lazy import LANES\n    return LANES\n",
    "lazy.py": "import numpy as np\nLANES = 128  # of a tile\n",
    "named.py": "A = 1\n",
    "alone.py": "B = 2\n",
    "reader.py": "from importlib import resources\nTEXT = resources.files('pack') / 'chips'\n",
    "chips/one.yaml": "clock: 1\n",
    "other/two.yaml": "clock: 2\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        write(tmp_path / "pack", name, text)
    return tmp_path / "pack"


def write(package: Path, name: str, text: str) -> None:
    (package / name).parent.mkdir(parents=True, exist_ok=True)
    (package / name).write_text(text, "utf-8")


def found(package: Path, *roots: str, excluded: tuple[str, ...] = ()) -> Closure:
    return find_closure(roots, read_sources(package), excluded, version=lambda name: f"1.0 of {name}")


def test_imports_are_followed_also_those_inside_functions(package: Path) -> None:
    modules = list(found(package, "pack.top").modules)
    # `value` and `LANES` are attributes, and `json` belongs to Python.
    assert modules == ["pack", "pack.lazy", "pack.sub", "pack.sub.middle", "pack.top"]


@pytest.mark.parametrize(
    "line",
    [
        "import pack.named",
        "from pack import named",
        "from . import named",
        "from .named import A",
        "from pack.named import (\n    A,\n)",
        "load(('pack.named',))",
        "def f():\n    import pack.named",
        "try:\n    from pack.named import A\nexcept ImportError:\n    A = 0",
        "if TYPE_CHECKING:\n    pass\nelse:\n    from pack.named import A",
    ],
)
def test_every_way_to_import_counts(package: Path, line: str) -> None:
    write(package, "alone.py", f"{line}\n")
    assert "pack.named" in found(package, "pack.alone").modules


def test_imports_for_type_checkers_are_not_followed(package: Path) -> None:
    write(package, "alone.py", "if TYPE_CHECKING:\n    from pack.named import A\n    import torch\n")
    alone = found(package, "pack.alone")
    assert list(alone.modules) == ["pack", "pack.alone"]
    assert alone.libraries == {}


def test_excluded_are_left_out_with_what_only_they_import(package: Path) -> None:
    assert list(found(package, "pack.top", excluded=("pack.sub",)).modules) == ["pack", "pack.top"]


@pytest.mark.parametrize(
    "same",
    [
        "# a comment\nimport numpy as np\n\n\nLANES = 128\n",
        '"""A docstring."""\nimport numpy as np\nLANES = 128\n"""Of a tile."""\n',
        "import numpy as np\nLANES = (\n    0x80\n)\n",
    ],
)
def test_what_does_not_run_leaves_the_digest(package: Path, same: str) -> None:
    before = found(package, "pack.top").digest()
    write(package, "lazy.py", same)
    assert found(package, "pack.top").digest() == before


@pytest.mark.parametrize(
    "other",
    [
        "import numpy as np\nLANES = 129\n",
        "import numpy as np\nLANES = 128.0\n",
        "import numpy as np\nLANES = '128'\n",
        "import numpy as np\nLANES = 128\nMORE = 0\n",
        "import numpy as np\nSIZE = 128\n",
        "import numpy as np\nLANES: int = 128\n",
    ],
)
def test_what_runs_changes_the_digest(package: Path, other: str) -> None:
    before = found(package, "pack.top").digest()
    write(package, "lazy.py", other)
    assert found(package, "pack.top").digest() != before


def test_modules_that_are_not_reached_leave_the_digest(package: Path) -> None:
    before = found(package, "pack.top").digest()
    write(package, "alone.py", "B = 3\n")
    assert found(package, "pack.top").digest() == before


def test_a_string_that_is_used_is_no_docstring(package: Path) -> None:
    write(package, "alone.py", "def f():\n    return 'one'\n")
    before = found(package, "pack.alone").digest()
    write(package, "alone.py", "def f():\n    return 'two'\n")
    assert found(package, "pack.alone").digest() != before


def test_data_belongs_to_the_module_that_reads_it(package: Path) -> None:
    reader, alone = found(package, "pack.reader"), found(package, "pack.alone")
    assert list(reader.data) == ["pack/chips/one.yaml"]
    write(package, "chips/one.yaml", "clock: 3\n")
    assert found(package, "pack.reader").digest() != reader.digest()
    assert found(package, "pack.alone").digest() == alone.digest()


def test_data_beside_a_module_is_its_own_if_it_asks_where_it_lies(package: Path) -> None:
    write(package, "other/__init__.py", "")
    write(package, "other/numbers.py", "from pathlib import Path\nHERE = Path(__file__).parent\n")
    assert list(found(package, "pack.other.numbers").data) == ["pack/other/two.yaml"]


def test_libraries_count_by_their_versions(package: Path) -> None:
    write(
        package,
        "alone.py",
        "import numba.core\nfrom google.protobuf import message\nimport torch_geometric.nn\n",
    )
    alone = found(package, "pack.alone")
    # llvmlite makes the machine code of Numba.
    assert list(alone.libraries) == ["llvmlite", "numba", "protobuf", "torch-geometric"]
    newer = find_closure(
        ["pack.alone"], read_sources(package), version=lambda name: f"{1 + (name == 'numba')}.0 of {name}"
    )
    assert newer.digest() != alone.digest()


def test_builds_of_one_version_are_the_same(package: Path) -> None:
    builds = [
        find_closure(
            ["pack.top"], read_sources(package), version=lambda _, build=build: f"2.4{build}"
        ).digest()
        for build in ("", "+cpu", "+cu130")
    ]
    assert len(set(builds)) == 1


def test_roots_have_to_exist(package: Path) -> None:
    with pytest.raises(ValueError, match=r"pack\.missing"):
        found(package, "pack.top", "pack.missing")
