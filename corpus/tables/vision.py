"""Vision beyond classification: embedding, detection, segmentation, generation, radiance fields."""

from __future__ import annotations

from corpus.specs import GUESSED, STAND_IN, ProgramSpec, family, model
from corpus.zoo.detection import ssd
from corpus.zoo.embedders import image_embed
from corpus.zoo.fields import nerf
from corpus.zoo.generative import convdraw, ddpm, unet
from corpus.zoo.generators import dcgan, vae
from corpus.zoo.maskrcnn import maskrcnn
from corpus.zoo.pyramids import retinanet

# fmt: off
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
# fmt: on
