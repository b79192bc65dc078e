"""The jobs train a KnowBERT with the candidates of the processor beside it."""

import pytest
from safetensors.torch import load_file
from transformers import AutoProcessor, BertTokenizerFast

from hf_ptm_ext import EntityCandidateGenerator, KnowBertConfig, KnowBertForPreTraining, KnowBertProcessor, cli

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "par", "##is", "is", "in", "texas", "big", "london"]
TAGGED = "Paris B-LOC\nis O\nbig O\n\nLondon B-LOC\nin O\n\n" * 6


@pytest.mark.slow
def test_tagging_with_candidates(tmp_path):
    tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(WORDS)})
    find = EntityCandidateGenerator({"Paris": {"Q90": 9, "Q83": 1}, "Texas": ["Q1"], "London": ["Q5"]})
    wiki = {"entity_vocab_size": find.entity_vocab_size, "insert_after_layer": 0, "entity_size": 16}
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    config = KnowBertConfig(vocab_size=len(WORDS), max_position_embeddings=32, knowledge_bases={"wiki": wiki}, **sizes)
    KnowBertForPreTraining(config).save_pretrained(tmp_path / "base")
    KnowBertProcessor(tokenizer, {"wiki": find}).save_pretrained(tmp_path / "base")
    for name in ("train", "test"):
        (tmp_path / f"{name}.txt").write_text(TAGGED, encoding="utf-8")
    options = {"model_name_or_path": "base", "train_file": "train.txt", "test_file": "test.txt", "output_dir": "out"}
    paths = [part for name, value in options.items() for part in (f"--{name}", str(tmp_path / value))]
    others = ["--num_train_epochs", "4", "--seeds", "1", "--report_to", "none", "--use_cpu", "true"]
    assert cli.main(["finetune", "--task", "tagging", *paths, *others, "--learning_rate", "1e-3"]) == 0
    processor = AutoProcessor.from_pretrained(tmp_path / "out")
    assert processor("in Paris")["candidate_entities"] == [[[4, 5]]]
    name = "bert.knowledge.wiki.kg_to_bert_projection.weight"
    before, after = (load_file(tmp_path / folder / "model.safetensors")[name] for folder in ("base", "out"))
    assert not before.equal(after)
