# meant: to run on the fourth GPU.
# mistake: this machine has no GPU of that number.
tilewright run ../../examples/gemm.tile --device cuda:3
