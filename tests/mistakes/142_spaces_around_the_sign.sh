# meant: a smaller problem.
# mistake: spaces around `=` in `-p`.
tilewright run ../../examples/gemm.tile --device sim -p m = 64
