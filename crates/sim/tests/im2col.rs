//! Loads of pixels in im2col mode, against plain loops.

use crate::common::*;
use crate::hopper_copies::{bytes, dump};
use tilewright_machine::{Arch, BoxShape, Corners, DType, MbarrierOp, SwizzleMode, tensor_im2col};
use tilewright_sim::{Argument, Config, GlobalMemory, Report, run};
use tilewright_simt::{Builder, Function, Op, TensorMap};

/// Channels and pixels of a load, and where they begin in shared memory.
const CHANNELS: u32 = 64;
const PIXELS: u32 = 24;
const ROWS: i64 = 1024;
const BYTES: i64 = 2 * CHANNELS as i64 * PIXELS as i64;

/// A load, and what lies in shared memory then.
fn load(steps: &[u32], corners: &Corners, coords: &[i64], swizzle: SwizzleMode) -> Function {
    let mut b = Builder::new("im2col", Arch::SM_90A, 32);
    let out = b.pointer_param("out");
    b.add_shared("bar", 8, 8);
    b.add_shared_at("rows", ROWS as u32, BYTES as u32);
    let shape = BoxShape {
        steps: steps.to_vec(),
        corners: Some(corners.clone()),
        ..BoxShape::dense(DType::F16, vec![CHANNELS, PIXELS], swizzle)
    };
    let map = b.add_tensor_map(TensorMap { name: "src".to_string(), shape });
    b.init_barriers(&[(0, 1)]);
    let (barrier, shared) = (b.window(0), b.window(ROWS));
    b.only(0, |b| {
        b.mbarrier_at(MbarrierOp::ArriveExpect, barrier, BYTES);
        let coords = coords.iter().map(|at| imm(*at)).collect();
        let (row, barrier) = (&tensor_im2col()[steps.len() - 3], Some(barrier));
        b.bulk(Op::Tensor {
            row,
            map,
            one: None,
            coords,
            shared,
            barrier,
            multicast: None,
            even: false,
            hint: None,
        });
    });
    b.mbarrier_at(MbarrierOp::Wait, barrier, 0);
    dump(&mut b, out, ROWS, BYTES);
    b.finish()
}

fn execute(f: &Function, extents: &[u64], source: &[u8]) -> (Report, Vec<u8>) {
    let mut memory = GlobalMemory::new();
    let (out, src) = (memory.alloc(BYTES as usize), memory.alloc(source.len()));
    memory.write(src, source);
    let args = [Argument::Buffer(out), tensor(src, extents, 2)];
    let report = run(f, [1, 1, 1], &memory, &args, &Config::default()).unwrap();
    (report, memory.read(out))
}

/// The pixels of the bounding box from a place on, dimension 1 fastest, as places in the tensor.
fn pixels(extents: &[u64], steps: &[u32], corners: &Corners, first: &[i64]) -> Vec<Vec<i64>> {
    let spatial = extents.len() - 2;
    let along = |dim: usize| {
        let last = extents[dim] as i64 - 1 + i64::from(corners.upper[dim - 1]);
        let mut places = Vec::new();
        let mut at = i64::from(corners.lower[dim - 1]);
        while at <= last {
            places.push(at);
            at += i64::from(steps[dim]);
        }
        places
    };
    let mut all: Vec<Vec<i64>> = (0..extents[spatial + 1] as i64 + 30).map(|image| vec![image]).collect();
    for dim in (1..=spatial).rev() {
        let outer = |place: &Vec<i64>| {
            along(dim).into_iter().map(|at| [vec![at], place.clone()].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(outer).collect();
    }
    let begin = all.iter().position(|place| place == first).unwrap();
    all[begin..begin + PIXELS as usize].to_vec()
}

fn check(extents: &[u64], steps: &[u32], corners: &Corners, coords: &[i64], swizzle: SwizzleMode) {
    let source = bytes(2 * extents.iter().product::<u64>() as usize, 5);
    let (report, found) = execute(&load(steps, corners, coords, swizzle), extents, &source);
    assert!(report.is_clean(), "{:?}", report.problems());
    let rank = extents.len();
    let (first, offsets) = (&coords[1..rank], &coords[rank..]);
    for (number, place) in pixels(extents, steps, corners, first).iter().enumerate() {
        let mut place = place.clone();
        place.iter_mut().zip(offsets).for_each(|(at, offset)| *at += offset);
        for channel in 0..i64::from(CHANNELS) {
            let at = [vec![coords[0] + channel], place.clone()].concat();
            let inside = at.iter().zip(extents).all(|(at, extent)| (0..*extent as i64).contains(at));
            let element = at.iter().zip(extents).rev().fold(0, |sum, (at, extent)| sum * *extent as i64 + at);
            let begin = (i64::from(CHANNELS) * number as i64 + channel) * 2;
            for byte in 0..2 {
                let right = if inside { source[(2 * element + byte) as usize] } else { 0 };
                let from = swizzle.bytes().apply(begin + byte) as usize;
                assert_eq!(found[from], right, "{extents:?}: channel {channel} of pixel {number}, {place:?}");
            }
        }
    }
}

fn corners(lower: &[i32], upper: &[i32]) -> Corners {
    Corners { lower: lower.to_vec(), upper: upper.to_vec() }
}

#[test]
fn pixels_go_on_across_rows_and_images() {
    for swizzle in [SwizzleMode::None, SwizzleMode::B128] {
        // A filter of 3 × 3 with a zero around; from the middle of a row on, with the tap (2, 0).
        check(&[64, 7, 5, 3], &[1; 4], &corners(&[-1, -1], &[-1, -1]), &[0, 3, -1, 1, 2, 0], swizzle);
        // Channels behind the last are zeros, and so are images.
        check(&[72, 3, 2, 2], &[1; 4], &corners(&[-1, 0], &[-1, -1]), &[16, 1, 0, 1, 0, 1], swizzle);
    }
}

#[test]
fn pixels_in_steps() {
    let (of, none) = (corners(&[-1, -2], &[-1, 1]), SwizzleMode::None);
    check(&[64, 9, 8, 2], &[1, 2, 3, 1], &of, &[0, 5, 1, 0, 2, 4], none);
    // A step that does not come to the last pixel of a row.
    check(&[64, 8, 8, 2], &[1, 2, 3, 1], &of, &[0, -1, -2, 1, 0, 0], none);
}

#[test]
fn lines_and_volumes_have_pixels() {
    let none = SwizzleMode::None;
    check(&[64, 11, 4], &[1; 3], &corners(&[-2], &[-2]), &[0, 8, 0, 4], none);
    let of = corners(&[-1, 0, -2], &[-1, 0, 0]);
    check(&[64, 3, 2, 3, 2], &[1, 1, 1, 2, 1], &of, &[0, 1, 1, -2, 0, 2, 0, 1], none);
}

#[test]
fn what_is_wrong_is_named() {
    let of = corners(&[-1, -1], &[-1, -1]);
    let says = |steps: &[u32], coords: &[i64], text: &str| {
        let extents = [64, 7, 5, 3];
        let (report, _) = execute(&load(steps, &of, coords, SwizzleMode::None), &extents, &bytes(13_440, 1));
        assert!(report.problems().iter().any(|p| p.contains(text)), "{text}: {:?}", report.problems());
    };
    let ahead = "the first pixel is at -2 along dimension 1, and those of the bounding box from -1 to 5 in steps of 1";
    says(&[1; 4], &[0, -2, 0, 0, 0, 0], ahead);
    says(&[1; 4], &[0, 0, 4, 0, 0, 0], "the first pixel is at 4 along dimension 2");
    says(&[1, 2, 1, 1], &[0, 0, 0, 0, 0, 0], "from -1 to 5 in steps of 2");
    says(
        &[1; 4],
        &[0, 0, 0, 0, 256, 0],
        "an offset of pixels is 256, and those of 4 dimensions are from 0 to 255",
    );
    says(&[1; 4], &[0, 0, 0, 0, 0, -1], "an offset of pixels is -1");
}
