# meant: another alpha.
# mistake: a scalar is given with `--input`, and not with `-p`.
tilewright run ../../examples/transpose.tile --device sim -p m=64 -p n=64 --input alpha=0.5
