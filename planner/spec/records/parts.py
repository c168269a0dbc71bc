"""The other parts of a layer: feed-forward, experts, norms, positions, and tensors that the user declares."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal

from planner.spec.key import group, key, of_layer, record

Activation = Literal["gelu", "gelu_tanh", "gelu_new", "relu", "relu_squared", "silu"]
NormType = Literal["layernorm", "rmsnorm"]
NormPlacement = Literal["before", "after", "before_and_after", "after_residual"]
PositionType = Literal["learned", "rope", "alibi", "sinusoidal", "none"]
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
    type: ClassVar[Literal["plain", "gated", "rwkv", "none"]] = key("plain: down(activation(up(x))), two matrices. gated: "
        "down(activation(gate(x)) * up(x)), three. rwkv: the channel mixing of RWKV-4, whose activation is relu_squared. none: no "
        "feed-forward. A name, no unit.", title="Feed-forward type", default="plain",
        values={"gated": "swiglu geglu glu gated_mlp llama llamamlp", "plain": "mlp standard dense gptneoxmlp", "rwkv": "channel_mix"})
    gated: bool = False
    activation: Activation = key("The activation function (a name, no unit). gelu_tanh is the tanh approximation, gelu_new the same "
        "written out operator by operator; gated with silu is SwiGLU, gated with gelu is GeGLU.", title="Activation", default="gelu",
        aliases="hidden_act activation_function hidden_activation act_fn", values={
        "gelu_tanh": "gelu_fast gelu_pytorch_tanh gelu_approximate gelu-tanh", "relu_squared": "relu2 squared_relu relu^2 squaredrelu",
        "silu": "swish swiglu", "gelu": "geglu gelu_python gelu_none"})
    bias: ClassVar[bool] = group("Which matrices add a bias vector: true or false for all, or each by its name (no unit).",
        title="Feed-forward biases", form="boolean", default=True)
    gate_bias: bool = key("The gate projection of a gated feed-forward adds a bias (true or false, no unit).", title="Gate bias",
        path="bias.gate", default=True)
    up_bias: bool = key("The up projection adds a bias (true or false, no unit).", title="Up bias", path="bias.up", default=True)
    down_bias: bool = key("The down projection adds a bias (true or false, no unit).", title="Down bias", path="bias.down", default=True)
    hidden_norm: bool = key("A norm of d_ff before the last matrix, as in BitNet (true or false, no unit).", title="Hidden norm",
        default=False, quiet=True)
    channel_mix: bool = False  # RWKV's: a receptance gate and two mixing vectors beside key (up) and value (down)


@record
class Experts:
    """Routed experts, each a small feed-forward, of which a token takes ``top_k``."""

    count: int = key("Routed experts (unit: experts).", title="Experts", example=8, aliases="num_experts num_local_experts "
        "n_routed_experts n_experts moe_num_experts num_moe_experts n_expert")
    top_k: int = key("Experts that a token takes (unit: experts).", title="top_k", example=2, aliases="num_experts_per_tok "
        "num_experts_per_token moe_top_k moe_k n_expert_per_token moe_router_topk num_selected_experts router_top_k experts_per_token")
    d_ff: int = key("Width of the hidden layer of one expert (unit: channels).", title="Expert d_ff", example=14336,
        aliases="moe_intermediate_size expert_ffn_hidden_size moe_ffn_hidden_size expert_dim")
    type: ClassVar[Literal["plain", "gated"]] = key("plain: down(activation(up(x))), two matrices. gated: down(activation(gate(x)) * "
        "up(x)), three. A name, no unit.", title="Expert type", default="gated",
        values={"gated": "swiglu geglu glu gated_mlp llama llamamlp", "plain": "mlp standard dense gptneoxmlp"})
    gated: bool = True
    activation: Activation = key("The activation function of the experts (a name, no unit).", title="Expert activation", default="silu")
    bias: bool = key("The matrices of each expert add a bias (true or false, no unit).", title="Expert biases", default=False)
    scoring: Scoring = key("How the router's scores become weights (a name, no unit).", title="Scoring", default="softmax",
        aliases="scoring_func score_func moe_router_score_function router_scoring score_function", values={"sigmoid": "noaux_tc"})
    normalize: bool = key("The weights of the chosen experts are scaled to sum to one (true or false, no unit).", title="Normalize",
        default=True, aliases="norm_topk_prob route_norm norm_expert_weight moe_renormalize")
    scores_dtype: ScoresDtype = key("Data type of the weights that the experts' results are multiplied by: float32, or that of the "
        "computation (a name, no unit).", title="Data type of scores", default="fp32")
    router_bias: bool = key("The router adds a bias (true or false, no unit).", title="Router bias", default=False)
    correction_bias: CorrectionBias = key("A bias on the scores that only the choice of experts reads: none, a buffer (not a parameter), "
        "or a parameter. A name, no unit.", title="Correction bias", default="none", aliases="use_routing_bias "
        "moe_router_enable_expert_bias use_expert_bias e_score_correction_bias")
    shared: ClassVar[object] = group("The feed-forward that every token takes beside its experts (sizes are counts). Needs d_ff.",
        title="Shared experts", form="none", aliases="n_shared_experts num_shared_experts moe_num_shared_experts shared_experts "
        "shared_expert")
    shared_d_ff: int | None = key("Width of its hidden layer, all shared experts together (unit: channels).", title="Shared d_ff",
        path="shared.d_ff", default=None, example=2048, aliases="shared_expert_intermediate_size moe_shared_expert_intermediate_size "
        "shared_intermediate_size")
    shared_gate: bool = key("A sigmoid gate multiplies its result, as in Qwen2-MoE (true or false, no unit).", title="Shared gate",
        path="shared.gate", default=False)
    latent_dim: int | None = key("Experts work at this width, behind one projection down and one up a layer (unit: channels). none: at "
        "d_model.", title="Latent width", default=None, quiet=True, none="yes", example=1024, aliases="moe_latent_size")
    empty: int = key("Experts that only the router knows: they return their input (unit: experts).", title="Empty experts", default=0,
        quiet=True, least=0, example=256, aliases="zero_expert_num")
    capacity_factor: Fraction = key("Rows computed for each routed token (a ratio without unit, at least 1).", title="Capacity factor",
        default=Fraction(1), quiet=True, least=1, example=1.25, aliases="expert_capacity_factor moe_expert_capacity_factor "
        "moe_capacity_factor expert_capacity")
    beside_feed_forward: ClassVar[bool] = key("The layer has its dense feed-forward too, beside the experts (true or false, no unit).",
        title="Beside the feed-forward", default=False, quiet=True)


@record
class Norm:
    """One normalisation: what it is and which vectors of width d it stores."""

    type: NormType = key("layernorm (mean and variance) or rmsnorm (root mean square). A name, no unit.", title="Norm type",
        default="layernorm", aliases="norm_type norm_class_name normalization",
        values={"layernorm": "layer_norm ln layer-norm", "rmsnorm": "rms rms_norm rms-norm"})
    weight: bool = key("The norm has a scale vector (true or false, no unit).", title="Norm weight", default=True)
    bias: bool = key("The norm has a shift vector (true or false, no unit). Default: true for layernorm with weight, otherwise false.",
        title="Norm bias", default=True, derived="true for layernorm with weight, otherwise false")
    placement: ClassVar[NormPlacement] = key("Before each sublayer; after it, on its output, before the residual is added; both; or after "
        "the residual is added (after_residual). A name, no unit.", title="Norm placement", default="before",
        values={"before": "pre pre_norm", "after": "post post_norm", "before_and_after": "both sandwich",
        "after_residual": "post_ln residual"})
    unit_offset: bool = key("Rmsnorm only: what is stored is added to one, as in Gemma (true or false, no unit).", title="Unit offset",
        default=False, quiet=True, aliases="apply_layernorm_1p zero_centered_gamma add_unit_offset")


@record
class Positions:
    """How a layer or the embedding learns where a token stands."""

    type: PositionType = key("learned: a table with a row for each position. rope: queries and keys are rotated. alibi: a bias on the "
        "scores. sinusoidal: fixed waves are added. A name, no unit.", title="Position type", default="learned",
        values={"rope": "rotary rotary_embedding", "learned": "absolute learnt learnable learned_absolute",
        "sinusoidal": "sin sine fixed sinusoid", "none": "nope no off false null"})
    offset: int = key("Learned only: rows of the table before position 0 (unit: rows). OPT has 2.", title="Offset", default=0, least=0)
    rotary_dim: int = key("Rope only: how many channels of each head are rotated (unit: channels, even). Default: head_dim.",
        title="rotary_dim", default=0, derived="head_dim", example=64, aliases="rotary_pct partial_rotary_factor rotary_percentage")


@record
class Extra:
    """A tensor that the user declares: counted in its component, and multiplied by each token ``uses`` times."""

    name: str = key("Its name in the module: letters, digits, _ and . (text without unit).", title="Tensor name", longest=100,
        example="lambda_q1")
    shape: tuple[int, ...] = key("Its sizes: integers, or products of the spec's own sizes such as 2*d_model (unit: elements). Names: V, "
        "d_model, n_layers, n_heads, n_kv_heads, head_dim, d_ff, context_length.", title="Shape",
        example=["d_model", 3, "n_heads*head_dim"])
    component: Component = key("The component in which it is counted (a name, no unit).", title="Component", usual="other")
    uses: int = key("How many times a forward pass multiplies it by each token: 2 FLOPs for each element and use (unit: uses).",
        title="Uses", default=0, least=0, example=1)
