"""MASS (Song et al. 2019, https://arxiv.org/abs/1905.02450; reference code microsoft/MASS, MASS-summarization).

An encoder reads a text of which a fragment is masked, a decoder predicts the fragment's tokens one after the other:

    loss = mean over fragment positions j of -log p(x_j | x_<j in the fragment, the masked text)

where the decoder is fed the token before each (`decoder_input_ids`) at its original position (`decoder_position_ids`).
Layers and names are BART's. Other than there, positions can be given and count real tokens: position t is row
pad_token_id + 1 + t of the reference's tables; there is no output bias.
"""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.generation import (
    GenerationConfig,
    GenerationMixin,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteriaList,
)
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqModelOutput,
    Seq2SeqSequenceClassifierOutput,
)
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .base_core import arguments_of
from .configuration_mass import AUTO_MAP, HF_PTM_EXT_VERSION, MassConfig
from .encoder_core import refuse_unknown_arguments
from .losses_core import problem_type_loss, values_can_be_read
from .mask_contract_core import read_attention_mask, refuse_learnt_tokens, takes_past_key_values, two_dimensional
from .search_core import (
    BeamSearchOutput,
    FairseqHypotheses,
    GenerationSettings,
    HypothesisSearch,
    end_tokens,
    given_config,
)
from .seq2seq_core import (
    Seq2SeqDecoderLayer,
    Seq2SeqDecoderStack,
    Seq2SeqEncoderLayer,
    Seq2SeqPreTrainedModel,
    Seq2SeqStack,
    position_limit,
    real_tokens,
    seq2seq_output,
    token_positions,
)
from .seq2seq_generation_core import (
    ConditionalGenerationHead,
    check_start,
    head_output,
    shift_right,
    target_length,
    with_inputs_of,
)


class MassPreTrainedModel(Seq2SeqPreTrainedModel):
    """Loading, saving and initialisation shared by all MASS classes."""

    config: MassConfig
    config_class = MassConfig
    # Left behind by fairseq and by the classes that wrote the Hub's checkpoints: versions, and a bias of zeros.
    _keys_to_ignore_on_load_unexpected = [r"encoder\.version$", r"decoder\.version$", r"final_logits_bias$"]
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION

    def tied_weights(self) -> dict[str, str]:
        """Which parameters are one by the configuration: name -> name of the parameter that it is."""
        return {}

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """As upstream, for two kinds of tying: of both embeddings, and of the output matrix."""
        return super().get_expanded_tied_weights_keys(True) if all_submodels else self.tied_weights()

    def _resize_token_embeddings(
        self, new_num_tokens: int, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        if not self.config.share_encoder_decoder_embeddings:  # upstream knows of the encoder's table alone
            decoder: Any = self.base_model.decoder
            old = decoder.embed_tokens
            new = self._get_resized_embeddings(old, new_num_tokens, pad_to_multiple_of, mean_resizing)
            new.requires_grad_(old.weight.requires_grad)
            decoder.embed_tokens = new
        return super()._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)


class MassPositionalEmbedding(nn.Embedding):
    """Learned positions behind the padding's row, which is zero; the rows before it are never read."""

    padding_idx: int

    def __init__(self, num_positions: int, embedding_dim: int, padding_idx: int):
        super().__init__(num_positions + padding_idx + 1, embedding_dim, padding_idx)

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        """`(batch or 1, seq_len, hidden)` from positions `(batch or 1, seq_len)`, -1 at padding."""
        return super().forward(positions + self.padding_idx + 1)


class MassEmbedding(MassPreTrainedModel):
    """What encoder and decoder share: embeddings of tokens and positions, LayerNorm, dropout."""

    def __init__(self, config: MassConfig, side: str):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = MassPositionalEmbedding(
            position_limit(config, side), config.d_model, config.pad_token_id
        )
        self.layernorm_embedding = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def embed(self, inputs_embeds: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Input of the first layer, `(batch, seq_len, hidden)`."""
        if self.config.scale_embedding:
            inputs_embeds = inputs_embeds * self.config.d_model**0.5
        return self.dropout(self.layernorm_embedding(inputs_embeds + self.embed_positions(positions)))


class MassEncoder(Seq2SeqStack, MassEmbedding):
    """The encoder, over the source."""

    def __init__(self, config: MassConfig):
        super().__init__(config, "source")
        self.layers = nn.ModuleList([Seq2SeqEncoderLayer(config, index) for index in range(config.encoder_layers)])
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Encode; inputs as in `MassModel`."""
        embeds = self.token_embeddings(input_ids, inputs_embeds)
        if attention_mask is None:
            attention_mask = real_tokens(self.config, input_ids)
        attention_mask = read_attention_mask(self.config, attention_mask, embeds)
        hidden_states = self.embed(embeds, token_positions(self.config, attention_mask, embeds, "source"))
        return BaseModelOutput(last_hidden_state=self.encode(hidden_states, attention_mask, **kwargs))


class MassDecoder(Seq2SeqDecoderStack, MassEmbedding):
    """The decoder, over what it is fed and the encoder's states."""

    def __init__(self, config: MassConfig):
        super().__init__(config, "target")
        self.layers = nn.ModuleList([Seq2SeqDecoderLayer(config, index) for index in range(config.decoder_layers)])
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decode; inputs as those of `MassModel` with `decoder_` in front."""
        embeds = self.token_embeddings(input_ids, inputs_embeds, "decoder_")
        cache = self.used_cache(cache, use_cache)
        mask, source_mask = self.read_masks(
            embeds, attention_mask, encoder_hidden_states, encoder_attention_mask, cache
        )
        if mask is None and input_ids is not None:
            self.check_no_leading_padding(input_ids)
        hidden_states = self.embed(embeds, self.positions(embeds, mask, position_ids, cache))
        return self.decode(hidden_states, mask, encoder_hidden_states, source_mask, cache, **kwargs)

    def check_no_leading_padding(self, input_ids: torch.Tensor) -> None:
        """Padding in front of a target needs a mask: without one the target would see it."""
        pad = self.config.pad_token_id
        if input_ids.shape[1] < 2 or pad == self.config.decoder_start_token_id or not values_can_be_read(input_ids):
            return
        leading = (input_ids[:, 0] == pad) & (input_ids != pad).any(dim=1)
        if leading.any():
            raise ValueError(
                "`decoder_input_ids` that begin with padding need `decoder_attention_mask`, got such rows at "
                f"{leading.nonzero().flatten().tolist()}. Pad targets on the right, or give the mask."
            )


class MassModel(MassPreTrainedModel):
    """The bare encoder and decoder.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import MassConfig, MassModel
        >>> config = MassConfig(
        ...     vocab_size=60, d_model=32, encoder_attention_heads=4, decoder_attention_heads=4, eos_token_id=3,
        ...     decoder_start_token_id=3,
        ... )
        >>> model = MassModel(config).eval()
        >>> masked = torch.tensor([[7, 8, 4, 4, 9, 3]])  # the fragment at positions 2 and 3 is hidden
        >>> output = model(
        ...     masked,
        ...     decoder_input_ids=torch.tensor([[8, 10]]),  # what stands before each hidden token
        ...     decoder_position_ids=torch.tensor([[1, 2]]),
        ... )
        >>> output.last_hidden_state.shape
        torch.Size([1, 2, 32])
    """

    _tied_weights_keys = {
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
    }

    def __init__(self, config: MassConfig):
        super().__init__(config)
        shares = config.share_encoder_decoder_embeddings
        self.shared = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id) if shares else None
        self.encoder = MassEncoder(config)
        self.decoder = MassDecoder(config)
        self.post_init()

    def tied_weights(self) -> dict[str, str]:
        return dict(self._tied_weights_keys) if self.shared is not None else {}

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens if self.shared is None else self.shared

    def set_input_embeddings(self, value: Any) -> None:
        self.encoder.embed_tokens = value
        if self.shared is not None:
            self.shared = self.decoder.embed_tokens = value

    @can_return_tuple
    @takes_past_key_values
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqModelOutput:
        """Encode and decode.

        Args:
            input_ids: `(batch, source_len)`, ending with the end token.
            attention_mask: `(batch, source_len)`, 1 real and 0 padding on either side; read off the padding token if
                left out.
            decoder_input_ids: `(batch, target_len)` tokens fed to the decoder; the source shifted right, as in BART,
                if left out.
            decoder_attention_mask: `(batch, cached + target_len)`; needed for targets padded on the left only.
            decoder_position_ids: `(batch, target_len)` 0-based positions of the tokens fed in the original sequence,
                -1 at padding; counted if left out.
            encoder_outputs: what the encoder returned, to be used again.
            cache: keys and values of earlier tokens and of the source, an `EncoderDecoderCache`.
            inputs_embeds: `(batch, source_len, hidden)` instead of `input_ids`, not scaled.
            decoder_inputs_embeds: `(batch, target_len, hidden)` instead of `decoder_input_ids`, not scaled.
            use_cache: whether the decoder makes a cache (default: the configuration's).
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream; others are refused.

        Returns:
            `last_hidden_state` `(batch, target_len, hidden)`, the cache and the encoder's
            `encoder_last_hidden_state` `(batch, source_len, hidden)`.

        Raises:
            ValueError: source or target longer than their positions, positions outside the table, an input missing
                or given twice.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, kwargs, arguments_of(MassModel))
        refuse_learnt_tokens(self, attention_mask, inputs_embeds, decoder_position_ids=decoder_position_ids)
        if attention_mask is None:
            attention_mask = real_tokens(self.config, input_ids)
        check_source_mask(attention_mask)
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids, decoder_attention_mask = self.shifted_source(input_ids, attention_mask)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask, inputs_embeds, return_dict=True, **kwargs)
        elif not isinstance(encoder_outputs, BaseModelOutput):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        decoded = self.decoder(
            decoder_input_ids,
            decoder_attention_mask,
            encoder_outputs.last_hidden_state,
            attention_mask,
            decoder_position_ids,
            cache,
            decoder_inputs_embeds,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        return seq2seq_output(encoder_outputs, decoded)

    def shifted_source(self, input_ids: torch.Tensor | None, mask: Any) -> tuple[torch.Tensor, Any]:
        """What the decoder is fed if nothing says so, and its mask."""
        if input_ids is None:
            raise ValueError(
                f"`decoder_input_ids` or `decoder_inputs_embeds` must be given, since `input_ids` are {input_ids}: "
                "there is nothing to make them from."
            )
        real: Any = mask if two_dimensional(mask) else real_tokens(self.config, input_ids)
        start: Any = self.config.decoder_start_token_id
        check_start(start, self.config.vocab_size)
        return shift_right(input_ids, real.bool(), start, self.config.pad_token_id), real


def mass_beam_search(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList | None = None,
    stopping_criteria: StoppingCriteriaList | None = None,
    generation_config: GenerationConfig | None = None,
    **model_kwargs: Any,
) -> torch.Tensor | BeamSearchOutput:
    """Decode as fairseq does: `generate(..., search_beam_size=K)`, or this function as `custom_generate`.

    A hypothesis [SEP] y1 .. yn [SEP] has the score sum log p / (n + 1) ** length_penalty; the rules are those of
    `FairseqHypotheses`, and padding never comes. fairseq's `min_len` is `min_new_tokens`, its `max_len_b` is
    `max_new_tokens - 1`, `lenpen` is `length_penalty`, `nbest` is `num_return_sequences`, `unkpen` is
    `sequence_bias={(unk_token_id,): -unkpen}`; `no_repeat_ngram_size` counts the leading [SEP] as there.
    """
    pad, ends = model.config.pad_token_id, end_tokens(model, given_config(generation_config))

    def without_padding(ids: torch.Tensor, log_probs: torch.Tensor) -> torch.Tensor:
        return log_probs if pad in ends else log_probs.index_fill(1, ids.new_tensor([pad]), float("-inf"))

    processors = [without_padding, *(logits_processor or ())]
    return HypothesisSearch(
        model, input_ids, FairseqHypotheses, processors, stopping_criteria, generation_config, model_kwargs
    ).run()


class MassForConditionalGeneration(
    ConditionalGenerationHead, MassPreTrainedModel, GenerationMixin, model=MassModel, search=mass_beam_search
):
    """MASS with its output matrix: pre-training, fine-tuning, generation.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import MassConfig, MassForConditionalGeneration
        >>> config = MassConfig(
        ...     vocab_size=60, d_model=32, encoder_attention_heads=4, decoder_attention_heads=4, eos_token_id=3,
        ...     decoder_start_token_id=3,
        ... )
        >>> model = MassForConditionalGeneration(config)
        >>> source = torch.tensor([[7, 8, 9, 3], [7, 3, 0, 0]])
        >>> model(source, labels=torch.tensor([[8, 9, 3], [7, 3, -100]])).loss.dim()
        0
        >>> model.eval().generate(source, max_new_tokens=5, min_new_tokens=5, do_sample=False).shape
        torch.Size([2, 6])
    """

    _tied_weights_keys = {"lm_head.weight": "model.shared.weight"}
    _prediction_heads = {"lm_head": "output matrix"}

    def tied_weights(self) -> dict[str, str]:
        if not self.config.tie_word_embeddings:
            return {}
        table = "decoder.embed_tokens" if self.model.shared is None else "shared"
        return {"lm_head.weight": f"model.{table}.weight"}

    def generate(
        self,
        inputs: torch.Tensor | None = None,
        eos_at_limit: bool = False,
        search_beam_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Generate as upstream does, by any of its strategies, or by fairseq's beam search.

        Args:
            inputs: `(batch, source_len)` sources, also accepted as `input_ids`; padding on either side, marked by
                `attention_mask` or by the padding token.
            eos_at_limit: whether the last token must be the end token, at its own log-probability as in fairseq
                (default False: hypotheses are cut off at the limit). Replaces `forced_eos_token_id`, which scores it
                0.
            search_beam_size: number of beams of fairseq's beam search (see `mass_beam_search`), which gives the
                reference's hypotheses and scores; upstream's (`num_beams`) keeps other ones of those that end.
            kwargs: as upstream; `max_new_tokens` counts the target, `max_length` the start token too.

        Returns:
            Targets, `(batch, length)`, beginning with the start token; or upstream's output object.

        Raises:
            ValueError: the target may become longer than the decoder's positions, its start token is not in the
                vocabulary, or there is no end token for `eos_at_limit`.
        """
        settings = GenerationSettings(kwargs, self.generation_config)
        sources = kwargs.get("input_ids") if inputs is None else inputs
        kwargs = self.checked_generation(sources, search_beam_size, kwargs)
        if eos_at_limit:
            limit, end = target_length(settings, settings["decoder_start_token_id"]), settings["eos_token_id"]
            if end is None:
                raise ValueError(f"`eos_at_limit` needs an end token, got {end}: set `eos_token_id`.")
            processors = [*(kwargs.get("logits_processor") or []), EndAtLimitLogitsProcessor(limit, end)]
            kwargs["logits_processor"] = LogitsProcessorList(processors)
            kwargs["forced_eos_token_id"] = None
        return super().generate(inputs, **kwargs)


class EndAtLimitLogitsProcessor(LogitsProcessor):
    """At the last step nothing but an end token may come, with its own score as in fairseq (upstream's gives it 0)."""

    def __init__(self, max_length: int, eos_token_id: int | list[int]):
        self.max_length = max_length
        self.eos_token_id = eos_token_id if isinstance(eos_token_id, list) else [eos_token_id]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores `(batch, vocab_size)`, unchanged before the last step."""
        if input_ids.shape[-1] != self.max_length - 1:
            return scores
        ends = torch.full_like(scores, float("-inf"))
        ends[:, self.eos_token_id] = scores[:, self.eos_token_id]
        return ends


class MassClassificationHead(nn.Module):
    """Dense, tanh and projection over one state per row (`classification_head` in the state dict)."""

    def __init__(self, config: MassConfig):
        super().__init__()
        self.dense = nn.Linear(config.d_model, config.d_model)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.out_proj = nn.Linear(config.d_model, config.num_labels)  # type: ignore[arg-type]

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """`(batch, hidden)` to `(batch, num_labels)`."""
        return self.out_proj(self.dropout(torch.tanh(self.dense(self.dropout(states)))))


class MassForSequenceClassification(MassPreTrainedModel):
    """MASS with a classification or regression head on the decoder's state at the last token, as BART's.

    The text is fed to both sides; the reference has no such head.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import MassConfig, MassForSequenceClassification
        >>> config = MassConfig(
        ...     vocab_size=60, d_model=32, encoder_attention_heads=4, decoder_attention_heads=4, eos_token_id=3,
        ...     decoder_start_token_id=3, num_labels=3,
        ... )
        >>> model = MassForSequenceClassification(config)
        >>> output = model(torch.tensor([[7, 8, 3], [9, 3, 0]]), labels=torch.tensor([2, 0]))
        >>> output.logits.shape, config.problem_type
        (torch.Size([2, 3]), 'single_label_classification')
    """

    def __init__(self, config: MassConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = MassModel(config)
        self.classification_head = MassClassificationHead(config)
        self.post_init()

    @with_inputs_of(MassModel, without=("cache", "use_cache"))
    def forward(
        self, labels: torch.Tensor | None = None, num_items_in_batch: torch.Tensor | int | None = None, **inputs: Any
    ) -> Seq2SeqSequenceClassifierOutput:
        """Classify.

        Args:
            labels: `(batch,)` classes or regression targets, `(batch, num_labels)` for several labels.
            num_items_in_batch: number of labels over all micro-batches of one update.
            inputs: the model's inputs, and `output_hidden_states`, `output_attentions`, `return_dict` as upstream;
                `inputs_embeds` need one of the decoder's inputs.

        Returns:
            `loss` and `logits` `(batch, num_labels)`.

        Raises:
            ValueError: as `MassModel`, and a `problem_type` that does not exist.
        """
        outputs = self.model(**{**inputs, "use_cache": False, "return_dict": True})
        states, real = outputs.last_hidden_state, self.real_targets(inputs)
        last = torch.full_like(states[:, 0, 0], states.shape[1] - 1, dtype=torch.long)
        if real is not None:
            columns = torch.arange(1, states.shape[1] + 1, device=states.device)
            last = (real.long() * columns).argmax(dim=1)
        logits = self.classification_head(states[torch.arange(states.shape[0], device=states.device), last])
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return head_output(Seq2SeqSequenceClassifierOutput, outputs, loss=loss, logits=logits)

    def real_targets(self, inputs: dict[str, Any]) -> torch.Tensor | None:
        """`(batch, target_len)`, true at real tokens of what the decoder is fed; `None` if nothing tells."""
        if two_dimensional(inputs.get("decoder_attention_mask")):
            return inputs["decoder_attention_mask"]
        if inputs.get("decoder_inputs_embeds") is not None:
            return None
        if inputs.get("decoder_input_ids") is not None:
            return real_tokens(self.config, inputs["decoder_input_ids"])
        if two_dimensional(inputs.get("attention_mask")):
            return inputs["attention_mask"]
        return real_tokens(self.config, inputs.get("input_ids"))


def check_source_mask(mask: Any) -> None:
    """Refuse a source mask with a row for each token of the source: it says nothing about what the target may see."""
    if torch.is_tensor(mask) and mask.dim() > 2 and mask.shape[-2] != 1:
        raise ValueError(
            "`attention_mask` must be (batch, source_len), or have one query for all, since the target sees the "
            f"source by it too, got shape {tuple(mask.shape)}. For a mask of the source alone call the encoder, and "
            "pass `encoder_outputs`."
        )
