from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import types
from numba.core import caching

from costbench.execution import compiled as compiled_module
from costbench.execution.compiled import (
    CacheLocator,
    cache_folder,
    compiled,
    compiled_fused,
    compiled_step,
    source_digest,
)


@compiled_step
def ratio(numbers: np.ndarray, index: int) -> float:
    return float(numbers[index] / numbers[index + 1])


@compiled
def ratios(numbers: np.ndarray) -> np.ndarray:
    result = np.empty(len(numbers) - 1)
    for index in range(len(result)):
        result[index] = ratio(numbers, index)
    return result


def test_steps_are_parts_of_a_loop_and_divide_as_numpy_does() -> None:
    assert ratios(np.array([6.0, 3.0, 0.0, 1.0])).tolist() == [2.0, np.inf, 0.0]


@compiled_step
def twice_rounded(a: np.float32, c: np.float32) -> np.float32:
    return a * a + c


@compiled_fused
def once_rounded(a: np.float32, c: np.float32) -> np.float32:
    return a * a + c


def test_only_fused_code_may_round_a_product_and_a_sum_at_once() -> None:
    # (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24, whose last part single precision drops.
    a, c = np.float32(1 + 2**-12), np.float32(-1 - 2**-11)
    assert twice_rounded(a, c) == 0.0
    assert once_rounded(a, c) in (0.0, 2**-24)


@compiled
def part(numbers: np.ndarray, index: int) -> float:
    if index >= len(numbers):
        raise IndexError("beyond the end")
    return float(numbers[index])


@compiled
def entry(numbers: np.ndarray, index: int) -> float:
    return 2.0 * part(numbers, index)


def test_a_part_is_compiled_for_python_only_when_python_calls_it() -> None:
    numbers = np.array([1.0, 2.0])
    assert entry(numbers, 1) == 4.0
    with pytest.raises(IndexError, match="beyond the end"):
        entry(numbers, 2)
    assert not part.overloads  # type: ignore[attr-defined]
    assert part(numbers, 1) == 2.0
    with pytest.raises(IndexError, match="beyond the end"):
        part(numbers, 2)
    assert len(part.overloads) == 1  # type: ignore[attr-defined]


def package(folder: Path, **modules: str) -> Path:
    """Writes modules of a package `costbench` and returns the folder that it lies in."""
    (folder / "costbench").mkdir(exist_ok=True)
    for name, text in modules.items():
        (folder / "costbench" / f"{name}.py").write_text(text, "utf-8")
    return folder


def test_the_digest_covers_what_is_compiled_and_what_that_imports(tmp_path: Path) -> None:
    user = "from costbench.execution.compiled import compiled\nfrom costbench.sizes import LANES\n"
    before = source_digest(package(tmp_path, user=user, sizes="LANES = 128\n", other="A = 1\n"))
    assert source_digest(package(tmp_path, other="A = 2\n")) == before
    constant = source_digest(package(tmp_path, sizes="LANES = 256\n"))
    assert constant != before
    assert source_digest(package(tmp_path, user=user + "B = 1\n")) not in (before, constant)


def test_the_digest_covers_constants_that_follow_from_those_of_other_modules(tmp_path: Path) -> None:
    user = "from costbench.execution.compiled import compiled\nfrom costbench.sizes import LANES\n"
    sizes = "from costbench.words import WORD\nLANES = 32 * WORD\n"
    before = source_digest(package(tmp_path, user=user, sizes=sizes, words="WORD = 4\n"))
    assert source_digest(package(tmp_path, words="WORD = 8\n")) != before


def test_the_digest_covers_packages_that_are_installed_beside(tmp_path: Path) -> None:
    other = tmp_path / "costbench_others"
    other.mkdir()
    user = "from costbench.execution.compiled import compiled\nfrom costbench_others.sizes import LANES\n"
    (other / "user.py").write_text(user, "utf-8")
    (other / "sizes.py").write_text("LANES = 128\n", "utf-8")
    before = source_digest(tmp_path)
    (other / "sizes.py").write_text("LANES = 256\n", "utf-8")
    assert source_digest(tmp_path) != before


def test_code_is_kept_in_the_first_place_that_can_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", "utf-8")
    folder = cache_folder([blocked, tmp_path / "second", tmp_path / "third"], "code")
    assert folder == tmp_path / "second" / "code"
    assert folder.is_dir()
    assert cache_folder([blocked], "code").is_dir()


def test_a_new_folder_takes_the_place_of_those_unused_for_long(tmp_path: Path) -> None:
    old, recent, other = (
        tmp_path / name for name in (".code-" + "0" * 16, ".code-" + "1" * 16, ".code-mine")
    )
    for folder in (old, recent, other):
        folder.mkdir()
        (folder / "file").write_text("", "utf-8")
        os.utime(folder, (0, 0))
        os.utime(folder / "file", (0, 0))
    # What a process added to is in use.
    os.utime(recent / "file")
    name = ".code-" + "2" * 16
    (tmp_path / name).mkdir()
    cache_folder([tmp_path], name)
    assert old.exists()
    (tmp_path / name).rmdir()
    cache_folder([tmp_path], name)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, recent.name, other.name])


def test_two_installations_of_the_same_sources_find_the_same_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locators = []
    for name in ("first", "second"):
        file = tmp_path / name / "costbench" / "search" / "example.py"
        file.parent.mkdir(parents=True)
        file.write_text("")
        monkeypatch.setattr(compiled_module, "_PACKAGE", tmp_path / name / "costbench")
        locators.append(CacheLocator(ratios.py_func, str(file)))
    first, second = locators
    assert first.get_cache_path() == second.get_cache_path()
    assert first.get_source_stamp() == second.get_source_stamp()
    file.write_text("x = 1")
    assert first.get_source_stamp() != second.get_source_stamp()


@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "HOME"])
def test_a_folder_that_does_not_exist_stops_nobody(tmp_path: Path, variable: str) -> None:
    script = "from costbench.hardware.noise import mix; import numpy as np; print(mix(np.uint64(1)))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, variable: str(tmp_path / "new")},
        capture_output=True,
        text=True,
        check=True,
    )
    # SplitMix64's first number from seed 1.
    assert int(done.stdout) == 0x910A2DEC89025CC1


SORTS = """
import sys
import numpy as np
from costbench.execution.compiled import compiled

@compiled
def first(number):
    return number

@compiled
def second(number):
    return number

@compiled
def order(numbers):
    return np.argsort(numbers)

@compiled
def ordered(numbers):
    result = numbers.copy()
    result.sort()
    return result

if __name__ == "__main__":
    numbers = np.array([3, 9, 7, 4])
    for name in sys.argv[1:]:
        print(name, *np.ravel(globals()[name](numbers)))
"""


def calls(folder: Path, *names: str) -> list[str]:
    """What functions of `SORTS` return in a new process that finds the code of those before."""
    done = subprocess.run(
        [sys.executable, folder / "sorts.py", *names],
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "code")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


ANNOUNCED = """
import sys
import numpy as np
from costbench.execution.compiled import at_first_compilation, compiled

@compiled
def first(number):
    return number + 1

@compiled
def second(number):
    return first(number)

at_first_compilation(lambda: print("compiles"))
print(second(1), second(1.5), first(1))
"""


def test_the_first_compilation_is_announced_once_and_code_on_disk_is_none(tmp_path: Path) -> None:
    (tmp_path / "sorts.py").write_text(ANNOUNCED, "utf-8")
    assert calls(tmp_path) == ["compiles", "2 2.5 2"]
    assert calls(tmp_path) == ["2 2.5 2"]


def test_code_of_several_processes_is_not_mixed_up(tmp_path: Path) -> None:
    """Sorting and ordering have a part of one name and signature, each the sixth function of its process."""
    (tmp_path / "sorts.py").write_text(SORTS, "utf-8")
    calls(tmp_path, "first", "second", "order")
    assert calls(tmp_path, "ordered") == ["ordered 3 4 7 9"]
    assert calls(tmp_path, "order", "ordered") == ["order 0 3 2 1", "ordered 3 4 7 9"]


def test_two_processes_that_compile_for_two_signatures_keep_both_apart(tmp_path: Path) -> None:
    """Both find an empty index; the second one saves its code while the first one is saving."""
    of_floats, of_integers = (types.float64,), (types.int64,)

    class Process(caching.IndexDataCacheFile):
        def _load_index(self) -> dict[object, str]:
            return {}

    class First(Process):
        def _save_data(self, name: str, data: object) -> None:
            Process(str(tmp_path), "function", 1.0).save(of_integers, "integers")
            super()._save_data(name, data)

    First(str(tmp_path), "function", 1.0).save(of_floats, "floats")
    later = caching.IndexDataCacheFile(str(tmp_path), "function", 1.0)
    # One of them overwrote the other's index; its code is compiled again.
    assert [later.load(of_floats), later.load(of_integers)] == ["floats", None]
    later.save(of_integers, "integers")
    assert [later.load(of_floats), later.load(of_integers)] == ["floats", "integers"]
