# meant: to run an example.
# mistake: the file's name has an underscore, gemm_shared.tile.
tilewright run ../../examples/gemm-shared.tile --device sim
