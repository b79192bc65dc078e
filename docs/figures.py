"""Figures of the documentation, drawn from what the package itself computes: one function a figure, named as its file.

`python docs/figures.py FOLDER` writes them all as SVG; the site's build calls `draw_all`.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIGURES: dict[str, Callable[[Any], None]] = {}
SIZES: dict[str, tuple[float, float]] = {}


def figure(width: float, height: float) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a function that draws on a matplotlib figure of this size in inches."""

    def register(draw: Callable[[Any], None]) -> Callable[[Any], None]:
        FIGURES[draw.__name__], SIZES[draw.__name__] = draw, (width, height)
        return draw

    return register


def grid(axes: Any, values: Any, rows: Any, columns: Any, title: str = "") -> None:
    """Draw a matrix of who sees whom, queries as rows."""
    axes.imshow(values, cmap="Blues", vmin=0, vmax=1.4)
    axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
    axes.set_yticks(range(len(rows)), rows, fontsize=7)
    axes.set_title(title, fontsize=9)
    axes.tick_params(length=0)


BLUE, ORANGE, GREY, GREEN = "#a9c7ea", "#f6c28b", "#e4e4e4", "#b5dcae"


def boxes(axes: Any, tokens: Any, y: float, colours: Any = GREY, x: Any = None, label: str = "") -> None:
    """Draw a row of tokens, one unit wide each, with the row's name on the left."""
    places = range(len(tokens)) if x is None else x
    every = [colours] * len(tokens) if isinstance(colours, str) else colours
    for place, token, colour in zip(places, tokens, every, strict=True):
        if token is None:
            continue
        axes.add_patch(rectangle((place - 0.46, y - 0.3), 0.92, 0.6, facecolor=colour, edgecolor="#777777"))
        axes.text(place, y, token, ha="center", va="center", fontsize=min(7, 4 + 20 / max(len(token), 1)))
    axes.text(-0.7, y, label, ha="right", va="center", fontsize=8)


def rectangle(*args: Any, **kwargs: Any) -> Any:
    """A rectangle of matplotlib's, with a thin line."""
    from matplotlib.patches import Rectangle

    return Rectangle(*args, linewidth=0.6, **kwargs)


def arrow(axes: Any, start: Any, end: Any, colour: str = "#555555", bend: float = 0.0) -> None:
    """Draw an arrow."""
    style = {"arrowstyle": "->", "color": colour, "lw": 0.8, "connectionstyle": f"arc3,rad={bend}"}
    axes.annotate("", xy=end, xytext=start, arrowprops=style)


def blank(axes: Any, x: tuple[float, float], y: tuple[float, float]) -> None:
    """An empty canvas with these limits."""
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    axes.axis("off")


def word_tokenizer(text: str, *more: str) -> Any:
    """A BERT tokenizer whose pieces are the words of a text."""
    from transformers import BertTokenizer

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys([*text.split(), *more])]
    return BertTokenizer(vocab={word: number for number, word in enumerate(words)})


@figure(10, 2.8)
def unilm_modes(canvas: Any) -> None:
    """UniLM's four attention modes over one pair of texts."""
    import torch

    from hf_ptm_ext import unilm_attention_mask

    tokens = ["[CLS]", "s1", "s2", "s3", "[SEP]", "t1", "t2", "[SEP]"]
    modes = ["bidirectional", "left-to-right", "right-to-left", "seq2seq"]
    for axes, (mode, name) in zip(canvas.subplots(1, 4), enumerate(modes), strict=True):
        mask = unilm_attention_mask(torch.tensor([mode]), torch.tensor([len(tokens)]), torch.tensor([5]))
        grid(axes, mask[0, 0].float(), tokens, tokens, name)


LIGHTHOUSE = "the old keeper of the lighthouse saw no ship in the harbour that night"


@figure(10, 2.4)
def spanbert_spans(canvas: Any) -> None:
    """A masked span and the two boundary tokens from which each of its tokens is predicted."""
    from hf_ptm_ext import DataCollatorForSpanMasking

    tokenizer = word_tokenizer(LIGHTHOUSE)
    collator = DataCollatorForSpanMasking(tokenizer, 0.25, mask_replace_prob=1.0, random_replace_prob=0.0, seed=6)
    row = tokenizer(LIGHTHOUSE)["input_ids"]
    batch = collator([row])
    masked = (batch["labels"][0] != -100).tolist()
    axes = canvas.subplots()
    blank(axes, (-3.2, len(row) - 0.4), (-1.9, 1.7))
    boxes(axes, tokenizer.convert_ids_to_tokens(row), 1.2, label="text")
    shown = tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())
    boundaries = {place for pair in batch["span_boundaries"][0].tolist() for place in pair if place}
    colours = [BLUE if masked[n] else ORANGE if n in boundaries else GREY for n in range(len(row))]
    boxes(axes, shown, 0.2, colours, label="input, mlm: at each [MASK]")
    for (left, right), targets in zip(batch["span_boundaries"][0].tolist(), batch["span_labels"][0], strict=True):
        for step, target in enumerate(tokenizer.convert_ids_to_tokens(targets[targets != -100].tolist())):
            place = left + 1 + step
            boxes(axes, [target], -1.3, GREEN, [place])
            for boundary in (left, right):
                arrow(axes, (boundary, -0.12), (place, -0.98))
    axes.text(-0.7, -1.3, "sbo: from both boundaries\nand the place in the span", ha="right", va="center", fontsize=8)


@figure(10, 5.4)
def masking_objectives(canvas: Any) -> None:
    """What the collators of four objectives do to one sentence, as `hf-ptm-ext show masking` draws it."""
    from hf_ptm_ext.cli.show_masking import draw_on, draws_of

    draws = []
    for name, seed in (("mlm", 1), ("span", 3), ("permutation", 1), ("text_infilling", 1)):
        (draw,) = draws_of(f"{LIGHTHOUSE}.", name, seed=seed)[1]
        for line in draw.lines:
            line.name = f"{name}: {line.name}"
        draws.append(draw)
    draw_on(canvas, draws)


@figure(10, 3.0)
def mass_fragment(canvas: Any) -> None:
    """What MASS' encoder and decoder read, each token at its place in the text."""
    from hf_ptm_ext import DataCollatorForMassPreTraining
    from hf_ptm_ext.collators import MASS_VARIANTS

    tokenizer = word_tokenizer(LIGHTHOUSE)
    always = {"mask_replace_prob": 1.0, "random_replace_prob": 0.0}
    collator = DataCollatorForMassPreTraining(tokenizer, **{**MASS_VARIANTS["paper"], **always}, seed=2)
    row = tokenizer(LIGHTHOUSE)["input_ids"][1:]
    batch = collator([row])
    names = tokenizer.convert_ids_to_tokens
    source, places = names(batch["input_ids"][0].tolist()), batch["decoder_position_ids"][0].tolist()
    axes = canvas.subplots()
    blank(axes, (-2.4, len(row) - 0.4), (-2.4, 2.6))
    boxes(axes, names(row), 2.2, label="text")
    boxes(axes, source, 1.0, [BLUE if token == "[MASK]" else GREY for token in source], label="encoder input")
    boxes(axes, names(batch["labels"][0].tolist()), -0.6, GREEN, places, label="labels")
    boxes(axes, names(batch["decoder_input_ids"][0].tolist()), -1.6, ORANGE, places, label="decoder input")
    for place in places:
        arrow(axes, (place, -1.28), (place, -0.92))
        axes.text(place, -2.15, place, ha="center", va="center", fontsize=7)
    axes.text(-0.7, -2.15, "decoder positions", ha="right", va="center", fontsize=8)


@figure(9, 3.0)
def mass_nmt_attention(canvas: Any) -> None:
    """Cross-attention that leaves [MASK] out, and the languages of both sides."""
    import torch

    from hf_ptm_ext import MassNmtConfig, MassNmtForConditionalGeneration

    torch.manual_seed(0)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = MassNmtConfig(vocab_size=30, lang2id={"en": 0, "fr": 1}, init_std=0.5, **sizes, **heads)
    config._attn_implementation = "eager"
    model = MassNmtForConditionalGeneration(config).eval()
    mask, end = config.mask_token_id, config.eos_token_id
    source, english = torch.tensor([[end, 14, 15, mask, mask, mask, 16, end]]), torch.zeros(1, dtype=torch.long)
    fragment, places = torch.tensor([[15, 17, 18]]), torch.tensor([[2, 3, 4]])
    with torch.no_grad():
        output = model(
            source, decoder_input_ids=fragment, decoder_position_ids=places, langs=english, decoder_langs=english,
            output_attentions=True,
        )  # fmt: skip
    left, right = canvas.subplots(1, 2, width_ratios=(1, 1.1))
    encoder = ["</s>", "the", "old", "[MASK]", "[MASK]", "[MASK]", "lighthouse", "</s>"]
    decoder = ["old", "keeper", "of"]
    grid(left, (output.cross_attentions[0].mean(1)[0] > 0).float(), decoder, encoder, "pre-training: cross-attention")
    blank(right, (-2.1, 5.6), (-0.9, 3.6))
    for y, (words, language, name) in enumerate(
        ((["une", "maison", "</s>"], "fr", "labels"), (["</s>", "une", "maison"], "fr", "decoder_input_ids"),
         (["</s>", "a", "house", "</s>"], "en", "input_ids"))
    ):  # fmt: skip
        boxes(right, words, y * 1.2, {"en": ORANGE, "fr": BLUE}[language], label=name)
        right.text(4.0, y * 1.2, "" if name == "labels" else f"+ embedding of {language!r}", va="center", fontsize=7)
    right.set_title("translation: langs and decoder_langs", fontsize=9)


@figure(10, 2.7)
def ernie_thu_alignment(canvas: Any) -> None:
    """Entities on the tokens of an unchanged text, and the layers in which they meet."""
    import torch

    from hf_ptm_ext import EntityTable, ErnieThuConfig, ErnieThuProcessor

    text = "the lighthouse of alex ##andria guarded the harbour"
    tokenizer = word_tokenizer(text)
    table = EntityTable.from_arrays(torch.ones(3, 4), ids=["Q39715", "Q87", "Q283202"])
    mentions = {"lighthouse": "Q39715", "alexandria": "Q87", "harbour": "Q283202"}
    text = text.replace(" ##", "")
    entities = [
        {"start": text.index(name), "end": text.index(name) + len(name), "id": one} for name, one in mentions.items()
    ]
    inputs = ErnieThuProcessor(tokenizer, table)(text, entities=entities)
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"])
    names = ["none", *mentions.values()]
    left, right = canvas.subplots(1, 2, width_ratios=(1.9, 1))
    blank(left, (-2.2, len(tokens) - 0.4), (-0.9, 2.0))
    boxes(left, tokens, 1.4, label="input_ids")
    for place, entity in enumerate(inputs["entity_ids"]):
        if entity:
            boxes(left, [names[entity]], 0, ORANGE, [place])
            arrow(left, (place, 0.35), (place, 1.05))
        else:
            left.text(place, 0, "0", ha="center", va="center", fontsize=7)
    left.text(-0.7, 0, "entity_ids", ha="right", va="center", fontsize=8)
    layers = ErnieThuConfig(num_hidden_layers=12).fusion_layer_types
    colours = {"sim": GREY, "mix": GREEN, "norm": BLUE}
    for n, kind in enumerate(layers):
        right.barh(n, 1, 0.8, color=colours[kind], edgecolor="#777777", linewidth=0.6)
        if kind != "sim":
            right.barh(n, 0.45, 0.8, left=1.1, color=ORANGE, edgecolor="#777777", linewidth=0.6)
        right.text(0.5, n, kind, ha="center", va="center", fontsize=7)
    right.set_yticks(range(12), range(1, 13), fontsize=7)
    right.set_xticks([0.5, 1.32], ["text stream", "entity stream"], fontsize=8)
    right.tick_params(length=0)
    right.set_frame_on(False)


@figure(10, 4.4)
def kbert_tree(canvas: Any) -> None:
    """The sentence tree with its soft positions, and who sees whom."""
    import torch

    from hf_ptm_ext import KBertTokenizer, KnowledgeGraph, kbert_visible_matrix

    triples = {"keeper": {"is": "a watchman"}, "harbour": {"part of": "the coast", "home of": "ships"}}
    text = "the keeper saw the harbour"
    vocabulary = word_tokenizer(text, "is", "a", "watchman", "part", "of", "coast", "home", "ships").get_vocab()
    tokenizer = KBertTokenizer(vocabulary, kg=KnowledgeGraph.from_dict(triples), use_predicate=True)
    inputs = tokenizer(text)
    tokens = inputs.tokens()
    places, words, branches = (inputs[name] for name in ("position_ids", "word_index", "branch_id"))
    left, right = canvas.subplots(1, 2, width_ratios=(1.35, 1))
    trunk = {word: place for word, place, branch in zip(words, places, branches, strict=True) if not branch}
    level = {branch: -1.2 * (max(branches) + 1 - branch) for branch in set(branches) if branch}
    blank(left, (-0.7, max(places) + 0.7), (-4.3, 0.6))
    for token, place, word, branch in zip(tokens, places, words, branches, strict=True):
        y = level[branch] if branch else 0
        boxes(left, [token], y, ORANGE if branch else GREY, [place])
        left.text(place, y - 0.45, place, ha="center", va="center", fontsize=6.5, color="#666666")
        if branch and place == trunk[word] + 1:
            arrow(left, (trunk[word], -0.6), (place - 0.46, y), bend=0.2)
    left.set_title("sentence tree; below each token its soft position", fontsize=9)
    seen = kbert_visible_matrix(torch.tensor([words]), torch.tensor([branches]))[0].float()
    grid(right, seen, tokens, tokens, "visible matrix")


@figure(9, 3.4)
def nezha_distances(canvas: Any) -> None:
    """Distances up to k = 3 have an encoding of their own, all others share that of the farthest."""
    import torch

    from hf_ptm_ext.models.relative_nezha import relative_encodings, sinusoid_table

    device, classes, length = torch.device("cpu"), 3, 10
    table = sinusoid_table(classes, 16, device).float()
    encodings = relative_encodings(length, classes, 16, torch.float32, device)
    number = (encodings[:, :, None] == table).all(-1).int().argmax(-1) - classes
    left, right = canvas.subplots(1, 2, width_ratios=(1, 1.5))
    left.imshow(number, cmap="RdBu", vmin=-5, vmax=5)
    for row in range(length):
        for column in range(length):
            left.text(column, row, int(number[row, column]), ha="center", va="center", fontsize=7)
    left.set(xticks=[], yticks=[], xlabel="key j", ylabel="query i")
    left.set_title("distance class clip(j - i, -3, 3)", fontsize=9)
    right.imshow(sinusoid_table(64, 64, device).T, cmap="RdBu", aspect="auto", extent=(-64.5, 64.5, 64, 0))
    right.set(xlabel="distance j - i, k = 64", ylabel="dimension of the head")
    right.set_title("the encoding R of each distance", fontsize=9)


@figure(10, 2.6)
def zen_ngrams(canvas: Any) -> None:
    """N-grams of the lexicon and the tokens to which their states are added."""
    from hf_ptm_ext import ZenTokenizer

    text = "the old keeper of the light house saw the ship"
    lexicon = ["light house", "keeper of the light house", "old keeper", "the ship", "of the"]
    tokenizer = ZenTokenizer(word_tokenizer(text).get_vocab(), ngrams=lexicon)
    inputs = tokenizer(text)
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"])
    axes = canvas.subplots()
    found = list(zip(*(inputs[f"ngram_{name}"] for name in ("ids", "positions", "lengths")), strict=True))
    blank(axes, (-1.5, len(tokens) - 0.4), (-0.4, 4.3))
    boxes(axes, tokens, 0, label="tokens")
    ends: list[int] = []
    for ngram, start, length in sorted(found, key=lambda one: one[1:]):
        level = next((n for n, end in enumerate(ends) if end <= start), len(ends))
        ends[level : level + 1] = [start + length]
        y = 1.2 + 1.1 * level
        axes.add_patch(rectangle((start - 0.46, y - 0.3), length - 0.08, 0.6, facecolor=ORANGE, edgecolor="#777777"))
        axes.text(start + length / 2 - 0.5, y, f"{ngram}: {lexicon[ngram - 1]}", ha="center", va="center", fontsize=7)
        for place in range(start, start + length):
            arrow(axes, (place, y - 0.32), (place, 0.33), "#bbbbbb")
    axes.text(-0.7, 1.2, "n-grams", ha="right", va="center", fontsize=8)


@figure(9, 3.4)
def ib_bert_widths(canvas: Any) -> None:
    """Widths on the way through one layer of the teacher and of its student."""
    from transformers import MobileBertConfig

    from hf_ptm_ext import IBBertConfig

    teacher, student = IBBertConfig(), MobileBertConfig()
    shared = [("word embedding", teacher.embedding_size), ("with its neighbours", 3 * teacher.embedding_size)]
    paths = {
        "IB-BERT": [
            *shared,
            ("between layers", teacher.hidden_size),
            ("inside, attention", teacher.intra_bottleneck_size),
            ("feed-forward", teacher.intermediate_size),
            ("inside", teacher.intra_bottleneck_size),
            ("between layers", teacher.hidden_size),
        ],
        "MobileBERT": [
            *shared,
            ("between layers", student.hidden_size),
            ("inside, attention", student.intra_bottleneck_size),
            (f"feed-forward, {student.num_feedforward_networks} times", student.intermediate_size),
            ("inside", student.intra_bottleneck_size),
            ("between layers", student.hidden_size),
        ],
    }
    for axes, (name, path) in zip(canvas.subplots(1, 2), paths.items(), strict=True):
        for y, (part, width) in enumerate(path):
            colour = GREEN if part == "between layers" else BLUE
            axes.barh(-y, width**0.5, 0.7, left=-(width**0.5) / 2, color=colour, edgecolor="#777777", linewidth=0.6)
            axes.text(0, -y, width, ha="center", va="center", fontsize=7)
        axes.set_yticks([-y for y in range(len(path))], [part for part, _ in path], fontsize=8)
        axes.set(xticks=[], xlim=(-34, 34))
        axes.set_frame_on(False)
        axes.tick_params(length=0)
        axes.set_title(name, fontsize=9)


@figure(8, 3.6)
def k_adapter_layers(canvas: Any) -> None:
    """Which hidden states of a 24-layer encoder an adapter reads by default."""
    from hf_ptm_ext import KAdapterConfig

    config = KAdapterConfig(encoder_config={"model_type": "roberta", "num_hidden_layers": 24})
    layers = config.encoder_config.num_hidden_layers
    axes = canvas.subplots()
    blank(axes, (-1.4, layers + 4.6), (-3.4, 3.4))
    for state in range(layers + 1):
        read = state in config.adapter_layers
        boxes(axes, [str(state)], 0, BLUE if read else GREY, [state])
    axes.text(16.5, -0.8, "hidden states of the encoder, 0 = embeddings", ha="center", fontsize=7)
    for y, name in ((2.2, "fac"), (-2.2, "lin")):
        for before, state in zip([None, *config.adapter_layers], config.adapter_layers, strict=False):
            axes.add_patch(rectangle((state - 1.1, y - 0.45), 2.2, 0.9, facecolor=ORANGE, edgecolor="#777777"))
            axes.text(state, y, f"{name}: part", ha="center", va="center", fontsize=7)
            arrow(axes, (state, 0.35 if y > 0 else -0.35), (state, y - 0.5 if y > 0 else y + 0.5))
            if before is not None:
                arrow(axes, (before + 1.1, y), (state - 1.1, y))
        arrow(axes, (config.adapter_layers[-1] + 1.1, y), (layers + 2.6, y / 6))
    arrow(axes, (layers + 0.5, 0), (layers + 2.1, 0))
    boxes(axes, ["task"], 0, GREEN, [layers + 2.7])


@figure(7, 2.8)
def weighted_layers_mix(canvas: Any) -> None:
    """Shares of the hidden states before and after a task that asks for the word itself."""
    import torch
    from transformers import BertConfig, BertModel

    from hf_ptm_ext import WeightedLayersConfig, WeightedLayersForTokenClassification

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 64}
    encoder = BertModel(BertConfig(vocab_size=40, initializer_range=0.2, **sizes))
    model = WeightedLayersForTokenClassification(WeightedLayersConfig(encoder_config=encoder.config, num_labels=4))
    before = model.mix_weights()
    optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=0.02)
    for _ in range(150):
        ids = torch.randint(5, 40, (16, 12))
        model(input_ids=ids, labels=ids % 4).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    axes = canvas.subplots()
    mixtures = (("at the start", before, GREY), ("trained", model.mix_weights(), BLUE))
    for shift, (name, shares, colour) in enumerate(mixtures):
        places = [state + 0.38 * shift - 0.19 for state in shares]
        bars = axes.bar(places, shares.values(), 0.36, color=colour, edgecolor="#777777", linewidth=0.6, label=name)
        axes.bar_label(bars, fmt="%.2f", fontsize=7)
    axes.set(xticks=list(before), xlabel="hidden state (0 = embeddings)", ylabel="share of the mixture")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)


@figure(9, 2.6)
def distilled_bilstm_sizes(canvas: Any) -> None:
    """Parameters of the student at its default sizes, beside BERT-base."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    from hf_ptm_ext import DistilledBiLstmConfig, DistilledBiLstmForSequenceClassification

    with torch.device("meta"):
        student = DistilledBiLstmForSequenceClassification(DistilledBiLstmConfig())
        teacher = BertForSequenceClassification(BertConfig())
    axes = canvas.subplots()
    for y, model in enumerate((student, teacher)):
        vectors = sum(one.numel() for key, one in model.state_dict().items() if "embeddings" in key)
        total = sum(one.numel() for one in model.state_dict().values())
        axes.barh(y, vectors / 1e6, 0.5, color=GREY, edgecolor="#777777", label="embeddings" if y else None)
        axes.barh(y, (total - vectors) / 1e6, 0.5, vectors / 1e6, color=BLUE, label="all else" if y else None)
        text = f"{(total - vectors) / 1e6:.2f} M beside {vectors / 1e6:.1f} M of embeddings"
        axes.text(total / 1e6 + 1, y, text, va="center", fontsize=8)
    axes.set_yticks([0, 1], ["Distilled BiLSTM", "BERT-base"])
    axes.set(xlim=(0, 165), xlabel="million parameters, 30,522 word pieces")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")


@figure(10, 3.4)
def kepler_and_wklm(canvas: Any) -> None:
    """KEPLER's descriptions around a triple; WKLM's replaced mention and the tokens that are asked."""
    from hf_ptm_ext import DataCollatorForEntityReplacement, DataCollatorForKnowledgeEmbedding
    from hf_ptm_ext.collators import EntityCatalogue

    descriptions = ["a lighthouse in the north", "a country in europe", "a ship of the navy"]
    text = "the keeper of skerryvore lives in scotland"
    tokenizer = word_tokenizer(" ".join([*descriptions, text]), "eddystone", "cornwall")
    names = tokenizer.convert_ids_to_tokens
    upper, lower = canvas.subplots(2, 1, height_ratios=(1.5, 1))
    known = {"descriptions": descriptions, "num_relations": 1, "known_triples": [[0, 0, 1]], "seed": 0}
    batch = DataCollatorForKnowledgeEmbedding(tokenizer, **known)([{"triple": [0, 0, 1]}])
    blank(upper, (-2.6, 11.5), (-3.4, 0.7))
    roles = ("head h", "tail t", "corrupted head h'", "corrupted tail t'")
    for y, (role, ids) in enumerate(zip(roles, batch["description_input_ids"][0].tolist(), strict=True)):
        tokens = [token for token in names(ids) if token != "[PAD]"]
        boxes(upper, tokens, -0.9 * y, [ORANGE, *[GREY] * (len(tokens) - 1)], label=role)
    upper.text(6.2, -0.45, "h + r close to t", va="center", fontsize=8)
    upper.text(6.2, -2.2, "h' + r far from t, h + r far from t'", va="center", fontsize=8)
    upper.set_title("KEPLER: the first token's state is the entity's vector", fontsize=9)
    kinds = EntityCatalogue([["skerryvore"], ["eddystone"], ["scotland"]], [["tower"], ["tower"], ["land"]], tokenizer)
    collator = DataCollatorForEntityReplacement(
        tokenizer, catalogue=kinds, replace_probability=1.0, mlm_probability=0.0, seed=0
    )
    row = tokenizer(text)["input_ids"]
    places = [names(row).index(name) for name in ("skerryvore", "scotland")]
    batch = collator([{"input_ids": row, "mention_spans": [[n, n + 1] for n in places], "mention_entities": [0, 2]}])
    blank(lower, (-2.6, 11.5), (-1.4, 0.7))
    asked = {place + step for place in places for step in (-1, 1)}
    colours = [BLUE if n in places else ORANGE if n in asked else GREY for n in range(len(row))]
    boxes(lower, names(batch["input_ids"][0].tolist()), 0, colours, label="text")
    for place, label in zip(places, batch["entity_labels"][0].tolist(), strict=True):
        lower.text(place, -1.0, ("replaced", "original")[label], ha="center", va="center", fontsize=8)
        for step in (-1, 1):
            arrow(lower, (place + step, -0.32), (place + step * 0.35, -0.8))
    lower.set_title("WKLM: is it the original? Asked of the tokens around each mention", fontsize=9)


def draw_all(folder: Path) -> list[Path]:
    """Write every figure as SVG."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "hf_ptm_ext", "font.size": 8})
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, draw in FIGURES.items():
        canvas = Figure(figsize=SIZES[name], layout="constrained")
        draw(canvas)
        files.append(folder / f"{name}.svg")
        canvas.savefig(files[-1], metadata={"Date": None})
    return files


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]))
