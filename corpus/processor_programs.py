"""The programs that are measured on processors: rows of the corpus with a batch that one core computes fast.

The batch is the zoo's own parameter, so a program differs from its row in the extents that depend on it.
"""

from __future__ import annotations

from dataclasses import replace

from corpus.programs import find_spec
from corpus.specs import ProgramSpec

# fmt: off
BATCHES: dict[str, int] = {
    "albert_xlarge_b16_infer_bf16": 1, "alexnet_b128_train_f32": 2, "alphazero_20x256_b256_infer_bf16": 2,
    "autocompletion_b1_infer_f32": 1, "autocompletion_b256_train_bf16": 8,
    "bert_large_cls_b16_infer_bf16": 1, "char2feats_b8_infer_bf16": 1, "conformer_m_b8_infer_bf16": 1,
    "convdraw_b16_infer_f32": 1, "convdraw_b64_train_f32": 2, "convnextbase_b32_infer_bf16": 1,
    "dcgan_b128_train_f32": 1, "dcgan_b64_infer_bf16": 1, "ddpm_64_b8_infer_bf16": 1,
    "deepspeech2_b32_train_f32": 1, "densenet201_b32_infer_bf16": 1, "dlrm_b2048_infer_f32": 256,
    "dlrm_b2048_train_f32": 256, "efficientnetb0_b64_infer_bf16": 2, "efficientnetb7_b8_infer_bf16": 1,
    "feats2wave_hifigan_b4_infer_f32": 1, "gat_b4096_train_f32": 256, "gcn_arxiv_b16384_train_f32": 1024,
    "gpt2_small_b8_infer_bf16": 1, "image_embed_b16_infer_bf16": 1, "image_embed_b32_train_bf16": 2,
    "impala_b32_train_f32": 1, "inceptionresnetv2_b32_infer_bf16": 1, "inceptionv3_b64_infer_bf16": 1,
    "minigo_b128_train_bf16": 2, "mixer_b16_b32_infer_bf16": 1, "mixer_s32_b64_train_bf16": 2,
    "mlp_mnist_b128_train_f32": 128, "mobilenet_b128_train_bf16": 1, "mobilenet_b32_infer_f32": 2,
    "mobilenetv2_b32_infer_bf16": 2, "mobilenetv3small_b64_infer_bf16": 2, "ncf_b8192_infer_bf16": 1024,
    "ncf_b8192_train_f32": 256, "nerf_b1024_train_f32": 8, "nerf_b4096_infer_bf16": 16,
    "nmt_b32_infer_f32": 1, "nmt_small_b64_train_f32": 2, "ranking_b16_infer_f32": 4,
    "ranking_b32_train_f32": 4, "resnet101_b128_infer_bf16": 1, "resnet50_b64_infer_bf16": 1,
    "resnet50v2_b64_infer_f32": 1, "resnet152v2_b64_infer_bf16": 1, "resnet_v1_18_cifar_b128_train_f32": 8,
    "resnet_v1_34_b128_train_bf16": 1, "resnet_v2_18_b64_train_f32": 1, "resnet_v2_34_b128_infer_bf16": 1,
    "rnn_char_b64_infer_f32": 2, "rnn_gru_b128_train_f32": 2, "rnn_large_lstm_b64_train_bf16": 1,
    "rnn_ptb_lstm_b20_train_f32": 2, "small_bert_L10_H256_b8_infer_f32": 1,
    "small_bert_L2_H128_b64_train_bf16": 4, "small_bert_L2_H512_b128_infer_f32": 2,
    "small_bert_L2_H768_b16_infer_bf16": 1, "small_bert_L4_H256_b32_train_bf16": 1,
    "small_bert_L4_H512_b64_infer_bf16": 1, "smartcompose_b256_train_bf16": 1,
    "smartcompose_b8_infer_f32": 1, "ssd_resnet34_b8_infer_f32": 1, "talking_heads_large_b16_infer_bf16": 1,
    "transformer_lm_b8_train_bf16": 1, "translate_1_b32_infer_bf16": 1, "translate_2_b8_infer_f32": 1,
    "vae_mnist_b128_train_f32": 128, "vgg19_b64_infer_f32": 1, "vit_b16_b32_infer_bf16": 1,
    "wavernn_3_b1_infer_bf16": 1, "word2vec_b512_train_f32": 512, "xception_b64_infer_f32": 1,
}
# fmt: on
"""Rows of the corpus and their batches."""


def processor_specs() -> tuple[ProgramSpec, ...]:
    """Returns the recipes, by name."""
    specs = (_with_batch(find_spec(name), batch) for name, batch in BATCHES.items())
    return tuple(sorted(specs, key=lambda spec: spec.name))


def find_any_spec(name: str) -> ProgramSpec:
    """Returns the recipe called `name`, of the corpus or of those here.

    Raises:
        ChoiceError: listing the names of the corpus, if there is none.
    """
    return next((spec for spec in processor_specs() if spec.name == name), None) or find_spec(name)


def _with_batch(spec: ProgramSpec, batch: int) -> ProgramSpec:
    name = spec.name.replace(f"_b{spec.batch}_", f"_b{batch}_")
    return replace(spec, name=name)
