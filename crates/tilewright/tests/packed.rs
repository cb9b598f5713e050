//! Arithmetic on 16-bit floats is packed: the instructions of PTX, counted.

use tilewright::prelude::*;

fn ptx(source: &str, arch: Arch) -> String {
    let program = parse(source).unwrap();
    compile(&program, &Options::new(arch)).unwrap().ptx
}

#[test]
fn a_scale_is_doubled_once_and_products_are_packed() {
    let source = include_str!("../../../tests/run/scaled_factor.tile");
    for arch in Arch::ALL {
        let text = ptx(source, arch);
        // 128 · 64 factors of 128 threads, two a register; four scales a thread, each for both halves of eight registers.
        assert_eq!(text.matches("mul.rn.f16x2").count(), 32, "{text}");
        assert_eq!(text.matches("prmt.b32").count(), 4, "{text}");
        assert!(!text.contains("cvt.rn.f16"), "{text}");
    }
    let brain = source.replace("f16[", "bf16[").replace("register_tensor(f16", "register_tensor(bf16");
    for (arch, row) in
        [(Arch::SM_80, "fma.rn.bf16x2"), (Arch::SM_89, "fma.rn.bf16x2"), (Arch::SM_90A, "mul.rn.bf16x2")]
    {
        assert_eq!(ptx(&brain, arch).matches(row).count(), 32);
    }
}
