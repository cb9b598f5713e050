//! `tilewright run --input` and `--output`.

use crate::common::tilewright;

const PROGRAM: &[u8] = b"size m = 4, n = 6
kernel twice(x: f32[m, n] : (1, m), id: i32[m], y: bf16[m, n]) grid(m) threads(32) {
    gx = global_view(x[id[block.x] :, :], (1, 8) : (e0, e1))
    gy = global_view(y[block.x :, :], (1, 8) : (e0, e1))
    r = register_tensor(f32, [1, 8])
    copy(gx, r)
    t = 2.0 * r
    u = cast(t, bf16)
    copy(u, gy)
}
";

#[test]
fn what_one_run_writes_another_reads() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let run = |options: &[&str]| {
        let args = [&["run", "-", "--device", "sim"], options].concat();
        tilewright(&args, Some(PROGRAM))
    };
    let output = format!("y={}:z", path("a.safetensors"));
    let first = run(&["--input", "x=normal(0, 2)", "--input", "id=0..4", "--output", &output]);
    assert_eq!(first.code, Some(0), "{}{}", first.out, first.err);
    // The sizes are those of the file, and every row is the row 2.
    let (input, output) = (format!("x={}", path("a.safetensors:z")), format!("y={}", path("b.npy")));
    let second = run(&["--input", &input, "--input", "id=2", "--output", &output]);
    assert_eq!(second.code, Some(0), "{}{}", second.out, second.err);
    let bytes = std::fs::read(path("b.npy")).unwrap();
    let text = String::from_utf8_lossy(&bytes[..128]);
    assert!(text.contains("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 6,), }"), "{text}");
    let rows: Vec<&[u8]> = bytes[bytes.len() - 96..].chunks(24).collect();
    assert!(rows.iter().all(|row| row == &rows[0]) && rows[0].iter().any(|byte| *byte != 0));
    // A shape that is not the sizes', a type that is not the tensor's, names that there are not.
    let npy = format!("x={}", path("b.npy"));
    for (options, says) in [
        (vec!["--input", &npy, "-p", "m=5"], "input `x`: it has shape [4, 6], and the tensor has [5, 6]"),
        (vec!["--input", "id=0.5"], "input `id`: 0.5 is no i32"),
        (vec!["--input", "q=1"], "input `q`: no tensor of this name is read; the inputs are x, id"),
        (vec!["--input", "y=1"], "input `y`: no tensor of this name is read"),
        (vec!["--input", "x=nowhere.npy"], "`--input x=nowhere.npy`: cannot read `nowhere.npy`"),
        (vec!["--input", "x"], "`--input x` is not NAME=VALUE"),
        (vec!["--output", "x=a.npy"], "no tensor of this name is written; the outputs are y"),
        (vec!["--output", "y=a.txt"], "write a file `y.npy` or `y.safetensors`"),
    ] {
        let run = run(&options);
        assert!(matches!(run.code, Some(1 | 2)) && run.err.contains(says), "{options:?}: {}", run.err);
    }
}
