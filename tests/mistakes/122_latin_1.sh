# meant: a program with a comment in German.
# mistake: the file is in Latin-1, and not in UTF-8.
printf 'size n = 64\n// die Gr\366\337e\nkernel k(x: f32[n], y: f32[n]) grid(1) threads(32) { }\n' | tilewright run - --device sim
