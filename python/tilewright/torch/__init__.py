"""Operators of torch under ``torch.ops.tilewright``, and kernels as operators by `op`. Importing this imports torch.

They are registered by `torch.library`: shapes without data for ``torch.compile(fullgraph=True)``, gradients where kernels have them, and on the
CPU torch's own arithmetic as a reference (a kernel's is what its author gives, or the simulator where that is asked for by name).
"""

from ._attention import attention, attention_decode
from ._divergence import jsd, kl_div
from ._drop_in import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
    scaled_dot_product_attention,
)
from ._experts import ExpertsW4, moe, moe_routing
from ._gated import gated, swiglu
from ._kernels import op
from ._linear import add_linear, gated_linear, linear
from ._losses import cross_entropy, linear_cross_entropy
from ._norms import layer_norm, rms_norm, softmax
from ._ragged import attention_ragged
from ._rope import rope
from ._scan import causal_conv1d, mamba2, selective_scan
from . import _scan_backward  # gradients of these
from ._weights import LinearW4

__all__ = [
    "ExpertsW4",
    "LinearW4",
    "add_linear",
    "attention",
    "attention_decode",
    "attention_ragged",
    "causal_conv1d",
    "cross_entropy",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "gated",
    "gated_linear",
    "jsd",
    "kl_div",
    "layer_norm",
    "linear",
    "linear_cross_entropy",
    "mamba2",
    "moe",
    "moe_routing",
    "op",
    "rms_norm",
    "rope",
    "scaled_dot_product_attention",
    "selective_scan",
    "softmax",
    "swiglu",
]
