# meant: to compile for Hopper.
# mistake: the architecture is called sm_90a.
tilewright compile ../../examples/gemm_hopper.tile --arch sm_90
