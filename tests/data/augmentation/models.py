"""Tiny masked language models with words of their own."""

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedTokenizerFast

ENGLISH = "film movie story good bad fine long short plot actor play great scene watch love hate the a is was of"
WORDS = ENGLISH.split()
CHARACTERS = list("电影好看不错很喜欢剧情演员")
PIECES = ["un", "##like", "##ly", "##s", "##ness"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def wordpiece(lowercase=True):
    vocab = {token: number for number, token in enumerate([*SPECIAL, *WORDS, *CHARACTERS, *PIECES, ".", ",", "Film"])}
    inner = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"], **names,
    )  # fmt: skip


def byte_level():
    words = [f"Ġ{word}" for word in WORDS] + WORDS[:3] + ["like", "ly", "un", "Ġun"]
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    inner = Tokenizer(models.WordLevel({t: n for n, t in enumerate([*special, *words])}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    inner.decoder = decoders.ByteLevel()
    inner.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=True)
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), special, strict=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, model_max_length=64, model_input_names=["input_ids", "attention_mask"], **names
    )


def masked_lm(model_type, tokenizer, seed=0):
    torch.manual_seed(seed)
    config = AutoConfig.for_model(
        model_type, vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=66, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model = AutoModelForMaskedLM.from_config(config)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model.eval()
