# meant: to compile for the simulator.
# mistake: `--device` belongs to `run`, and not to `compile`.
tilewright compile ../../examples/gemm.tile --device sim
