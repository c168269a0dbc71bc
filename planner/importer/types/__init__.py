"""Which row reads which ``model_type``."""

from __future__ import annotations

from collections.abc import Mapping

from planner.importer.engine import Row
from planner.importer.types import dense, early, encoder_decoders, encoders, gemma, hybrid, latent, moe, scan, vision

FAMILIES: Mapping[str, Row] = {
    **dense.ROWS,
    **moe.ROWS,
    **latent.ROWS,
    **early.ROWS,
    **encoders.ROWS,
    **encoder_decoders.ROWS,
    **scan.ROWS,
    **hybrid.ROWS,
    **gemma.ROWS,
    **vision.ROWS,
}
REFUSED: Mapping[str, str] = {
    "axk2": "has norms with a gate of low rank",
    "bailing_hybrid": "has delta attention with gates of full rank",
    "deepseek_v4": "mixes several residual streams (hyper-connections) and compresses keys in blocks",
    "ernie4_5_moe_vl": "lists the experts of text and of images under keys of its published code; ernie4_5_vl_moe is supported",
    "dory": "runs some of its layers twice",
    "hrm_text": "runs its two stacks of layers several times",
    "hy_v4": "mixes several residual streams (hyper-connections)",
    "jetmoe": "has attention whose queries and outputs are experts",
    "modernbert-decoder": "has a first layer without a norm before its attention",
    "phi4mm": "keeps adapters for images and sound in each layer; transformers' phi4_multimodal is supported",
    "reformer": "hashes keys to find those that a query looks at, on two reversible streams",
    "xlnet": "attends in two streams over relative positions",
    "zaya": "convolves queries and keys and routes by a network of its own",
    "zamba": "uses one attention block of twice the width in many places",
    "zamba2": "uses attention blocks of twice the width in many places, each time with other adapters",
}
"""Model types that are not supported, and why."""

SUPPORTED = tuple(sorted(FAMILIES))
"""The supported values of ``model_type``, sorted."""
