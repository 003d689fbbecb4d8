"""Configurations as numbers of options: exact, the same for any blocks, in memory that does not grow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.datasets.tpugraphs import options
from costbench.datasets.tpugraphs.options import OptionEncoder, Options, encode_options
from costbench.errors import DataError


def configs(c: int, nc: int, distinct: int, seed: int = 0) -> np.ndarray:
    """Random configurations with few different vectors."""
    draw = np.random.default_rng(seed)
    vectors = draw.integers(-1, 6, (distinct, 18)).astype(np.float32)
    return vectors[draw.integers(0, distinct, (c, nc))]


def expanded(options: Options) -> np.ndarray:
    return options.option_features[options.option_offsets[:-1] + options.config_options]


@given(st.integers(0, 9), st.integers(0, 4), st.integers(1, 5), st.integers(0, 99))
def test_every_vector_of_a_node_is_an_option_once(c: int, nc: int, distinct: int, seed: int) -> None:
    features = configs(c, nc, distinct, seed)
    options = encode_options(features)
    assert np.array_equal(expanded(options), features)
    assert options.config_options.dtype == np.int16
    for node in range(nc):
        kinds = options.option_features[slice(*options.option_offsets[node : node + 2])]
        assert len(kinds) == len(np.unique(kinds, axis=0)) == len(np.unique(features[:, node], axis=0))


def test_options_are_numbered_by_first_use() -> None:
    features = np.zeros((4, 1, 18), np.float32)
    features[:, 0, 0] = [5, 2, 5, 9]
    assert encode_options(features).config_options[:, 0].tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize("sizes", [[1] * 12, [5, 7], [12]])
def test_blocks_do_not_matter(sizes: list[int]) -> None:
    features, whole = configs(12, 3, 4), encode_options(configs(12, 3, 4))
    with OptionEncoder(3) as encoder:
        for end, size in zip(np.cumsum(sizes), sizes, strict=True):
            encoder.add(features[end - size : end])
        options = encoder.finish()
        for field, array in vars(whole).items():
            assert np.array_equal(getattr(options, field), array)


def test_vectors_beyond_the_known_ones_are_stored_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_KNOWN_VECTORS", 3)
    features = configs(20, 2, 6)
    with OptionEncoder(2) as encoder:
        for config in features:
            encoder.add(config[None])
        encoded = encoder.finish()
        assert len(encoder._known) == 3
        assert np.array_equal(expanded(encoded), features)
        assert len(encoded.option_features) > 12


def test_more_options_than_16_bits_can_number(tmp_path: Path) -> None:
    count = (1 << 15) + 5
    features = np.zeros((count, 2, 18), np.float32)
    features[:, 1, 3] = np.arange(count)
    with OptionEncoder(2, tmp_path) as encoder:
        for start in range(0, count, 10_000):
            encoder.add(features[start : start + 10_000])
        options = encoder.finish()
        assert options.config_options.dtype == np.int32
        assert options.option_offsets.tolist() == [0, 1, 1 + count]
        assert np.array_equal(options.config_options[:, 1], np.arange(count))
        assert np.array_equal(expanded(options)[:, 1, 3], np.arange(count))
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_is_not_finite_is_named_by_its_place() -> None:
    features = configs(7, 2, 3).astype(np.float64)
    features[5, 1, 17] = np.inf
    with OptionEncoder(2) as encoder, pytest.raises(DataError, match=r"value inf at \(5, 1, 17\)"):
        for start in range(0, 7, 2):
            encoder.add(features[start : start + 2])
