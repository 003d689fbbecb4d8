"""Faithfulness: models whose sizes are published have the published number of trainable weights."""

from __future__ import annotations

import math
from functools import cache

import pytest

from corpus.programs import find_spec
from corpus.specs import PUBLISHED

pytestmark = pytest.mark.corpus
jax = pytest.importorskip("jax", reason="needs the corpus extra: jax")
pytest.importorskip("keras", reason="needs the corpus extra: keras")

EXACT = {
    "alexnet_b128_train_f32": 60_965_224,  # the published network with its grouped convolutions
    "resnet_v1_34_b128_train_bf16": 21_797_672,
    "resnet50_b64_infer_bf16": 25_636_712 - 53_120,  # Keras counts moving statistics as well
    "vit_b16_b32_infer_bf16": 86_567_656,
    "gpt2_small_b8_infer_bf16": 124_439_808 - 512 * 768,  # 512 of the 1024 positions
    "small_bert_L2_H128_b64_train_bf16": 4_385_920 + 258,  # and a classifier of two classes
    "vae_mnist_b128_train_f32": 2 * (784 * 500) + 500 + 784 + 500 * 40 + 40 + 20 * 500 + 500,
    "mlp_mnist_b128_train_f32": 784 * 800 + 800 + 800 * 800 + 800 + 800 * 10 + 10,
    "gcn_arxiv_b16384_train_f32": 110_120,  # as the graph benchmark's own model
    "nerf_b1024_train_f32": 2 * 595_844,
    "retinanet_b8_train_bf16": 37_968_692,  # 37.74 million and the frozen stem and first stage
    "dlrm_b2048_infer_f32": sum((
        13 * 512 + 512 + 512 * 256 + 256 + 256 * 64 + 64 + 64 * 16 + 16,  # bottom
        (16 + 27 * 26 // 2) * 512 + 512 + 512 * 256 + 256 + 256 + 1,  # top
        16 * (1460 + 583 + 1_000_000 * 5 + 305 + 24 + 12517 + 633 + 3 + 93145 + 5683 + 3194 + 27 + 14992
              + 10 + 5652 + 2173 + 4 + 18 + 15 + 286181 + 105 + 142572),
    )),
}  # fmt: skip
# Millions as the papers print them, with the last digit's tolerance or a reason for more.
APPROXIMATE = {
    "ddpm_64_b8_infer_bf16": (35.7, 0.05),
    "ddpm_cifar_b64_train_bf16": (35.7, 0.05),
    "mixer_s32_b64_train_bf16": (19, 0.5),
    "mixer_b16_b32_infer_bf16": (59, 1.0),
    "vit_s16_b64_train_bf16": (22, 0.5),
    "albert_base_b32_train_bf16": (12, 0.5),
    "albert_xlarge_b16_infer_bf16": (60, 1.5),
    "bert_base_pretrain_b24_train_bf16": (110, 1.0),
    "bert_large_pretrain_b8_train_bf16": (340, 5.0),  # the paper rounds
    "electra_small_b32_train_bf16": (14, 0.5),
    "transformer_big_b32_train_bf16": (213, 4.0),
    "maskrcnn_b4_train_bf16": (44.4, 0.05),
    "feats2wave_hifigan_b4_infer_f32": (13.92, 0.01),
    "char2feats_b32_train_f32": (28.2, 0.05),
    "unet2d_b8_train_f32": (31.03, 0.01),
    "rnn_ptb_lstm_b20_train_f32": (20, 0.5),
    "rnn_large_lstm_b64_train_bf16": (66, 0.5),
    "transformer_base_b64_train_bf16": (65, 2.0),  # the paper rounds, its vocabulary is "about 37000"
    "ssd_resnet34_b32_train_bf16": (20.0, 0.1),
}


@cache
def weights_of(name: str) -> int:
    spec = find_spec(name)
    c = spec.context()
    jax.eval_shape(lambda: spec.build(c))
    return sum(math.prod(param.shape) for param in c.recorded().params)


@pytest.mark.parametrize("name", EXACT)
def test_number_of_weights_is_the_published_one(name: str) -> None:
    assert find_spec(name).faithful == PUBLISHED
    assert weights_of(name) == EXACT[name]


@pytest.mark.parametrize("name", APPROXIMATE)
def test_number_of_weights_rounds_to_the_published_one(name: str) -> None:
    millions, tolerance = APPROXIMATE[name]
    assert find_spec(name).faithful == PUBLISHED
    assert weights_of(name) / 1e6 == pytest.approx(millions, abs=tolerance)


def test_training_and_inference_of_one_model_share_their_weights() -> None:
    assert weights_of("image_embed_b16_infer_bf16") == weights_of("image_embed_b32_train_bf16")
    assert weights_of("char2feats_b8_infer_bf16") == weights_of("char2feats_b32_train_f32")
