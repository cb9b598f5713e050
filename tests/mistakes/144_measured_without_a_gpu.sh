# meant: the time of a matrix product.
# mistake: times are measured on a GPU, and this machine has none.
tilewright bench gemm --shapes 1024,1024,1024
