"""Checkpoints that TensorFlow 2.21 wrote (goldens/tensorflow-a.files), read without it, and its names of weights."""

import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from hf_ptm_ext import cli
from hf_ptm_ext.conversion.files import read_checkpoint
from hf_ptm_ext.conversion.nezha import LAYOUT, convert_checkpoint, convert_config
from hf_ptm_ext.models.modeling_nezha import NezhaForPreTraining
from tests.tolerance import assert_agrees

FILES = Path(__file__).parents[1] / "goldens" / "tensorflow-a.files"
XL = FILES / "transfo_xl"


@pytest.fixture
def copied(tmp_path):
    for file in XL.glob("*ckpt*"):
        shutil.copy(file, tmp_path)
    return tmp_path / "model.ckpt.index"


def test_every_kind_of_numbers_and_no_other_variable():
    found = read_checkpoint(FILES / "kinds.ckpt")  # as TensorFlow calls it
    assert [path.name for path in found.files] == ["kinds.ckpt.index", "kinds.ckpt.data-00000-of-00001"]
    numbers = torch.arange(6).reshape(2, 3)
    for name in ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"):
        kind = getattr(torch, name)
        value = found.tensors.pop(f"kinds/{name}")
        assert value.dtype == kind
        assert torch.equal(value, numbers.to(kind))
    for name in ("uint16", "uint32", "uint64"):
        assert torch.equal(found.tensors.pop(f"kinds/{name}").long(), numbers)
    assert found.tensors == {"scalar": torch.tensor(2.5)}  # no words, counters or moments
    assert torch.equal(read_checkpoint(FILES / "objects.ckpt.index").tensors["model/layers/0"], numbers.float())


def test_several_data_files_and_packed_blocks(copied):
    plain = read_checkpoint(copied)
    assert (len(plain.files), len(plain.tensors)) == (3, 36)
    shutil.copy(XL / "packed.index", copied.with_name("packed.index"))
    for file in copied.parent.glob("model.ckpt.data*"):
        shutil.copy(file, file.with_name(file.name.replace("model.ckpt", "packed")))
    packed = read_checkpoint(copied.with_name("packed.index"))
    assert packed.tensors.keys() == plain.tensors.keys()
    assert all(torch.equal(packed.tensors[name], plain.tensors[name]) for name in plain.tensors)


def test_damaged_files_are_one_line(copied, tmp_path):
    index, data = copied.read_bytes(), copied.with_name("model.ckpt.data-00002-of-00003")
    keep, chance = data.read_bytes(), random.Random(0)
    for _ in range(60):
        damaged = bytearray(index)
        damaged[chance.randrange(len(index))] ^= 1 << chance.randrange(8)
        copied.write_bytes(damaged if chance.random() < 0.7 else damaged[: chance.randrange(len(index))])
        try:
            found = f"{len(read_checkpoint(copied).tensors)} tensors"  # it was in the padding of the footer
        except (ValueError, FileNotFoundError) as error:
            found = str(error)
        assert re.match(r"36 tensors|\S+model\.ckpt\.index is [^\n]+\Z", found)
    copied.write_bytes(index)
    data.write_bytes(keep[:-4] + b"\1\2\3\4")
    with pytest.raises(ValueError, match=r"model\.ckpt\.index: the variable 'transformer/layer_1/.*checksum"):
        read_checkpoint(copied)
    data.write_bytes(keep[:-4])
    with pytest.raises(ValueError, match=r"cannot be read: [0-9]+ bytes should be at byte"):
        read_checkpoint(copied)
    data.unlink()
    with pytest.raises(FileNotFoundError, match=r"names the shard model\.ckpt\.data-00002-of-00003, which does not"):
        read_checkpoint(copied)
    (tmp_path / "outside").mkdir()
    shutil.move(copied, tmp_path / "outside")
    for file in tmp_path.glob("*data*"):
        (tmp_path / "outside" / file.name).symlink_to(file)
    with pytest.raises(ValueError, match="data-00001-of-00003"):
        read_checkpoint(tmp_path / "outside" / "model.ckpt.index")
    with pytest.raises(ValueError, match="'part/w' cannot be read: it is saved in 2 slices"):
        read_checkpoint(FILES / "slices.ckpt.index")


@pytest.mark.golden
@torch.no_grad()
def test_transformer_xl_computes_what_tensorflow_does(tmp_path, capsys):
    source = [str(XL / "model.ckpt.index"), str(tmp_path / "ours")]
    assert cli.main(["convert", "transfo_xl", *source]) == 0
    assert "assumed      layer_norm_epsilon 1e-12" in capsys.readouterr().out
    model, mems = AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval(), None
    with np.load(XL / "expected.npz") as expected:
        for ids, logs in zip(expected["ids"], expected["log_probabilities"], strict=True):
            output = model(torch.from_numpy(ids), mems=mems)
            assert_agrees(output.logits, torch.from_numpy(logs), 1e-5, 1e-5)
            mems = output.mems


def test_transformer_xl_with_one_table_and_shared_biases():
    """Clusters of one table have biases of their own; their sizes are those of the clusters."""
    from hf_ptm_ext.conversion import transfo_xl

    sizes = {"vocab_size": 12, "d_model": 8, "n_layer": 1, "n_head": 2, "d_head": 4, "d_inner": 8, "div_val": 1}
    config = transfo_xl.convert_config({**sizes, "cutoffs": [3, 7], "untie_r": False})
    ours = {name: torch.randn_like(value) for name, value in transfo_xl.LAYOUT.model(config).state_dict().items()}
    front = "transformer/layer_0/"
    theirs = {f"{front}{part}": ours[f"transformer.layers.0.{name}"] for part, name in PARTS.items()}
    theirs = {name: value.t() if name.endswith("kernel") else value for name, value in theirs.items()}
    theirs |= {f"transformer/r_{kind}_bias": ours[f"transformer.r_{kind}_bias"] for kind in "wr"}
    theirs["transformer/adaptive_embed/lookup_table"] = ours["transformer.word_emb.emb_layers.0.weight"]
    biases = ours["crit.out_layers.0.bias"].split([3, 4, 5])
    theirs |= {f"transformer/adaptive_softmax/cutoff_{i}/b": bias for i, bias in enumerate(biases)}
    for name in ("weight", "bias"):
        theirs[f"transformer/adaptive_softmax/cutoff_0/cluster_{name[0].replace('w', 'W')}"] = ours[
            f"crit.cluster_{name}"
        ]
    found = transfo_xl.convert_checkpoint(theirs, sizes)
    config = found.config
    assert (config.cutoffs, config.layer_norm_epsilon, config.untie_r) == ([3, 7], 1e-12, False)
    assert all(torch.equal(value, ours[name]) for name, value in found.tensors.items())


PARTS = {
    **{f"rel_attn/{part}/kernel": f"dec_attn.{part}_net.weight" for part in ("qkv", "o", "r")},
    **{f"rel_attn/LayerNorm/{a}": f"dec_attn.layer_norm.{b}" for a, b in (("gamma", "weight"), ("beta", "bias"))},
    **{f"ff/LayerNorm/{a}": f"pos_ff.layer_norm.{b}" for a, b in (("gamma", "weight"), ("beta", "bias"))},
    **{f"ff/layer_{k}/kernel": f"pos_ff.CoreNet.{n}.weight" for k, n in ((1, 0), (2, 3))},
    **{f"ff/layer_{k}/bias": f"pos_ff.CoreNet.{n}.bias" for k, n in ((1, 0), (2, 3))},
}


def test_a_bert_under_the_names_of_its_tensorflow_code():
    """NEZHA's released files: what every layout of a BERT reads."""
    sizes = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    options = {**sizes, "intermediate_size": 24, "max_position_embeddings": 12, "use_relative_position": True}
    state = NezhaForPreTraining(convert_config(options)).state_dict()
    theirs = {}
    for name, value in state.items():
        if name in LAYOUT.tied:
            continue
        key = name.replace("layer.0", "layer_0").replace(".", "/").removesuffix("/weight")
        if name.endswith("LayerNorm.weight"):
            key += "/gamma"
        elif name.endswith("LayerNorm.bias"):
            key = key.replace("/bias", "/beta")
        elif name == "cls.predictions.bias" or name.startswith("cls.seq_relationship"):
            key = "/".join(key.split("/")[:2]) + ("/output_bias" if name.endswith("bias") else "/output_weights")
        elif value.dim() == 2 and not key.endswith("_embeddings"):
            key, value = f"{key}/kernel", value.t()
        theirs[key] = value
    assert {"bert/encoder/layer_0/attention/self/query/kernel", "bert/embeddings/word_embeddings"} <= theirs.keys()
    found = convert_checkpoint(theirs, options)
    assert (found.architecture, found.initialised) == ("NezhaForPreTraining", {})
    assert found.tensors.keys() == state.keys() - LAYOUT.tied.keys()
    assert all(torch.equal(value, state[name]) for name, value in found.tensors.items())
