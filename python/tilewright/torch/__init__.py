"""Operators of torch: ``torch.ops.tilewright.linear`` and others, and kernels as operators by `op`. Importing this imports torch.

They are registered by `torch.library`: shapes without data for ``torch.compile(fullgraph=True)``, gradients, and on the CPU torch's own
arithmetic as a reference (a kernel's is what its author gives, or the simulator where that is asked for by name).
"""

from ._kernels import op
from ._linear import linear

__all__ = ["linear", "op"]
