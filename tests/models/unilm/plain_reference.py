"""UniLM once more, as slowly and plainly as it can be written: one sequence, dense masks, no cache, no padding.

It reads a model's state dict and nothing else of the package, and follows the paper and the description of the
reference decoder. Tests compare the package with it on random inputs.
"""

import math

import torch
from torch.nn import functional

BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT, SEQ2SEQ = range(4)


def dense_mask(mode, length, source_length=0, pseudo_length=0):
    """`(length, length)` booleans, query by key.

    With pseudo tokens as the s2s-ft code states it: a column weighs 0 in the source, p at target position p and -p at
    its pseudo token; a true query of weight w sees true keys of weight <= w, a pseudo query of position p sees true
    keys of weight < p and the pseudo key of the same p.
    """
    mask = torch.zeros(length, length, dtype=torch.bool)
    if pseudo_length:
        target = range(source_length, source_length + pseudo_length)
        weights = [0] * source_length + [*target] + [-p for p in target]
        assert len(weights) == length
        for q, own in enumerate(weights):
            for key, weight in enumerate(weights):
                if own >= 0:
                    mask[q, key] = 0 <= weight <= own
                else:
                    mask[q, key] = 0 <= weight < -own or weight == own
        return mask
    for q in range(length):
        for key in range(length):
            mask[q, key] = {
                BIDIRECTIONAL: True,
                LEFT_TO_RIGHT: key <= q,
                RIGHT_TO_LEFT: key >= q,
                SEQ2SEQ: key < source_length or key <= q,
            }[mode]
    return mask


def token_types(mode, length, source_length):
    """The types of one sequence by its mode; a sequence without a second segment has the first one's."""
    first, second = {BIDIRECTIONAL: (0, 1), LEFT_TO_RIGHT: (2, 2), RIGHT_TO_LEFT: (3, 3), SEQ2SEQ: (4, 5)}[mode]
    return [first] * min(source_length, length) + [second] * max(length - source_length, 0)


def logits(model, ids, mode, source_length, pseudo_length=0):
    """Vocabulary logits of one sequence, `(length, vocab_size)`."""
    state, config = model.state_dict(), model.config
    length = len(ids)
    positions = list(range(length - pseudo_length))
    positions += positions[len(positions) - pseudo_length :] if pseudo_length else []

    def linear(x, name):
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def norm(x, name):
        return functional.layer_norm(
            x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], config.layer_norm_eps
        )

    embeddings = "bert.embeddings."
    x = state[embeddings + "word_embeddings.weight"][ids]
    x = x + state[embeddings + "position_embeddings.weight"][positions]
    x = x + state[embeddings + "token_type_embeddings.weight"][token_types(mode, length, source_length)]
    x = norm(x, embeddings + "LayerNorm")
    hidden = ~dense_mask(mode, length, source_length, pseudo_length)
    size = config.hidden_size // config.num_attention_heads
    for layer in range(config.num_hidden_layers):
        name = f"bert.encoder.layer.{layer}."
        query, key, value = (linear(x, f"{name}attention.self.{part}") for part in ("query", "key", "value"))
        heads = []
        for head in range(config.num_attention_heads):
            part = slice(head * size, (head + 1) * size)
            scores = query[:, part] @ key[:, part].T / math.sqrt(size)
            heads.append(scores.masked_fill(hidden, -10000.0).softmax(-1) @ value[:, part])
        attended = linear(torch.cat(heads, -1), f"{name}attention.output.dense")
        x = norm(x + attended, f"{name}attention.output.LayerNorm")
        inner = functional.gelu(linear(x, f"{name}intermediate.dense"))
        x = norm(x + linear(inner, f"{name}output.dense"), f"{name}output.LayerNorm")
    x = norm(functional.gelu(linear(x, "cls.predictions.transform.dense")), "cls.predictions.transform.LayerNorm")
    return x @ state[embeddings + "word_embeddings.weight"].T + state["cls.predictions.bias"]


def next_word_scores(model, source, text, processor=None, known=None):
    """Log-probabilities of the word behind `text`, everything fed anew; `known` keeps them."""
    known = {} if known is None else known
    if (*source, *text) not in known:
        ids = [*source, *text, model.config.mask_token_id]
        with torch.no_grad():
            scores = logits(model, ids, SEQ2SEQ, len(source))[-1].log_softmax(-1)
        if processor is not None:
            scores = processor(torch.tensor([[*source, *text]]), scores[None])[0]
        known[(*source, *text)] = scores.tolist()
    return list(known[(*source, *text)])


def greedy_search(model, source, steps, not_predict=()):
    """The reference's loop for one beam: all steps, cut behind the first [SEP]."""
    text = []
    for _ in range(steps):
        scores = next_word_scores(model, source, text)
        for word in not_predict:
            scores[word] = -10000.0
        text.append(max(range(len(scores)), key=lambda word: scores[word]))
    end = model.config.eos_token_id
    return text[: text.index(end) + 1] if end in text else text


def blocked_words(text, n, exempt):
    """Words that would repeat an n-gram."""
    if len(text) < n or any(word in exempt for word in text[len(text) - n + 1 :]):
        return set()
    tail = text[len(text) - n + 1 :]
    following = {text[i + n - 1] for i in range(len(text) - n + 1) if text[i : i + n - 1] == tail}
    return following - exempt


def beam_search(
    model,
    source,
    steps,
    beams,
    alpha=0.0,
    min_len=0,
    forbid=False,
    n=3,
    exempt=(),
    not_predict=(),
    processor=None,
    known=None,
):
    """The reference's beam search, one beam and one word at a time."""
    end = model.config.eos_token_id
    frames, known = [], {} if known is None else known
    for step in range(steps):
        candidates = []
        for parent, (total, text) in enumerate(frames[-1] if frames else [(0.0, [])]):
            scores = next_word_scores(model, source, text, processor, known)
            for word in blocked_words(text, n, set(exempt)) if forbid else ():
                scores[word] -= 10000
            if step + 1 <= min_len:
                scores[end] = -10000.0
            for word in not_predict:
                scores[word] = -10000.0
            dead = 10000.0 if text and text[-1] == end else 0.0
            own = sorted(range(len(scores)), key=lambda word: -scores[word])[:beams]
            candidates += [(scores[word] + total - dead, parent, [*text, word]) for word in own]
        candidates.sort(key=lambda one: -one[0])
        frames.append([(score, text) for score, _, text in candidates[:beams]])
    finished = [i for i, frame in enumerate(frames) if all(text[-1] == end for _, text in frame)]
    last = finished[0] if finished else len(frames) - 1
    best, answer = -math.inf, None
    for i, frame in enumerate(frames[: last + 1]):
        for score, text in frame:
            if text[-1] == end or i == last:
                score = score / ((5 + i + 1) / 6) ** alpha if alpha > 0 else score
                if score > best:
                    best, answer = score, text
    return answer


# Names of `unilm_beam_search` for the shorter ones above.
OPTION_NAMES = {
    "alpha": "length_penalty",
    "min_len": "min_len",
    "forbid": "forbid_duplicate_ngrams",
    "n": "ngram_size",
    "exempt": "forbid_ignore_set",
    "not_predict": "not_predict",
}


def options(case):
    """A case's options as `generate` takes them."""
    return {OPTION_NAMES[name]: value for name, value in case.items()}
