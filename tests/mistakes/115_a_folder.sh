# meant: to run all examples.
# mistake: a folder instead of a file.
tilewright run ../../examples --device sim
