"""Language: encoders, translators, language models, completion of what is being typed."""

from __future__ import annotations

from corpus.specs import GUESSED, STAND_IN, ProgramSpec, family, model
from corpus.zoo.bert import bert_classifier, bert_pretraining
from corpus.zoo.bert_relatives import albert, electra, talking_heads_bert
from corpus.zoo.completion import query_completion
from corpus.zoo.recommenders import smartcompose
from corpus.zoo.recurrent import char_rnn, gru_lm, nmt, ptb_lstm
from corpus.zoo.transformers import BIG, IWSLT, transformer, transformer_lm, translate

# fmt: off
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
# fmt: on
