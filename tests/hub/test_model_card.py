"""Model cards: what they say, and what the offline check finds."""

import json
import re

import pytest
from huggingface_hub import ModelCard

from hf_ptm_ext.hub.model_card import (
    card_problems,
    check_card_fields,
    hub_id_of,
    validate_model_card,
    write_model_card,
)

ARGUMENTS = {
    "family": "spanbert",
    "metrics": {"eval_mlm_accuracy": 0.312345, "eval_sbo_loss": 4.2},
    "baselines": {"mlm_accuracy": 0.05, "unigram cross entropy": 5.1},
    "training": {"learning_rate": 1e-4, "steps": 300, "corpus": "/home/someone/corpus.txt"},
    "data": {"name": "a small text", "license": "cc0-1.0", "tokens": 1234},
    "language": "en",
    "license": "apache-2.0",
}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "tiny-spanbert"
    folder.mkdir()
    for name in ("modeling_spanbert.py", "configuration_spanbert.py"):
        (folder / name).touch()
    return folder


def written(folder, **changes):
    return write_model_card(folder, **{**ARGUMENTS, **changes}).read_text(encoding="utf-8")


def test_front_matter_is_whole_and_readable_by_the_hubs_client(folder):
    written(folder)
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "transformers"
    assert card.data.pipeline_tag == "fill-mask"
    assert card.data.language == ["en"]
    assert {"custom_code", "spanbert"} <= set(card.data.tags)
    assert {result.metric_type: result.metric_value for result in card.data.eval_results} == {
        "mlm_accuracy": 0.312345,
        "sbo_loss": 4.2,
    }


def test_results_stand_beside_their_baselines(folder):
    text = written(folder, initial_metrics={"eval_mlm_accuracy": 0.01})
    assert "| metric | before training | value | baseline |" in text
    assert "| mlm_accuracy | 0.01 | 0.3123 | 0.05 |" in text
    assert "| unigram cross entropy |  |  | 5.1 |" in text


def test_both_ways_of_loading_and_the_code_files_are_there(folder):
    text = written(folder, repo_id="someone/tiny", revision="0123abc")
    assert 'AutoModelForMaskedLM.from_pretrained("someone/tiny", revision="0123abc", trust_remote_code=True)' in text
    assert "pip install hf-ptm-ext" in text
    assert "- `configuration_spanbert.py`\n- `modeling_spanbert.py`\n" in text


def test_no_folder_of_the_machine_is_told(folder):
    text = written(folder, base_model=str(folder))
    assert "/home/someone" not in text
    assert "| corpus | corpus.txt |" in text
    assert str(folder.parent) not in text
    assert "base_model" not in text


def test_base_model_and_dataset_of_the_hub_are_linked(folder):
    written(folder, base_model="SpanBERT/spanbert-base-cased", data={**ARGUMENTS["data"], "hub_id": "wikitext"})
    data = ModelCard.load(folder / "README.md").data
    assert data.base_model == "SpanBERT/spanbert-base-cased"
    assert data.datasets == ["wikitext"]


def test_a_figure_only_if_it_is_there(folder):
    assert "loss.png" not in written(folder, figure="loss.png")
    (folder / "loss.png").touch()
    assert "(loss.png)" in written(folder, figure="loss.png")


def test_markdown_has_room_around_headings_and_tables(folder):
    text = written(folder)
    assert not re.search(r"[^\n]\n## ", text)
    assert "\n\n\n" not in text
    assert "|\n\n|" not in text.replace("| option |", "")


def test_without_results_training_or_code(tmp_path):
    text = write_model_card(tmp_path, **{**ARGUMENTS, "metrics": {}, "baselines": {}, "training": {}}).read_text(
        encoding="utf-8"
    )
    assert "No evaluation was run." in text
    assert "trust_remote_code" not in text.split("Predict a masked span")[0]
    validate_model_card(tmp_path)


def test_unilm_says_how_to_generate(folder):
    text = written(folder, family="unilm", pipeline_tag="text-generation", repo_id="someone/tiny", revision="0123abc")
    assert 'AutoModelForSeq2SeqLM.from_pretrained("someone/tiny", revision="0123abc", trust_remote_code=True)' in text
    assert "model.generate(**source, max_new_tokens=32, search_beam_size=5)" in text
    assert "dong2019unilm" in text
    card = ModelCard.load(folder / "README.md")
    assert card.data.pipeline_tag == "text-generation"
    assert "unilm" in card.data.tags
    validate_model_card(folder)


@pytest.mark.parametrize(
    ("config", "auto_class"),
    [
        ({"auto_map": {"AutoModelForCausalLM": "modeling.Model"}}, "AutoModelForCausalLM"),
        ({"is_encoder_decoder": True}, "AutoModelForSeq2SeqLM"),
    ],
)
def test_what_writes_text_is_loaded_by_the_class_that_it_has(folder, config, auto_class):
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    text = written(folder, family="awd_lstm", pipeline_tag="text-generation")
    assert f"model = {auto_class}.from_pretrained(" in text


def test_family_without_a_template_gets_the_general_one(folder):
    assert "A `bert` encoder" in written(folder, family="bert")


def test_several_languages_and_a_licence_of_ones_own(folder):
    written(folder, language=["en", "zh"], license="other", license_name="mine", license_link="LICENSE")
    assert ModelCard.load(folder / "README.md").data.language == ["en", "zh"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"license": "apache"}, "`license`"),
        ({"license": "other"}, "`license_name`"),
        ({"language": "english"}, "`language`"),
        ({"pipeline_tag": "mlm"}, "`pipeline_tag`"),
        ({"data": {"name": "a text"}}, "it lacks license"),
    ],
)
def test_what_the_hub_would_refuse_is_not_written(folder, change, message):
    with pytest.raises(ValueError, match=message):
        written(folder, **change)
    assert not (folder / "README.md").exists()


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="`folder`"):
        written(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("license: apache-2.0", "license: [", "YAML at the top is invalid, line"),
        ("- en", "- no", "`language`"),
        ("library_name: transformers", "library_name: keras", "`library_name`"),
        ("value: 4.2", "value: .nan", "finite"),
        ("value: 4.2", "value: high", "number"),
        ("name: a small text", "title: a small text", "`dataset.name`"),
        ("- name: tiny-spanbert\n", "- title: tiny-spanbert\n", "`model-index` must give `name`"),
        (' revision="COMMIT",', "", "pin `revision`"),
        ("# tiny-spanbert", "tiny-spanbert", "heading"),
        ("## Limitations", "## Limitations\n\n[More information needed]", "not filled in"),
    ],
)
def test_the_check_names_what_is_wrong(folder, old, new, message):
    text = written(folder)
    assert old in text
    (folder / "README.md").write_text(
        text.replace(old, new) if old != "## Limitations" else text.replace(old, new, 1), encoding="utf-8"
    )
    with pytest.raises(ValueError, match=message):
        validate_model_card(folder)


def test_no_front_matter():
    assert card_problems("# A model") == ["The card must begin with YAML between two lines `---`."]


def test_no_card(tmp_path):
    with pytest.raises(FileNotFoundError, match="no card"):
        validate_model_card(tmp_path)


class TestFieldsBeforeThereIsACard:
    @pytest.mark.parametrize(
        ("arguments", "options"),
        [
            (("en", "apache-2.0"), {}),
            ((["en", "zh"], "mit"), {"pipeline_tag": "feature-extraction"}),
            (("zh", "other"), {"license_name": "mine"}),
        ],
    )
    def test_good_ones_pass(self, arguments, options):
        check_card_fields(*arguments, **options)

    @pytest.mark.parametrize(
        ("arguments", "options", "message"),
        [
            (("english", "mit"), {}, "`language` must be ISO 639 codes .* got 'english'"),
            ((["en", None], "mit"), {}, "`language` .* got None"),
            (([], "mit"), {}, "`language` .* got none"),
            (("en", "apache-2"), {}, r"`license` must be .* got 'apache-2'\. Did you mean 'apache-2\.0'"),
            (("en", ["mit"]), {}, r"`license` .* got \['mit'\]"),
            (("en", "other"), {}, "`license_name` must be given"),
            (
                ("en", "mit"),
                {"pipeline_tag": "fill_mask"},
                "got 'fill_mask'. Did you mean 'fill-mask'",
            ),
            (("english", "apache"), {}, "`license`.*`language`"),
        ],
    )
    def test_wrong_ones_name_the_field_its_value_and_what_is_allowed(self, arguments, options, message):
        with pytest.raises(ValueError, match=message):
            check_card_fields(*arguments, **options)


# ---- what readers try and where they read on ----


@pytest.mark.parametrize(
    ("options", "widget"),
    [
        ({"pipeline_tag": "text-classification"}, [{"text": "The light was seen from the shore."}]),
        ({"pipeline_tag": "fill-mask"}, [{"text": "The light was seen from the <mask>."}]),
        ({"pipeline_tag": "fill-mask", "language": "zh"}, [{"text": "人们在岸<mask>看见了灯光。"}]),
        ({"pipeline_tag": "text-classification", "language": "eo"}, None),
        ({"pipeline_tag": "text-classification", "widget": [{"text": "mine"}]}, [{"text": "mine"}]),
        ({"pipeline_tag": "feature-extraction"}, None),
    ],
)
def test_widgets_have_examples_in_the_models_language(folder, options, widget):
    (folder / "tokenizer_config.json").write_text('{"mask_token": "<mask>"}', encoding="utf-8")
    written(folder, **options)
    assert ModelCard.load(folder / "README.md").data.to_dict().get("widget") == widget


def test_the_base_model_of_a_folder_is_what_it_came_from(folder, tmp_path):
    assert hub_id_of("google-bert/bert-base-uncased") == "google-bert/bert-base-uncased"
    cached = tmp_path / "models--google-bert--bert-base-uncased" / "snapshots" / "abc"
    cached.mkdir(parents=True)
    assert hub_id_of(str(cached)) == "google-bert/bert-base-uncased"
    assert hub_id_of(str(folder)) is None
    written(folder, base_model="someone/base")
    assert hub_id_of(str(folder)) == "someone/base"
    further = tmp_path / "further"
    further.mkdir()
    written(further, base_model=str(folder))
    assert ModelCard.load(further / "README.md").data.base_model == "someone/base"
