"""Speech and sound, recommendation and ranking, graphs, games."""

from __future__ import annotations

from corpus.specs import GUESSED, STAND_IN, ProgramSpec, family, model
from corpus.zoo.embeddings import digits_mlp, neural_collaborative_filtering, word2vec
from corpus.zoo.games import chess_network, go_network, impala
from corpus.zoo.graphs import gat, gcn
from corpus.zoo.recommenders import dlrm, ranking
from corpus.zoo.speech import conformer, deepspeech2
from corpus.zoo.tacotron import char2feats_inference, char2feats_training
from corpus.zoo.vocoders import hifigan, wavenet, wavernn, wavernn_sampling

# fmt: off
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
