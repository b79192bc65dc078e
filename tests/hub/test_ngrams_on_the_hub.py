"""ZEN classifies and tags by `pipeline` in a process without the package, its lexicon loaded from a Hub."""

import json

import pytest
import torch

from hf_ptm_ext import ZenConfig, ZenForSequenceClassification, ZenForTokenClassification, ZenTokenizer
from tests.hub.checkpoints import run_script
from tests.hub.loopback_hub import running

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"提高速公路的人口数量增长"]
TEXT = "提高速公路的人口"

PUSH = """
from transformers import AutoTokenizer
import hf_ptm_ext

for name in ("sequence", "token"):
    folder = f"{folder}/{name}"
    model = getattr(hf_ptm_ext, f"ZenFor{name.capitalize()}Classification").from_pretrained(folder)
    model.push_to_hub(f"tester/{name}")
    AutoTokenizer.from_pretrained(folder).push_to_hub(f"tester/{name}")
"""

USE = """
import json, sys
from transformers import AutoTokenizer, pipeline

found = []
for task, name in (("text-classification", "sequence"), ("token-classification", "token")):
    use = pipeline(task, model=f"tester/{name}", trust_remote_code=True)
    first = use(TEXT)
    use.save_pretrained(f"{folder}/again-{name}")
    again = pipeline(task, model=f"{folder}/again-{name}", trust_remote_code=True)
    plain = AutoTokenizer.from_pretrained(f"tester/{name}", ngrams=[], trust_remote_code=True)
    without = pipeline(task, model=f"tester/{name}", tokenizer=plain, trust_remote_code=True)(TEXT)
    in_batch = use([TEXT, "人口"], batch_size=2)[0]
    results = (first, again(TEXT), [in_batch] if name == "sequence" else in_batch, without)
    found.append([[float(entry["score"]) for entry in result] for result in results])
assert "hf_ptm_ext" not in sys.modules
print(json.dumps(found))
"""


@pytest.mark.slow
def test_pipelines_find_ngrams_without_the_package(tmp_path):
    config = ZenConfig(
        vocab_size=len(WORDS),
        word_vocab_size=4,
        hidden_size=32,
        num_hidden_layers=2,
        num_hidden_word_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        num_labels=3,
        initializer_range=0.3,
    )
    tokenizer = ZenTokenizer({word: number for number, word in enumerate(WORDS)}, ngrams=["提高", "高速公路", "公路"])
    scores = []
    for name, cls in (("sequence", ZenForSequenceClassification), ("token", ZenForTokenClassification)):
        torch.manual_seed(0)
        model = cls(config).eval()
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        with torch.no_grad():
            logits = model(**tokenizer(TEXT, return_tensors="pt")).logits[0]
        best = logits.softmax(-1).max(-1).values
        scores.append([best.item()] if name == "sequence" else best[1:-1].tolist())
    with running() as hub:
        environment = hub.environment(tmp_path / "home")
        run_script(PUSH.replace("{folder}/", f"{tmp_path}/"), hidden=False, **environment)
        for name in ("sequence", "token"):
            files = hub.files(f"tester/{name}")
            assert {"ngram.txt", "tokenization_zen.py", "lexicon_zen.py", "modeling_zen.py"} <= set(files)
        code = USE.replace("{folder}", str(tmp_path)).replace("TEXT", repr(TEXT))
        found = json.loads(run_script(code, **environment).splitlines()[-1])
    for (*results, without), expected in zip(found, scores, strict=True):
        for result in results:
            assert result == pytest.approx(expected, abs=1e-5)
        assert without != pytest.approx(expected, abs=1e-3)
