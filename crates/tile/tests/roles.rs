//! Roles, pipelines, loops over tiles, clusters and asynchronous products.

use std::collections::BTreeMap;

use tilewright_tile::{
    Argument, Constants, InterpretError, Program, Verified, interpret, parse, unroll, verify,
};

const GEMM: &str = "
size m = 40, n = 70, k = 50
const BM = 16, BN = 32, BK = 16, STAGES = 3, SMS = 4

kernel gemm(a: f16[m, k], b: f16[n, k], c: f16[m, n])
    grid(min(SMS, ceil_div(m, BM) * ceil_div(n, BN))) threads(384)
{
    ga = global_view(a, (BM, ceil_div(m, BM), BK, ceil_div(k, BK)) : (e0, BM * e0, e1, BK * e1))
    gb = global_view(b, (BN, ceil_div(n, BN), BK, ceil_div(k, BK)) : (e0, BN * e0, e1, BK * e1))
    gc = global_view(c, (BM, ceil_div(m, BM), 16, ceil_div(n, 16)) : (e0, BM * e0, e1, 16 * e1))
    sa = shared_tensor(f16, [BM, BK])
    sb = shared_tensor(f16, [BN, BK])
    sc = shared_tensor(f16, [BM, 16, 2])
    ab = pipeline(STAGES, sa, sb)
    warpgroup math(2) registers(240) {
        for (ti, tj) in tiles(ceil_div(m, BM), ceil_div(n, BN), bands(12, snake)) {
            rc = register_tensor(f32, [BM, BN])
            fill(rc, 0.0)
            for kk2 in 0..ceil_div(k, BK) {
                consume ab {
                    gemm.async(rc, sa, sb, warpgroups = (1, 2))
                    commit_gemm()
                    wait_gemm(1)
                }
            }
            wait_gemm(0)
            rh = cast(rc, f16)
            unroll for j in 0..BN / 16 {
                wait_group(1)
                syncthreads()
                rj = slice(rh, 1, j * 16, 16)
                copy(rj, sc[:, :, j % 2])
                syncthreads()
                copy.async(sc[:, :, j % 2], gc[:, ti, :, tj * (BN / 16) + j])
                commit_group()
            }
        }
        wait_group(0)
    }
    warpgroup load(1) registers(24) {
        for (tm, tn) in tiles(ceil_div(m, BM), ceil_div(n, BN), bands(12, snake)) {
            for kk in 0..ceil_div(k, BK) {
                produce ab {
                    copy.async(ga[:, tm, :, kk], sa, evict_last)
                    copy.async(gb[:, tn, :, kk], sb)
                }
            }
        }
    }
}";

fn read(source: &str) -> Program {
    parse(source).unwrap_or_else(|e| panic!("{e}\n{source}"))
}

fn verified(source: &str) -> Verified {
    verify(&read(source), &Constants::new()).unwrap_or_else(|e| panic!("{e}\n{source}"))
}

fn tensor(args: &[Argument], i: usize) -> &[f64] {
    match &args[i] {
        Argument::Tensor(data) => data,
        Argument::Scalar(_) => panic!("a number"),
    }
}

fn numbers(n: usize, seed: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 37 + seed * 11 + i * i) % 17) as f64 - 8.0).collect()
}

#[test]
fn a_product_by_roles_is_the_product() {
    let v = verified(GEMM);
    for v in [v.clone(), unroll(&v).unwrap()] {
        let (m, n, k) = (40, 70, 50);
        let (a, b) = (numbers(m * k, 1), numbers(n * k, 2));
        let mut args = [a.clone(), b.clone(), vec![f64::NAN; m * n]].map(Argument::Tensor);
        interpret(&v, &BTreeMap::new(), &mut args).unwrap();
        for i in 0..m {
            for j in 0..n {
                let sum: f64 = (0..k).map(|p| a[i * k + p] * b[j * k + p]).sum();
                assert_eq!(
                    tensor(&args, 2)[i * n + j],
                    tilewright_tile::interpret::round(tilewright_machine::DType::F16, sum)
                );
            }
        }
    }
}

#[test]
fn the_text_of_roles_reads_back() {
    let program = read(GEMM);
    let text = program.to_string();
    assert_eq!(read(&text), program, "{text}");
    let folded = verified(GEMM);
    assert_eq!(&read(&folded.program().to_string()), folded.program());
}
