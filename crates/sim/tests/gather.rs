//! Gathers of rows by tensor copies.

use crate::common::*;
use crate::hopper_copies::{bytes, dump};
use tilewright_machine::{Arch, BoxShape, DType, MbarrierOp, SwizzleMode, tensor_gather};
use tilewright_sim::{Argument, Config, GlobalMemory, Report, run};
use tilewright_simt::{Builder, Function, Op, TensorMap};

const ROWS: i64 = 1024;
/// Of a matrix of 16-bit elements.
const EXTENTS: [usize; 2] = [128, 10];

/// Two gathers of 64 columns of rows, from column 64 on, and what lies in shared memory then.
fn gather(rows: [[i64; 4]; 2], swizzle: SwizzleMode, begin: i64) -> Function {
    let mut b = Builder::new("gather", Arch::SM_120A, 32);
    let out = b.pointer_param("out");
    b.add_shared("bar", 8, 8);
    b.add_shared_at("rows", ROWS as u32, 1024);
    let shape = BoxShape::dense(DType::F16, vec![64, 1], swizzle);
    let map = b.add_tensor_map(TensorMap { name: "src".to_string(), shape });
    b.init_barriers(&[(0, 1)]);
    let barrier = b.window(0);
    let places = [0, 1].map(|i| b.window(ROWS + begin + 512 * i));
    b.only(0, |b| {
        b.mbarrier_at(MbarrierOp::ArriveExpect, barrier, 1024);
        for (rows, shared) in rows.iter().zip(places) {
            let coords = [64].iter().chain(rows).map(|at| imm(*at)).collect();
            let (row, barrier) = (tensor_gather(), Some(barrier));
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
        }
    });
    b.mbarrier_at(MbarrierOp::Wait, barrier, 0);
    dump(&mut b, out, ROWS, 1024);
    b.finish()
}

fn execute(f: &Function, source: &[u8]) -> (Report, Vec<u8>) {
    let mut memory = GlobalMemory::new();
    let (out, src) = (memory.alloc(1024), memory.alloc(source.len()));
    memory.write(src, source);
    let args = [Argument::Buffer(out), tensor(src, &EXTENTS.map(|extent| extent as u64), 2)];
    let report = run(f, [1, 1, 1], &memory, &args, &Config::default()).unwrap();
    (report, memory.read(out))
}

#[test]
fn rows_come_from_where_their_coordinates_say() {
    let source = bytes(2 * EXTENTS[0] * EXTENTS[1], 3);
    let rows = [[7, 0, 7, -1], [3, 9, 10, 1]];
    for swizzle in [SwizzleMode::None, SwizzleMode::B128] {
        let (report, found) = execute(&gather(rows, swizzle, 0), &source);
        assert!(report.is_clean(), "{:?}", report.problems());
        for (number, row) in rows.iter().flatten().enumerate() {
            for byte in 0..128 {
                let inside = usize::try_from(*row).ok().filter(|row| *row < EXTENTS[1]);
                let right = inside.map_or(0, |row| source[2 * EXTENTS[0] * row + 128 + byte]);
                let place = swizzle.bytes().apply((128 * number + byte) as i64) as usize;
                assert_eq!(found[place], right, "{swizzle}: byte {byte} of row {number}");
            }
        }
    }
}

#[test]
fn rows_begin_at_multiples_of_128_bytes() {
    let (report, _) = execute(&gather([[0; 4]; 2], SwizzleMode::None, -64), &bytes(2560, 1));
    assert!(report.problems().iter().any(|p| p.contains("no multiple of 128")), "{:?}", report.problems());
}
