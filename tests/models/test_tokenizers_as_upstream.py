"""Our tokenizers and the processor do what upstream's own callers ask of any."""

import inspect
import itertools

import pytest
from transformers import BertTokenizer
from transformers.processing_utils import TextKwargs

from hf_ptm_ext import EntityVocabulary, ErnieThuProcessor
from hf_ptm_ext.models.tokenization_kbert import KBertTokenizer, KnowledgeGraph
from hf_ptm_ext.models.tokenization_zen import ZenTokenizer

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] user assistant : new york times are in a paper city # $ 。"
PIECES = WORDS.split()
VOCABULARY = {piece: number for number, piece in enumerate(PIECES)}
CHAT = [{"role": "user", "content": "new york"}, {"role": "assistant", "content": "a city"}]
TEMPLATE = "{% for m in messages %}{{ m['role'] + ' : ' + m['content'] + ' [SEP] ' }}{% endfor %}"


def kbert():
    return KBertTokenizer(VOCABULARY, kg=KnowledgeGraph([("york", "is", "city")]), model_max_length=32)


def zen():
    return ZenTokenizer(VOCABULARY, ngrams=["new york", "york times"], model_max_length=32)


def ernie_thu():
    vocabulary = EntityVocabulary.from_ids(["Q60"])
    return ErnieThuProcessor(BertTokenizer(VOCABULARY, model_max_length=32), vocabulary, linker=link)


def link(texts):
    return [[(0, 8, "Q60")] if text.startswith("new york") else [] for text in texts]


@pytest.mark.parametrize("make", [kbert, zen])
def test_a_chat_becomes_tokens_with_the_tokenizers_own_columns(make):
    tokenizer = make()
    tokenizer.chat_template = TEMPLATE
    text = "user : new york [SEP] assistant : a city [SEP] "
    found = tokenizer.apply_chat_template(CHAT, return_dict=True)
    assert dict(found) == dict(tokenizer(text, add_special_tokens=False))
    batch = tokenizer.apply_chat_template([CHAT, CHAT[:1]], return_dict=True, padding=True, return_tensors="pt")
    assert all(values.shape[0] == 2 for values in batch.values())


def test_a_marked_chat_has_ngrams_and_is_refused_with_knowledge():
    tokenizer = zen()
    tokenizer.chat_template = TEMPLATE
    found = tokenizer.apply_chat_template(CHAT, return_dict=True, sanitize_control_tokens=True)
    assert (found["ngram_ids"], found["ngram_positions"]) == ([1], [2])
    tokenizer = kbert()
    tokenizer.chat_template = TEMPLATE
    with pytest.raises(ValueError, match="`sanitize_control_tokens` must be False"):
        tokenizer.apply_chat_template(CHAT, sanitize_control_tokens=True)


def test_keywords_of_upstreams_callers_pass_and_others_are_refused():
    tokenizer = kbert()
    plain = dict(tokenizer("new york"))
    read = {*inspect.signature(tokenizer.__call__).parameters, *inspect.signature(BertTokenizer.__call__).parameters}
    for name in {*TextKwargs.__annotations__, "src_lang", "max_target_length"} - read:
        assert dict(tokenizer("new york", **{name: None})) == plain, name
    with pytest.raises(TypeError, match="`max_entites` is no argument"):
        tokenizer("new york", max_entites=3)


@pytest.mark.parametrize("make", [kbert, zen, ernie_thu])
@pytest.mark.parametrize("text", ["new york times", "paper", ""])
def test_one_text_is_padded_as_a_list_of_one(make, text):
    encode = make()
    paddings = [False, True, "max_length"]
    for padding, multiple, side, kind in itertools.product(paddings, [None, 8], ["left", "right"], [None, "pt"]):
        if kind and not padding:
            continue
        options = {"padding": padding, "max_length": 16, "truncation": True, "padding_side": side}
        options |= {"pad_to_multiple_of": multiple if padding else None, "return_tensors": kind}
        one, several = encode(text, **options), encode([text], **options)
        assert set(one) == set(several)
        for name in one:
            expected = several[name].tolist() if kind else several[name][0]
            assert (one[name].tolist() if kind else one[name]) == expected, (name, options)
        if kind is None:
            padded = encode.pad(dict(encode(text)), **({"padding": padding, "max_length": 16} if padding else {}))
            rows = encode.pad([dict(encode(text))], **({"padding": padding, "max_length": 16} if padding else {}))
            assert {name: [values] for name, values in padded.items()} == dict(rows)


def test_ngrams_of_one_text_have_a_column_of_padding_where_padding_was_asked_for():
    tokenizer = zen()
    assert tokenizer("paper")["ngram_ids"] == []
    assert tokenizer("paper", padding=True)["ngram_ids"] == [0]
    assert tokenizer("new york times", padding=True, pad_to_multiple_of=8)["ngram_ids"] == [1, 2, 0, 0, 0, 0, 0, 0]


def test_a_tokenizer_trained_anew_keeps_its_graph_or_lexicon():
    corpus = [["new york times are in a paper", "a paper city"]]
    tokenizer = kbert()
    trained = tokenizer.train_new_from_iterator(corpus, 100)
    assert trained.kg.sha256 == tokenizer.kg.sha256
    assert 1 in trained("york")["branch_id"]
    trained = zen().train_new_from_iterator(corpus, 100)
    assert trained.lexicon == zen().lexicon
    assert trained("new york")["ngram_ids"] == [1]


def test_the_processor_is_called_by_upstreams_conventions(tmp_path):
    processor = ernie_thu()
    by_name = processor(text="new york", text_pair="paper", entities=[(0, 8, "Q60")], entities_pair=[], min_score=0.1)
    assert dict(processor("new york", "paper", [(0, 8, "Q60")], [], min_score=0.1)) == dict(by_name)
    nested = processor("new york", text_kwargs={"padding": "max_length", "max_length": 8, "return_tensors": "pt"})
    assert nested["entity_ids"].tolist() == [[0, 1, 0, 0, 0, 0, 0, 0]]
    with pytest.raises(TypeError, match="`entities` must be given once"):
        processor("new york", None, [], entities=[])
    arguments = inspect.signature(ErnieThuProcessor.__call__).parameters.values()
    explicit = [one for one in arguments if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)][1:]
    assert all(one.default is None for one in explicit)
    assert not [one.name for one in explicit if hasattr(processor, one.name) or one.name in TextKwargs.__annotations__]


def test_what_a_checkpoint_adds_is_no_part_of_a_loaded_processor(tmp_path):
    processor = ErnieThuProcessor(BertTokenizer(VOCABULARY), EntityVocabulary.from_ids(["Q60"]))
    processor.save_pretrained(tmp_path)
    assert '"auto_map"' in (tmp_path / "processor_config.json").read_text(encoding="utf-8")
    loaded = ErnieThuProcessor.from_pretrained(tmp_path)
    assert "auto_map" not in loaded.to_dict()
    assert loaded.to_dict() == processor.to_dict()
