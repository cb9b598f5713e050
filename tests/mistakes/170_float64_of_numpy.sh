# meant: a transpose of numbers that NumPy has written.
# mistake: the file has NumPy's default type, float64; the parameter is f32.
f=$(mktemp -d)/x.npy
{ printf '\223NUMPY\001\000\166\000'; printf '%-117s\n' "{'descr': '<f8', 'fortran_order': False, 'shape': (64, 64), }"; head -c 32768 /dev/zero; } >"$f"
tilewright run ../../examples/transpose.tile --device sim --input x="$f"
