# meant: PTX in a file.
# mistake: `run` has no `-o`; `compile` has.
tilewright run ../../examples/gemm.tile -o gemm.ptx
