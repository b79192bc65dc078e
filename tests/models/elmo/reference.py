"""ELMo's arithmetic in plain torch, row by row, on the names of an original file; checked against the golden."""

import torch

CELL = "RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell/{}"


def word_vectors(state, options, ids):
    """`(words, 50)` ids to vectors."""
    table = torch.cat([torch.zeros(1, state["char_embed"].shape[1]), state["char_embed"]])
    characters, found = table[ids], []
    activation = {"relu": torch.relu, "tanh": torch.tanh}[options["char_cnn"]["activation"]]
    for number, (width, _) in enumerate(options["char_cnn"]["filters"]):
        windows = characters.unfold(1, width, 1)  # words, places, dim, width
        scores = torch.einsum("npdw,wdo->npo", windows, state[f"CNN/W_cnn_{number}"][0])
        found.append(activation((scores + state[f"CNN/b_cnn_{number}"]).amax(1)))
    words = torch.cat(found, dim=1)
    for number in range(options["char_cnn"]["n_highway"]):
        name = f"CNN_high_{number}/"
        gate = torch.sigmoid(words @ state[f"{name}W_carry"] + state[f"{name}b_carry"])
        new = torch.relu(words @ state[f"{name}W_transform"] + state[f"{name}b_transform"])
        words = gate * new + (1 - gate) * words
    return words @ state["CNN_proj/W_proj"] + state["CNN_proj/b_proj"]


def run(state, options, direction, layer, words, start=None):
    """One direction of one layer over the words of a row."""
    lstm = options["lstm"]
    weight, bias, project = (state[CELL.format(direction, layer, name)] for name in ("W_0", "B", "W_P_0"))
    output, memory = (torch.zeros(lstm["projection_dim"]), torch.zeros(lstm["dim"])) if start is None else start
    found = []
    for word in words:
        i, j, f, o = (torch.cat([word, output]) @ weight + bias).chunk(4)
        memory = torch.sigmoid(i) * torch.tanh(j) + torch.sigmoid(f + 1) * memory
        if lstm["cell_clip"]:
            memory = memory.clamp(-lstm["cell_clip"], lstm["cell_clip"])
        output = (torch.sigmoid(o) * torch.tanh(memory)) @ project
        if lstm["proj_clip"]:
            output = output.clamp(-lstm["proj_clip"], lstm["proj_clip"])
        found.append(output)
    return torch.stack(found), (output, memory)


def layers_of(state, options, ids, starts=None):
    """States of one row of words `(words, 50)`, boundaries included, of every layer; and where each ended."""
    marks = torch.full((2, ids.shape[1]), 261)
    marks[:, 0], marks[:, 2], marks[:, 1] = 259, 260, torch.tensor([257, 258])
    words = word_vectors(state, options, torch.cat([marks[:1], ids, marks[1:]]))
    current, found, ends = [words, words], [torch.cat([words, words], dim=1)], []
    for layer in range(options["lstm"]["n_layers"]):
        outputs, end = [], []
        for direction, inputs in enumerate(current):
            turned = inputs.flip(0) if direction else inputs
            start = None if starts is None else starts[layer][direction]
            output, last = run(state, options, direction, layer, turned, start)
            output = output.flip(0) if direction else output
            outputs.append(output + inputs if layer and options["lstm"]["use_skip_connections"] else output)
            end.append(last)
        current = outputs
        found.append(torch.cat(outputs, dim=1))
        ends.append(end)
    return found, ends
