"""Damaged checkpoints of every family, both ways: refused in one line that names the weight or the field, or stated.

What is refused leaves nothing in the target or beside it. The slow tier damages every weight and every option.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_ptm_ext import cli
from tests.conversion.sources import ADAPTERS, FAMILIES, Source, source_of

SOURCES = {family: source_of(family) for family in FAMILIES}
# Weights that a file may leave out: copies of tied entries, and what no model reads.
TIED = ("cls.predictions.decoder.weight", "encoder.version", "decoder.version", "encoder.pred_layer.proj.bias")
# Starts of names that a file may leave out, or has twice.
TWICE = ("fit_dense.", "pooler.", "pretraining_heads.")
DAMAGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "NaN": lambda value: torch.full_like(value, math.nan),
    "infinity": lambda value: torch.cat([value.flatten()[1:], torch.tensor([-math.inf])]).reshape(value.shape),
    "integers": lambda value: torch.ones_like(value, dtype=torch.int64),
    "booleans": lambda value: torch.ones_like(value, dtype=torch.bool),
    "complex": lambda value: torch.ones_like(value, dtype=torch.complex64),
    "more rows": lambda value: torch.cat([value, value]),
    "one more dimension": lambda value: value[None],
    "a number": lambda value: torch.tensor(1.0),
    "nothing": lambda value: value[:0],
    "repeated values": lambda value: torch.zeros(1).reshape([1] * value.ndim).expand(value.shape),
    "sparse": lambda value: value.to_sparse(),
    "no values": lambda value: value.to("meta"),
}
NONSENSE = (-1, 0, 10**12, 10**400, "32", 32.5, [], {}, True, [[1]], {"a": 1})
SIZES = {
    "k_adapter": ("base_hidden_size", "adapter_hidden_size", "adapter_heads", "adapter_list", "max_seq_length"),
    "kbert": ("hidden_size", "layers_num", "heads_num", "feedforward_size", "vocab_size", "max_position"),
    "mass": ("encoder_embed_dim", "encoder_layers", "decoder_attention_heads", "max_source_positions", "vocab_size"),
    "mass_nmt": ("n_words", "emb_dim", "n_layers", "n_dec_layers", "n_heads", "n_langs"),
    "tinybert": ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    "transfo_xl": ("vocab_size", "d_model", "n_layer", "n_head", "d_inner"),
    "houlsby": ("reduction_factor", "leave_out", "non_linearity"),
    "pfeiffer": ("reduction_factor", "leave_out", "non_linearity"),
}
LAYERS = ("adapter_num_hidden_layers", "encoder_layers", "num_hidden_layers", "n_layer")
BERT_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


@pytest.fixture
def convert(tmp_path: Path, capsys: Any) -> Callable[..., str]:
    """Runs the command; gives what it printed, and for a refusal its line, once nothing was left behind."""

    def run(family: str, source: Path, target: str = "target", *more: str, refused: bool = True) -> str:
        before = set(tmp_path.rglob("*"))
        started = time.process_time()
        code = cli.main(["convert", family, str(source), str(tmp_path / target), *more])
        said = capsys.readouterr()
        assert time.process_time() - started < 20
        assert code == (2 if refused else 0), said.out + said.err
        if refused:
            assert len(said.err.strip().splitlines()) == 1, said.err
            assert set(tmp_path.rglob("*")) == before
            return said.err
        return said.out

    return run


def some(names: Mapping[str, Any]) -> list[str]:
    """Names from the beginning, the middle and the end of a checkpoint."""
    needed = [name for name in names if not name.endswith(TIED) and not name.startswith(TWICE)]
    return [needed[0], needed[len(needed) // 2], needed[-1]]


def size_cases() -> Iterator[tuple[str, str, Any]]:
    for family in FAMILIES:
        for number, field in enumerate(SIZES.get(family, BERT_SIZES)):
            yield family, field, NONSENSE[number % len(NONSENSE)]
            yield family, field, NONSENSE[(number + 5) % len(NONSENSE)]


def changed_options(source: Source, field: str, value: Any) -> dict[str, Any]:
    if source.is_adapter:
        return {**source.options, "config": {**source.options["config"], field: value}}
    return {**source.options, field: value}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_missing_weight_is_refused(family: str, tmp_path: Path, convert: Callable[..., str]) -> None:
    source = SOURCES[family]
    for number, name in enumerate(some(source.tensors)):
        rest = {key: value for key, value in source.tensors.items() if key != name}
        said = convert(family, source.write(tmp_path / str(number), rest))
        assert "lack" in said
        assert f"`{name}`" in said, "the name that the file would have"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_no_finite_matrix_of_the_right_shape_is_refused_by_name(
    family: str, damage: str, tmp_path: Path, convert: Callable[..., str]
) -> None:
    source = SOURCES[family]
    name = some(source.tensors)[1]
    tensors = {**source.tensors, name: DAMAGES[damage](source.tensors[name])}
    assert f"`{name}" in convert(family, source.write(tmp_path / "source", tensors))


@pytest.mark.parametrize(("family", "field", "value"), list(size_cases()))
def test_nonsense_for_a_size_is_refused_by_name(
    family: str, field: str, value: Any, tmp_path: Path, convert: Callable[..., str]
) -> None:
    source = SOURCES[family]
    if field == "leave_out" and value == []:
        return
    folder = source.write(tmp_path / "source", options=changed_options(source, field, value))
    assert f"`{field}`" in convert(family, folder)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in ADAPTERS])
def test_a_size_that_only_a_config_claims_makes_nothing(
    family: str, tmp_path: Path, convert: Callable[..., str]
) -> None:
    """Below what is refused as no size at all: compared with the file before a model is made."""
    source, fields = SOURCES[family], SIZES.get(family, BERT_SIZES)
    for field, value in ((fields[0], 10**8), (fields[1], 10**8), (fields[2], 999)):
        convert(family, source.write(tmp_path / field, options=changed_options(source, field, value)))


@pytest.mark.parametrize("family", FAMILIES)
def test_an_incomplete_or_damaged_checkpoint_of_ours_is_not_given_back(
    family: str, tmp_path: Path, convert: Callable[..., str]
) -> None:
    source = SOURCES[family]
    convert(family, source.write(tmp_path / "source"), "ours", refused=False)
    path = tmp_path / "ours" / ("adapter_model.safetensors" if source.is_adapter else "model.safetensors")
    ours = load_file(path)
    for name in some({name: 0 for name in ours if name != "encoder_lm_bias"}):
        save_file({key: value for key, value in ours.items() if key != name}, path)
        assert "lack" in (said := convert(family, tmp_path / "ours", "task", "--to-original")) or name in said
        for damage in ("NaN", "integers", "complex", "more rows", "nothing"):
            save_file({**ours, name: DAMAGES[damage](ours[name])}, path)
            assert f"`{name}" in convert(family, tmp_path / "ours", "task", "--to-original")


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in ADAPTERS])
def test_nonsense_in_a_config_of_ours_is_refused(family: str, tmp_path: Path, convert: Callable[..., str]) -> None:
    source = SOURCES[family]
    convert(family, source.write(tmp_path / "source"), "ours", refused=False)
    path = tmp_path / "ours" / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    layers = next(name for name in LAYERS if name in config)
    size = "adapter_hidden_size" if family == "k_adapter" else "vocab_size"
    for field, value in ((layers, 10**12), (size, "many"), (layers, -1), (size, 10**8)):
        path.write_text(json.dumps({**config, field: value}), encoding="utf-8")
        assert field in convert(family, tmp_path / "ours", "task", "--to-original")


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in ADAPTERS])
def test_the_functions_refuse_as_the_command_does(family: str) -> None:
    source = SOURCES[family]
    config, module = source.config(), source.module
    ours = module.convert_state_dict(source.tensors, config)
    for name in some(source.tensors):
        rest = {key: value for key, value in source.tensors.items() if key != name}
        with pytest.raises(ValueError, match="lack"):
            module.convert_state_dict(rest, config)
        for damage in ("NaN", "integers", "booleans", "complex", "nothing"):
            with pytest.raises(ValueError, match="`"):
                module.convert_state_dict({**source.tensors, name: DAMAGES[damage](source.tensors[name])}, config)
    encoder = next(name for name in ours if name.endswith(("output.dense.weight", "fc1.weight", "CoreNet.0.weight")))
    with pytest.raises(ValueError, match=r"lack.*" + encoder):
        module.revert_state_dict({key: value for key, value in ours.items() if key != encoder}, config)
    with pytest.raises(ValueError, match=encoder):
        module.revert_state_dict({**ours, encoder: ours[encoder] * math.nan}, config)
    for nothing in ({}, {"strange.weight": torch.ones(2)}):
        with pytest.raises(ValueError, match=r"."):
            module.convert_state_dict(nothing, config)
        with pytest.raises(ValueError, match=r"."):
            module.revert_state_dict(nothing, config)


class TestUniLM:
    def test_two_loads_of_a_converted_folder_are_one_model(self, tmp_path: Path, convert: Callable[..., str]) -> None:
        from hf_ptm_ext import UniLMForPreTraining

        assert "initialised  nothing" in convert(
            "unilm", SOURCES["unilm"].write(tmp_path / "source"), "ours", refused=False
        )
        first, second = (UniLMForPreTraining.from_pretrained(tmp_path / "ours").state_dict() for _ in range(2))
        assert all(torch.equal(first[name], second[name]) for name in first)

    def test_a_cut_table_and_other_views_can_be_written(self, tmp_path: Path, convert: Callable[..., str]) -> None:
        source = SOURCES["unilm"]
        name = "bert.encoder.layer.0.output.dense.weight"
        views = {**source.tensors, name: source.tensors[name].t().contiguous().t()}
        options = {**source.options, "max_position_embeddings": 16}
        converted = source.module.convert_state_dict(views, source.config(options))
        save_file({key: value for key, value in converted.items() if ".decoder." not in key}, tmp_path / "ours")
        convert("unilm", source.write(tmp_path / "source", views, options), refused=False)

    def test_a_table_is_not_extended_to_gigabytes(self, tmp_path: Path, convert: Callable[..., str]) -> None:
        options = {**SOURCES["unilm"].options, "max_position_embeddings": 10**8}
        assert "`max_position_embeddings`" in convert(
            "unilm", SOURCES["unilm"].write(tmp_path / "source", options=options)
        )

    def test_the_way_back_writes_the_decoders_copy(self, tmp_path: Path, convert: Callable[..., str]) -> None:
        convert("unilm", SOURCES["unilm"].write(tmp_path / "source"), "ours", refused=False)
        convert("unilm", tmp_path / "ours", "back", "--to-original", refused=False)
        back = read_weights(tmp_path / "back")
        assert torch.equal(back["cls.predictions.decoder.weight"], back["bert.embeddings.word_embeddings.weight"])


def test_tensors_that_share_memory_are_written_each(tmp_path: Path, convert: Callable[..., str]) -> None:
    source = SOURCES["nezha"]
    names = [f"bert.encoder.layer.{layer}.output.LayerNorm.bias" for layer in range(2)]
    shared = torch.zeros(2, 32)
    tensors = {**source.tensors, names[0]: shared[0], names[1]: shared[1]}
    convert("nezha", source.write(tmp_path / "source", tensors), refused=False)
    assert load_file(tmp_path / "target" / "model.safetensors").keys() >= set(names)


def test_a_pooler_that_is_new_is_told(tmp_path: Path, convert: Callable[..., str]) -> None:
    source = SOURCES["nezha"]
    encoder = {name: v for name, v in source.tensors.items() if "pooler" not in name and not name.startswith("cls.")}
    assert "initialised  bert.pooler.* (pooler)" in convert(
        "nezha", source.write(tmp_path / "source", encoder), refused=False
    )


def test_a_head_over_a_pooler_that_is_not_there_is_refused(tmp_path: Path, convert: Callable[..., str]) -> None:
    source = SOURCES["zen"]
    rest = {name: value for name, value in source.tensors.items() if "pooler" not in name}
    assert "`bert.pooler.dense.weight`" in convert("zen", source.write(tmp_path / "source", rest))


def test_an_adapter_without_a_whole_layer_is_refused(tmp_path: Path, convert: Callable[..., str]) -> None:
    source = SOURCES["houlsby"]
    rest = {name: value for name, value in source.tensors.items() if ".layer.0." not in name}
    assert "`base_model.model.encoder.layer.0.*`" in convert("houlsby", source.write(tmp_path / "one", rest))
    rest = {name: value for name, value in source.tensors.items() if ".attention." not in name}
    assert "two places" in convert("houlsby", source.write(tmp_path / "two", rest))


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    from hf_ptm_ext.conversion.files import SUFFIXES, read_checkpoint

    return read_checkpoint(next(path for path in folder.iterdir() if path.suffix in SUFFIXES)).tensors


# ---- everything at once ----


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_is_needed(family: str, tmp_path: Path, convert: Callable[..., str]) -> None:
    source = SOURCES[family]
    for number, name in enumerate(source.tensors):
        rest = {key: value for key, value in source.tensors.items() if key != name}
        tied = name.endswith(TIED) and family not in ("kbert", "tinybert")
        if family == "knowbert" and "embeddings" not in name:  # its files have some modules under two names
            here = source.tensors[name]
            tied |= any(other.shape == here.shape and torch.equal(other, here) for other in rest.values())
            tied |= name.endswith("null_embedding")  # those with the softmax loss have none
        convert(family, source.write(tmp_path / "sources" / str(number), rest), f"{number}", refused=not tied)
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_option_takes_any_value_without_a_traceback(family: str, tmp_path: Path, capsys: Any) -> None:
    source = SOURCES[family]
    options = source.options["config"] if source.is_adapter else source.options
    folder = source.write(tmp_path / "source")
    config = folder / ("adapter_config.json" if source.is_adapter else "config.json")
    for field in options:
        for value in (*NONSENSE, None, 1e308, 10**9, "x", math.nan, math.inf):
            config.write_text(json.dumps(changed_options(source, field, value)), encoding="utf-8")
            started = time.process_time()
            code = cli.main(["convert", family, str(folder), str(tmp_path / "target"), "--overwrite"])
            said = capsys.readouterr().err
            assert code in (0, 2), f"{field} {value!r}"
            assert code == 0 or len(said.strip().splitlines()) == 1, said
            assert time.process_time() - started < 20
            assert {path.name for path in tmp_path.iterdir()} <= {"source", "target"}
