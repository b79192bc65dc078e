"""What counts as a secret, and what does not."""

import pytest

from hf_ptm_ext.redaction import is_secret_name, known_secrets, redacted


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("http://me:PASSWORD@host:80/a?b=c", "http://***@host:80/a?b=c"),
        ("https://hf_abc@host/x and http://a:b@c", "https://***@host/x and http://***@c"),
        ("http://me:p@ss@host/x", "http://***@host/x"),
        ("https://host/x?token=abc&page=2", "https://host/x?token=***&page=2"),
        ("Bearer hf_" + "a" * 34, "Bearer ***"),
        ("write to me@example.org, see https://host/a", "write to me@example.org, see https://host/a"),
        ("hf_ptm_ext.trainers", "hf_ptm_ext.trainers"),
        ("[MASK] ##token", "[MASK] ##token"),
    ],
)
def test_texts(text, clean):
    assert redacted(text) == clean


def test_values_keep_their_form(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_environment")
    value = {
        "hub_token": "x",
        "stages": [{"api_key": "y", "model": "http://a:b@c"}, ("hf_of_the_environment", 1.5, None)],
        "mask_token": "[MASK]",
        "token": "walks",
    }
    assert redacted(value, ["swordfish"]) == {
        "hub_token": "***",
        "stages": [{"api_key": "***", "model": "http://***@c"}, ("***", 1.5, None)],
        "mask_token": "[MASK]",
        "token": "walks",
    }
    assert redacted({"hub_token": None, "seed": 1}) == {"hub_token": None, "seed": 1}


def test_secrets_of_the_environment(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "0123456789")
    monkeypatch.setenv("SHORT_PASSWORD", "abc")
    monkeypatch.setenv("PARTITION_KEY", "default")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    found = known_secrets(["hf_mine", None, ""])
    assert {"0123456789", "hf_mine"} <= set(found)
    assert not {"abc", "default", "false", "", None} & set(found)


@pytest.mark.parametrize("name", ["hub_token", "push_to_hub_token", "HF_TOKEN", "wandb_api_key", "db_password"])
def test_names_of_secrets(name):
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["mask_token", "cls_token", "token", "num_tokens", "token_type_ids", "key", "keys"])
def test_names_that_only_look_like_it(name):
    assert not is_secret_name(name)
