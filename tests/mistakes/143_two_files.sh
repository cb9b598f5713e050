# meant: to run two examples.
# mistake: `run` takes one file.
tilewright run ../../examples/transpose.tile ../../examples/gemm.tile --device sim
