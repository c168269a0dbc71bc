"""The language model inside a composite model of transformers, which cannot be built alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.modeling_outputs import CausalLMOutputWithPast

TOWERS = ("image_embed", "audio_embed")  # inside the decoder of Phi-4-multimodal


class LanguagePart(nn.Module):
    """The decoder and the LM head of a composite model, with the loss of transformers' models."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401 - a model of transformers, which has no common type here
        super().__init__()
        model.tie_weights()
        self.title = f"language model of {type(model).__name__}"
        self.config = model.config
        self.decoder, self.lm_head = model.get_decoder(), model.get_output_embeddings()
        extended = getattr(self.decoder, "embed_tokens_extend", None)
        for name in TOWERS if extended else ():
            setattr(extended, name, None)

    def tie_weights(self) -> None:
        """Do nothing: the composite model has tied its weights."""

    def gradient_checkpointing_enable(self, options: dict[str, bool]) -> None:
        """Recompute the decoder's layers."""
        self.decoder.gradient_checkpointing_enable(options)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> CausalLMOutputWithPast:
        """Return the logits of text, and the loss if there are labels."""
        output = self.decoder(input_ids=input_ids, use_cache=self.config.use_cache)
        logits = self.lm_head(output.last_hidden_state)
        loss = None if labels is None else ForCausalLMLoss(logits, labels, logits.shape[-1])
        return CausalLMOutputWithPast(loss=loss, logits=logits)


def builder(model: Callable[[Any], nn.Module]) -> Callable[[Any], LanguagePart]:
    """Return the function that builds the language part of a composite model from its configuration."""
    return lambda config: LanguagePart(model(config))
