# meant: a smaller problem.
# mistake: several sizes in one `-p`, as `--for` takes them.
tilewright run ../../examples/gemm.tile --device sim -p m=64,n=64,k=64
