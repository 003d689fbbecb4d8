from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from costbench.errors import DataError
from costbench.rng import stream
from costbench_schedules.experiments.search_archive import (
    ARCHIVE_FILE,
    ArchiveFacts,
    read_archive,
    read_facts,
    write_archive,
)
from costbench_schedules.experiments.table_scores import TableSearches, score_rows
from tests.schedules.search.test_bayesian import bowl

TABLE = bowl("here", (3, 1, 2, 1))


def searches(repeats: int = 4) -> list[TableSearches]:
    failed = np.flatnonzero(TABLE.failed)
    orders = [stream(0, "orders", repeat).permutation(len(TABLE))[:30] for repeat in range(repeats - 1)]
    # One that begins with failures: no choice for three trials.
    return [TableSearches(TABLE, "random", 30, [*orders, np.concatenate([failed[:3], orders[0][:5]])])]


FACTS = ArchiveFacts(30, 0, {TABLE.name: "digest"})


def test_scores_of_an_archive_are_those_of_its_searches(tmp_path: Path) -> None:
    path = tmp_path / "results" / ARCHIVE_FILE
    write_archive(path, searches(), FACTS)
    read = read_archive(path, [TABLE])
    pd.testing.assert_frame_equal(score_rows(read), score_rows(searches()))
    np.testing.assert_array_equal(read[0].curves(), searches()[0].curves())
    assert read_facts(path) == replace(FACTS, repeats={TABLE.name: {"random": 4}})
    assert read_archive(path, [bowl("there", (0, 0, 0, 0))]) == []


def test_equal_searches_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_archive(tmp_path / name, searches(), FACTS)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_search_in_which_all_failed_has_no_choice(tmp_path: Path) -> None:
    failed = np.flatnonzero(TABLE.failed)[:4]
    write_archive(tmp_path / "x", [TableSearches(TABLE, "random", 30, [failed])], FACTS)
    assert [order.tolist() for order in read_archive(tmp_path / "x", [TABLE])[0].orders] == [[failed[0]]]


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / ARCHIVE_FILE
    path.write_bytes(b"PAR1 no more")
    with pytest.raises(DataError, match=r"choices\.parquet.*cannot be read"):
        read_archive(path, [TABLE])
    pd.DataFrame({"a": [1]}).to_parquet(path)
    with pytest.raises(DataError, match="searches of tuning tables"):
        read_facts(path)


def test_choices_that_a_table_lacks_are_refused(tmp_path: Path) -> None:
    write_archive(tmp_path / "x", searches(), FACTS)
    with pytest.raises(DataError, match="bowl-here cannot have"):
        read_archive(tmp_path / "x", [bowl("here", (3, 1, 2, 1), kept=20)])
