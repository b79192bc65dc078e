"""Transformer-XL as transformers 4 computes it, key by key in plain torch on its own names, time first.

reference(state, config, ids, mems) -> hidden states, log-probabilities, mems
"""

import itertools
import math

import torch


def bounds(config):
    """First id and end of each cluster."""
    ends = [0, *config["cutoffs"], config["vocab_size"]]
    return list(itertools.pairwise(ends))


def embedded(state, config, ids):
    tables = "transformer.word_emb.emb_layers.{}.weight"
    out = torch.zeros(*ids.shape, config["d_model"])
    for place in torch.cartesian_prod(*(torch.arange(size) for size in ids.shape)).tolist():
        word = int(ids[tuple(place)])
        cluster = 0
        vector = state[tables.format(0)][word] if config["div_val"] == 1 else None
        if vector is None:
            cluster, (first, _) = next((i, pair) for i, pair in enumerate(bounds(config)) if pair[0] <= word < pair[1])
            vector = state[tables.format(cluster)][word - first]
        projection = state.get(f"transformer.word_emb.emb_projs.{cluster}")
        out[tuple(place)] = (vector if projection is None else projection @ vector) * math.sqrt(config["d_model"])
    return out


def norm(states, state, name, config):
    weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
    return torch.nn.functional.layer_norm(states, states.shape[-1:], weight, bias, config["layer_norm_epsilon"])


def attended(states, memory, state, name, config):
    heads, width = config["n_head"], config["d_head"]
    together = torch.cat([memory, states])
    normed = norm(together, state, f"{name}.layer_norm", config) if config["pre_lnorm"] else together
    query, key, value = (normed @ state[f"{name}.qkv_net.weight"].T).chunk(3, dim=-1)
    before, length, rows = len(memory), len(states), states.shape[1]
    shape = (len(together), rows, heads, width)
    query, key, value = query.view(shape), key.view(shape), value.view(shape)
    own = f"{name}." if config["untie_r"] else "transformer."
    by_content, by_distance = state[f"{own}r_w_bias"], state[f"{own}r_r_bias"]
    frequencies = 10000 ** (-torch.arange(0, config["d_model"], 2).float() / config["d_model"])
    out = torch.zeros(length, rows, heads, width)
    for place in range(length):
        distances = torch.arange(before + place, -1, -1).float()
        if config["clamp_len"] > 0:
            distances = distances.clamp(max=config["clamp_len"])
        angles = distances[:, None] * frequencies
        relative = torch.cat([angles.sin(), angles.cos()], dim=-1) @ state[f"{name}.r_net.weight"].T
        relative = relative.view(-1, heads, width)
        seen = before + place + 1
        asked = query[before + place]
        scores = torch.einsum("bhd,kbhd->kbh", asked + by_content, key[:seen])
        scores = (scores + torch.einsum("bhd,khd->kbh", asked + by_distance, relative)) / math.sqrt(width)
        if config["same_length"] and config["mem_len"]:
            scores[: max(0, seen - config["mem_len"])] = -torch.inf
        out[place] = torch.einsum("kbh,kbhd->bhd", scores.softmax(dim=0), value[:seen])
    result = states + out.flatten(2) @ state[f"{name}.o_net.weight"].T
    return result if config["pre_lnorm"] else norm(result, state, f"{name}.layer_norm", config)


def fed(states, state, name, config):
    normed = norm(states, state, f"{name}.layer_norm", config) if config["pre_lnorm"] else states
    inner = (normed @ state[f"{name}.CoreNet.0.weight"].T + state[f"{name}.CoreNet.0.bias"]).relu()
    result = states + inner @ state[f"{name}.CoreNet.3.weight"].T + state[f"{name}.CoreNet.3.bias"]
    return result if config["pre_lnorm"] else norm(result, state, f"{name}.layer_norm", config)


def log_probabilities(states, state, config):
    out = torch.zeros(*states.shape[:-1], config["vocab_size"])
    pairs = bounds(config)
    for cluster, (first, end) in enumerate(pairs):
        one = config["div_val"] == 1
        weight, bias = (state[f"crit.out_layers.{0 if one else cluster}.{name}"] for name in ("weight", "bias"))
        weight, bias = (weight[first:end], bias[first:end]) if one else (weight, bias)
        if cluster == 0 and len(pairs) > 1:
            weight = torch.cat([weight, state["crit.cluster_weight"]])
            bias = torch.cat([bias, state["crit.cluster_bias"]])
        projection = state.get(f"crit.out_projs.{cluster}")
        logs = ((states if projection is None else states @ projection) @ weight.T + bias).log_softmax(dim=-1)
        if cluster == 0:
            head, out[..., first:end] = logs, logs[..., :end]
        else:
            out[..., first:end] = head[..., pairs[0][1] + cluster - 1, None] + logs
    return out


@torch.no_grad()
def reference(state, config, ids, mems=None):
    states = embedded(state, config, ids).transpose(0, 1)
    if mems is None:
        mems = [torch.zeros(config["mem_len"], ids.shape[0], config["d_model"])] * config["n_layer"]
    hidden, new = [states], []
    for layer in range(config["n_layer"]):
        together = torch.cat([mems[layer], states])
        new.append(together[len(together) - min(len(together), config["mem_len"]) :])
        name = f"transformer.layers.{layer}"
        states = attended(states, mems[layer], state, f"{name}.dec_attn", config)
        states = fed(states, state, f"{name}.pos_ff", config)
        hidden.append(states)
    hidden = [one.transpose(0, 1) for one in hidden]
    return hidden, log_probabilities(hidden[-1], state, config), new
