# meant: a run without a GPU, on the simulator.
# mistake: PyTorch's `cpu` as the device; it is `sim`.
tilewright run ../../examples/gemm.tile --device cpu -p m=64 -p n=64 -p k=64
