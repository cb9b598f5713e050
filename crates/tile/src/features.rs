//! The features that a program needs: one table from the constructs of the language to features of architectures.

use std::fmt;

use tilewright_machine::{
    Arch, DType, Features, LaunchControl, MbarrierOp, Memory, MmaKind, SyncOp, Tcgen05Row, TensorRow,
    WgmmaRow, conversion_needs, factor_types, product_needs, sums_need,
};

use crate::cluster::Multicast;
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::program::{Dealer, ElemExpr, Stmt, StmtKind};
use crate::verified::Verified;

/// A construct of the language that not every architecture has instructions for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Construct {
    /// `pipeline`: stages handed on by mbarriers.
    Pipeline,
    /// `dynamic = counter` in roles: numbers of tiles handed on by mbarriers.
    DealtTiles,
    /// `dynamic` without a counter: tiles of clusters that have not begun.
    LaunchedTiles,
    /// `registers(n)` of a role: `setmaxnreg`.
    RoleRegisters,
    /// `gemm` of factors of a type into sums of another: `mma.sync`.
    Product([DType; 2], DType, MmaKind),
    /// `gemm.async`: `wgmma.mma_async`.
    AsyncProduct,
    /// `tensor_memory`: `tcgen05`.
    TensorMemory,
    /// A product into tensor memory, by the type of its sums.
    Sums(DType),
    /// `commit_gemm`: `wgmma.commit_group`.
    CommitProducts,
    /// `wait_gemm`: `wgmma.wait_group`.
    WaitForProducts,
    /// `cluster(n)` of several blocks.
    Cluster,
    /// `cluster_reduce`: distributed shared memory.
    ClusterReduce,
    /// `copy.async(…, multicast)`: one tensor copy for all blocks of a cluster.
    Multicast,
    /// `copy.async(…, pair)`: products of two blocks of a cluster.
    Pair,
    /// `copy.async(…, add)`: a reduction by a tensor or bulk copy.
    CopyThatAdds,
    /// `wait_dependencies`: `griddepcontrol.wait`.
    WaitForDependencies,
    /// `launch_dependents`: `griddepcontrol.launch_dependents`.
    LaunchDependents,
    /// A conversion of elements: `cvt` from or to 8-bit floats.
    Conversion(DType, DType),
}

impl Construct {
    /// The features that it needs, by the instruction rows that do it.
    pub fn needs(self) -> Features {
        match self {
            Construct::Pipeline | Construct::DealtTiles => {
                SyncOp::FenceMbarrierInit.needs() | MbarrierOp::Wait.needs()
            }
            Construct::LaunchedTiles => LaunchControl::NEEDS,
            Construct::RoleRegisters => SyncOp::SetMaxRegisters { more: true, registers: 24 }.needs(),
            Construct::Product(factors, sums, kind) => product_needs(factors, sums, kind).unwrap_or_default(),
            Construct::AsyncProduct => WgmmaRow::NEEDS,
            Construct::TensorMemory => Tcgen05Row::NEEDS,
            Construct::Sums(dtype) => sums_need(dtype),
            Construct::CommitProducts => SyncOp::WgmmaCommit.needs(),
            Construct::WaitForProducts => SyncOp::WgmmaWait(0).needs(),
            Construct::Cluster | Construct::ClusterReduce => SyncOp::ClusterBarrier.needs(),
            Construct::Multicast => TensorRow::MULTICAST_NEEDS,
            Construct::Pair => Tcgen05Row::NEEDS | SyncOp::ClusterBarrier.needs(),
            Construct::CopyThatAdds => TensorRow::NEEDS,
            Construct::WaitForDependencies => SyncOp::DependencyWait.needs(),
            Construct::LaunchDependents => SyncOp::DependentsLaunch.needs(),
            Construct::Conversion(from, to) => conversion_needs(from, to),
        }
    }
}

impl fmt::Display for Construct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Construct::Pipeline => "`pipeline`",
            Construct::DealtTiles => "`dynamic` in a role",
            Construct::LaunchedTiles => "`dynamic` without a counter",
            Construct::RoleRegisters => "`registers` of a role",
            Construct::Product(factors, sums, kind) => {
                return match kind {
                    MmaKind::Dense => write!(f, "`gemm` of {} into {sums}", factor_types(*factors)),
                    MmaKind::Sparse => write!(f, "`gemm` of sparse {} into {sums}", factor_types(*factors)),
                    MmaKind::Scaled { scale, block } => {
                        write!(f, "`gemm` of {} with {scale} of {block} into {sums}", factor_types(*factors))
                    }
                };
            }
            Construct::AsyncProduct => "`gemm.async`",
            Construct::TensorMemory => "`tensor_memory`",
            Construct::Sums(dtype) => return write!(f, "`gemm.async` into {dtype} in tensor memory"),
            Construct::CommitProducts => "`commit_gemm`",
            Construct::WaitForProducts => "`wait_gemm`",
            Construct::Cluster => "`cluster` of several blocks",
            Construct::ClusterReduce => "`cluster_reduce`",
            Construct::Multicast => "`copy.async` with `multicast`",
            Construct::Pair => "`copy.async` with `pair`",
            Construct::CopyThatAdds => "`copy.async` with `add`",
            Construct::WaitForDependencies => "`wait_dependencies`",
            Construct::LaunchDependents => "`launch_dependents`",
            Construct::Conversion(from, to) => return write!(f, "a conversion from {from} to {to}"),
        })
    }
}

/// A construct that a program uses, and the first statement that does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// The construct.
    pub construct: Construct,
    /// The statement's place.
    pub span: Origin,
}

impl Need {
    /// The features that the construct needs.
    pub fn features(&self) -> Features {
        self.construct.needs()
    }
}

/// Every construct that a program uses, each once, in the order of the text.
pub fn needs(v: &Verified) -> Vec<Need> {
    let mut needs: Vec<Need> = Vec::new();
    let mut need = |construct: Construct, span: Origin| {
        if !needs.iter().any(|known| known.construct == construct) {
            needs.push(Need { construct, span });
        }
    };
    if v.cluster() > 1 {
        need(Construct::Cluster, v.program().cluster_span);
    }
    v.visit(&mut |stmt, _| constructs(v, stmt).into_iter().for_each(|construct| need(construct, stmt.span)));
    needs
}

/// The constructs of a statement itself, the statements inside it left out.
fn constructs(v: &Verified, stmt: &Stmt) -> Vec<Construct> {
    let dtype = |id: crate::TensorId| v.program().tensor(id).dtype;
    match &stmt.kind {
        StmtKind::Pipeline(_) | StmtKind::Stage { .. } => vec![Construct::Pipeline],
        StmtKind::Role { registers, body, .. } => {
            let mut found: Vec<_> = registers.iter().map(|_| Construct::RoleRegisters).collect();
            let deals = |stmt: &Stmt| matches!(stmt.kind, StmtKind::Tiles { dynamic: Some(_), .. });
            found.extend(body.iter().any(deals).then_some(Construct::DealtTiles));
            found
        }
        StmtKind::Tiles { dynamic: Some(Dealer::Launch), .. } => vec![Construct::LaunchedTiles],
        StmtKind::Gemm { c, a, b, meta, scales, .. } => {
            let scaled = scales.and_then(|[left, _]| {
                let (k, blocks) = (v.shape(*b).get(1).copied()?, v.shape(left).get(1).copied()?);
                MmaKind::scaled(dtype(left), k, blocks)
            });
            let kind = scaled.unwrap_or_else(|| MmaKind::sparse(meta.is_some()));
            vec![Construct::Product([*a, *b].map(dtype), dtype(*c), kind)]
        }
        StmtKind::Define(id) if v.program().tensor(*id).memory() == Memory::Tensor => {
            vec![Construct::TensorMemory]
        }
        StmtKind::GemmAsync { c, .. } if v.program().tensor(*c).memory() == Memory::Tensor => {
            vec![Construct::Sums(dtype(*c))]
        }
        StmtKind::GemmAsync { .. } => vec![Construct::AsyncProduct],
        StmtKind::CommitGemm => vec![Construct::CommitProducts],
        StmtKind::WaitGemm(_) => vec![Construct::WaitForProducts],
        StmtKind::ClusterReduce { .. } | StmtKind::ClusterCombine { .. } if v.cluster() > 1 => {
            vec![Construct::ClusterReduce]
        }
        StmtKind::CopyAsync { how, .. } => {
            let shares = how.multicast.map(|multicast| match multicast {
                Multicast::All | Multicast::Along(_) => Construct::Multicast,
                Multicast::Pair | Multicast::Pairs(_) => Construct::Pair,
            });
            shares.into_iter().chain(how.add.then_some(Construct::CopyThatAdds)).collect()
        }
        StmtKind::WaitDependencies => vec![Construct::WaitForDependencies],
        StmtKind::LaunchDependents => vec![Construct::LaunchDependents],
        StmtKind::Cast { dst, src } => vec![Construct::Conversion(dtype(*src), dtype(*dst))],
        // A tensor alone is moved.
        StmtKind::Elementwise { expr: ElemExpr::Tensor(_), .. } => Vec::new(),
        StmtKind::Elementwise { dst, expr } => {
            let read = expr.tensors().into_iter().filter(|id| dtype(*id).is_float());
            let read = read.map(|id| Construct::Conversion(dtype(id), DType::F32));
            let written = dtype(*dst).is_float().then(|| Construct::Conversion(DType::F32, dtype(*dst)));
            read.chain(written).collect()
        }
        StmtKind::Reduce { dst, src, op, .. } => {
            // An `e5m2` that needs no rounding is the upper byte of an `f16`.
            let back = op.computes() || dtype(*dst) == DType::E4M3;
            let read = [Construct::Conversion(dtype(*src), DType::F32)];
            read.into_iter().chain(back.then(|| Construct::Conversion(DType::F32, dtype(*dst)))).collect()
        }
        StmtKind::Arg { value, src, .. } => {
            // What is found is a number of the type already.
            let back = dtype(*value) == DType::E4M3;
            let read = [Construct::Conversion(dtype(*src), DType::F32)];
            read.into_iter().chain(back.then(|| Construct::Conversion(DType::F32, dtype(*value)))).collect()
        }
        StmtKind::Sort { src, .. } => {
            let back = dtype(*src) == DType::E4M3;
            let read = [Construct::Conversion(dtype(*src), DType::F32)];
            read.into_iter().chain(back.then(|| Construct::Conversion(DType::F32, dtype(*src)))).collect()
        }
        StmtKind::Combine { srcs, .. } => {
            let floats = srcs.iter().map(|src| dtype(*src)).filter(|dtype| dtype.is_float());
            floats
                .flat_map(|of| [Construct::Conversion(of, DType::F32), Construct::Conversion(DType::F32, of)])
                .collect()
        }
        StmtKind::Scan { dst, .. } => {
            let float = DType::F32;
            vec![Construct::Conversion(dtype(*dst), float), Construct::Conversion(float, dtype(*dst))]
        }
        // On every architecture.
        _ => Vec::new(),
    }
}

/// The first architecture of [`Arch::ALL`] that has everything a program uses, and the first construct for which the one before it was
/// passed over; `None` where no architecture has all.
pub fn least_architecture(v: &Verified) -> Option<(Arch, Option<Need>)> {
    let needs = needs(v);
    let together = needs.iter().fold(Features::NONE, |all, need| all | need.features());
    let at = Arch::ALL.iter().position(|arch| arch.has(together))?;
    let before = at.checked_sub(1).map(|before| Arch::ALL[before]);
    let why = before.and_then(|before| needs.into_iter().find(|need| !before.has(need.features())));
    Some((Arch::ALL[at], why))
}

/// Checks that an architecture has everything a program uses.
///
/// # Errors
///
/// A [`Code::UnsupportedArchitecture`] at the first statement that needs a feature that the architecture lacks; the first use of each other
/// such construct stands beside it.
///
/// ```
/// use tilewright_machine::Arch;
/// use tilewright_tile::{Constants, check_architecture, least_architecture, parse, verify};
/// let program = parse("kernel late() grid(1) threads(32) { wait_dependencies() }")?;
/// let verified = verify(&program, &Constants::new())?;
/// let error = check_architecture(&verified, Arch::SM_80).unwrap_err();
/// assert_eq!(
///     error.message,
///     "`wait_dependencies` needs programmatic dependent launch, which sm_80 does not have"
/// );
/// assert_eq!(least_architecture(&verified).map(|(arch, _)| arch), Some(Arch::SM_90A));
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
pub fn check_architecture(v: &Verified, arch: Arch) -> Result<(), Diagnostic> {
    let missing: Vec<Need> = needs(v).into_iter().filter(|need| !arch.has(need.features())).collect();
    let Some((first, others)) = missing.split_first() else { return Ok(()) };
    let text = |need: &Need| format!("{} needs {}", need.construct, arch.lacks(need.features()));
    let message = format!("{}, which {arch} does not have", text(first));
    let diagnostic = Diagnostic::new(Code::UnsupportedArchitecture, first.span, message)
        .label(format!("needs {}", arch.lacks(first.features())))
        .help(match least_architecture(v) {
            Some((least, _)) => format!("compile for {least} (--arch {least})"),
            None => "no architecture has everything that the program uses".to_string(),
        });
    Err(others.iter().fold(diagnostic, |d, need| d.related(need.span, text(need))))
}
