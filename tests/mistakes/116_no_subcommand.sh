# meant: to run a program.
# mistake: the subcommand `run` is missing.
tilewright ../../examples/gemm.tile
