//! The laws of linear layouts on any two, a surjective one where one is asked for; texts that read back; and the rounds of
//! shuffles and shared layouts between register layouts.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use tilewright_layout::*;

#[derive(Debug)]
struct Input {
    a: LinearLayout,
    b: LinearLayout,
    text: String,
    log_bytes: u32,
    points: Vec<u64>,
}

/// A layout of registers, lanes and warps, the columns any vectors of `tile` bits.
fn layout(u: &mut Unstructured<'_>, tile: u32, lanes: u32, warps: u32) -> Result<LinearLayout> {
    let registers = u.int_in_range(0..=8)?;
    let dims = vec![Dim::new("register", registers), Dim::new("lane", lanes), Dim::new("warp", warps)];
    let end = 1u64 << tile;
    let columns = (0..registers + lanes + warps)
        .map(|_| {
            Ok(match u.int_in_range(0..=2)? {
                0 => 1u64 << u.int_in_range(0..=tile.max(1) - 1)?,
                1 => 0,
                _ => u.arbitrary::<u64>()?,
            } % end)
        })
        .collect::<Result<Vec<u64>>>()?;
    Ok(LinearLayout::from_columns(dims, vec![Dim::new("x", tile)], columns).expect("in range"))
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Input> {
        let (tile, lanes, warps) = (u.int_in_range(0..=12)?, u.int_in_range(0..=6)?, u.int_in_range(0..=3)?);
        Ok(Input {
            a: layout(u, tile, lanes, warps)?,
            b: layout(u, tile, lanes, warps)?,
            log_bytes: u.int_in_range(0..=4)?,
            points: (0..8).map(|_| u.arbitrary()).collect::<Result<_>>()?,
            text: u.arbitrary()?,
        })
    }
}

fuzz_target!(|input: Input| {
    let Input { a, b, text, log_bytes, points } = input;
    if let Ok(read) = text.parse::<LinearLayout>() {
        assert_eq!(read.to_string().parse::<LinearLayout>().unwrap(), read);
    }
    assert_eq!(a.to_string().parse::<LinearLayout>().unwrap(), a);
    assert_eq!(a.rank() as usize + a.kernel().len(), a.in_bits() as usize);
    let product = a.product(&b).unwrap();
    assert_eq!(product.left_divide(&a), Some(b.clone()));
    assert_eq!(product.right_divide(&b), Some(a.clone()));
    if let Ok(inverse) = a.right_inverse() {
        let identity = a.compose(&inverse).unwrap();
        assert!(points.iter().all(|p| {
            let p = p & ((1 << a.out_bits()) - 1);
            identity.at(p) == p
        }));
    }
    if let Ok(found) = a.invert_and_compose(&b) {
        let back = a.compose(&found).unwrap();
        assert!(points.iter().all(|p| {
            let p = p & ((1 << b.in_bits()) - 1);
            back.at(p) == b.at(p)
        }));
    }
    if let Ok(reorder) = Reorder::new(&a, &b) {
        let [registers, lanes, warps] = ["register", "lane", "warp"].map(|d| b.bases(d).len() as u32);
        for p in points {
            let p = p & ((1 << b.in_bits()) - 1);
            assert_eq!(a.at(reorder.source.at(p)), b.at(p));
            if reorder.exchange != Exchange::Warps {
                let (r, l) = (p & ((1 << registers) - 1), p >> registers & ((1 << lanes) - 1));
                let w = p >> (registers + lanes) & ((1 << warps) - 1);
                assert_eq!(a.at(reorder.trace(r, l, w)), b.at(p));
            }
        }
    }
    for between in [optimal_swizzle, single_element_swizzle] {
        if let Ok((memory, store, load)) = between(&a, &b, 8 << log_bytes) {
            assert!(memory.is_bijective());
            assert!(store.instructions > 0 && load.instructions > 0);
        }
    }
});
