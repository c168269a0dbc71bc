"""Compute-optimal training tokens for a number of parameters, by published fits of the loss.

Approach 3 of Hoffmann et al. 2022 (arXiv:2203.15556) fits L(N, D) = E + A/N^alpha + B/D^beta. Along a budget of 6·N·D FLOPs it is lowest
where alpha·A/N^alpha = beta·B/D^beta, which gives D for N.
"""

from __future__ import annotations

from dataclasses import dataclass

TOKENS_PER_PARAMETER = 20  # the result of approaches 1 and 2 of Hoffmann et al. at Chinchilla's budget
_DIGITS = 4  # significant; the fits are no better


@dataclass(frozen=True, slots=True)
class LossFit:
    """A fit of the loss, and its source."""

    name: str
    source: str
    A: float
    B: float
    alpha: float
    beta: float


FITS = (
    LossFit(
        "Hoffmann et al. 2022, approach 3",
        "arXiv:2203.15556, constants of its TeX source; the paper's text rounds them, which Besiroglu et al. show to mislead",
        A=406.401018,
        B=410.722827,
        alpha=0.33917084,
        beta=0.2849083,
    ),
    LossFit("Besiroglu et al. 2024", "arXiv:2404.10102, re-fit of the same data", A=482.01, B=2085.43, alpha=0.3478, beta=0.3658),
)


def by_rule(params: int) -> int:
    """Return 20 tokens per parameter."""
    return TOKENS_PER_PARAMETER * params


def tokens(fit: LossFit, params: int) -> int:
    """Return the optimal tokens for a number of parameters by the fit, to four significant digits."""
    optimum: float = (fit.beta * fit.B / (fit.alpha * fit.A) * params**fit.alpha) ** (1 / fit.beta)
    return int(round(optimum, _DIGITS - len(str(int(optimum)))))
