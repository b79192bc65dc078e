"""K-BERT's graph goes where the checkpoint goes: folder, Hub, a copy of either, always into the pipelines' answers."""

import json

import pytest
import torch
from transformers import pipeline

from hf_ptm_ext import (
    KBertConfig,
    KBertForSequenceClassification,
    KBertForTokenClassification,
    KBertTokenizer,
    KnowledgeGraph,
)
from hf_ptm_ext.hub import code_files
from tests.hub.checkpoints import run_script
from tests.hub.loopback_hub import running

TEXT = "高血压病人不宜使用厄贝沙坦"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(TEXT + "疾药物")]

PUSH = """
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer
import hf_ptm_ext
for name, auto in (("classifier", AutoModelForSequenceClassification), ("tagger", AutoModelForTokenClassification)):
    folder = "{root}/" + name
    auto.from_pretrained(folder).push_to_hub("tester/" + name)
    AutoTokenizer.from_pretrained(folder).push_to_hub("tester/" + name)
"""

USE = """
import json, sys
from pathlib import Path
from huggingface_hub import snapshot_download
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer, pipeline

root, text, said = Path("{root}"), "{text}", dict()
options = dict(trust_remote_code=True)

def answers(classifier, tagger):
    classify = pipeline("text-classification", model=classifier, top_k=None, **options)
    tag = pipeline("token-classification", model=tagger, **options)
    assert type(tag.tokenizer).__module__.startswith("transformers_modules."), type(tag.tokenizer)
    scores = dict((one["label"], one["score"]) for one in classify([text])[0])
    tags = [[one["entity"], one["start"], one["end"], one["word"], float(one["score"])] for one in tag(text)]
    words = [one["word"] for one in tag([list(text)], is_split_into_words=True, delimiter="")[0]]
    grouped = pipeline("token-classification", model=tagger, aggregation_strategy="simple", **options)(text)
    return dict(scores=scores, tags=tags, words=words, spans=[[one["start"], one["end"]] for one in grouped])

said["folder"] = answers(str(root / "classifier"), str(root / "tagger"))
said["hub"] = answers("tester/classifier", "tester/tagger")
for name, auto in (("classifier", AutoModelForSequenceClassification), ("tagger", AutoModelForTokenClassification)):
    copy = root / ("copy-" + name)
    auto.from_pretrained("tester/" + name, **options).save_pretrained(copy)
    AutoTokenizer.from_pretrained("tester/" + name, **options).save_pretrained(copy)
said["copy"] = answers(str(root / "copy-classifier"), str(root / "copy-tagger"))
without = AutoTokenizer.from_pretrained("tester/classifier", kg=None, **options)
plain = pipeline("text-classification", model="tester/classifier", tokenizer=without, top_k=None, **options)
said["without"] = dict((one["label"], one["score"]) for one in plain([text])[0])
said["files"] = sorted(path.name for path in Path(snapshot_download("tester/tagger")).iterdir())
(root / "copy-tagger" / "knowledge_graph.safetensors").unlink()
try:
    pipeline("token-classification", model=str(root / "copy-tagger"), **options)
except ValueError as error:
    said["missing"] = str(error)
assert "hf_ptm_ext" not in sys.modules
print(json.dumps(said))
"""


def tokenizer():
    graph = KnowledgeGraph([("高血压", "类别", "疾病"), ("厄贝沙坦", "类别", "药物")])
    return KBertTokenizer({word: number for number, word in enumerate(WORDS)}, kg=graph, model_max_length=40)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A classifier and a tagger in folders; large weights, so that knowledge tells."""
    root = tmp_path_factory.mktemp("knowledge")
    torch.manual_seed(0)
    config = KBertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=40,
        initializer_range=0.4,
        id2label={0: "B-DIS", 1: "I-DIS", 2: "B-DRU"},
        label2id={"B-DIS": 0, "I-DIS": 1, "B-DRU": 2},
    )
    for name, head in (("classifier", KBertForSequenceClassification), ("tagger", KBertForTokenClassification)):
        head(config).save_pretrained(root / name)
        tokenizer().save_pretrained(root / name)
    return root


@pytest.fixture(scope="module")
def said(root, tmp_path_factory):
    with running() as server:
        environment = server.environment(tmp_path_factory.mktemp("home"))
        run_script(PUSH.format(root=root), hidden=False, **environment)
        printed = run_script(USE.format(root=root, text=TEXT), **environment)
    return json.loads(printed.splitlines()[-1])


@pytest.fixture(scope="module")
def here(root):
    """What the installed classes answer."""
    classify = pipeline("text-classification", model=str(root / "classifier"), top_k=None)
    return {one["label"]: one["score"] for one in classify([TEXT])[0]}


@pytest.mark.parametrize("where", ["folder", "hub", "copy"])
def test_answers_are_those_of_the_installed_classes(said, here, where):
    assert said[where]["scores"] == pytest.approx(here, abs=1e-6)
    for tag, expected in zip(said[where]["tags"], said["folder"]["tags"], strict=True):
        assert tag == pytest.approx(expected, abs=1e-6) if isinstance(tag, float) else tag[:4] == expected[:4]


def test_knowledge_matters(said, here):
    assert said["without"] != pytest.approx(here, abs=1e-3)


def test_tags_stand_on_the_users_characters_alone(said):
    """No injected token is among the answers, and every character of the text is, once and in its place."""
    assert [tag[1:4] for tag in said["hub"]["tags"]] == [[i, i + 1, char] for i, char in enumerate(TEXT)]
    assert said["hub"]["words"] == list(TEXT)
    spans = said["hub"]["spans"]
    assert [place for span in spans for place in range(*span)] == list(range(len(TEXT)))


def test_the_checkpoint_carries_graph_and_code(said):
    assert "missing" in said
    assert "`knowledge_graph.safetensors` must be beside tokenizer_config.json" in said["missing"]
    code = {path.name for path in code_files("kbert")}
    assert {"knowledge_graph.safetensors", "tokenizer.json", *code} <= set(said["files"])
