# meant: what a code of a message means.
# mistake: the code is written with a hyphen, shape-mismatch.
tilewright explain shape_mismatch
