"""Word vectors' files and sentence-transformers' StaticEmbedding folders to ours, and to such a folder.

A source is any file that `WordVectors.load` reads, or a folder of sentence-transformers (model2vec's alike) with
`tokenizer.json` beside `model.safetensors`, whose table is `embedding.weight` or `embeddings`.
"""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from ..data.word_vectors import WordVectors
from ..files import path_inside, write_json, write_whole
from ..models.configuration_static_embedding import StaticEmbeddingConfig
from .files import Checkpoint
from .layout import functions_of
from .tensors import File, Options, State, Tensors, TokenizerFiles, Words, size_of
from .words import WordLayout, saved_tokenizer, with_specials

WORDS = "static_embedding.embeddings.word_embeddings.weight"
WEIGHTS = "static_embedding.embeddings.token_weights"
MODULE = "0_StaticEmbedding"


class StaticEmbeddingLayout(WordLayout):
    title, family, prefix = "static embedding", "static_embedding", "StaticEmbedding"
    config_class = StaticEmbeddingConfig
    fields = ("vocab_size", "embedding_size", "pooling", "pad_token_id")
    renames = (
        (r"^(embedding\.weight|embeddings)$", WORDS, "sentence-transformers' table"),
        (r"^embeddings\.(word_embeddings|token_weights)", r"static_embedding.embeddings.\1", "prefix put in front"),
    )
    word_files = ("tokenizer.json",)
    whole = "Model"

    def read(self, source: Path, word_vectors: Path | None = None) -> Checkpoint:
        """Vectors of a file, or the table of a folder."""
        if not source.is_dir():
            table, words = with_specials(WordVectors.load(source))
            return Checkpoint({WORDS: table}, (source,), words=words)
        modules = source / "modules.json"
        if modules.is_file():
            told = json.loads(modules.read_text(encoding="utf-8"))
            found = [one["path"] for one in told if str(one["type"]).endswith("StaticEmbedding")]
            if not found:
                raise ValueError(f"{modules} must name a StaticEmbedding, got {[one['type'] for one in told]}.")
            source = path_inside(source, found[0], str(modules)) if found[0] else source
        return super().read(source, word_vectors)

    def complete_options(self, options: dict[str, Any], tensors: State) -> dict[str, str]:
        """Sizes are the table's."""
        options["vocab_size"], options["embedding_size"] = (size_of(tensors, WORDS, place) for place in (0, 1))
        return {}

    def tokenizer_from(
        self, words: Words, config: Any, vocab: File = None, codes: File = None, lower_case: bool = False
    ) -> TokenizerFiles:
        """Of the words, or the folder's own."""
        if words or vocab is None:
            return super().tokenizer_from(words, config, vocab, codes, lower_case)
        from transformers import PreTrainedTokenizerFast

        own = PreTrainedTokenizerFast(tokenizer_file=str(vocab), model_input_names=["input_ids", "attention_mask"])
        pads = [(word, own.get_vocab()[word]) for word in ("[PAD]", "<pad>") if word in own.get_vocab()]
        config.pad_token_id = None
        if pads:
            own.pad_token, config.pad_token_id = pads[0]
        return saved_tokenizer(own), [str(vocab)]

    def revert_state_dict(self, ours: State, config: Any, tied_copies: bool | None = None) -> Tensors:
        """The table; weights of words are multiplied into it, which leaves the direction of a text's vector."""
        self.check_ours(ours, config)
        table = ours[WORDS]
        return {"embedding.weight": table * ours[WEIGHTS][:, None] if WEIGHTS in ours else table}

    def write_original(
        self, folder: Path, tensors: State, options: Options, source: Path, vocabulary: File = None
    ) -> None:
        """A folder that `SentenceTransformer(path)` reads."""
        file = source / "tokenizer.json"
        if not file.is_file():
            raise ValueError(f"{source} must have a tokenizer.json: sentence-transformers reads the table by it.")
        _write_folder(folder, tensors, file.read_text(encoding="utf-8"))


def export_sentence_transformers(model: Any, tokenizer: Any, folder: str | Path) -> None:
    """Write a folder that `sentence_transformers.SentenceTransformer(folder)` reads.

    Args:
        model: A `StaticEmbeddingModel`, or one of its heads; with `pooling="idf"` the words' weights are multiplied
            into the vectors, so that a text's vector has the same direction.
        tokenizer: Its fast tokenizer.
        folder: Is made.

    Raises:
        ValueError: the model is of another family.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> from hf_ptm_ext import StaticEmbeddingModel, WordVectors
        >>> from hf_ptm_ext.data import word_tokenizer
        >>> vectors = WordVectors(["good", "film"], [[1.0, 0.0], [0.0, 1.0]])
        >>> tokenizer = word_tokenizer(vectors.words)
        >>> model = StaticEmbeddingModel.from_word_vectors(vectors, tokenizer)
        >>> with TemporaryDirectory() as folder:
        ...     export_sentence_transformers(model, tokenizer, folder)
        ...     sorted(path.name for path in Path(folder).iterdir())
        ['0_StaticEmbedding', 'config_sentence_transformers.json', 'modules.json']
    """
    if model.config.model_type != LAYOUT.family:
        raise ValueError(f"`model` must be a StaticEmbeddingModel, got a {type(model).__name__}.")
    tensors, _ = LAYOUT.revert_checkpoint(model.base_model.state_dict(), model.config)
    _write_folder(Path(folder), tensors, tokenizer.backend_tokenizer.to_str())


def _write_folder(folder: Path, tensors: State, tokenizer: str) -> None:
    (folder / MODULE).mkdir(parents=True, exist_ok=True)
    module = {"idx": 0, "name": "0", "path": MODULE, "type": "sentence_transformers.models.StaticEmbedding"}
    write_json(folder / "modules.json", [module])
    write_json(folder / "config_sentence_transformers.json", {"prompts": {}, "similarity_fn_name": "cosine"})
    write_whole(folder / MODULE / "tokenizer.json", tokenizer)
    table = {name: tensor.detach().float().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(table, folder / MODULE / "model.safetensors", metadata={"format": "pt"})


LAYOUT = StaticEmbeddingLayout()
globals().update(functions_of(LAYOUT))
