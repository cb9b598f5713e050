# meant: inputs from a file of PyTorch.
# mistake: `.pt` is no format that is read; `.npy` and `.safetensors` are.
tilewright run ../../examples/transpose.tile --device sim -p m=64 -p n=64 --input x=x.pt
