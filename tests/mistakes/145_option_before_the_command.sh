# meant: to run on the simulator.
# mistake: the option stands before the subcommand.
tilewright --device sim run ../../examples/gemm.tile
