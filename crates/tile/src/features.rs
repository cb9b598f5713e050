//! The architecture that a program needs: one table from what statements use to the least architecture that has it.

use std::fmt;

use tilewright_machine::{Arch, DType, SyncOp, TensorRow, WgmmaRow, conversion_since};

use crate::diagnostic::{Code, Diagnostic, Span};
use crate::program::{ReduceOp, Stmt, StmtKind};
use crate::verified::Verified;

/// A use of the hardware that not every architecture has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Feature {
    /// `pipeline`: stages handed on by mbarriers.
    Pipeline,
    /// `registers(n)` of a role: `setmaxnreg`.
    RoleRegisters,
    /// `gemm.async`: `wgmma.mma_async`.
    AsyncProduct,
    /// `commit_gemm`: `wgmma.commit_group`.
    CommitProducts,
    /// `wait_gemm`: `wgmma.wait_group`.
    WaitForProducts,
    /// `cluster(n)` of several blocks.
    Cluster,
    /// `cluster_sum`: distributed shared memory.
    ClusterSum,
    /// `copy.async(…, multicast)`: one tensor copy for all blocks of a cluster.
    Multicast,
    /// `copy.async(…, add)`: a reduction by a tensor or bulk copy.
    CopyThatAdds,
    /// `wait_dependencies`: `griddepcontrol.wait`.
    WaitForDependencies,
    /// `launch_dependents`: `griddepcontrol.launch_dependents`.
    LaunchDependents,
    /// A conversion of elements: `cvt` from or to 8-bit floats.
    Conversion(DType, DType),
}

impl Feature {
    /// The least architecture that has it, by the instruction rows that do it.
    pub fn since(self) -> Arch {
        match self {
            Feature::Pipeline => SyncOp::FenceMbarrierInit.since(),
            Feature::RoleRegisters => SyncOp::SetMaxRegisters { more: true, registers: 24 }.since(),
            Feature::AsyncProduct => WgmmaRow::ARCH,
            Feature::CommitProducts => SyncOp::WgmmaCommit.since(),
            Feature::WaitForProducts => SyncOp::WgmmaWait(0).since(),
            Feature::Cluster | Feature::ClusterSum => SyncOp::ClusterBarrier.since(),
            Feature::Multicast | Feature::CopyThatAdds => TensorRow::SINCE,
            Feature::WaitForDependencies => SyncOp::DependencyWait.since(),
            Feature::LaunchDependents => SyncOp::DependentsLaunch.since(),
            Feature::Conversion(from, to) => conversion_since(from, to),
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Feature::Pipeline => "`pipeline`",
            Feature::RoleRegisters => "`registers` of a role",
            Feature::AsyncProduct => "`gemm.async`",
            Feature::CommitProducts => "`commit_gemm`",
            Feature::WaitForProducts => "`wait_gemm`",
            Feature::Cluster => "`cluster` of several blocks",
            Feature::ClusterSum => "`cluster_sum`",
            Feature::Multicast => "`copy.async` with `multicast`",
            Feature::CopyThatAdds => "`copy.async` with `add`",
            Feature::WaitForDependencies => "`wait_dependencies`",
            Feature::LaunchDependents => "`launch_dependents`",
            Feature::Conversion(from, to) => return write!(f, "a conversion from {from} to {to}"),
        })
    }
}

/// A feature that a program uses, and the first statement that does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// The feature.
    pub feature: Feature,
    /// The statement; empty in programs built in Rust.
    pub span: Span,
}

impl Need {
    /// The least architecture that has the feature.
    pub fn since(&self) -> Arch {
        self.feature.since()
    }
}

/// Every feature that a program uses, each once, in the order of the text.
pub fn needs(v: &Verified) -> Vec<Need> {
    let mut needs: Vec<Need> = Vec::new();
    let mut need = |feature: Feature, span: Span| {
        if !needs.iter().any(|known| known.feature == feature) {
            needs.push(Need { feature, span });
        }
    };
    if v.cluster() > 1 {
        need(Feature::Cluster, v.program().cluster_span);
    }
    v.visit(&mut |stmt, _| features(v, stmt).into_iter().for_each(|feature| need(feature, stmt.span)));
    needs
}

/// What a statement itself uses, the statements inside it left out.
fn features(v: &Verified, stmt: &Stmt) -> Vec<Feature> {
    let dtype = |id: crate::TensorId| v.program().tensor(id).dtype;
    match &stmt.kind {
        StmtKind::Pipeline(_) | StmtKind::Stage { .. } => vec![Feature::Pipeline],
        StmtKind::Role { registers: Some(_), .. } => vec![Feature::RoleRegisters],
        StmtKind::GemmAsync { .. } => vec![Feature::AsyncProduct],
        StmtKind::CommitGemm => vec![Feature::CommitProducts],
        StmtKind::WaitGemm(_) => vec![Feature::WaitForProducts],
        StmtKind::ClusterSum { .. } => vec![Feature::ClusterSum],
        StmtKind::CopyAsync { how, .. } => {
            let asked = [(how.multicast, Feature::Multicast), (how.add, Feature::CopyThatAdds)];
            asked.into_iter().filter(|(asked, _)| *asked).map(|(_, feature)| feature).collect()
        }
        StmtKind::WaitDependencies => vec![Feature::WaitForDependencies],
        StmtKind::LaunchDependents => vec![Feature::LaunchDependents],
        StmtKind::Cast { dst, src } => vec![Feature::Conversion(dtype(*src), dtype(*dst))],
        StmtKind::Elementwise { dst, expr } => {
            let read = expr.tensors().into_iter().map(|id| Feature::Conversion(dtype(id), DType::F32));
            read.chain([Feature::Conversion(DType::F32, dtype(*dst))]).collect()
        }
        StmtKind::Reduce { dst, src, op, .. } => {
            // An `e5m2` that needs no rounding is the upper byte of an `f16`.
            let back = *op == ReduceOp::Sum || dtype(*dst) == DType::E4M3;
            let read = [Feature::Conversion(dtype(*src), DType::F32)];
            read.into_iter().chain(back.then(|| Feature::Conversion(DType::F32, dtype(*dst)))).collect()
        }
        // What every architecture has.
        _ => Vec::new(),
    }
}

/// The least architecture that has everything a program uses, and what decides it: the first feature that only it and later ones
/// have, none where every architecture has all.
pub fn least_architecture(v: &Verified) -> (Arch, Option<Need>) {
    let [oldest, ..] = Arch::ALL;
    needs(v).into_iter().fold((oldest, None), |(arch, why), need| {
        if need.since() > arch { (need.since(), Some(need)) } else { (arch, why) }
    })
}

/// Checks that an architecture has everything a program uses.
///
/// # Errors
///
/// A [`Code::UnsupportedArchitecture`] at the first statement that uses what only a later architecture has; the first use of each other
/// such feature stands beside it.
///
/// ```
/// use tilewright_machine::Arch;
/// use tilewright_tile::{Constants, check_architecture, least_architecture, parse, verify};
/// let program = parse("kernel late() grid(1) threads(32) { wait_dependencies() }")?;
/// let verified = verify(&program, &Constants::new())?;
/// let error = check_architecture(&verified, Arch::Sm80).unwrap_err();
/// assert_eq!(error.message, "`wait_dependencies` needs sm_90a, and the target is sm_80");
/// assert_eq!(least_architecture(&verified).0, Arch::Sm90a);
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
pub fn check_architecture(v: &Verified, arch: Arch) -> Result<(), Diagnostic> {
    let missing: Vec<Need> = needs(v).into_iter().filter(|need| need.since() > arch).collect();
    let Some((first, others)) = missing.split_first() else { return Ok(()) };
    let (least, _) = least_architecture(v);
    let text = |need: &Need| format!("{} needs {}", need.feature, need.since());
    let message = format!("{}, and the target is {arch}", text(first));
    let diagnostic = Diagnostic::new(Code::UnsupportedArchitecture, first.span, message)
        .label(format!("needs {}", first.since()))
        .help(format!("compile for {least} (--arch {least})"));
    Err(others.iter().fold(diagnostic, |d, need| d.related(need.span, text(need))))
}
