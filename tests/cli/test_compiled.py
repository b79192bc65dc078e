"""What a job compiles it compiles once: no batch of varied text has a shape that its arguments do not tell."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForSequenceClassification,
    TrainerCallback,
)

from hf_ptm_ext import EntityTable, UniLMConfig, UniLMForConditionalGeneration
from hf_ptm_ext.cli import distill, finetune, finetune_seq2seq
from hf_ptm_ext.cli.pretrain import Pretrain, parse
from hf_ptm_ext.data import embedded_corpus, train_wordpiece
from tests.cli.jobs import flags
from tests.cli.test_pretrain_denoising import TINY

pytestmark = pytest.mark.slow

# Without tlm: XLM's forward, transformers' own, reads the longest length of each batch on the host.
LEXICONS = Path(__file__).parents[1] / "fixtures" / "lexicons"
ENCODER = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=64"
CASES = {
    "mlm": {"pack_rows": "true"},
    "mlm, a block a row": {},
    "wwm": {"pack_rows": "true"},
    "span": {"pack_rows": "true"},
    "span, pairs": {"pack_rows": "true", "next_sentence_prediction": "true"},
    "unilm": {"pack_rows": "true", "family": "unilm"},
    "electra": {},
    "electra, drawn twice": {"with_replacement": "true"},
    "ernie": {"segmenter": "jieba"},
    "ngram, order": {"family": "albert", "sentence_pairs": "order"},
    "permutation": {"config_overrides": "d_model=32,n_layer=1,n_head=2,d_inner=64"},
    "word_order, structure": {"sentence_pairs": "structure"},
    "electra, packed": {"pack_rows": "true"},
    "infoword": {},
    "sentilare": {"opinion_words": [LEXICONS / "positive.txt", LEXICONS / "negative.txt"]},
    "sensebert": {"supersenses": LEXICONS / "supersenses.tsv"},
    "ernie_thu, packed": {"pack_rows": "true", "min_entities": "1"},
    "mass": {},
    "text_infilling": {},
    "span_corruption": {},
}


class Graphs(TrainerCallback):
    """How many graphs there are behind each update."""

    def __init__(self):
        self.counts = []

    def on_step_end(self, args, state, control, **kwargs):
        self.counts.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_compiled_again_behind_the_second_update(tmp_path, case):
    torch._dynamo.reset()
    objective = case.split(",")[0]
    values = {
        "objective": objective,
        "config_overrides": TINY.get(objective, ENCODER),
        "vocab_size": 400,
        "max_seq_length": 64,
        "per_device_train_batch_size": 8,
        "max_steps": 90,
        "max_train_rows": 480,
        "save_strategy": "no",
        "torch_compile": "true",
        "torch_compile_backend": "eager",
        "output_dir": tmp_path,
        **CASES[case],
    }
    if objective == "ernie_thu":
        names = sorted({word for document in embedded_corpus("en")[:150] for word in " ".join(document).split()})[::9]
        vectors = np.random.default_rng(0).normal(size=(len(names), 8)).astype(np.float32)
        EntityTable.from_arrays(vectors, names, {name: name for name in names}).save(tmp_path / "table.safetensors")
        values |= {"entity_table": tmp_path / "table.safetensors"}
        values["config_overrides"] += ",entity_num_attention_heads=2"
    job = Pretrain(*parse(flags(**values)))
    job.prepare()
    trainer, _ = job.build(*job.variants, job.training_args)
    graphs = Graphs()
    trainer.add_callback(graphs)
    trainer.train()
    assert trainer.state.epoch > 1, "the end of an epoch is among them"
    assert graphs.counts[1] > 0
    assert set(graphs.counts[1:]) == {graphs.counts[1]}


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
JOBS = {
    "finetune": (finetune, "Finetune", ["--max_seq_length", "32"]),
    "distill": (distill, "Distill", ["--max_seq_length", "32", "--student_layers", "1"]),
    "unilm": (finetune_seq2seq, "FinetuneSeq2Seq", []),
    "bart": (finetune_seq2seq, "FinetuneSeq2Seq", []),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Rows and pairs of varied length, a number that no batch divides, and a model of each kind."""
    folder = tmp_path_factory.mktemp("files")
    lines = [line for document in embedded_corpus("en")[:20] for line in document if len(line.split()) > 3][:45]
    rows = [{"text": line, "label": number % 2} for number, line in enumerate(lines)]
    pairs = [{"source": line, "target": " ".join(line.split()[: 2 + number % 9])} for number, line in enumerate(lines)]
    for name, found in (("rows", rows), ("pairs", pairs)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")
    tokenizer = train_wordpiece([lines], 300, lowercase=True, model_max_length=64)
    size, end = len(tokenizer), tokenizer.sep_token_id
    stages = {f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    models = {
        "bert": BertForSequenceClassification(BertConfig(vocab_size=size, **SIZES)),
        "unilm": UniLMForConditionalGeneration(
            UniLMConfig(
                vocab_size=size, type_vocab_size=6, mask_token_id=tokenizer.mask_token_id, eos_token_id=end, **SIZES
            )
        ),
        "bart": BartForConditionalGeneration(
            BartConfig(
                vocab_size=size,
                d_model=32,
                encoder_ffn_dim=64,
                decoder_ffn_dim=64,
                pad_token_id=0,
                eos_token_id=end,
                bos_token_id=tokenizer.cls_token_id,
                decoder_start_token_id=end,
                forced_eos_token_id=end,
                **stages,
            )
        ),
    }
    for name, model in models.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


@pytest.mark.parametrize("kind", JOBS)
def test_other_jobs_are_compiled_once_and_predict_every_row(tmp_path, files, kind):
    torch._dynamo.reset()
    module, name, words = JOBS[kind]
    pairs = kind in ("unilm", "bart")
    data = str(files / ("pairs.jsonl" if pairs else "rows.jsonl"))
    model = "--teacher_name_or_path" if kind == "distill" else "--model_name_or_path"
    words = [*words, model, str(files / (kind if pairs else "bert")), "--train_file", data, "--test_file", data]
    if pairs:
        words += ["--max_source_length", "24", "--max_target_length", "8", "--predict_with_generate", "false"]
    else:
        words += ["--task", "classification"]
    if kind == "distill":
        words += ["--stages", '{"all": {"preset": "minilm"}}']
    words += ["--output_dir", str(tmp_path), "--torch_compile", "true", "--torch_compile_backend", "eager"]
    words += ["--use_cpu", "true", "--max_steps", "30", "--per_device_train_batch_size", "8", "--report_to", "none"]
    words += ["--per_device_eval_batch_size", "8", "--disable_tqdm", "true", "--save_strategy", "no"]
    job = getattr(module, name)(*module.parse(words))
    job.prepare()
    trainer, _ = job.build(job.variants[0], job.training_args)
    graphs = Graphs()
    trainer.add_callback(graphs)
    trainer.train()
    assert trainer.state.epoch > 2, "the ends of epochs are among them"
    assert graphs.counts[1] > 0
    assert set(graphs.counts[1:]) == {graphs.counts[1]}
    rows = job.splits["test"].rows if pairs else job.splits.rows("test").inputs
    assert len(rows) == 45
    trainer.compute_metrics = None
    assert len(trainer.predict(rows).predictions if not pairs else rows) == 45
    assert sum(len(batch["input_ids"]) for batch in trainer.get_test_dataloader(rows)) == 45
