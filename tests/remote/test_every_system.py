"""Every class of the table of systems that can be pushed works in a process that has not the package."""

import json

import pytest
import torch
import transformers
from peft import PeftModel, get_peft_model
from transformers import AutoConfig

import hf_ptm_ext
from hf_ptm_ext import HoulsbyConfig, PfeifferConfig, save_adapted
from hf_ptm_ext.adapters.placements import PLACEMENTS
from hf_ptm_ext.hub import code_files, fresh_process
from hf_ptm_ext.registration import FAMILIES
from hf_ptm_ext.systems import SYSTEMS
from tests.adapters.architectures import ENCODER, RECURRENT, SIZES
from tests.hub.checkpoints import run_script

TABLE = {system.family for system in SYSTEMS} - {None}
# Those of this package that take adapters, and some of transformers'.
ADAPTED = (
    *(family.model_type for family in FAMILIES if family.model_type in PLACEMENTS),
    *("bert", "roberta", "mpnet", "distilbert", "t5", "bart"),
)
# Families with no head for classes.
ADAPTED_AS = {"ktnet": "AutoModelForQuestionAnswering"}
AROUND_AN_ENCODER = ("k_adapter", "weighted_layers", "san")
FIELDS = {
    "awd_lstm": {"vocab_size": 60, "embedding_size": 8, "lstm_size": 12},
    "distilled_bilstm": {"vocab_size": 60, "embedding_size": 8, "lstm_size": 8},
    "elmo": {"vocab_size": 60, "filters": [[1, 4], [2, 8]], "cell_size": 12, "projection_dim": 8},
    "static_embedding": {"vocab_size": 60, "embedding_size": 8, "pooling": "idf"},
    "cove": {"vocab_size": 60, "embedding_size": 8, "lstm_size": 8, "target_vocab_size": 60},
    "context2vec": {"vocab_size": 60, "embedding_size": 8, "lstm_size": 8, "target_size": 8},
    "skip_thought": {"vocab_size": 60, "embedding_size": 8, "gru_size": 8},
    "ktnet": {"encoder_config": {**ENCODER, "model_type": "bert"}, "knowledge_bases": {"wn": [9, 4]}},
    "san": {"encoder_config": {**ENCODER, "model_type": "bert"}},
}

# Folders of one name, so that the files of a family are imported once; a class that its auto class gives beside
# another one is in a folder of its own name.
SCRIPT = """
import json, sys
from pathlib import Path
import torch, transformers
transformers.utils.logging.disable_progress_bar()

def outputs_of(folder, auto_class):
    loaded = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True)
    return loaded, fresh_process.outputs_of(loaded)

def config_of(folder):
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))

said = dict()
for place in sorted(Path({root!r}).iterdir()):
    job = json.loads((place / "job.json").read_text(encoding="utf-8"))
    expected = torch.load(place / "outputs.pt", weights_only=True)
    checkpoint = next(path.parent for path in place.glob("*/config.json"))
    model, found = outputs_of(checkpoint, job["auto_class"])
    wrong = ["outputs"] * (fresh_process.largest_difference(expected, found) > 1e-6)
    if job["again"]:
        again = place / "again" / checkpoint.name
        model.save_pretrained(again)
        kept = [
            [{{path.name: path.read_bytes() for path in folder.glob("*.py")}}, config_of(folder)["auto_map"]]
            for folder in (checkpoint, again)
        ]
        wrong += ["files of the copy"] * (kept[0] != kept[1])
        copied = outputs_of(again, job["auto_class"])[1]
        wrong += ["outputs of the copy"] * (fresh_process.largest_difference(expected, copied) > 1e-6)
    said[place.name] = dict(name=type(model).__name__, module=type(model).__module__, wrong=wrong)
assert "hf_ptm_ext" not in sys.modules
print(json.dumps(said))
"""

VARIANTS = [name for family in FAMILIES for names in family.variants.values() for name in names]


def heads():
    """Family and auto class and class of every model class of the table."""
    return [
        (family.model_type, auto_class, name)
        for family in FAMILIES
        if family.model_type in TABLE
        for auto_class, name in dict.fromkeys(family.model_classes())
    ]


def tiny_config(model_type, **fields):
    sizes = FIELDS.get(model_type) or SIZES.get(model_type, ENCODER)
    return AutoConfig.for_model(model_type, **{**sizes, "num_labels": 3, **fields})


def tiny(model_type, name, **fields):
    torch.manual_seed(0)
    return getattr(hf_ptm_ext, name)(tiny_config(model_type, **fields)).eval()


def around(model_type, inside, name):
    """A model around an encoder of this package."""
    return tiny(model_type, name, encoder_config={**ENCODER, **SIZES.get(inside, {}), "model_type": inside})


def encoders_inside():
    """Families whose bare encoder can stand inside another model."""
    left_out = ("ktnet", "mass", "mass_nmt", "transfo_xl", *RECURRENT, *AROUND_AN_ENCODER)
    return [family.model_type for family in FAMILIES if family.model_type not in left_out]


def jobs():
    """Name -> auto class, a function that makes the model, and whether it is also saved again."""
    found, seen = {}, set()
    for model_type, auto_class, name in heads():
        found[f"{name} {auto_class}"] = (auto_class, lambda a=model_type, b=name: tiny(a, b), model_type not in seen)
        seen.add(model_type)
    head, auto_class = "ForSequenceClassification", "AutoModelForSequenceClassification"
    for number, inside in enumerate(encoders_inside()):
        outer = AROUND_AN_ENCODER[number % len(AROUND_AN_ENCODER)]
        name = {"k_adapter": "KAdapter", "weighted_layers": "WeightedLayers", "san": "San"}[outer] + head
        found[f"{outer} on {inside}"] = (auto_class, lambda a=outer, b=inside, c=name: around(a, b, c), True)
    for number, model_type in enumerate(ADAPTED):
        method = (HoulsbyConfig, PfeifferConfig)[number % 2]
        config = tiny_config(model_type)
        auto = "AutoModelForSeq2SeqLM" if config.is_encoder_decoder else ADAPTED_AS.get(model_type, auto_class)
        found[f"{method.__name__} in {model_type}"] = (auto, lambda a=auto, b=config, c=method: adapted(a, b, c), True)
    return found


def adapted(auto_class, config, method):
    """A model of PEFT with adapters that do something."""
    torch.manual_seed(0)
    model = get_peft_model(getattr(transformers, auto_class).from_config(config), method(reduction_factor=4))
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value.add_(0.1 * torch.randn_like(value))
    return model.eval()


JOBS = jobs()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("systems")


@pytest.fixture(scope="module")
def said(root, tmp_path_factory):
    for name, (auto_class, make, again) in JOBS.items():
        model, place = make(), root / name
        if isinstance(model, PeftModel):
            save_adapted(model, place / "checkpoint")
            model = model.get_base_model()
        else:
            model.save_pretrained(place / (type(model).__name__ if type(model).__name__ in VARIANTS else "checkpoint"))
        torch.save(fresh_process.outputs_of(model), place / "outputs.pt")
        job = {"auto_class": auto_class, "again": again}
        (place / "job.json").write_text(json.dumps(job), encoding="utf-8")
    home = tmp_path_factory.mktemp("home")
    printed = run_script(SCRIPT.format(root=str(root)), timeout=600, HF_HOME=str(home), HF_HUB_OFFLINE="1")
    return json.loads(printed.splitlines()[-1])


@pytest.mark.parametrize("name", JOBS)
def test_it_loads_and_gives_the_same_outputs(said, name):
    assert said[name]["module"].startswith("transformers_modules.")
    assert said[name]["wrong"] == []


def test_every_family_of_the_table_is_among_them():
    assert {family.model_type for family in FAMILIES} == TABLE
    assert {model_type for model_type, *_ in heads()} == TABLE


@pytest.mark.parametrize("outer", AROUND_AN_ENCODER)
def test_the_code_of_the_encoder_inside_goes_along(said, root, outer):
    """And no more than it."""
    for inside in encoders_inside():
        folder = root / f"{outer} on {inside}" / "checkpoint"
        if folder.is_dir():
            files = {
                path.name for family in (outer, inside) for path in code_files(family, ("configuration", "modeling"))
            }
            assert {path.name for path in folder.glob("*.py")} == files
