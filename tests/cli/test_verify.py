"""`hf-ptm-ext verify`: a good checkpoint passes, and each way to spoil one is named."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_ptm_ext import cli
from hf_ptm_ext.hub import verify
from tests.hub.checkpoints import write_checkpoint

SIDE = {"layers": 1, "attention_heads": 4, "ffn_dim": 64}  # of an encoder-decoder


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("verify") / "good")


@pytest.fixture
def folder(good, tmp_path):
    return shutil.copytree(good, tmp_path / "folder")


def change_json(path, **changes):
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(json.dumps({**content, **changes}), encoding="utf-8")


def change_config(folder, **changes):
    change_json(folder / "config.json", **changes)


def write_bert(folder):
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=149, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64
    )
    BertForMaskedLM(config).save_pretrained(folder)
    return folder


def test_a_good_checkpoint_passes_and_its_code_is_shown_first(good, capsys):
    assert cli.main(["verify", str(good)]) == 0
    said = capsys.readouterr().out
    assert "modeling_spanbert.py  (as installed)" in said.split("auto class")[0]
    rows = [line.split() for line in said.splitlines() if line.startswith("AutoModel")]
    assert len(rows) == 7
    assert all(row[-2] == "0.0e+00" and row[-1] == "complete" for row in rows)
    assert "works without the package" in said
    assert "UNREAD" not in said


def test_a_familys_own_search_needs_no_trust_and_a_changed_one_does(tmp_path, capsys):
    """Code with the line ends of a checkout on Windows is the same code. Tensors that nothing reads are told."""
    from hf_ptm_ext import UniLMConfig, UniLMForConditionalGeneration

    folder = tmp_path / "unilm"
    config = UniLMConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
        mask_token_id=4,
        eos_token_id=3,
    )
    UniLMForConditionalGeneration(config).save_pretrained(folder)
    for path in folder.rglob("*.py"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    more = {"bert.encoder.layer.7.output.dense.bias": torch.ones(2), "own.weight": torch.ones(2)}
    tensors = load_file(folder / "model.safetensors") | more
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert cli.main(["verify", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "custom_generate/generate.py  (as installed)" in said
    assert f"\nUNREAD  2 tensors of the file, by every class: {', '.join(more)}\n" in said
    with open(folder / "custom_generate" / "generate.py", "a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert cli.main(["verify", str(folder)]) == 2
    assert "custom_generate/generate.py (not in the installed package)" in capsys.readouterr().err


def test_code_that_computes_something_else_is_found(folder, capsys):
    """Also in heads that the checkpoint lacks, whose weights are the same in both processes; and one head crashes."""
    path = folder / "task_heads_core.py"
    code = path.read_text(encoding="utf-8")
    changed = code.replace("logits = self.classifier(self.dropout(outputs.last_hidden_state))", "logits = 1 / 0", 1)
    changed = changed.replace("outputs.last_hidden_state).unbind(-1)", "2 * outputs.last_hidden_state).unbind(-1)", 1)
    assert changed != code
    path.write_text(changed, encoding="utf-8")
    assert cli.main(["verify", str(folder), "--trust-remote-code"]) == 1
    said = capsys.readouterr().out
    assert "task_heads_core.py  (differs from the installed package)" in said
    assert "FAILED  AutoModelForTokenClassification: does not load in a fresh process: ZeroDivisionError" in said
    assert "FAILED  AutoModelForQuestionAnswering: outputs differ" in said
    assert "FAILED  AutoModelForMaskedLM" not in said


@pytest.mark.slow
def test_a_classifier_is_no_head_of_multiple_choice(tmp_path, capsys):
    """Its shape is another task's: the head is new there, and that is no fault. A wrong encoder is one."""
    from hf_ptm_ext import KBertConfig, KBertForTokenClassification
    from hf_ptm_ext.hub.export import finish_folder

    config = KBertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        num_labels=7,
    )
    KBertForTokenClassification(config).save_pretrained(tmp_path)
    finish_folder(tmp_path)
    assert cli.main(["verify", str(tmp_path)]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.startswith("AutoModel")}
    assert "classifier" in rows["AutoModelForMultipleChoice"]
    assert "classifier" not in rows["AutoModelForTokenClassification"].split("KBertForTokenClassification")[1]
    change_config(tmp_path, vocab_size=98)
    assert cli.main(["verify", str(tmp_path)]) == 1
    assert "`bert.embeddings.word_embeddings.weight` has another shape" in capsys.readouterr().out


class TestWithoutRunningAnything:
    """These are found before a process is started."""

    @pytest.fixture(autouse=True)
    def never_run(self, monkeypatch):
        def refuse(*args, **kwargs):
            raise AssertionError("code was run")

        monkeypatch.setattr("subprocess.run", refuse)

    @pytest.mark.parametrize("name", ["modeling_spanbert.py", "encoder_core.py", "configuration_spanbert.py"])
    def test_deleted_code_file(self, folder, name):
        (folder / name).unlink()
        found = verify(folder)
        assert any(f"{name} is missing" in problem for problem in found.problems)

    def test_missing_auto_map_entry(self, folder):
        auto_map = json.loads((folder / "config.json").read_text(encoding="utf-8"))["auto_map"]
        del auto_map["AutoModelForQuestionAnswering"]
        change_config(folder, auto_map=auto_map)
        found = verify(folder)
        assert any("lacks AutoModelForQuestionAnswering" in problem for problem in found.problems)

    def test_no_auto_map(self, folder):
        change_config(folder, auto_map=None, model_type="unheard-of")
        assert any("no `auto_map`" in problem for problem in verify(folder).problems)

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            ("modeling_spanbert.Nothing", "has no class Nothing"),
            ("someone/else--modeling_spanbert.SpanBertModel", "another repository"),
            ("../modeling_spanbert.SpanBertModel", "is missing"),
        ],
    )
    def test_wrong_auto_map_entry(self, folder, entry, message):
        auto_map = json.loads((folder / "config.json").read_text(encoding="utf-8"))["auto_map"]
        change_config(folder, auto_map={**auto_map, "AutoModel": entry})
        assert any(message in problem and "AutoModel" in problem for problem in verify(folder).problems)

    @pytest.mark.parametrize("trust", [False, True])
    @pytest.mark.parametrize(
        ("file", "changes", "entry"),
        [
            ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["{}", None]}}, "auto_map.AutoTokenizer"),
            ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": [None, "{}"]}}, "auto_map.AutoTokenizer"),
            ("tokenizer_config.json", {"auto_map": ["{}", None]}, "auto_map"),
            ("processor_config.json", {"auto_map": {"AutoProcessor": "{}"}}, "auto_map.AutoProcessor"),
            ("preprocessor_config.json", {"auto_map": {"AutoImageProcessor": "{}"}}, "auto_map.AutoImageProcessor"),
            ("config.json", {"text_config": {"auto_map": {"AutoModel": "{}"}}}, "auto_map.AutoModel"),
            ("config.json", {"custom_pipelines": {"spans": {"impl": "{}"}}}, "custom_pipelines.spans"),
            ("config.json", {"attn_implementation": "someone/kernel"}, "attn_implementation"),
            ("adapter_config.json", {"base_model_name_or_path": "someone/else"}, "base_model_name_or_path"),
        ],
    )
    def test_code_of_another_repository_is_refused_wherever_it_is_named(self, folder, file, changes, entry, trust):
        changes = json.loads(json.dumps(changes).replace("{}", "someone/else--code.Class"))
        change_json(folder / file, **changes)
        problems = verify(folder, trust_remote_code=trust).problems
        assert [p for p in problems if file in p and f"`{entry}`" in p and "such code is not run" in p], problems

    def test_code_that_is_named_by_the_tokenizer_and_not_there(self, folder):
        change_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenization_x.X", None]})
        assert any("tokenization_x.py is missing" in problem for problem in verify(folder).problems)

    @pytest.mark.parametrize("content", ["{", "[]"])
    def test_a_configuration_that_cannot_be_read(self, folder, content):
        (folder / "tokenizer_config.json").write_text(content, encoding="utf-8")
        assert any("tokenizer_config.json must hold a JSON object" in problem for problem in verify(folder).problems)

    def test_an_auto_map_that_is_none(self, folder):
        change_config(folder, auto_map=["modeling_spanbert.SpanBertModel"])
        assert any("`auto_map` of config.json must map" in problem for problem in verify(folder).problems)

    @pytest.mark.parametrize("name", ["modeling_spanbert.py", "more.py", "custom_generate/generate.py"])
    def test_code_that_is_not_as_installed_needs_trust(self, folder, name, capsys):
        """It is listed first, and nothing is run."""
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n# changed\n")
        assert cli.main(["verify", str(folder)]) == 2
        said = capsys.readouterr()
        remark = "differs from" if "spanbert" in name else "not in"
        assert f"{name}  ({remark} the installed package)" in said.out
        assert f"{name} ({remark} the installed package)" in said.err
        assert "--trust_remote_code" in said.err

    def test_weights_cut_short(self, folder):
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
        assert any("model.safetensors is damaged" in problem for problem in verify(folder).problems)

    def test_weights_that_are_not_finite(self, folder):
        tensors = load_file(folder / "model.safetensors")
        name = "bert.encoder.layer.1.output.dense.weight"
        tensors[name] = torch.full_like(tensors[name], float("nan"))
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        assert any(name in problem for problem in verify(folder).problems)

    def test_no_weights(self, folder):
        (folder / "model.safetensors").unlink()
        assert any("has no weights" in problem for problem in verify(folder).problems)

    def test_no_config(self, folder):
        (folder / "config.json").unlink()
        assert any("config.json" in problem for problem in verify(folder).problems)

    def test_code_that_is_no_python(self, folder):
        (folder / "modeling_spanbert.py").write_text("class SpanBertModel(:", encoding="utf-8")
        assert any("not valid Python" in problem for problem in verify(folder).problems)

    def test_hub_id_needs_trust(self, capsys):
        assert cli.main(["verify", "someone/tiny"]) == 2
        assert "--trust_remote_code" in capsys.readouterr().err

    @pytest.mark.parametrize("source", ["./nowhere", "/nowhere/at/all", "a/b/c"])
    def test_folder_that_does_not_exist(self, source, capsys):
        assert cli.main(["verify", source]) == 2
        assert "no such folder" in capsys.readouterr().err


def test_it_ends_in_time(good):
    found = verify(good, timeout=0.2)
    assert any("did not finish within 0.2 s" in problem for problem in found.problems)


TOKENIZER_CODE = """
from pathlib import Path

from transformers import PreTrainedTokenizer


class OwnTokenizer(PreTrainedTokenizer):
    vocab_files_names = {"vocab_file": "own.words"}

    def __init__(self, vocab_file, **options):
        self.words = Path(vocab_file).read_text(encoding="utf-8").split()
        super().__init__(unk_token="[UNK]", **options)

    @property
    def vocab_size(self):
        return len(self.words)

    def get_vocab(self):
        return {word: number for number, word in enumerate(self.words)}

    def _tokenize(self, text):
        return text.split()

    def _convert_token_to_id(self, token):
        return self.get_vocab().get(token, 0)

    def _convert_id_to_token(self, index):
        return self.words[index]

    def save_vocabulary(self, save_directory, filename_prefix=None):
        path = Path(save_directory) / "own.words"
        path.write_text(" ".join(self.words), encoding="utf-8")
        return (str(path),)
"""


def test_a_tokenizer_with_code_of_its_own_is_a_finding(tmp_path):
    """It runs where that was asked for; the installed package has no class to compare it with."""
    folder = write_bert(tmp_path / "bert")
    (folder / "own.words").write_text("[UNK] the light was seen", encoding="utf-8")
    (folder / "tokenization_own.py").write_text(TOKENIZER_CODE, encoding="utf-8")
    change_json(
        folder / "tokenizer_config.json",
        auto_map={"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]},
        tokenizer_class="OwnTokenizer",
    )
    problems = verify(folder, trust_remote_code=True).problems
    assert len(problems) == 1
    assert "AutoTokenizer: loads as OwnTokenizer, but not with the installed classes" in problems[0]


@pytest.mark.slow
def test_encoder_weights_that_are_missing_are_named(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["bert.encoder.layer.1.output.dense.weight"]
    del tensors["cls.predictions.bias"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    problems = verify(folder).problems
    assert any("encoder.layer.1.output.dense.weight" in problem for problem in problems)


@pytest.mark.slow
def test_a_part_of_a_head_is_named(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["cls.predictions.transform.dense.bias"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    problems = verify(folder).problems
    assert any("only a part of cls.predictions" in problem for problem in problems)


@pytest.mark.slow
def test_a_tokenizer_that_does_not_load_is_named(folder):
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert any("AutoTokenizer" in problem for problem in verify(folder).problems)


@pytest.mark.slow
def test_code_that_needs_the_package_is_found(folder):
    path = folder / "modeling_spanbert.py"
    code = path.read_text(encoding="utf-8")
    path.write_text(code.replace("import torch\n", "import hf_ptm_ext.version\nimport torch\n", 1), encoding="utf-8")
    problems = verify(folder, trust_remote_code=True).problems
    assert any("hf_ptm_ext" in problem for problem in problems)


@pytest.mark.slow
def test_a_checkpoint_of_transformers_own_needs_no_code(tmp_path):
    found = verify(write_bert(tmp_path / "bert"))
    assert found.ok, found.problems
    assert [result.class_name for result in found.results] == ["BertModel", "BertForMaskedLM"]


def test_an_upstream_encoder_decoder_is_loaded_as_its_user_loads_it(tmp_path):
    from transformers import BartConfig, BartForConditionalGeneration

    sizes = {f"{side}_{what}": number for side in ("encoder", "decoder") for what, number in SIDE.items()}
    BartForConditionalGeneration(BartConfig(vocab_size=60, d_model=32, **sizes)).save_pretrained(tmp_path / "bart")
    found = verify(tmp_path / "bart")
    assert found.ok, found.problems
    assert [result.auto_class for result in found.results] == ["AutoModel", "AutoModelForSeq2SeqLM"]


SECRETS = {
    "HF_TOKEN": "hf_secret_of_the_test_1",
    "HUGGING_FACE_HUB_TOKEN": "hf_secret_of_the_test_2",
    "WANDB_API_KEY": "secret_of_the_test_3",
    "AWS_SECRET_ACCESS_KEY": "secret_of_the_test_4",
    "AWS_PROFILE": "secret_of_the_test_5",
    "MY_DATABASE": "postgres://me:secret_of_the_test_6@host/db",
    "HF_ENDPOINT": "http://me:secret_of_the_test_7@127.0.0.1:1",
    "OMP_API_KEY": "secret_of_the_test_8",
    "TORCH_PASSWORD": "secret_of_the_test_9",
    "PYTHON_PROXY": "https://me:secret_of_the_test_10@host",
    "SOMETHING": "secret_of_the_test_11",
}


def test_trusted_code_sees_no_secret_of_the_environment(folder, tmp_path, monkeypatch):
    """Neither as a variable nor as a token file that a variable or the home directory leads to."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    home = tmp_path / "home" / ".cache" / "huggingface"
    home.mkdir(parents=True)
    for name in ("token", "stored_tokens"):
        (home / name).write_text("hf_secret_of_the_test_12", encoding="utf-8")
    (tmp_path / "home" / ".netrc").write_text("machine host login me password secret_of_the_test_13", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setenv("HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    seen = tmp_path / "seen.json"
    with open(folder / "modeling_spanbert.py", "a", encoding="utf-8") as file:
        file.write(
            "\n\nimport json, os, pathlib, huggingface_hub\n"
            "names = [*map(os.environ.get, ['HF_HOME', 'HF_TOKEN_PATH']), '~', '~/.cache/huggingface']\n"
            "places = [pathlib.Path(name).expanduser() for name in names if name]\n"
            "files = [path for place in places for path in [place, *place.glob('*')] if path.is_file()]\n"
            "found = [dict(os.environ), huggingface_hub.get_token(), [path.read_text() for path in files]]\n"
            f"pathlib.Path({str(seen)!r}).write_text(json.dumps(found))\n"
        )
    assert verify(folder, trust_remote_code=True).ok
    text = seen.read_text(encoding="utf-8")
    assert "secret_of_the_test" not in text
    environment, token, _ = json.loads(text)
    assert token is None
    assert environment["OMP_NUM_THREADS"] == "1"
