"""The corpus: every program there is, from the tables of its fields.

Adding a program is one row in a table, and one function in `zoo` if its model is new.
"""

from __future__ import annotations

from corpus.specs import GUESSED, STAND_IN, ProgramSpec, family, keras, model
from corpus.zoo.bert import albert, bert_classifier, bert_pretraining, electra, talking_heads_bert
from corpus.zoo.convnets import alexnet, image_embed, resnet, resnet_cifar
from corpus.zoo.detection import retinanet, ssd
from corpus.zoo.fields import nerf
from corpus.zoo.games import chess_network, go_network, impala
from corpus.zoo.generative import convdraw, dcgan, ddpm, unet, vae
from corpus.zoo.graphs import gat, gcn
from corpus.zoo.maskrcnn import maskrcnn
from corpus.zoo.recommenders import (
    digits_mlp,
    dlrm,
    neural_collaborative_filtering,
    ranking,
    smartcompose,
    word2vec,
)
from corpus.zoo.recurrent import char_rnn, gru_lm, nmt, ptb_lstm, query_completion
from corpus.zoo.speech import conformer, deepspeech2
from corpus.zoo.synthesis import (
    char2feats_inference,
    char2feats_training,
    hifigan,
    wavenet,
    wavernn,
    wavernn_sampling,
)
from corpus.zoo.transformers import (
    BIG,
    IWSLT,
    mlp_mixer,
    transformer,
    transformer_lm,
    translate,
    vision_transformer,
)
from costbench.errors import choose

# fmt: off
CLASSIFIERS: tuple[ProgramSpec, ...] = (
    *family(
        "ResNet v1", "He et al. 2015, arXiv:1512.03385",
        keras("resnet50_b64_infer_bf16", "", "ResNet50"),
        keras("resnet50_b64_train_f32", "momentum", "ResNet50"),
        keras("resnet50_b128_train_bf16", "momentum", "ResNet50"),
        keras("resnet101_b64_train_bf16", "momentum", "ResNet101"),
        keras("resnet101_b128_infer_bf16", "", "ResNet101"),
        keras("resnet152_b32_train_bf16", "momentum", "ResNet152"),
        model("resnet_v1_18_cifar_b128_train_f32", "momentum", resnet_cifar, blocks=3),
        model("resnet_v1_34_b128_train_bf16", "momentum", resnet, depth=34, version=1),
    ),
    *family(
        "ResNet v1", "He et al. 2015, arXiv:1512.03385; LARS: You et al. 2017, arXiv:1708.03888",
        model("resnet_v1_50_lars_b256_train_bf16", "lars", resnet, depth=50, version=1),
    ),
    *family(
        "ResNet v1", "He et al. 2015, arXiv:1512.03385, with the depth of He et al. 2016, arXiv:1603.05027",
        model("resnet_v1_200_b16_train_bf16", "momentum", resnet, depth=200, version=1),
    ),
    *family(
        "ResNet v2", "He et al. 2016, arXiv:1603.05027",
        keras("resnet50v2_b64_infer_f32", "", "ResNet50V2"),
        keras("resnet50v2_b128_train_bf16", "momentum", "ResNet50V2"),
        keras("resnet101v2_b64_train_bf16", "momentum", "ResNet101V2"),
        keras("resnet152v2_b32_train_bf16", "momentum", "ResNet152V2"),
        keras("resnet152v2_b64_infer_bf16", "", "ResNet152V2"),
        model("resnet_v2_18_b64_train_f32", "momentum", resnet, depth=18, version=2),
        model("resnet_v2_34_b128_infer_bf16", "", resnet, depth=34, version=2),
        model("resnet_v2_200_b32_train_bf16", "momentum", resnet, depth=200, version=2),
    ),
    *family(
        "ResNet-parallel", "Zagoruyko and Komodakis 2016, arXiv:1605.07146 (twice as wide)",
        model("resnet_parallel_wide_b32_train_bf16", "momentum", resnet, depth=50, version=1, width=2),
        faithful=STAND_IN,
    ),
    *family(
        "ResNet-parallel", "Goyal et al. 2017, arXiv:1706.02677 (large batch)",
        model("resnet_parallel_50_b1024_train_bf16", "momentum", resnet, depth=50, version=1),
        faithful=STAND_IN,
    ),
    *family(
        "Inception", "Szegedy et al. 2015, arXiv:1512.00567",
        keras("inceptionv3_b64_infer_bf16", "", "InceptionV3"),
        keras("inceptionv3_b128_train_bf16", "momentum", "InceptionV3"),
        keras("inceptionv3_b32_train_f32", "rmsprop", "InceptionV3"),
    ),
    *family(
        "Inception", "Szegedy et al. 2016, arXiv:1602.07261",
        keras("inceptionresnetv2_b32_train_bf16", "momentum", "InceptionResNetV2"),
        keras("inceptionresnetv2_b32_infer_bf16", "", "InceptionResNetV2"),
    ),
    *family(
        "Inception", "Chollet 2016, arXiv:1610.02357",
        keras("xception_b32_train_bf16", "momentum", "Xception"),
        keras("xception_b64_infer_f32", "", "Xception"),
    ),
    *family(
        "EfficientNet", "Tan and Le 2019, arXiv:1905.11946",
        keras("efficientnetb0_b64_infer_bf16", "", "EfficientNetB0"),
        keras("efficientnetb0_b128_train_bf16", "rmsprop", "EfficientNetB0"),
        keras("efficientnetb1_b64_train_bf16", "rmsprop", "EfficientNetB1"),
        keras("efficientnetb3_b32_train_bf16", "rmsprop", "EfficientNetB3"),
        keras("efficientnetb5_b16_train_bf16", "rmsprop", "EfficientNetB5"),
        keras("efficientnetb7_b8_infer_bf16", "", "EfficientNetB7"),
    ),
    *family(
        "EfficientNet", "Tan and Le 2021, arXiv:2104.00298",
        keras("efficientnetv2b0_b64_train_bf16", "rmsprop", "EfficientNetV2B0"),
        keras("efficientnetv2s_b32_train_bf16", "rmsprop", "EfficientNetV2S"),
    ),
    *family(
        "MobileNet", "Howard et al. 2017, arXiv:1704.04861",
        keras("mobilenet_b32_infer_f32", "", "MobileNet"),
        keras("mobilenet_b128_train_bf16", "momentum", "MobileNet"),
    ),
    *family(
        "MobileNet", "Sandler et al. 2018, arXiv:1801.04381",
        keras("mobilenetv2_b32_infer_bf16", "", "MobileNetV2"),
        keras("mobilenetv2_b128_train_bf16", "momentum", "MobileNetV2"),
    ),
    *family(
        "MobileNet", "Howard et al. 2019, arXiv:1905.02244",
        keras("mobilenetv3large_b128_train_bf16", "momentum", "MobileNetV3Large"),
        keras("mobilenetv3small_b64_infer_bf16", "", "MobileNetV3Small"),
    ),
    *family(
        "DenseNet", "Huang et al. 2016, arXiv:1608.06993",
        keras("densenet121_b64_train_bf16", "momentum", "DenseNet121"),
        keras("densenet169_b32_train_bf16", "momentum", "DenseNet169"),
        keras("densenet201_b32_infer_bf16", "", "DenseNet201"),
    ),
    *family(
        "VGG", "Simonyan and Zisserman 2014, arXiv:1409.1556",
        keras("vgg16_b64_train_bf16", "momentum", "VGG16"),
        keras("vgg19_b64_infer_f32", "", "VGG19"),
    ),
    *family(
        "NASNet/AmoebaNet", "Zoph et al. 2017, arXiv:1707.07012",
        keras("nasnetmobile_b64_train_bf16", "momentum", "NASNetMobile"),
        keras("nasnetlarge_b16_infer_bf16", "", "NASNetLarge"),
    ),
    *family(
        "ConvNeXt", "Liu et al. 2022, arXiv:2201.03545",
        keras("convnexttiny_b64_train_bf16", "adam", "ConvNeXtTiny"),
        keras("convnextbase_b32_infer_bf16", "", "ConvNeXtBase"),
    ),
    *family(
        "AlexNet", "Krizhevsky et al. 2012 (NeurIPS)",
        model("alexnet_b128_train_f32", "momentum", alexnet),
    ),
    *family(
        "ViT", "Dosovitskiy et al. 2020, arXiv:2010.11929",
        model("vit_s16_b64_train_bf16", "adam", vision_transformer, layers=12, features=384),
        model("vit_b16_b32_infer_bf16", "", vision_transformer, layers=12, features=768),
    ),
    *family(
        "MLP-Mixer", "Tolstikhin et al. 2021, arXiv:2105.01601",
        model("mixer_s32_b64_train_bf16", "adam", mlp_mixer, layers=8, features=512, patch=32),
        model("mixer_b16_b32_infer_bf16", "", mlp_mixer, layers=12, features=768, patch=16),
    ),
)

VISION: tuple[ProgramSpec, ...] = (
    *family(
        "ImageEmbed", "parts: Xie et al. 2016, arXiv:1611.05431; Hu et al. 2017, arXiv:1709.01507",
        model("image_embed_b32_train_bf16", "momentum", image_embed),
        model("image_embed_b16_infer_bf16", "", image_embed),
        faithful=GUESSED,
    ),
    *family(
        "SSD", "Liu et al. 2015, arXiv:1512.02325; MLPerf: Mattson et al. 2019, arXiv:1910.01500",
        model("ssd_resnet34_b32_train_bf16", "momentum", ssd),
        model("ssd_resnet34_b8_infer_f32", "", ssd),
        model("ssd_512_b8_train_f32", "momentum", ssd, size=512),
    ),
    *family(
        "RetinaNet", "Lin et al. 2017, arXiv:1708.02002",
        model("retinanet_b8_train_bf16", "momentum", retinanet),
        model("retinanet_b1_infer_bf16", "", retinanet),
    ),
    *family(
        "MaskRCNN", "He et al. 2017, arXiv:1703.06870; pyramid: Lin et al. 2016, arXiv:1612.03144",
        model("maskrcnn_b4_train_bf16", "momentum", maskrcnn),
        model("maskrcnn_b2_infer_bf16", "", maskrcnn),
    ),
    *family(
        "UNet", "Ronneberger et al. 2015, arXiv:1505.04597",
        model("unet2d_b8_train_f32", "adam", unet),
    ),
    *family(
        "UNet", "Çiçek et al. 2016, arXiv:1606.06650",
        model("unet3d_b1_infer_bf16", "", unet, size=128, rank=3, base=32, classes=3),
        model("unet3d_b2_train_bf16", "adam", unet, size=128, rank=3, base=32, classes=3),
    ),
    *family(
        "Diffusion", "Ho et al. 2020, arXiv:2006.11239",
        model("ddpm_64_b8_infer_bf16", "", ddpm, size=64),
        model("ddpm_cifar_b64_train_bf16", "adam", ddpm),
    ),
    *family(
        "ConvDRAW", "Gregor et al. 2016, arXiv:1604.08772",
        model("convdraw_b64_train_f32", "adam", convdraw),
        model("convdraw_b16_infer_f32", "", convdraw),
        faithful=STAND_IN,
    ),
    *family(
        "GAN", "Radford et al. 2015, arXiv:1511.06434",
        model("dcgan_b128_train_f32", "adam", dcgan),
        model("dcgan_b64_infer_bf16", "", dcgan),
    ),
    *family(
        "VAE", "Kingma and Welling 2013, arXiv:1312.6114",
        model("vae_mnist_b128_train_f32", "adam", vae),
    ),
    *family(
        "NeRF", "Mildenhall et al. 2020, arXiv:2003.08934",
        model("nerf_b1024_train_f32", "adam", nerf),
        model("nerf_b4096_infer_bf16", "", nerf),
    ),
)

LANGUAGE: tuple[ProgramSpec, ...] = (
    *family(
        "BERT", "Turc et al. 2019, arXiv:1908.08962",
        model("small_bert_L2_H128_b64_train_bf16", "adam", bert_classifier, layers=2, features=128),
        model("small_bert_L2_H512_b128_infer_f32", "", bert_classifier, layers=2, features=512),
        model("small_bert_L2_H768_b16_infer_bf16", "", bert_classifier, layers=2, features=768),
        model("small_bert_L4_H256_b32_train_bf16", "adam", bert_pretraining, layers=4, features=256),
        model("small_bert_L4_H512_b64_infer_bf16", "", bert_classifier, layers=4, features=512),
        model("small_bert_L6_H256_b16_train_bf16", "adam", bert_classifier, layers=6, features=256),
        model("small_bert_L6_H512_b64_train_bf16", "adam", bert_classifier, layers=6, features=512),
        model("small_bert_L8_H512_b32_train_bf16", "adam", bert_classifier, layers=8, features=512),
        model("small_bert_L8_H128_b32_train_f32", "adam", bert_pretraining, layers=8, features=128),
        model("small_bert_L10_H768_b32_infer_bf16", "", bert_classifier, layers=10, features=768),
        model("small_bert_L10_H256_b8_infer_f32", "", bert_classifier, layers=10, features=256, steps=384),
        model("small_bert_L12_H768_b16_train_bf16", "adam", bert_classifier, layers=12, features=768),
    ),
    *family(
        "BERT", "Devlin et al. 2018, arXiv:1810.04805; LAMB: You et al. 2019, arXiv:1904.00962",
        model("bert_base_pretrain_b24_train_bf16", "lamb", bert_pretraining, layers=12, features=768),
        model("bert_large_pretrain_b8_train_bf16", "lamb", bert_pretraining,
              layers=24, features=1024, steps=512),
    ),
    *family(
        "BERT", "Devlin et al. 2018, arXiv:1810.04805",
        model("bert_large_cls_b16_infer_bf16", "", bert_classifier, layers=24, features=1024),
    ),
    *family(
        "ALBERT", "Lan et al. 2019, arXiv:1909.11942",
        model("albert_base_b32_train_bf16", "adam", albert, layers=12, features=768, heads=12),
        model("albert_xlarge_b16_infer_bf16", "", albert, layers=24, features=2048, heads=16),
    ),
    *family(
        "ELECTRA", "Clark et al. 2020, arXiv:2003.10555",
        model("electra_small_b32_train_bf16", "adam", electra),
    ),
    *family(
        "Talking-Heads", "Shazeer et al. 2020, arXiv:2003.02436; gates: Shazeer 2020, arXiv:2002.05202",
        model("talking_heads_base_b32_train_bf16", "adam", talking_heads_bert, layers=12, features=768),
        model("talking_heads_large_b16_infer_bf16", "", talking_heads_bert, layers=24, features=1024),
    ),
    *family(
        "Transformer", "Vaswani et al. 2017, arXiv:1706.03762",
        model("transformer_base_b64_train_bf16", "adam", transformer),
        model("transformer_big_b32_train_bf16", "adam", transformer, sizes=BIG),
        model("transformer_lm_b8_train_bf16", "adam", transformer_lm,
              layers=6, features=512, vocabulary=32000, steps=256),
    ),
    *family(
        "Transformer", "Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
        model("gpt2_small_b8_infer_bf16", "", transformer_lm,
              layers=12, features=768, vocabulary=50257, steps=512),
        model("gpt2_small_b4_train_bf16", "adam", transformer_lm,
              layers=12, features=768, vocabulary=50257, steps=1024),
    ),
    *family(
        "Translate", "parts: Vaswani et al. 2017, arXiv:1706.03762",
        model("translate_1_b32_infer_bf16", "", translate),
        model("translate_2_b8_infer_f32", "", translate, sizes=IWSLT, beams=5),
        model("translate_3_b128_train_f32", "adam", transformer, sizes=IWSLT, steps=32),
        faithful=STAND_IN,
    ),
    *family(
        "NMT Model", "Wu et al. 2016, arXiv:1609.08144",
        model("nmt_b128_train_bf16", "adam_clipped", nmt),
        model("nmt_small_b64_train_f32", "adam_clipped", nmt, hidden=512, layers=4),
        model("nmt_b32_infer_f32", "", nmt, layers=4),
    ),
    *family(
        "RNN", "Zaremba et al. 2014, arXiv:1409.2329",
        model("rnn_ptb_lstm_b20_train_f32", "sgd_clipped", ptb_lstm, hidden=650),
        model("rnn_large_lstm_b64_train_bf16", "sgd_clipped", ptb_lstm, hidden=1500),
    ),
    *family(
        "RNN", "parts: Cho et al. 2014, arXiv:1406.1078",
        model("rnn_gru_b128_train_f32", "adam", gru_lm),
        faithful=STAND_IN,
    ),
    *family(
        "RNN", "parts: Graves 2013, arXiv:1308.0850",
        model("rnn_char_b64_infer_f32", "", char_rnn),
        faithful=STAND_IN,
    ),
    *family(
        "SmartCompose", "Chen et al. 2019, arXiv:1906.00080",
        model("smartcompose_b8_infer_f32", "", smartcompose),
        model("smartcompose_b256_train_bf16", "adam", smartcompose),
        faithful=STAND_IN,
    ),
    *family(
        "AutoCompletion", "parts: Jaech and Ostendorf 2018, arXiv:1804.09661",
        model("autocompletion_b1_infer_f32", "", query_completion),
        model("autocompletion_b256_train_bf16", "adam", query_completion),
        faithful=GUESSED,
    ),
)

OTHERS: tuple[ProgramSpec, ...] = (
    *family(
        "WaveRNN", "Kalchbrenner et al. 2018, arXiv:1802.08435",
        model("wavernn_1_b8_train_f32", "adam", wavernn),
        model("wavernn_3_b1_infer_bf16", "", wavernn_sampling),
    ),
    *family(
        "WaveRNN", "parts: Kalchbrenner et al. 2018, arXiv:1802.08435",
        model("wavernn_2_b32_train_bf16", "adam", wavernn, size=512, features=128),
        faithful=STAND_IN,
    ),
    *family(
        "Feats2Wave", "van den Oord et al. 2016, arXiv:1609.03499; Shen et al. 2017, arXiv:1712.05884",
        model("feats2wave_wavenet_b2_train_f32", "adam", wavenet),
        faithful=STAND_IN,
    ),
    *family(
        "Feats2Wave", "Kong et al. 2020, arXiv:2010.05646",
        model("feats2wave_hifigan_b4_infer_f32", "", hifigan),
    ),
    *family(
        "Char2Feats", "Shen et al. 2017, arXiv:1712.05884",
        model("char2feats_b32_train_f32", "adam", char2feats_training),
        model("char2feats_b8_infer_bf16", "", char2feats_inference),
    ),
    *family(
        "Speech", "Amodei et al. 2015, arXiv:1512.02595",
        model("deepspeech2_b32_train_f32", "momentum", deepspeech2),
        faithful=STAND_IN,
    ),
    *family(
        "Speech", "Gulati et al. 2020, arXiv:2005.08100 (encoder; trained with CTC, not as a transducer)",
        model("conformer_b16_train_bf16", "adam", conformer, features=144),
        model("conformer_m_b8_infer_bf16", "", conformer, features=256),
        faithful=STAND_IN,
    ),
    *family(
        "DLRM", "Naumov et al. 2019, arXiv:1906.00091",
        model("dlrm_b2048_train_f32", "sgd", dlrm),
        model("dlrm_b2048_infer_f32", "", dlrm),
    ),
    *family(
        "Ranking", "parts: Zhou et al. 2017, arXiv:1706.06978 (attention over the history)",
        model("ranking_b32_train_f32", "adam", ranking),
        model("ranking_b16_infer_f32", "", ranking),
        faithful=GUESSED,
    ),
    *family(
        "NCF", "He et al. 2017, arXiv:1708.05031; MLPerf: Mattson et al. 2019, arXiv:1910.01500",
        model("ncf_b8192_train_f32", "adam", neural_collaborative_filtering),
        model("ncf_b8192_infer_bf16", "", neural_collaborative_filtering),
    ),
    *family(
        "Word2Vec", "Mikolov et al. 2013, arXiv:1310.4546",
        model("word2vec_b512_train_f32", "sgd", word2vec),
    ),
    *family(
        "GNN", "Kipf and Welling 2016, arXiv:1609.02907; sizes: Hu et al. 2020, arXiv:2005.00687",
        model("gcn_arxiv_b16384_train_f32", "adam", gcn),
    ),
    *family(
        "GNN", "Veličković et al. 2017, arXiv:1710.10903",
        model("gat_b4096_train_f32", "adam", gat),
    ),
    *family(
        "RL", "Espeholt et al. 2018, arXiv:1802.01561",
        model("impala_b32_train_f32", "rmsprop", impala),
    ),
    *family(
        "RL", "parts: Silver et al. 2017, Mastering the game of Go without human knowledge (Nature 550)",
        model("minigo_b128_train_bf16", "momentum", go_network, side=9, blocks=9, features=128),
        faithful=STAND_IN,
    ),
    *family(
        "RL", "Silver et al. 2017, arXiv:1712.01815",
        model("alphazero_20x256_b256_infer_bf16", "", chess_network),
    ),
    *family(
        "MLP", "Hinton et al. 2012, arXiv:1207.0580",
        model("mlp_mnist_b128_train_f32", "sgd", digits_mlp),
    ),
)
# fmt: on

SPECS: tuple[ProgramSpec, ...] = (*CLASSIFIERS, *VISION, *LANGUAGE, *OTHERS)


def specs_by_name() -> dict[str, ProgramSpec]:
    """Returns the table by name."""
    return {spec.name: spec for spec in SPECS}


def find_spec(name: str) -> ProgramSpec:
    """Returns the row called `name`.

    Raises:
        ChoiceError: listing the names, if there is none.
    """
    return choose(specs_by_name(), name, "program")
