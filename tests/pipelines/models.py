"""Small models and tokenizers that answer questions, some of them on purpose wrongly."""

import json
from pathlib import Path

import torch
from transformers import BertConfig, BertForQuestionAnswering, BertTokenizer

FIXTURES = Path(__file__).parents[1] / "fixtures"
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def xquad():
    """12 questions each in English and Chinese, with ids of their own: translations share XQuAD's."""
    rows = [json.loads(line) for line in (FIXTURES / "xquad_24.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{**row, "id": f"{number}-{row['id']}"} for number, row in enumerate(rows)]


def vocabulary(texts):
    """Every character of the texts, in front of a word and inside one."""
    chars = sorted({char for text in texts for char in text.lower() if not char.isspace()})
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *chars, *(f"##{char}" for char in chars)]


def tokenizer_of(words, **options):
    return BertTokenizer({word: number for number, word in enumerate(words)}, **{"model_max_length": 512, **options})


def xquad_tokenizer(**options):
    return tokenizer_of(vocabulary(text for row in xquad() for text in (row["question"], row["context"])), **options)


def random_model(vocab_size, seed=0, cls=BertForQuestionAnswering, config=BertConfig, **options):
    """A model with large random weights, so that its logits differ."""
    torch.manual_seed(seed)
    # XLNet's and BART's sizes have other names, and `SHAPE` does not fit them.
    sizes = {} if "d_model" in options else SHAPE
    range_name = "init_std" if hasattr(config(), "init_std") else "initializer_range"
    return cls(config(vocab_size=vocab_size, **{range_name: 0.4}, **sizes, **options)).eval()
