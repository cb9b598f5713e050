//! `tilewright repack`: checkpoints in, stored weights out.

use std::path::Path;

use crate::common::tilewright;

/// Writes a `.safetensors` file: names, types, shapes and bytes.
fn safetensors(path: &Path, tensors: &[(&str, &str, &[usize], Vec<u8>)]) {
    let (mut rows, mut data) = (Vec::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let (from, to) = (data.len(), data.len() + bytes.len());
        rows.push(format!(
            "\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{from},{to}]}}"
        ));
        data.extend(bytes);
    }
    let header = format!("{{{}}}", rows.join(","));
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(path, bytes).unwrap();
}

fn words(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// 64 rows of 128 weights in groups of 64, in the format of GPTQ: the code of a weight is (row + column) % 16, its zero point 8.
fn gptq(path: &Path, act_order: bool) {
    let (n, k) = (64u32, 128u32);
    let word =
        |i: u32| (0..8).fold(0, |word, place| word | ((i % n + i / n * 8 + place) % 16) << (4 * place));
    let groups = (0..k).map(|column| if act_order { column % 2 } else { column / 64 });
    safetensors(
        path,
        &[
            ("up.qweight", "I32", &[16, 64], words((0..k / 8 * n).map(word))),
            ("up.qzeros", "I32", &[2, 8], words([0x7777_7777; 16])),
            ("up.scales", "F32", &[2, 64], words((0..2 * n).map(|i| (1.0 + (i % 7) as f32).to_bits()))),
            ("up.g_idx", "I32", &[128], words(groups)),
        ],
    );
}

#[test]
fn a_layer_of_gptq_is_multiplied_as_it_is_repacked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    gptq(Path::new(&path("gptq.safetensors")), false);
    let (from, to) = (path("gptq.safetensors"), path("packed.safetensors"));
    let run = tilewright(&["repack", &from, &to, "--format", "gptq", "--layer", "up", "--group", "64"], None);
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    assert!(
        run.out.starts_with("64 rows of 128 weights of u4, in units of 64 × 64: w, s, z in"),
        "{}",
        run.out
    );
    let options = ["weights=u4", "zeros=true", "group=64", "scale=f32", "schedule=data_parallel", "stages=4"];
    let given: Vec<&str> = options.iter().flat_map(|option| ["-p", option]).collect();
    let program = tilewright(&[&["kernels", "gemm_weights"], &given[..]].concat(), None);
    let [w, s, z] = ["w", "s", "z"].map(|name| format!("{name}={to}:{name}"));
    let inputs = ["--input", "a=1", "--input", &w, "--input", &s, "--input", &z];
    let sizes = ["-p", "m=1", "-p", "n=64", "-p", "k=128"];
    let output = format!("c={}", path("c.npy"));
    let run = tilewright(
        &[&["run", "-", "--device", "sim", "--output", &output], &inputs[..], &sizes[..]].concat(),
        Some(program.out.as_bytes()),
    );
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    // Of each 16 codes in turn the sum less 8 each is −8.
    let bytes = std::fs::read(path("c.npy")).unwrap();
    let halves: Vec<u16> =
        bytes[bytes.len() - 128..].chunks(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
    let expected = |row: usize| -32.0 * ((1 + row % 7) + (1 + (64 + row) % 7)) as f32;
    for (row, half) in halves.into_iter().enumerate() {
        let (sign, exponent, mantissa) = (half >> 15, i32::from(half >> 10 & 31), f32::from(half & 1023));
        let found = (1.0 + mantissa / 1024.0) * 2f32.powi(exponent - 15) * if sign == 1 { -1.0 } else { 1.0 };
        assert_eq!(found, expected(row), "row {row}");
    }
}

#[test]
fn mistakes_name_the_tensor_and_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (good, ordered, to) = (path("a.safetensors"), path("b.safetensors"), path("c.safetensors"));
    gptq(Path::new(&good), false);
    gptq(Path::new(&ordered), true);
    let cases: [(&[&str], &str); 5] = [
        (
            &[&ordered, &to, "--format", "gptq", "--layer", "up", "--group", "64"],
            "column 1 is of group 1: the checkpoint was made with act_order",
        ),
        (&[&good, &to, "--format", "gptq", "--layer", "up"], "in groups of 128: say --group"),
        (&[&good, &to, "--format", "awq", "--layer", "up", "--group", "64"], "`scales` of shape [2, 64]"),
        (
            &[&good, &to, "--format", "gptq", "--layer", "down", "--group", "64"],
            "has no tensor `down.qweight`",
        ),
        (&[&good, &to, "--format", "rows", "--layer", "up.scales"], "convert the array to an integer type"),
    ];
    for (options, says) in cases {
        let run = tilewright(&[&["repack"], options].concat(), None);
        assert!(run.code == Some(1) && run.err.contains(says), "{options:?}: {}", run.err);
    }
}
