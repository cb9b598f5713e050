# meant: ten orders of warps.
# mistake: `--seeds` takes a number, and not a range.
tilewright run ../../examples/gemm.tile --device sim -p m=64 -p n=64 -p k=64 --seeds 0..10
