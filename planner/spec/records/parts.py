"""The other parts of a layer: feed-forward, experts, norms, positions, and tensors that the user declares."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal

from planner.spec.key import group, key, of_layer, record

Activation = Literal["gelu", "gelu_tanh", "gelu_new", "quick_gelu", "relu", "relu_squared", "silu"]
NormType = Literal["layernorm", "rmsnorm"]
NormPlacement = Literal["before", "after", "before_and_after", "after_residual"]
PositionType = Literal["learned", "rope", "alibi", "sinusoidal", "bucketed", "none"]
Scoring = Literal["softmax", "sigmoid"]
ScoresDtype = Literal["fp32", "compute"]
CorrectionBias = Literal["none", "buffer", "parameter"]
Component = Literal[
    "embedding", "position", "attention", "feed_forward", "ssm", "experts", "shared_experts", "router", "norm", "head", "other"
]


# A table, in which a key takes a line or two.
# fmt: off

@record
class FeedForward:
    """Plain: up, activation, down. Gated: activation(gate) * up, down."""

    d_ff: int = of_layer()
    type: ClassVar[Literal["plain", "gated", "rwkv", "none"]] = key("plain: down(activation(up(x))). gated: down(activation(gate(x)) * "
        "up(x)). rwkv: the channel mixing of RWKV-4, with activation relu_squared. none: no feed-forward.", default="plain",
        values={"gated": "swiglu geglu glu gated_mlp llama llamamlp", "plain": "mlp standard dense gptneoxmlp", "rwkv": "channel_mix"})
    gated: bool = False
    activation: Activation = key("Activation function. gelu_tanh is the tanh approximation, gelu_new the same as separate operators, "
        "quick_gelu x * sigmoid(1.702 * x); gated with silu is SwiGLU, gated with gelu is GeGLU.", default="gelu",
        aliases="hidden_act activation_function hidden_activation act_fn",
        values={"gelu_tanh": "gelu_fast gelu_pytorch_tanh gelu_approximate gelu-tanh",
        "relu_squared": "relu2 squared_relu relu^2 squaredrelu", "silu": "swish swiglu", "gelu": "geglu gelu_python gelu_none"})
    bias: ClassVar[bool] = group("Matrices with a bias: true or false for all, or per matrix (gate, up, down).", form="boolean",
        default=True)
    gate_bias: bool = key("Bias of the gate projection of a gated feed-forward.", path="bias.gate", default=True)
    up_bias: bool = key("Bias of the up projection.", path="bias.up", default=True)
    down_bias: bool = key("Bias of the down projection.", path="bias.down", default=True)
    hidden_norm: bool = key("Norm of the hidden layer before the down projection, as in BitNet.", default=False, quiet=True)
    sparse: bool = key("Keep only the largest values of the gate, those above a cutoff from its mean and standard deviation, as in the "
        "first layers of Gemma 3n.", default=False, quiet=True, only="feed_forward.type: gated")
    channel_mix: bool = False  # RWKV's: a receptance gate and two mixing vectors beside key (up) and value (down)


@record
class Experts:
    """Routed experts, each a small feed-forward, of which a token takes ``top_k``."""

    count: int = key("Number of routed experts.", "experts", example=8, aliases="num_experts num_local_experts n_routed_experts n_experts "
        "moe_num_experts num_moe_experts n_expert")
    top_k: int = key("Experts per token.", "experts", example=2, aliases="num_experts_per_tok num_experts_per_token moe_top_k moe_k "
        "n_expert_per_token moe_router_topk num_selected_experts router_top_k experts_per_token")
    d_ff: int = key("Hidden width of one expert.", "channels", example=14336, aliases="moe_intermediate_size expert_ffn_hidden_size "
        "moe_ffn_hidden_size expert_dim")
    type: ClassVar[Literal["plain", "gated"]] = key("plain: down(activation(up(x))). gated: down(activation(gate(x)) * up(x)).",
        default="gated", values={"gated": "swiglu geglu glu gated_mlp llama llamamlp", "plain": "mlp standard dense gptneoxmlp"})
    gated: bool = True
    activation: Activation = key("Activation function of the experts.", default="silu")
    bias: bool = key("Bias of the matrices of each expert.", default=False)
    scoring: Scoring = key("Function that turns router scores into weights.", default="softmax",
        aliases="scoring_func score_func moe_router_score_function router_scoring score_function", values={"sigmoid": "noaux_tc"})
    normalize: bool = key("Normalize the weights of the selected experts to sum to one.", default=True,
        aliases="norm_topk_prob route_norm norm_expert_weight moe_renormalize")
    scores_dtype: ScoresDtype = key("Data type of the router weights that multiply the experts' outputs: fp32, or that of the computation "
        "(compute).", default="fp32")
    router_bias: bool = key("Bias of the router.", default=False)
    correction_bias: CorrectionBias = key("Router correction bias, used only to select experts: none, a buffer (not a parameter), or a "
        "parameter, which has no gradient.", default="none",
        aliases="use_routing_bias moe_router_enable_expert_bias use_expert_bias e_score_correction_bias")
    shared: ClassVar[object] = group("Shared experts: a feed-forward for every token beside its routed experts.", form="none",
        aliases="n_shared_experts num_shared_experts moe_num_shared_experts shared_experts shared_expert")
    shared_d_ff: int | None = key("Hidden width of all shared experts together.", "channels", path="shared.d_ff", default=None, needed=True,
        example=2048, aliases="shared_expert_intermediate_size moe_shared_expert_intermediate_size shared_intermediate_size")
    shared_gate: bool = key("Sigmoid gate on the output of the shared experts, as in Qwen2-MoE.", path="shared.gate", default=False)
    latent_dim: int | None = key("Width at which the experts work, between one projection down and one up per layer.", "channels",
        default=None, quiet=True, none="d_model, without projections", example=1024, aliases="moe_latent_size")
    output_norm: bool = key("Norm of the summed outputs of routed and shared experts, as in A.X-K1.", default=False, quiet=True)
    empty: int = key("Number of zero-computation (identity) experts, as in LongCat-Flash.", "experts", default=0, quiet=True, least=0,
        example=256, aliases="zero_expert_num")
    capacity_factor: Fraction = key("Rows computed per routed token; at least 1.", default=Fraction(1), quiet=True, least=1, example=1.25,
        aliases="expert_capacity_factor moe_expert_capacity_factor moe_capacity_factor expert_capacity")
    beside_feed_forward: ClassVar[bool] = key("Keep the dense feed-forward beside the experts.", default=False, quiet=True)


@record
class Norm:
    """One normalisation: what it is and which vectors of width d it stores."""

    type: NormType = key("layernorm (mean and variance) or rmsnorm (root mean square).", default="layernorm",
        aliases="norm_type norm_class_name normalization",
        values={"layernorm": "layer_norm ln layer-norm", "rmsnorm": "rms rms_norm rms-norm"})
    weight: bool = key("The norms have a weight (scale).", default=True)
    bias: bool = key("The norms have a bias (shift).", default=True, only="norm.type: layernorm; norm.weight: true",
        derived="true for layernorm with weight, otherwise false")
    unit_offset: bool = key("The stored weight is added to one, as in Gemma.", default=False, quiet=True,
        only="norm.type: rmsnorm; norm.weight: true",
        aliases="apply_layernorm_1p zero_centered_gamma add_unit_offset")


@record
class Positions:
    """Position encoding of a layer or of the embedding."""

    type: PositionType = key("learned: an embedding per position. rope: rotated queries and keys. alibi: a bias on the attention scores. "
        "sinusoidal: a fixed encoding added to the embedding. bucketed: a learned bias of the scores for each range of distances, as "
        "in T5.", default="learned",
        values={"rope": "rotary rotary_embedding", "learned": "absolute learnt learnable learned_absolute",
        "sinusoidal": "sin sine fixed sinusoid", "bucketed": "relative t5 relative_bias", "none": "nope no off false null"})
    offset: int = key("Rows of the embedding before position 0; OPT has 2.", "rows", default=0, least=0, only="positions.type: learned")
    frozen: bool = key("The embedding of positions does not train, as in Pegasus.", default=False, quiet=True,
        only="positions.type: learned")
    rotary_dim: int = key("Rotated channels per head, an even number.", "channels", default=0, derived="head_dim",
        only="positions.type: rope", example=64,
        aliases="rotary_pct partial_rotary_factor rotary_percentage")
    buckets: int = key("Rows of the table of each stack.", "rows", default=32, only="positions.type: bucketed",
        aliases="relative_attention_num_buckets num_buckets")
    per_layer: bool = key("Each layer has a table of its own, as in UMT5.", default=False, only="positions.type: bucketed")


@record
class Extra:
    """A tensor that the user declares: counted in its component, and multiplied by each token ``uses`` times."""

    name: str = key("Name of the tensor: letters, digits, _ and dots.", longest=100, example="lambda_q1")
    shape: tuple[int, ...] = key("Sizes: integers, or products of the spec's own sizes such as 2*d_model. Names: V, d_model, n_layers, "
        "n_heads, n_kv_heads, head_dim, d_ff, context_length.", "elements", example=["d_model", 3, "n_heads*head_dim"])
    component: Component = key("Component in which the tensor is counted.", usual="other")
    uses: int = key("Matrix products with the tensor per token and forward pass: 2 FLOPs per element each.", "uses", default=0, least=0,
        example=1)
