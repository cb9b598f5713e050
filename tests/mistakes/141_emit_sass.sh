# meant: the machine code.
# mistake: there is PTX, and no SASS.
tilewright compile ../../examples/gemm.tile --emit sass
