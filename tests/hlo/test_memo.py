from __future__ import annotations

import pytest

from costbench.hlo.memo import Memo


def test_a_missing_key_is_made_once() -> None:
    asked: list[int] = []

    def square(key: int) -> int:
        asked.append(key)
        return key * key

    memo = Memo(square)
    assert [memo[3], memo[3], memo[4]] == [9, 9, 16]
    assert asked == [3, 4]
    assert memo == {3: 9, 4: 16}


def test_asking_whether_a_key_is_there_makes_nothing() -> None:
    memo = Memo(str)
    assert memo.get(1) is None
    assert 1 not in memo
    assert not memo


def test_what_fails_to_be_made_is_not_kept() -> None:
    memo: Memo[int, int] = Memo(lambda key: 1 // key)
    with pytest.raises(ZeroDivisionError):
        memo[0]
    assert not memo
