"""Rows: names say batch, step and precision; rows that contradict themselves are refused."""

from __future__ import annotations

import pytest

from corpus.processor_programs import BATCHES, find_any_spec, processor_specs
from corpus.programs import find_spec
from corpus.specs import STAND_IN, ProgramSpec, family, keras, model
from corpus.zoo.convnets import alexnet, resnet
from costbench.errors import ChoiceError


def test_a_name_says_batch_step_and_dtype() -> None:
    spec = find_spec("translate_1_b32_infer_bf16")
    assert (spec.batch, spec.step, spec.dtype, spec.source) == (32, "infer", "bf16", "jax")
    assert spec.builder == "translate()"
    keras = find_spec("vgg16_b64_train_bf16")
    assert (keras.source, keras.builder) == ("keras", "keras_classifier(architecture='VGG16')")


@pytest.mark.parametrize("name", ["alexnet", "alexnet_b0x_train_f32", "alexnet_b1_train_f64", "b1_train_f32"])
def test_a_name_that_says_less_is_refused(name: str) -> None:
    with pytest.raises(ChoiceError, match="program name"):
        ProgramSpec(name, "AlexNet", alexnet, "sgd", "", "")


@pytest.mark.parametrize(("step", "optimizer"), [("train", ""), ("infer", "sgd")])
def test_training_has_an_optimizer_and_inference_has_none(step: str, optimizer: str) -> None:
    with pytest.raises(ChoiceError, match="optimizer"):
        ProgramSpec(f"alexnet_b1_{step}_f32", "AlexNet", alexnet, optimizer, "", "")


def test_a_family_shares_application_reference_and_kind() -> None:
    rows = family(
        "Nets", "A 2020",
        model("small_b1_infer_f32", "", alexnet),
        model("deep_b2_train_bf16", "sgd", resnet, depth=18, version=2),
        keras("vgg_b3_infer_f32", "", "VGG16"),
        faithful=STAND_IN,
    )  # fmt: skip
    assert [(row.application, row.reference, row.faithful) for row in rows] == [
        ("Nets", "A 2020", STAND_IN)
    ] * 3
    assert [row.builder for row in rows] == [
        "alexnet()", "resnet(depth=18, version=2)", "keras_classifier(architecture='VGG16')",
    ]  # fmt: skip
    assert [(row.source, row.optimizer) for row in rows] == [("jax", ""), ("jax", "sgd"), ("keras", "")]


def test_programs_for_a_processor_differ_in_their_batch_alone() -> None:
    specs = processor_specs()
    assert len({spec.name for spec in specs}) == len(BATCHES)
    assert len({spec.application for spec in specs}) >= 30
    spec, original = find_any_spec("alexnet_b2_train_f32"), find_spec("alexnet_b128_train_f32")
    assert (spec.batch, spec.context().batch) == (2, 2)
    assert (spec.builder, spec.optimizer, spec.application) == (
        original.builder,
        original.optimizer,
        original.application,
    )
    assert find_any_spec(original.name) == original
    with pytest.raises(ChoiceError, match="lenet"):
        find_any_spec("lenet")
