# meant: the program of softmax for rows of 1000.
# mistake: n is a size of the problem and not a parameter of the operator; `--for n=1000` chooses for it.
tilewright kernels softmax -p n=1000
