"""The table: names say batch, step and precision; rows that contradict themselves are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.errors import ChoiceError
from costbench.workloads.collector import describe
from costbench.workloads.manifest import load_manifest
from costbench.workloads.optimizers import OPTIMIZERS
from costbench.workloads.programs import SPECS, ProgramSpec, find_spec
from costbench.workloads.zoo.convnets import alexnet


def test_names_are_unique_and_optimizers_exist() -> None:
    assert len({spec.name for spec in SPECS}) == len(SPECS)
    assert {spec.optimizer for spec in SPECS} <= {"", *OPTIMIZERS}


def test_the_manifest_is_the_table(repository: Path) -> None:
    entries = {entry.name: entry for entry in load_manifest(repository / "data" / "programs")}
    assert set(entries) == {spec.name for spec in SPECS}
    for spec in SPECS:
        entry = entries[spec.name]
        assert entry == describe(spec, entry.instructions, entry.sha256)


def test_a_name_says_batch_step_and_dtype() -> None:
    spec = find_spec("translate_1_b32_infer_bf16")
    assert (spec.batch, spec.step, spec.dtype, spec.source) == (32, "infer", "bf16", "jax")
    assert spec.builder == "translate()"
    keras = find_spec("vgg16_b64_train_bf16")
    assert (keras.source, keras.builder) == ("keras", "keras_classifier(architecture='VGG16')")


@pytest.mark.parametrize("name", ["alexnet", "alexnet_b0x_train_f32", "alexnet_b1_train_f64", "b1_train_f32"])
def test_a_name_that_says_less_is_refused(name: str) -> None:
    with pytest.raises(ChoiceError, match="program name"):
        ProgramSpec(name, "AlexNet", alexnet, "sgd", "")


@pytest.mark.parametrize(("step", "optimizer"), [("train", ""), ("infer", "sgd")])
def test_training_has_an_optimizer_and_inference_has_none(step: str, optimizer: str) -> None:
    with pytest.raises(ChoiceError, match="optimizer"):
        ProgramSpec(f"alexnet_b1_{step}_f32", "AlexNet", alexnet, optimizer, "")


def test_an_unknown_program_lists_the_choices() -> None:
    with pytest.raises(ChoiceError, match=r"unknown program 'lenet'.*alexnet_b128_train_f32"):
        find_spec("lenet")
