"""The reference's arithmetic and beam search in plain torch, on the golden's own keys (microsoft/MASS, MASS-unsupNMT).

One sentence at a time, without padding, cache or batches: slow, and simple enough to be read. The golden checks it.
"""

import math

import torch
from torch.nn import functional


class Reference:
    """Encoder and decoder of one checkpoint."""

    def __init__(self, state, n_heads, mask, eos=1, gelu=True, eps=1e-12, setting="v1"):
        self.state, self.n_heads, self.mask, self.eos = state, n_heads, mask, eos
        self.activation = functional.gelu if gelu else functional.relu
        self.eps, self.setting = eps, setting

    def linear(self, name, states):
        return functional.linear(states, self.state[f"{name}.weight"], self.state[f"{name}.bias"])

    def norm(self, name, states):
        weight, bias = self.state[f"{name}.weight"], self.state[f"{name}.bias"]
        return functional.layer_norm(states, weight.shape, weight, bias, self.eps)

    def attend(self, name, states, memory, seen, outlet):
        """`seen`: (queries, keys) of booleans; `outlet`: name of the output projection."""
        width = states.shape[-1] // self.n_heads
        query, key, value = (
            self.linear(f"{name}.{part}_lin", source).view(len(source), self.n_heads, width).transpose(0, 1)
            for part, source in (("q", states), ("k", memory), ("v", memory))
        )
        scores = (query / math.sqrt(width)) @ key.transpose(1, 2)
        weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
        return self.linear(outlet, (weights @ value).transpose(0, 1).reshape(len(states), -1))

    def run(self, part, tokens, positions, language, memory=None, visible=None):
        """`(length, dim)` states of one sentence; a decoder with `memory`."""
        state = self.state
        states = state[f"{part}.embeddings.weight"][tokens] + state[f"{part}.position_embeddings.weight"][positions]
        if f"{part}.lang_embeddings.weight" in state:
            states = states + state[f"{part}.lang_embeddings.weight"][language]
        states = self.norm(f"{part}.layer_norm_emb", states)
        length = len(tokens)
        everything = torch.ones(length, length, dtype=torch.bool)
        layer = 0
        while f"{part}.layer_norm1.{layer}.weight" in state:
            name = f"{part}.attentions.{layer}"
            seen = everything if memory is None else everything.tril()
            states = self.norm(
                f"{part}.layer_norm1.{layer}", states + self.attend(name, states, states, seen, f"{name}.out_lin")
            )
            if memory is not None:
                name, outlet = f"{part}.encoder_attn.{layer}", f"{part}.encoder_attn.{layer}.out_lin.{language}"
                if self.setting == "v2":
                    name = f"{name}.{language}"
                    outlet = f"{name}.out_lin"
                seen = visible[None].expand(length, -1)
                states = self.norm(
                    f"{part}.layer_norm15.{layer}", states + self.attend(name, states, memory, seen, outlet)
                )
            inner = self.activation(self.linear(f"{part}.ffns.{layer}.lin1", states))
            states = self.norm(f"{part}.layer_norm2.{layer}", states + self.linear(f"{part}.ffns.{layer}.lin2", inner))
            layer += 1
        return states

    def encode(self, source, language):
        return self.run("encoder", source, torch.arange(len(source)), language)

    def logits(self, source, source_language, target, target_language, positions=None):
        """`(target, words)` of a sentence pair."""
        memory = self.encode(source, source_language)
        positions = torch.arange(len(target)) if positions is None else positions
        states = self.run("decoder", target, positions, target_language, memory, source != self.mask)
        weight = self.state["decoder.embeddings.weight"]
        return functional.linear(states, weight, self.state["decoder.pred_layer.proj.bias"])

    def beam_search(self, source, source_language, target_language, beams, length_penalty, early, max_len):
        """All kept hypotheses of a sentence, best first: (score, tokens)."""
        live, ended = [(0.0, [self.eos])], []
        while len(live[0][1]) < max_len:
            candidates = []
            for total, text in live:
                logits = self.logits(source, source_language, torch.tensor(text), target_language)[-1]
                candidates += [(total + p, text, word) for word, p in enumerate(logits.log_softmax(-1).tolist())]
            candidates = sorted(candidates, key=lambda item: -item[0])[: 2 * beams]
            if len(ended) == beams and (early or ended[-1][0] >= candidates[0][0] / (max_len - 1) ** length_penalty):
                break
            live_next = []
            for total, text, word in candidates:
                if word == self.eos or len(text) + 1 == max_len:
                    ended.append((total / len(text) ** length_penalty, [*text, self.eos]))
                    ended = sorted(ended, key=lambda item: -item[0])[:beams]
                else:
                    live_next.append((total, [*text, word]))
                if len(live_next) == beams:
                    break
            if not live_next:
                break
            live = live_next
        return ended
