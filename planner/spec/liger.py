"""The kernels of liger-kernel by class of transformers.

Read from liger-kernel 0.8.5, transformers/monkey_patch.py: the arguments of its functions apply_liger_kernel_to_... and their defaults.
Classes whose kernels are not modeled are not listed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from planner.spec.records import Liger, ModelType

LOSSES = frozenset({"cross_entropy", "fused_linear_cross_entropy"})


@dataclass(frozen=True, slots=True)
class Switches:
    """The switches of a class. ``default``: those that are on by default; ``in_place``: its norms overwrite the gradients they get."""

    supported: frozenset[str]
    default: frozenset[str]
    in_place: bool = True


def _class(*kernels: str, in_place: bool = True) -> Switches:
    supported = frozenset(kernels) | LOSSES
    return Switches(supported, supported - {"cross_entropy"}, in_place)


def without_loss(of: Switches) -> Switches:
    """Return the switches of a class without ``cross_entropy``, which replaces a name that the class does not use."""
    return Switches(of.supported - {"cross_entropy"}, of.default, of.in_place)


AS_LLAMA = _class("rope", "rms_norm", "swiglu")
OF_GRANITE = AS_LLAMA.supported - {"fused_linear_cross_entropy"}
SWITCHES: dict[ModelType, Switches] = {
    **dict.fromkeys(("hunyuan_v1_dense", "llama", "phi3", "qwen2", "qwen3", "smollm3"), AS_LLAMA),
    **dict.fromkeys(("ministral", "mistral"), without_loss(AS_LLAMA)),
    **dict.fromkeys(("hunyuan_v1_moe", "mixtral", "qwen3_moe"), AS_LLAMA),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), _class("rms_norm", "swiglu")),
    "gemma": _class("rope", "rms_norm", "geglu"),
    **dict.fromkeys(("gemma2", "gemma3_text"), _class("rope", "rms_norm", "geglu", in_place=False)),
    "glm4": _class("rms_norm", "swiglu", in_place=False),
    "gpt_oss": _class("rope", "rms_norm"),
    "granite": Switches(OF_GRANITE, OF_GRANITE),
    "nemotron": without_loss(_class("relu_squared")),
    **dict.fromkeys(("exaone4", "olmo2", "olmo3"), _class("rope", "rms_norm", "swiglu", in_place=False)),
}
ONLY_EXPERTS: frozenset[ModelType] = frozenset({"hunyuan_v1_moe", "mixtral", "qwen3_moe"})  # whose other feed-forwards stay as they are


def switches_on(kind: ModelType, chosen: Liger) -> frozenset[str]:
    """Return the kernels that are on. Raises ValueError for a class or a switch without them."""
    if kind not in SWITCHES:
        raise ValueError(f"the kernels of liger-kernel are not modeled for class {kind}")
    has = SWITCHES[kind]
    wanted = {field.name: getattr(chosen, field.name) for field in fields(chosen)}
    if lacking := [name for name, on in wanted.items() if on and name not in has.supported]:
        raise ValueError(f"liger-kernel has no {lacking[0]} for class {kind}, but {', '.join(sorted(has.supported))}")
    on = frozenset(name for name in has.supported if (wanted[name] if wanted[name] is not None else name in has.default))
    if on >= LOSSES:
        raise ValueError("liger.cross_entropy requires liger.fused_linear_cross_entropy: false")
    return on
