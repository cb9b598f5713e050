# meant: an empty batch.
# mistake: a size is at least 1.
tilewright run ../../examples/gemm.tile --device sim -p m=0
