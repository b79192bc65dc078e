"""K-BERT's input by its definition, step by step and without arrays: the sentence tree as the paper draws it."""

TAGS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[ENT]", "[SUB]", "[PRE]", "[OBJ]")


def segmented(text, subjects):
    """Words as the original project's segmenter cuts them, apart from cuts that change nothing."""
    names = {*subjects, *TAGS}
    prefixes = {name[:size] for name in names for size in range(1, len(name) + 1)}
    words = []
    for chunk in text.split():
        begin = 0
        while begin < len(chunk):
            reached, complete = begin, None
            while reached < len(chunk) and chunk[begin : reached + 1] in prefixes:
                reached += 1
                if chunk[begin:reached] in names:
                    complete = reached
            end = begin + 1 if complete is None else complete if reached == len(chunk) else reached
            words.append(chunk[begin:end])
            begin = end
    return words


def objects_of(triples, word, use_predicate, max_entities):
    values = [
        predicate + object_ if use_predicate else object_ for subject, predicate, object_ in triples if subject == word
    ]
    return list(dict.fromkeys(values))[:max_entities]


class Tree:
    """Tokens, positions, tags, segments and the visible matrix of one text."""

    def __init__(self, text, triples, use_predicate, max_entities, max_length):
        self.tokens, self.positions, self.tags = [], [], []
        self.segments = []
        trunk, sees = [], {}
        position, segment = -1, 1
        for word in segmented(text, [subject for subject, _, _ in triples]):
            pieces = [word] if word in TAGS else list(word)
            own = []
            for piece in pieces:
                position += 1
                own.append(len(self.tokens))
                self.add(piece, position, 0, segment)
                if piece == "[SEP]":
                    segment += 1
            trunk += own
            for object_ in objects_of(triples, word, use_predicate, max_entities):
                branch = []
                for step, char in enumerate(object_, start=1):
                    branch.append(len(self.tokens))
                    self.add(char, position + step, 1, segment)
                for token in branch:
                    sees[token] = {*branch, *own}
        size = len(self.tokens)
        matrix = [[0] * size for _ in range(size)]
        for one in trunk:
            for other in trunk:
                matrix[one][other] = 1
        for token, others in sees.items():
            for other in others:
                matrix[token][other] = matrix[other][token] = 1
        kept = min(size, max_length)
        padding = max_length - kept
        self.tokens = self.tokens[:kept] + ["[PAD]"] * padding
        self.positions = self.positions[:kept] + [max_length - 1] * padding
        self.tags = self.tags[:kept] + [0] * padding
        self.segments = [min(number, 2) for number in self.segments[:kept]] + [0] * padding
        self.matrix = [row[:kept] + [0] * padding for row in matrix[:kept]] + [[0] * max_length] * padding

    def add(self, token, position, tag, segment):
        self.tokens.append(token)
        self.positions.append(position)
        self.tags.append(tag)
        self.segments.append(segment)


def matrix_of(word_index, branch_id):
    """The visible matrix that two numbers per token mean."""
    pairs = list(zip(word_index, branch_id, strict=True))
    return [
        [
            int(b >= 0 and d >= 0 and ((b == 0 and d == 0) or (w == v and (b == d or b == 0 or d == 0))))
            for v, d in pairs
        ]
        for w, b in pairs
    ]
