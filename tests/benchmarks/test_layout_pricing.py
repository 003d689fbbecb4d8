from __future__ import annotations

import pytest

from benchmarks import layout_pricing


def test_both_ways_of_pricing_agree_and_are_timed() -> None:
    found = layout_pricing.compare_pricers("ncf_b8192_infer_bf16", 10, "tpu_v2")
    assert (found.instructions, found.configs) == (83, 10)
    assert found.ratio == pytest.approx(found.incremental_per_second / found.full_per_second)
