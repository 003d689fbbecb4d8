"""Image classifiers: what Keras ships, and hand-written residual networks, transformers and mixers."""

from __future__ import annotations

from corpus.specs import STAND_IN, ProgramSpec, family, keras, model
from corpus.zoo.convnets import alexnet, resnet, resnet_cifar
from corpus.zoo.transformers import mlp_mixer, vision_transformer

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
# fmt: on
