"""Token mixers other than attention: state-space layers, linear attention, gated recurrences and short convolutions.

Each has the projections of the model that published it. Between them run either one kernel that its authors ship (mamba-ssm,
causal-conv1d, flash-linear-attention), which saves its inputs, or the operators that transformers 5.24 runs without these packages.

x is [B, n, d].
"""
