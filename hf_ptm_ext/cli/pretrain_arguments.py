"""What `hf-ptm-ext pretrain` can be told."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from ..collators.ernie_masking import BUDGETS as UNIT_BUDGETS
from ..collators.mass import MASS_VARIANTS
from ..collators.words import WORD_BOUNDARIES
from ..data.packing import BLOCK_MODES
from ..data.sentence_pairs import NEXT_SENTENCE, SENTENCE_ORDER, SINGLE_SENTENCES, STRUCTURE
from ..hints import similar_path
from .arguments import JobArguments, ModelArguments, TextArguments, TrainingDataArguments
from .options import option
from .ranges import Below1, Count, OpenShare, Positive, PositiveShare, RowLength, Share, Size, Weight

# Of `pretraining.OBJECTIVES`, which reads this module.
OBJECTIVE_NAMES = (
    *("span", "mlm", "wwm", "ngram", "macbert", "unilm", "ernie_thu", "electra", "infoword"),
    *("permutation", "ernie", "word_order", "sentilare", "sensebert", "libert"),
    *("ernie2", "causal_lm"),
    *("mass", "text_infilling", "span_corruption", "tlm", "unicoder", "bilm"),
)
# Of objective ernie2, in the order in which they come.
ERNIE_TASKS = ("mlm", "capitalization", "token_document", "reordering", "distance", "discourse", "relevance")


@dataclass
class DataArguments(TextArguments, TrainingDataArguments):
    """What it is trained on."""

    train_file: list[str] | None = option(None, "Files or glob patterns: .txt, .txt.gz, .jsonl, .jsonl.gz, .parquet.")
    file_format: str | None = option(None, "For files whose names do not tell.", choices=("text", "jsonl", "parquet"))
    corpus: str | None = option(
        None, "Embedded corpus (default en, if no other data are named).", choices=("en", "zh")
    )
    corpus_weights: list[Positive] | None = option(
        None,
        "Shares of the rows of each entry of train_file, as 0.7 0.3 (default: all rows once).",
    )
    source_column: str | None = option(
        None, "Parallel text (tlm): column of the first sentence (default: the language)."
    )
    target_column: str | None = option(None, "Parallel text: column of the second one.")
    target_train_file: list[str] | None = option(None, "Parallel text: translations of train_file, line by line.")
    target_validation_file: list[str] | None = option(
        None, "Parallel text: translations of validation_file, line by line."
    )
    text_column: str = option("text", "Column or JSON field with the text.")
    document_separator: str = option(
        "blank_line", "What ends a document of a text file.", choices=("blank_line", "line")
    )
    validation_fraction: Below1 = option(
        0.05, "Share of documents held out when no validation data are named; 0 = none."
    )
    max_seq_length: RowLength = option(128, "Tokens of a block, special tokens included.")
    block_mode: str = option(
        "doc_sentences",
        "Whether blocks end with a document, or go on in the next (RoBERTa).",
        choices=BLOCK_MODES,
    )
    pack_rows: bool = option(False, "Put several blocks into each row; worth it on a GPU.")
    row_length: RowLength | None = option(None, "Tokens of a packed row, up to 8192 say (default: max_seq_length).")
    streaming: bool = option(False, "Read, tokenise and pack while training.")
    shuffle_buffer_size: Size = option(1000, "Documents among which a stream draws the next.")
    extend_vocabulary: Count | None = option(
        None, "New pieces for the checkpoint's tokenizer, learnt from the text; 0: measured only."
    )
    transfer_vocabulary: bool = option(
        False, "The text's vocabulary for the checkpoint: known tokens keep their rows."
    )
    max_train_rows: Size | None = option(None, "Use only the first rows (not streaming).")
    max_eval_rows: Size | None = option(1000, "Evaluate on the first rows only.")

    @property
    def embedded(self) -> str:
        """The embedded corpus, for training data that nothing else names."""
        return self.corpus or "en"

    @property
    def tokens_of_row(self) -> int:
        """Most tokens of a row, all of them if rows are packed."""
        return self.row_length or self.max_seq_length

    @property
    def packing(self) -> dict[str, Any]:
        """How blocks and rows are packed, for `PretrainingStream`."""
        packed = {"packed": True, "row_length": self.row_length, "max_sequences": self.sequences_of_row}
        return {"block_mode": self.block_mode, **(packed if self.pack_rows else {})}

    @property
    def sequences_of_row(self) -> int:
        """Most sequences of a row."""
        return max(16, self.tokens_of_row // 32) if self.pack_rows else 1

    def check(self, model: ModelArguments, training: JobArguments) -> None:
        """Complete the arguments, and refuse values that contradict each other, before anything is read."""
        sources = [name for name in ("corpus", "train_file", "dataset_name") if getattr(self, name)]
        if len(sources) > 1:
            hint = " If a recipe sets `corpus`, add --corpus null." if "corpus" in sources else ""
            raise ValueError(
                f"Name one source of training data, got {' and '.join(f'`{name}`' for name in sources)}.{hint}"
            )
        if not sources:
            self.corpus = "en"
        if self.corpus_weights is not None:
            self._check_weights(len(self.corpus_weights), len(self.train_file or ()))
        self.check_tokenizer(model)
        if self.transfer_vocabulary:
            if model.model_name_or_path is None or self.extend_vocabulary is not None:
                raise ValueError(
                    "`transfer_vocabulary` gives a checkpoint another vocabulary: name `model_name_or_path`, without "
                    f"`extend_vocabulary`; got {model.model_name_or_path} and {self.extend_vocabulary}."
                )
            self.train_tokenizer = model.tokenizer_name is None
        if self.extend_vocabulary is not None and (model.model_name_or_path is None or self.train_tokenizer):
            raise ValueError(
                f"`extend_vocabulary` = {self.extend_vocabulary} adds pieces to the tokenizer of a checkpoint: name "
                "`model_name_or_path`, without `train_tokenizer`."
            )
        if self.row_length is not None and (not self.pack_rows or self.row_length < self.max_seq_length):
            raise ValueError(
                f"`row_length` must be that of packed rows (--pack_rows true), at least `max_seq_length` = "
                f"{self.max_seq_length}, got {self.row_length}."
            )
        if self.streaming and training.max_steps <= 0:
            raise ValueError(
                f"`streaming` needs `max_steps`, got {training.max_steps}: a stream has no length. Set --max_steps."
            )
        if self.streaming and self.drop_overlap is not None:
            raise ValueError(
                f"`drop_overlap` = {self.drop_overlap} compares all texts, which a stream does not have at hand: set "
                "streaming off."
            )

    def _check_weights(self, weights: int, files: int) -> None:
        if files < 2 or weights != files:
            raise ValueError(
                f"`corpus_weights` needs one weight for each of several entries of `train_file`, got {weights} "
                f"weights and {files} entries."
            )
        if self.target_train_file and len(self.target_train_file) != files:
            raise ValueError(
                f"`target_train_file` must name a file for each of the {files} of `train_file` under "
                f"`corpus_weights`, got {len(self.target_train_file)}."
            )


@dataclass
class ObjectiveArguments:
    """What is predicted. Defaults are the collators' and so the papers'."""

    # Objective -> options of it alone.
    asked: ClassVar[str] = "objective"
    of: ClassVar[dict[str, tuple[str, ...]]] = {
        "span": ("geometric_p", "max_span_length", "max_pair_targets", "sbo_loss_weight"),
        "mlm": ("budget", "sample_alpha", "random_by_frequency"),
        "ngram": ("max_ngram_size", "favor_shorter_ngrams"),
        "macbert": ("similar_words",),
        "unilm": ("mode_probabilities",),
        "ernie_thu": (
            *("entity_table", "entity_titles", "ignore_title_case"),
            *("entity_replace_prob", "entity_mask_prob", "min_entities"),
        ),
        "electra": (
            *("generator_size", "generator_layers", "generator_name_or_path"),
            *("generator_loss_weight", "discriminator_loss_weight", "with_replacement"),
        ),
        "infoword": (
            *("budget", "sample_alpha", "random_by_frequency", "min_ngram_length", "max_ngram_length"),
            *("ngrams_per_row", "dim_loss_weight", "temperature", "gather_negatives"),
        ),
        "permutation": ("max_ngram_size", "whole_words"),
        "ernie": ("level_weights", "level_schedule", "unit_budget", "entity_titles", "ignore_title_case"),
        "word_order": ("shuffle_prob", "shuffle_size"),
        "sentilare": ("opinion_words", "sentiwordnet", "tagger", "sentiment_probability"),
        "sensebert": ("supersenses", "supersense_vocab", "supersense_loss_weight"),
        "libert": ("lexical_constraints", "word_vectors"),
        "ernie2": ("ernie_tasks", "max_segments", "discourse_file", "relevance_file"),
        "causal_lm": ("variable_lengths",),
        "mass": ("mass_variant", "mask_prob"),
        "text_infilling": ("mask_ratio", "poisson_lambda", "permute_sentence_ratio", "rotate_ratio"),
        "span_corruption": ("noise_density", "mean_noise_span_length"),
        "tlm": ("languages", "sample_alpha"),
        "unicoder": (
            *("languages", "sample_alpha", "recovery_loss_weight", "paraphrase_loss_weight", "mixed_loss_weight"),
        ),
    }

    files: ClassVar[tuple[str, ...]] = (
        *("similar_words", "entity_table", "entity_titles", "opinion_words", "sentiwordnet"),
        *("supersenses", "supersense_vocab", "discourse_file", "relevance_file"),
        *("lexical_constraints", "word_vectors"),
    )

    objective: str = option(
        "span",
        "Hidden spans, tokens, whole words, n-grams; the others by their system's name.",
        choices=OBJECTIVE_NAMES,
    )
    mlm_probability: PositiveShare | None = option(None, "Share of tokens to predict (0.15).")
    mask_replace_prob: Share | None = option(
        None, "Share of those that become [MASK] (0.8; electra 0.85, sensebert 0.9)."
    )
    random_replace_prob: Share | None = option(
        None, "Share of those that become random tokens (0.1; electra, sensebert 0)."
    )
    budget: str | None = option(
        None,
        "Number of predicted tokens: BERT's rounded share, or RoBERTa's on average (default: exact).",
        choices=("exact", "roberta"),
    )
    sample_alpha: Weight | None = option(None, "Predict tokens in proportion to count ** -alpha, as XLM can (0).")
    random_by_frequency: bool = option(False, "Draw random tokens as often as they are in the text (RoBERTa can).")
    geometric_p: PositiveShare = option(0.2, "Parameter of the span length law.")
    max_span_length: Size = option(10, "Longest drawn span, in words.")
    max_pair_targets: Size | None = option(
        None, "Tokens of a span with a boundary loss (default: the model's config)."
    )
    sbo_loss_weight: Weight | None = option(None, "Weight of the span boundary term (default: the model's config).")
    max_ngram_size: Size | None = option(None, "Longest n-gram, in words (3; permutation 5).")
    whole_words: bool = option(False, "n-grams of words, as XLNet's paper says; its code takes pieces.")
    shuffle_prob: Share = option(0.05, "Share of n-grams out of order.")
    shuffle_size: Size = option(3, "Their tokens.")
    level_weights: list[str] | None = option(None, "How often rows hide units of a level, as basic=1 phrase=2.")
    level_schedule: list[str] | None = option(
        None, "Weights from a batch on, as 0:basic=1 5000:basic=1,phrase=1 (ERNIE's stages)."
    )
    unit_budget: str = option(
        "bernoulli", "ERNIE draws each unit; a budget of each row, or of the batch.", choices=UNIT_BUDGETS
    )
    favor_shorter_ngrams: bool = option(True, "Short n-grams are more likely, as 1/n.")
    similar_words: str | None = option(None, "Word vectors whose neighbours take a word's place (.txt, .bin...).")
    mode_probabilities: list[str] | None = option(
        None, "How often attention modes are drawn, as seq2seq=1 (UniLM: a third, of one direction a sixth each)."
    )
    sentence_pairs: str | None = option(
        None,
        "Rows of two segments: B follows or not, which order, both.",
        choices=(NEXT_SENTENCE, SENTENCE_ORDER, STRUCTURE),
    )
    single_sentences: str = option(
        "split",
        "Of order: a last one is halved, or paired as ALBERT's code does.",
        choices=SINGLE_SENTENCES,
    )
    next_sentence_prediction: bool = option(False, "The same as --sentence_pairs next.")
    entity_table: str | None = option(None, "Entity vectors of objective ernie_thu (`train-entity-vectors`).")
    entity_titles: str | None = option(
        None, "title<TAB>entity lines, by which entities are found (ernie_thu: default the table's)."
    )
    ignore_title_case: bool = option(False, "Find titles in any case.")
    entity_replace_prob: Share = option(0.05, "Share of entities that become others.")
    entity_mask_prob: Share = option(0.15, "Share of entities that are taken away.")
    min_entities: Count = option(5, "Rows with fewer entities are dropped (ernie_thu).")
    generator_size: PositiveShare = option(0.25, "Width of a new generator as a share of the model's (base: 1/3).")
    generator_layers: PositiveShare = option(1.0, "Its layers as a share of the model's.")
    generator_name_or_path: str | None = option(None, "A trained generator in the place of a new one.")
    generator_loss_weight: Weight = option(1.0, "Weight of the generator's term.")
    with_replacement: bool = option(False, "Draw some tokens twice, as ELECTRA's code does.")
    discriminator_loss_weight: Weight = option(50.0, "Weight of the replaced tokens' term.")
    min_ngram_length: Size = option(1, "Fewest tokens of an n-gram that is taken out of its sentence.")
    max_ngram_length: Size = option(10, "Most of them.")
    ngrams_per_row: Size = option(1, "N-grams of each row; those after the first are more negatives of other rows.")
    dim_loss_weight: Weight = option(1.0, "Weight of the n-grams' term.")
    temperature: Positive = option(1.0, "What its scores are divided by.")
    gather_negatives: bool = option(False, "N-grams of the other processes are negatives too.")
    opinion_words: list[str] | None = option(None, "Two files, of positive and of negative words, one a line.")
    sentiwordnet: str | None = option(None, "SentiWordNet's file in their place (needs a tagger).")
    tagger: str | None = option(None, "Tagger of English words (needs the extra lexicons).", choices=("nltk",))
    sentiment_probability: Share = option(0.3, "Share of words with a polarity to predict.")
    supersenses: str | None = option(None, "WordNet's folder (data.noun...), or a file: word<TAB>supersenses.")
    supersense_vocab: str | None = option(None, "The supersenses in the order of the classes (default: WordNet's).")
    supersense_loss_weight: Weight = option(1.0, "Weight of the supersenses' term.")
    lexical_constraints: list[str] | None = option(None, "Files of related words: en_happy en_glad, a pair a line.")
    word_vectors: str | None = option(None, "Word vectors that negatives of the pairs are found by.")
    variable_lengths: bool = option(
        False, "Segments of about max_seq_length tokens, rates in proportion, as the AWD-LSTM's code."
    )
    ernie_tasks: list[str] | None = option(
        None,
        "Tasks of ERNIE 2.0, in this order whatever is named first (default: all that the data allow).",
        choices=ERNIE_TASKS,
    )
    max_segments: Size = option(3, "Most segments of a reordered paragraph.")
    discourse_file: str | None = option(None, "Pairs with columns first, second, label (default: by markers).")
    relevance_file: str | None = option(None, "Columns query, title, label: 0 clicked, 1 shown; others are drawn.")
    segmenter: str | None = option(
        None, "Words of unspaced text (needs the extra zh). Default: the tokenizer's.", choices=("jieba",)
    )
    word_boundaries: str = option("auto", "What a word is; token: every token.", choices=WORD_BOUNDARIES)
    mass_variant: str = option("summarization", "Rule of MASS.", choices=tuple(MASS_VARIANTS))
    mask_prob: Share | None = option(None, "Share of tokens to predict.")
    mask_ratio: Share | None = option(None, "Share of words to mask (0.3).")
    poisson_lambda: Weight | None = option(None, "Mean words of a masked span (3.5).")
    permute_sentence_ratio: Share | None = option(None, "Share of sentences that are permuted (1).")
    rotate_ratio: Share | None = option(None, "Share of rows that are rotated (0).")
    noise_density: OpenShare | None = option(None, "Share of tokens to predict (0.15).")
    mean_noise_span_length: Positive | None = option(None, "Mean tokens of a span (3).")
    recovery_loss_weight: Weight = option(1.0, "Weight of words recovered from the translation; 0 leaves them out.")
    paraphrase_loss_weight: Weight = option(1.0, "Weight of translations told from similar sentences; 0 likewise.")
    mixed_loss_weight: Weight = option(1.0, "Weight of documents in two languages; 0 likewise.")
    languages: list[str] | None = option(None, "Codes of the two languages, first the source's.")

    @property
    def pair_kind(self) -> str | None:
        """How the two segments of a row stand to each other; `None` for rows of one."""
        return NEXT_SENTENCE if self.next_sentence_prediction else self.sentence_pairs

    @property
    def words(self) -> str:
        """What the collators take for words."""
        return "column" if self.segmenter is not None else self.word_boundaries

    def check_files(self) -> None:
        """Refuse files that are not there, before any is read."""
        for name in self.files:
            value = getattr(self, name)
            for path in value if isinstance(value, list) else [value] if value else []:
                if not Path(path).exists():
                    raise FileNotFoundError(f"`{name}` = {path} is no file here.{similar_path(path)} Check the path.")

    def given(self, *names: str) -> dict[str, Any]:
        """Those of the options that have a value, for the model or the collator."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def check(self) -> None:
        """Refuse options of other objectives, and values that contradict each other."""
        own = self.of.get(self.objective, ())
        for one in fields(self):
            objectives = [name for name, options in self.of.items() if one.name in options]
            value = getattr(self, one.name)
            if objectives and one.name not in own and value != one.default:
                raise ValueError(
                    f"`{one.name}` goes with objective {', '.join(objectives)}, got {value} with {self.objective}: "
                    "leave it out, or null where a recipe sets it."
                )
        if self.next_sentence_prediction and self.sentence_pairs not in (None, NEXT_SENTENCE):
            raise ValueError(
                f"`next_sentence_prediction` is `sentence_pairs` = {NEXT_SENTENCE}, got {self.sentence_pairs}: "
                "leave one out."
            )
        shares = (self.mask_replace_prob or 0) + (self.random_replace_prob or 0)
        if not shares <= 1 + 1e-9:
            raise ValueError(
                f"`mask_replace_prob` and `random_replace_prob` must be 1 at most together, got {shares}: the rest "
                "stays."
            )


@dataclass
class PretrainingArguments(JobArguments):
    """Arguments of training, with defaults that suit pre-training."""

    output_dir: str = option("outputs/pretrain", "Where checkpoints and the model go.")
    max_steps: int = option(1000, "Number of updates; -1 trains num_train_epochs instead.")
    learning_rate: float = option(1e-4, "Peak learning rate of AdamW (SpanBERT: 1e-4).")
    eval_strategy: str = option("no", "Also evaluated before and after training.")
    save_strategy: str = option("steps", "When checkpoints are written.")
    save_steps: float = option(500, "Updates between checkpoints.")

    long: ClassVar[bool] = True


GROUPS = (ModelArguments, DataArguments, ObjectiveArguments, PretrainingArguments)
