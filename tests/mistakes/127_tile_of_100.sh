# meant: tiles that fit m = 100 exactly.
# mistake: the tile of a product is 100 rows, no multiple of 16.
tilewright run ../../examples/gemm.tile --device sim -p m=100 -p n=64 -p k=64 -p BM=100
