//! An architecture that does not come with the compiler, in one file: sm_90, which has TMA and clusters but none of what is specific to
//! sm_90a (`wgmma`, `setmaxnreg`).

use std::process::Command;

use tilewright::check::{CheckOptions, check};
use tilewright::compiler::{Kernel, Options, compile};
use tilewright::machine::{Arch, ArchSpec, Feature, Features};
use tilewright::runtime::SimDevice;
use tilewright::tile::{Code, parse};

/// Nobody has measured it: its table is sm_90a's.
static SM_90: ArchSpec = ArchSpec {
    name: "sm_90",
    ptx_version: "8.0",
    capability: (9, 0),
    specific: false,
    limits: *Arch::SM_90A.limits(),
    features: Features::of(&[
        Feature::CpAsync,
        Feature::Fp8Conversion,
        Feature::Bf16x2Arithmetic,
        Feature::StMatrix,
        Feature::TransactionBarrier,
        Feature::Tma,
        Feature::Elect,
        Feature::Cluster,
        Feature::DependentLaunch,
    ]),
    timing: "arch: sm_90\nlike: sm_90a\nmultiprocessors: 114 H100 PCIe",
};

/// C = A · Bᵀ: TMA loads and stores, `mma.sync` between.
const PRODUCT: &str = "
size m = 130, n = 72, k = 136
kernel product(a: f16[m, k], b: f16[n, k], c: f16[m, n]) grid(ceil_div(m, 64), ceil_div(n, 64)) threads(256)
{
    ga = global_view(a, (64, ceil_div(m, 64), 64, ceil_div(k, 64)) : (e0, 64 * e0, e1, 64 * e1))
    gb = global_view(b, (64, ceil_div(n, 64), 64, ceil_div(k, 64)) : (e0, 64 * e0, e1, 64 * e1))
    gc = global_view(c, (64, ceil_div(m, 64), 64, ceil_div(n, 64)) : (e0, 64 * e0, e1, 64 * e1))
    sa = shared_tensor(f16, [64, 64])
    sb = shared_tensor(f16, [64, 64])
    sc = shared_tensor(f16, [64, 64])
    ab = pipeline(2, sa, sb)
    warpgroup load(1) {
        for i in 0..ceil_div(k, 64) {
            produce ab {
                copy.async(ga[:, block.x, :, i], sa)
                copy.async(gb[:, block.y, :, i], sb)
            }
        }
    }
    warpgroup math(1) {
        rc = register_tensor(f32, [64, 64])
        ra = register_tensor(f16, [64, 64])
        rb = register_tensor(f16, [64, 64])
        fill(rc, 0.0)
        for j in 0..ceil_div(k, 64) {
            consume ab {
                copy(sa, ra)
                copy(sb, rb)
            }
            gemm(rc, ra, rb)
        }
        half = cast(rc, f16)
        copy(half, sc)
        syncthreads()
        copy.async(sc, gc[:, block.x, :, block.y])
        commit_group()
        wait_group(0)
    }
}";

fn compiled(source: &str) -> Kernel {
    let arch = Arch::new(&SM_90).unwrap();
    let program = parse(source).unwrap();
    let options = Options::new(arch).for_sizes(&program, &[]);
    compile(&program, &options).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn what_needs_only_its_features_compiles_and_runs() {
    let kernel = compiled(PRODUCT);
    assert!(kernel.ptx.contains(".target sm_90\n"), "{}", kernel.ptx);
    for instruction in
        ["cp.async.bulk.tensor.2d.shared", "cp.async.bulk.tensor.2d.global", "mma.sync", "stmatrix"]
    {
        assert!(kernel.ptx.contains(instruction), "no {instruction} in {}", kernel.ptx);
    }
    assert!(!kernel.ptx.contains("wgmma") && !kernel.ptx.contains("setmaxnreg"));
    for seed in [0, 1, 2] {
        let device = SimDevice::new(tilewright::sim::Config { seed, ..Default::default() });
        let outcome = check(&kernel, &device, &CheckOptions { seed, ..CheckOptions::default() }).unwrap();
        assert!(outcome.is_right(), "{:?} {:?}", outcome.comparisons, outcome.findings);
    }
}

#[test]
fn ptxas_takes_it() {
    let Some(ptxas) = std::env::var_os("TILEWRIGHT_PTXAS") else {
        assert!(std::env::var_os("CI").is_none(), "CI has no ptxas: set TILEWRIGHT_PTXAS");
        return;
    };
    let file = std::env::temp_dir().join(format!("tilewright-{}-sm_90.ptx", std::process::id()));
    std::fs::write(&file, &compiled(PRODUCT).ptx).unwrap();
    let output = Command::new(ptxas).args(["-arch=sm_90", "-o", "/dev/null"]).arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_needs_a_feature_that_it_lacks_is_refused_by_the_feature() {
    let arch = Arch::new(&SM_90).unwrap();
    let source = include_str!("../../../examples/gemm_hopper.tile");
    let error = compile(&parse(source).unwrap(), &Options::new(arch)).unwrap_err().0.remove(0);
    assert_eq!(error.code, Code::UnsupportedArchitecture);
    assert_eq!(error.message, "`registers` of a role needs setmaxnreg, which sm_90 does not have");
    let product = PRODUCT.replace("gemm(rc, ra, rb)", "").replace(
        "copy(sa, ra)\n                copy(sb, rb)",
        "gemm.async(rc, sa, sb)\ncommit_gemm()\nwait_gemm(0)",
    );
    let error = compile(&parse(&product).unwrap(), &Options::new(arch)).unwrap_err().0.remove(0);
    assert_eq!(error.code, Code::UnsupportedArchitecture);
    assert_eq!(error.message, "`gemm.async` needs wgmma, which sm_90 does not have");
    assert!(error.help.iter().any(|help| help.contains("--arch sm_90a")), "{error:?}");
}

#[test]
fn a_table_that_lacks_something_is_refused() {
    static EMPTY: ArchSpec = ArchSpec { timing: "arch: sm_90\n", ..COPY };
    static OTHER: ArchSpec = ArchSpec { timing: "arch: sm_80\n", ..COPY };
    const COPY: ArchSpec = ArchSpec {
        name: "sm_90",
        ptx_version: "8.0",
        capability: (9, 0),
        specific: false,
        limits: *Arch::SM_90A.limits(),
        features: Features::NONE,
        timing: "",
    };
    let says = |spec| Arch::new(spec).unwrap_err().to_string();
    assert_eq!(
        says(&EMPTY),
        "line 1: there is no line for `clock_mhz`; `like: NAME` takes what is not measured from another architecture"
    );
    assert_eq!(says(&OTHER), "line 1: the table is that of `sm_80`, and the architecture is sm_90");
}
