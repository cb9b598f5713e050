# meant: to try the example as it stands.
# mistake: its default sizes, 4096 each, are far too many for the simulator.
timeout 30 tilewright run ../../examples/gemm_hopper.tile --device sim
