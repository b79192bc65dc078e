"""TinyBERT's augmentation: candidates are the model's and the vectors', draws have the paper's probabilities."""

import random

import pytest
import torch
from datasets import Dataset

from hf_ptm_ext.data.augmentation import (
    TASK_VARIANTS,
    MaskedWordProposer,
    TinyBertAugmentation,
    WordVectors,
    augment,
    is_replaceable,
    join_words,
)
from tests.data.augmentation.models import CHARACTERS, WORDS, byte_level, masked_lm, wordpiece

TEXTS = ["The film was good .", "a long story , a short plot", "Unlikely films", "love", "the", ""]
VECTORS = WordVectors(["unlikely", "probable", "certain", "films"], [[1, 0], [1, 0.2], [1, 0.4], [0, 1]])


def augmentation(**options):
    tokenizer = options.pop("tokenizer", None) or wordpiece()
    return TinyBertAugmentation(masked_lm("bert", tokenizer), tokenizer, options.pop("vectors", VECTORS), **options)


def test_candidates_are_the_model_s_predictions_beside_the_whole_text():
    """One forward pass a word, as the reference: [CLS] text with the mask [SEP] text [SEP], segments 0 and 1."""
    tokenizer = wordpiece()
    model = masked_lm("bert", tokenizer)
    made = TinyBertAugmentation(model, tokenizer, VECTORS).candidates_of(TEXTS)
    assert made[0][0] == ["the", "film", "was", "good", "."]
    seen = 0
    for words, candidates in made:
        pieces = [tokenizer.tokenize(word) for word in words]
        flat = [piece for word in pieces for piece in word]
        for place, found in candidates.items():
            if len(pieces[place]) > 1:
                continue
            position = 1 + sum(len(word) for word in pieces[:place])
            first = ["[CLS]", *flat, "[SEP]"]
            first[position] = "[MASK]"
            ids = tokenizer.convert_tokens_to_ids([*first, *flat, "[SEP]"])
            segments = [0] * len(first) + [1] * (len(flat) + 1)
            with torch.no_grad():
                logits = model(torch.tensor([ids]), token_type_ids=torch.tensor([segments])).logits
            best = tokenizer.convert_ids_to_tokens(logits[0, position].argsort(descending=True)[:15].tolist())
            assert found == [token for token in best if not token.startswith("##") and token[0] != "["]
            seen += 1
    assert seen == 7  # film, good; long, story, short, plot; love
    assert made[2][1] == {0: ["probable", "certain", "films"], 1: ["certain", "probable", "unlikely"]}


def test_words_of_several_pieces_take_neighbours_or_stay():
    _, candidates = augmentation(candidates=2).candidates_of(["unlikely films unlikeness"])[0]
    assert candidates == {0: ["probable", "certain"], 1: ["certain", "probable"], 2: ["unlikeness"]}, (
        "no vector: itself"
    )
    without = augmentation(vectors=None).candidates_of(["unlikely films"])[0]
    assert without[1] == {0: ["unlikely"], 1: ["films"]}


def test_title_case_of_rare_words_is_kept_where_the_model_has_capitals():
    vectors = WordVectors(["unlikely", "probable", "certain", "Films"], [[1, 0], [1, 0.2], [1, 0.4], [0, 1]])
    made = augmentation(tokenizer=wordpiece(lowercase=False), vectors=vectors)
    words, candidates = made.candidates_of(["Films are"])[0]
    assert words == ["Films", "are"]
    assert set(candidates[0]) == {"Unlikely", "Probable", "Certain"}
    lower = augmentation(tokenizer=wordpiece(lowercase=False))
    assert lower.candidates_of(["Films"])[0][1] == {0: ["Films"]}, "no vector for it is written"


@pytest.mark.parametrize("model_type", ["bert", "electra", "distilbert", "spanbert", "roberta"])
def test_batches_and_heads_of_any_model_propose_what_single_passes_do(model_type):
    tokenizer = byte_level() if model_type == "roberta" else wordpiece()
    model = masked_lm(model_type, tokenizer)
    texts = [["film", "was", "good"], ["love"], ["a", "long", "story", "of", "love"], ["bad", "play"]]
    wanted = [list(range(len(words))) for words in texts]
    together = MaskedWordProposer(model, tokenizer)(list(zip(texts, wanted, strict=True)))
    one_by_one = MaskedWordProposer(model, tokenizer, tokens_per_batch=1)
    singly = [one_by_one([(words, [n])])[0][n] for words, ns in zip(texts, wanted, strict=True) for n in ns]
    assert [each for found in together for each in found.values()] == singly
    assert all(words and set(words) <= set(WORDS) | {".", ",", "un", "Film", *CHARACTERS} for words in singly)
    full = model(**tokenizer(" ".join(texts[0]), " ".join(texts[0]), return_tensors="pt")).logits
    assert full.dim() == 3, "the model is as it was"
    assert full.shape[1] > 1


def test_pieces_that_continue_a_word_are_no_candidates():
    for tokenizer, model_type in ((wordpiece(), "bert"), (byte_level(), "roberta")):
        proposer = MaskedWordProposer(masked_lm(model_type, tokenizer), tokenizer, number=1000)
        found = proposer([(["film", "good"], [0])])[0][0]
        assert set(WORDS) <= set(found)
        assert not {"like", "ly", "##like", "likely", "[MASK]", "<mask>"} & set(found)


def test_each_word_is_replaced_with_the_paper_s_probability():
    made = augmentation(variants=1)
    made.candidates_of = lambda texts: [(["w", "x", "y", "z"], {0: ["A", "B"], 2: ["C"], 3: ["z"]})]
    changed = [0, 0]
    trials = 4000
    for number in range(trials):
        variants = made(["W X"], [random.Random(number)])[0]
        words = variants[-1].split() if len(variants) > 1 else ["w", "x", "y", "z"]
        assert words[1] == "x"
        changed[0] += words[0] in "AB"
        changed[1] += words[2] == "C"
    for count in changed:
        assert abs(count / trials - 0.4) < 4 * (0.24 / trials) ** 0.5


def script_port(made, text, generator):
    """data_augmentation.py's `augment` on its own candidates."""
    words, candidates = made.candidates_of([text])[0]
    sentences = [text]
    for _ in range(made.variants):
        new = list(words)
        for place, found in candidates.items():
            word = generator.choice(found)
            if generator.random() < 0.4:
                new[place] = word
        if join_words(new) not in sentences:
            sentences.append(join_words(new))
    return sentences


def test_variants_are_the_script_s_draw_for_draw():
    made = augmentation()
    for number, text in enumerate([*TEXTS[:4], "The film, unlikely."]):
        assert made([text], [random.Random(number)])[0] == script_port(made, text, random.Random(number))


@pytest.mark.parametrize(
    ("word", "replaced"),
    [("what", True), ("Who", True), ("when", True), ("why", True), ("not", False), ("Won", False), ("re", False),
     ("caf\u00e9", False), ("\u0141\u00f3d\u017a", False), ("Paris", True), ("x2", False)],
)  # fmt: skip
def test_words_that_are_never_replaced_are_the_script_s(word, replaced):
    assert is_replaceable(word) == replaced


def test_the_text_comes_first_and_no_variant_twice():
    for text, variants in zip(TEXTS, augmentation()(TEXTS, [random.Random(n) for n in range(6)]), strict=True):
        assert variants[0] == text
        assert len(set(variants)) == len(variants) <= 21
    assert len(augmentation()([TEXTS[1]], [random.Random(0)])[0]) > 10


def test_the_second_text_of_a_pair_is_changed_beside_the_last_variant_of_the_first():
    made = augmentation(variants=4)
    row = ("a good film", "a bad story")
    (rows,) = made.rows([row], [random.Random(3)])
    generator = random.Random(3)
    first = made([row[0]], [generator])[0]
    second = made([row[1]], [generator])[0]
    assert rows == [(text, row[1]) for text in first] + [(first[-1], text) for text in second]
    assert rows[0] == row


def test_a_text_longer_than_the_model_is_augmented_as_far_as_it_is_read():
    text = " ".join(["film"] * 100)
    words, candidates = augmentation(vectors=None).candidates_of([text])[0]
    assert len(words) == len(candidates) == 100
    assert candidates[62] != ["film"]
    assert candidates[63] == ["film"], "behind the model's 64 positions"


def test_chinese_is_filled_character_by_character_and_written_without_spaces():
    text = "电影很好看，喜欢！"
    variants = augmentation(vectors=None)([text], [random.Random(0)])[0]
    assert variants[0] == text
    assert len(variants) > 5
    assert all("，" in each and each.endswith("！") for each in variants)
    assert any(" " not in each for each in variants[1:])


def test_chinese_words_of_a_segmenter_take_neighbours():
    vectors = WordVectors(["电影", "影片", "喜欢"], [[1, 0], [1, 0.1], [0, 1]])
    made = augmentation(vectors=vectors, segmenter=lambda text: ["喜欢", "电影"], candidates=1)
    assert made.candidates_of(["喜欢电影"])[0] == (["喜欢", "电影"], {0: ["影片"], 1: ["影片"]})


def table():
    return Dataset.from_dict({"text": TEXTS[:5], "label": [1, 0, 1, 0, 1]})


def test_a_data_set_grows_in_memory_and_as_a_stream_alike():
    made = augmentation(variants="cola")
    assert made.variants == TASK_VARIANTS["cola"] == 30
    rows = table()
    more = augment(rows, made, "text", seed=5, batch_size=2)
    assert more.features == rows.features
    assert more.column_names == rows.column_names
    assert len(more) > 3 * len(rows)
    stream = augment(rows.to_iterable_dataset(), made, "text", seed=5, batch_size=3)
    assert list(stream) == list(more), "whatever the batch size"
    assert list(stream) == list(more), "and again"
    assert more["text"] != augment(rows, made, "text", seed=6)["text"]
    again = augment(rows, augmentation(variants="cola"), "text", seed=5)
    assert list(again) == list(more)
    assert again._fingerprint == more._fingerprint
    labels = {}
    for text, label in zip(rows["text"], rows["label"], strict=True):
        labels[text] = label
    at = [n for n, text in enumerate(more["text"]) if text in labels]
    for begin, end in zip(at, [*at[1:], len(more)], strict=True):
        assert set(more["label"][begin:end]) == {labels[more["text"][begin]]}


def test_what_cannot_be_augmented_is_refused():
    made = augmentation()
    with pytest.raises(ValueError, match="must be columns of the data set"):
        augment(table(), made, ["text", "other"])
    with pytest.raises(ValueError, match="sample_id"):
        augment(table().add_column("sample_id", list(range(5))), made, "text")
    with pytest.raises(ValueError, match="must hold text"):
        augment(table(), made, "label")
    with pytest.raises(ValueError, match="`variants` must be a number or one of cola"):
        augmentation(variants="imdb")
    with pytest.raises(ValueError, match="`variants` must be at least 1"):
        augmentation(variants=0)
    with pytest.raises(ValueError, match="`replace_probability`"):
        augmentation(replace_probability=1.4)
    tokenizer = wordpiece()
    model = masked_lm("bert", tokenizer)
    tokenizer.mask_token = None
    with pytest.raises(ValueError, match="no mask token"):
        TinyBertAugmentation(model, tokenizer)
