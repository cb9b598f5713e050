# meant: a smaller problem.
# mistake: the size is called m, and not M.
tilewright run ../../examples/gemm.tile --device sim -p M=64 -p n=64 -p k=64
