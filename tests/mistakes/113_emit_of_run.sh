# meant: the PTX of a program.
# mistake: `--emit` belongs to `compile`, and not to `run`.
tilewright run ../../examples/gemm.tile --emit ptx
