from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from costbench import params
from costbench.errors import ChoiceError, ParamsError
from costbench.params import merge


@dataclass(frozen=True)
class Optimizer:
    name: Literal["adam", "sgd"]
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)

    def __post_init__(self) -> None:
        if self.learning_rate <= 0:
            raise ParamsError("must be positive", field="learning_rate", expected="a float above 0")
        if self.betas[0] >= self.betas[1]:
            raise ValueError("the first beta must be the smaller one")


@dataclass(frozen=True)
class Train:
    seed: int
    optimizer: Optimizer
    shuffle: bool = True
    chips: tuple[str, ...] = ()
    limit: int | None = None
    width: Literal[64, 128] = 64
    patience: int | float | str = 3
    second: Optimizer | None = None


SMALLEST: dict[str, Any] = {"seed": 1, "optimizer": {"name": "adam"}}


def parse(**changes: Any) -> Train:
    return params.parse(Train, {**SMALLEST, **changes}, where="params.yaml", field="train")


def test_defaults_fill_what_is_left_out() -> None:
    assert parse() == Train(seed=1, optimizer=Optimizer("adam", 1e-3, (0.9, 0.999)))


def test_every_kind_of_field_is_parsed() -> None:
    parsed = parse(
        optimizer={"name": "sgd", "learning_rate": 1, "betas": [0, 0.5]},
        shuffle=False,
        chips=["tpu_v2", "tpu_v3"],
        limit=7,
        width=128,
        second={"name": "adam"},
    )
    assert parsed.optimizer == Optimizer("sgd", 1.0, (0.0, 0.5))
    assert type(parsed.optimizer.learning_rate) is float
    assert parsed.chips == ("tpu_v2", "tpu_v3")
    assert (parsed.shuffle, parsed.limit, parsed.width) == (False, 7, 128)
    assert parsed.second == Optimizer("adam")


@pytest.mark.parametrize("value", [1, 1.5, "never"])
def test_a_union_keeps_the_type_of_the_value(value: float | str) -> None:
    parsed = parse(patience=value)
    assert parsed.patience == value
    assert type(parsed.patience) is type(value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sed": 1}, "params.yaml: train.sed: unknown key, did you mean 'seed'? (expected one of chips, "),
        ({"zzz": 1}, "params.yaml: train.zzz: unknown key (expected one of chips, "),
        ({1: 1}, "train.1: unknown key"),
        ({"seed": True}, "params.yaml: train.seed: True (bool) is not accepted (expected int)"),
        ({"seed": 1.0}, "train.seed: 1.0 (float) is not accepted (expected int)"),
        ({"seed": "1"}, "train.seed: '1' (str) is not accepted (expected int)"),
        ({"seed": None}, "train.seed: None (null) is not accepted (expected int)"),
        ({"shuffle": 1}, "train.shuffle: 1 (int) is not accepted (expected bool)"),
        ({"chips": "tpu_v3"}, "train.chips: 'tpu_v3' (str) is not accepted (expected a list of str)"),
        ({"chips": ["a", 3]}, "train.chips[1]: 3 (int) is not accepted (expected str)"),
        ({"limit": "x"}, "train.limit: 'x' (str) is not accepted (expected int)"),
        ({"limit": False}, "train.limit: False (bool) is not accepted (expected int)"),
        ({"width": 64.0}, "train.width: 64.0 (float) is not accepted (expected one of 64, 128)"),
        ({"width": True}, "train.width: True (bool) is not accepted (expected one of 64, 128)"),
        ({"patience": True}, "train.patience: True (bool) is not accepted (expected int or float or str)"),
        ({"seed": 10**30, "sed": 1, "shuffle": "yes"}, "train.sed: unknown key"),
        ({"optimizer": {"nam": "adam"}}, "train.optimizer.nam: unknown key, did you mean 'name'?"),
        ({"chips": {"a": 1}}, "train.chips: {'a': 1} (mapping) is not accepted (expected a list of str)"),
        ({"optimizer": "adam"}, "(expected the keys name, learning_rate, betas)"),
        ({"optimizer": {}}, "train.optimizer.name: missing (expected one of adam, sgd)"),
        (
            {"optimizer": {"name": "adan"}},
            "'adan' (str) is not accepted, did you mean 'adam'? (expected one of",
        ),
        ({"second": {"name": "adam", "learning_rate": True}}, "train.second.learning_rate: True (bool)"),
        ({"seed": {"a": "x" * 99}}, f"train.seed: {{'a': '{'x' * 50}... (mapping) is not accepted"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[Any, Any], message: str) -> None:
    with pytest.raises(ParamsError) as caught:
        params.parse(Train, SMALLEST | changes, where="params.yaml", field="train")
    assert message in str(caught.value)
    assert caught.value.where == "params.yaml"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, "a finite float"),
        (math.inf, "a finite float"),
        (-math.inf, "a finite float"),
        (10**400, "a finite float"),
        (True, "float"),
        ("1e-3", "float"),
        (None, "float"),
        ([1.0], "float"),
    ],
)
def test_what_is_no_finite_float_is_refused(value: object, expected: str) -> None:
    with pytest.raises(ParamsError, match=r"train\.optimizer\.learning_rate") as caught:
        parse(optimizer={"name": "adam", "learning_rate": value})
    assert caught.value.expected == expected


def test_a_missing_key_without_default_is_named() -> None:
    with pytest.raises(ParamsError, match=r"^p\.yaml: seed: missing \(expected int\)$"):
        params.parse(Train, {"optimizer": {"name": "adam"}}, where="p.yaml")


def test_a_tuple_of_fixed_length_has_that_length() -> None:
    with pytest.raises(ParamsError, match=r"betas: \[0\.1\] \(list\) .*a list of 2: float, float"):
        parse(optimizer={"name": "adam", "betas": [0.1]})


def test_impossible_values_carry_file_and_field() -> None:
    with pytest.raises(ParamsError, match=r"^params.yaml: train.optimizer: the first beta") as plain:
        parse(optimizer={"name": "adam", "betas": [0.5, 0.5]})
    assert isinstance(plain.value.__cause__, ValueError)
    with pytest.raises(ParamsError) as named:
        parse(optimizer={"name": "adam", "learning_rate": 0})
    assert str(named.value) == (
        "params.yaml: train.optimizer.learning_rate: must be positive (expected a float above 0)"
    )


def test_a_choice_error_of_a_dataclass_becomes_a_params_error() -> None:
    with pytest.raises(ParamsError, match=r"params.yaml: train: unknown chip 'x' \(expected one of a\)"):
        params.parse(Chip, {"name": "x"}, where="params.yaml", field="train")


@dataclass(frozen=True)
class Named:
    optimizers: Mapping[str, Optimizer]


def test_a_mapping_has_members_of_one_kind_by_name() -> None:
    settings = {"a": {"name": "adam", "learning_rate": 1}, "b": {"name": "sgd", "learning_rate": 0.5}}
    parsed = params.parse(Named, {"optimizers": settings}, where="x")
    assert parsed.optimizers == {name: Optimizer(**one) for name, one in settings.items()}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1], "x: optimizers: [1] (list) is not accepted (expected a mapping of names to a mapping with"),
        ({1: {}}, "x: optimizers: {1: {}} (mapping) is not accepted"),
        ({"a": {"lr": 1}}, "x: optimizers.a.lr: unknown key"),
    ],
)
def test_mappings_that_do_not_fit(value: object, message: str) -> None:
    with pytest.raises(ParamsError) as caught:
        params.parse(Named, {"optimizers": value}, where="x")
    assert str(caught.value).startswith(message)


@dataclass(frozen=True)
class Chip:
    name: str

    def __post_init__(self) -> None:
        if self.name != "a":
            raise ChoiceError(f"unknown chip {self.name!r}", expected="one of a")


@dataclass(frozen=True)
class Unsupported:
    path: Path


def test_an_annotation_that_would_convert_values_is_a_programming_error() -> None:
    with pytest.raises(TypeError, match="a parameter cannot be a"):
        params.parse(Unsupported, {"path": "x"}, where="params.yaml")


numbers = st.floats(1e-9, 1e9)
optimizers = st.builds(
    Optimizer,
    name=st.sampled_from(["adam", "sgd"]),
    learning_rate=numbers,
    betas=st.tuples(st.floats(0, 0.4), st.floats(0.5, 1)),
)
trains = st.builds(
    Train,
    seed=st.integers(),
    optimizer=optimizers,
    shuffle=st.booleans(),
    chips=st.lists(st.text()).map(tuple),
    limit=st.none() | st.integers(),
    width=st.sampled_from([64, 128]),
    patience=st.integers() | numbers | st.text(),
    second=st.none() | optimizers,
)


@given(trains)
def test_parse_is_the_inverse_of_asdict(train: Train) -> None:
    assert params.parse(Train, dataclasses.asdict(train), where="x") == train


@given(trains, st.randoms())
def test_digest_ignores_order_and_sees_values(train: Train, random: Any) -> None:
    items = list(dataclasses.asdict(train).items())
    random.shuffle(items)
    same = params.parse(Train, dict(items), where="x")
    assert params.digest(same) == params.digest(train)
    assert params.digest(dataclasses.replace(train, seed=train.seed + 1)) != params.digest(train)


@given(trains, st.text(min_size=1).filter(lambda key: key not in Train.__dataclass_fields__))
def test_no_unknown_key_is_ever_accepted(train: Train, key: str) -> None:
    with pytest.raises(ParamsError, match="unknown key"):
        params.parse(Train, {**dataclasses.asdict(train), key: 1}, where="x")


def test_digest_of_a_known_value() -> None:
    # printf '{"name":"a"}' | sha256sum
    assert params.digest(Chip("a")) == "d9d719b27480b55c"


def test_digest_does_not_tell_one_from_one_point_zero_where_a_float_is_asked() -> None:
    whole = parse(optimizer={"name": "adam", "learning_rate": 1})
    point = parse(optimizer={"name": "adam", "learning_rate": 1.0})
    assert params.digest(whole) == params.digest(point)


SCALARS = "[1, -2, 1e-3, 1.5, .5, 2., 1.5E+3, on, yes, no, 1:30, 010, ~, null, true, False, '1', 1_0x]"


def test_yaml_scalars_are_read_as_dvc_reads_them(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(f"a: {SCALARS}\nb: &x {{c: 1}}\nd: {{<<: *x, e: 2}}\nf:\n")
    loaded = params.load_yaml(tmp_path / "p.yaml")
    expected = [1, -2, 0.001, 1.5, 0.5, 2.0, 1500.0, "on", "yes", "no", "1:30", 10]
    assert loaded["a"] == [*expected, None, None, True, False, "1", "1_0x"]
    assert (loaded["d"], loaded["f"]) == ({"c": 1, "e": 2}, None)
    assert loaded == YAML(typ="safe", pure=True).load((tmp_path / "p.yaml").read_text())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [1", "malformed YAML at line 1 column 6"),
        ("a: 1\nb: 2\na: 3\n", 'malformed YAML at line 3 column 1: found duplicate key "a"'),
        ("a: {b: 1, b: 2}", 'found duplicate key "b"'),
        ("a: &a [*a]", "more than 262144 values"),
        ("a: 1\n b: 2", "malformed YAML at line 2 column 3: mapping values are not allowed here"),
        ("a: " + "[" * 2000, "malformed YAML"),
        ("? [1, 2]\n: 3", r"\(list\) is not accepted \(expected a name as key\)"),
        ("a: !!python/object:os.system {}", "could not determine a constructor"),
        ("- 1", r"\[1\] \(list\) is not accepted \(expected a mapping of sections\)"),
        ("", r"None \(null\) is not accepted"),
        ("1: 2", r"1 \(int\) is not accepted \(expected a name as key\)"),
    ],
)
def test_bad_yaml_names_the_file_and_the_place(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(ParamsError, match=problem) as caught:
        params.load_yaml(path)
    assert caught.value.where == str(path)


def test_aliases_do_not_multiply_without_bound(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    (tmp_path / "p.yaml").write_text("\n".join(lines))
    with pytest.raises(ParamsError, match=r"p\.yaml: malformed YAML: more than 262144 values"):
        params.load_yaml(tmp_path / "p.yaml")


def test_what_was_read_belongs_to_the_caller(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("a: {b: [1]}")
    params.load_yaml(tmp_path / "p.yaml")["a"] = 2
    assert params.load_yaml(tmp_path / "p.yaml") == {"a": {"b": [1]}}


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"absent\.yaml: no such file"):
        params.load_yaml(tmp_path / "absent.yaml")
    with pytest.raises(ParamsError, match="cannot read"):
        params.load_yaml(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff")
    with pytest.raises(ParamsError, match=r"latin\.yaml: cannot read: .*utf-8"):
        params.load_yaml(tmp_path / "latin.yaml")


def test_load_section(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("train: {seed: 1, optimizer: {name: adam}}\nempty:\n")
    assert params.load_section(path, "train", Train) == parse()
    with pytest.raises(ParamsError, match=r"p\.yaml: trian: missing section, did you mean 'train'\?"):
        params.load_section(path, "trian", Train)
    with pytest.raises(ParamsError, match=r"p\.yaml: empty: None \(null\) is not accepted"):
        params.load_section(path, "empty", Train)


def test_merging_replaces_lists_and_keeps_its_arguments() -> None:
    base = {"a": {"b": 1, "c": [1, 2]}, "d": 4}
    assert merge(base, {"a": {"c": [3]}, "e": {"f": 5}}) == {"a": {"b": 1, "c": [3]}, "d": 4, "e": {"f": 5}}
    assert base == {"a": {"b": 1, "c": [1, 2]}, "d": 4}
