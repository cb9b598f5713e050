# meant: a smaller problem.
# mistake: a size is given by an option of its own, and not with `-p`.
tilewright run ../../examples/gemm.tile --device sim -m 64 -n 64 -k 64
