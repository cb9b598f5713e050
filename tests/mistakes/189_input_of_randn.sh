# meant: a run with normally distributed numbers in `a`.
# mistake: PyTorch's `randn` as what `--input` takes; it is `normal(0, 1)`.
tilewright run ../../examples/gemm.tile --device sim -p m=64 -p n=64 -p k=64 --input a=randn
