//! The simulator does what the rows say, and a difference is seen.

use super::*;

#[test]
fn the_simulator_agrees_with_every_row() {
    let rows = fidelity(&SimDevice::default(), &Config { blocks: 8, seed: 7 }, |_, _, _| {}).unwrap();
    let wrong: Vec<_> = rows.iter().filter(|row| !row.is_right()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(rows.iter().all(|row| row.cases >= 1024));
}

#[test]
fn every_row_is_compared() {
    let chips = [Arch::SM_90A, Arch::SM_100A, Arch::SM_120A];
    let names: Vec<&str> = chips.iter().flat_map(|arch| items(*arch)).map(|item| item.row).collect();
    let scalars = ScalarOp::ALL.iter().map(|op| op.row().name).filter(|name| *name != "mapa");
    let copies = tilewright_machine::copy_rows().iter().map(|row| row.name);
    let products = tilewright_machine::mma_rows().iter().filter(|row| row.c.bits() <= 32).map(|row| row.name);
    for name in scalars.chain(copies).chain(products) {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn the_kernels_are_valid_on_every_architecture() {
    for arch in Arch::ALL {
        for rows in items(arch).chunks(ROWS) {
            tilewright_simt::verify(&function("f", arch, rows, 128)).unwrap();
        }
        for (name, text) in ptx(arch) {
            assert!(text.contains(&name));
            // For ptxas, which `.ci/run` runs.
            if let Some(dir) = std::env::var_os("TILEWRIGHT_PTX_DIR") {
                std::fs::create_dir_all(&dir).unwrap();
                std::fs::write(std::path::Path::new(&dir).join(format!("{name}.{arch}.ptx")), text).unwrap();
            }
        }
    }
}

#[test]
fn differences_are_seen_and_nans_are_not() {
    let all = items(Arch::SM_90A);
    let item = |name: &str| all.iter().find(|item| item.row == name).unwrap();
    let pair = |name: &str, e: u32, a: u32| {
        let item = item(name);
        let row = compare(item, &vec![0; item.inputs], &[e, 0], &[a, 0]);
        (row.wrong, row.nans)
    };
    assert_eq!(pair("add", 1, 2), (1, 0));
    assert_eq!(pair("add.f32", 0x7fc0_0000, 0x7fff_ffff), (0, 1));
    assert_eq!(pair("add.f32", 0x0000_0000, 0x8000_0000), (1, 0));
    assert_eq!(pair("add.f16x2", 0x3c00_7e00, 0x3c01_7fff), (1, 1));
    assert_eq!(pair("ex2.ftz.f32", 0x3f80_0000, 0x3f80_0002), (0, 0));
    assert_eq!(pair("ex2.ftz.f32", 0x3f80_0000, 0x3f80_0010), (1, 0));
    assert_eq!(pair("ex2.ftz.f32", 0x7f80_0000, 0x7f7f_ffff), (1, 0));
}
