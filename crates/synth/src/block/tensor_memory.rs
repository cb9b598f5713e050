//! The map of a block's tensor memory: its tensors side by side, each with the stages of its pipeline, but for those that are never needed together, and the scales of
//! block-scaled products.
//!
//! Two tensors of one stage are never needed together where two roles fill and read them in turns: the one fills the first, the other reads it and fills the second, which the
//! one reads before it fills the first again, with each stage of the first begun anew by a fill. The second then lies over the last columns of the first. What the roles do in turns is ordered by their pipelines;
//! what each does for itself, in the order of its statements: by one warpgroup, whose warps reach their own lanes alone, or by one thread that issues products, which the
//! tensor cores do in the order of issue. (By the letter of the PTX ISA, 9.1, section 9.7.16.6.2, that is so of products with the same sums. CUTLASS's and
//! FlashAttention-4's kernels rely on it where a product overwrites the left factor of the one before, and so does this.)
//!
//! The scales of a product have columns of their own once, whatever the stages of the shared tensor that they come from: the thread that issues the products copies them
//! there in turn with its products. Products of one role that read the same shared tensor for the same factor share the columns.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{Memory, SumsScaling, TensorMemory, WARPGROUP};
use tilewright_tile::core::{Program, Role, Stmt, StmtKind};
use tilewright_tile::{Code, Diagnostic, PipelineId, Side, StmtId, TensorId};

use crate::async_layout::tensor_memory::matrix;
use crate::explain::ColumnsNote;

/// The place of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Columns {
    /// The pipeline of which it is a stage.
    pub pipeline: PipelineId,
    /// The first column.
    pub first: u32,
    /// Columns of a stage.
    pub stage: u32,
    /// Those of all stages.
    pub all: u32,
    /// The tensor over whose last columns it lies.
    pub over: Option<TensorId>,
}

/// The map of tensor memory.
#[derive(Clone, Debug)]
pub struct TensorMemoryMap {
    /// Columns that are allocated.
    pub columns: u32,
    /// The word of shared memory that gets their address.
    pub word: u32,
    /// The tensors.
    pub tensors: BTreeMap<TensorId, Columns>,
    /// The first columns of the scales of A and of B, by product.
    pub scales: BTreeMap<StmtId, [u32; 2]>,
    /// The shared tensors of scales, each with the first of its columns and their number.
    pub scale_tensors: Vec<(TensorId, u32, u32)>,
}

/// The columns of scales so far.
struct ScaleColumns<'a> {
    whole: &'a Program,
    end: u32,
    by_product: BTreeMap<StmtId, [u32; 2]>,
    tensors: Vec<(TensorId, u32, u32)>,
}

impl ScaleColumns<'_> {
    /// Places the scales of the products of a body, given those that its part has of A and of B.
    fn body(&mut self, body: &[Stmt], placed: &mut BTreeMap<(TensorId, bool), u32>) {
        for stmt in body {
            if let StmtKind::GemmAsync { scales: Some(scales), .. } = &stmt.kind {
                let columns = [0, 1].map(|side| {
                    let scale = &scales[side];
                    *placed.entry((scale.tensor, side == 0)).or_insert_with(|| {
                        let [rows, of_row] = self.whole.tile(scale).shape[..] else { return self.end };
                        let (first, columns) = (self.end, SumsScaling::columns(rows, of_row));
                        self.tensors.push((scale.tensor, first, columns));
                        self.end = self.end.saturating_add(columns);
                        first
                    })
                });
                self.by_product.insert(stmt.id, columns);
            }
            self.body(stmt.kind.body(), placed);
        }
    }
}

impl TensorMemoryMap {
    /// The tensors, for reports.
    pub fn notes(&self, whole: &Program) -> Vec<ColumnsNote> {
        let name = |id: TensorId| whole.tensor(id).name.clone();
        let note = |(id, columns): (&TensorId, &Columns)| ColumnsNote {
            name: name(*id),
            first: columns.first,
            columns: columns.all,
            over: columns.over.map(name),
        };
        self.tensors.iter().map(note).collect()
    }
}

/// Places the tensors; `None` where there are none. The word is placed by the map of shared memory.
///
/// # Errors
///
/// More columns than there are.
pub fn map(whole: &Program) -> Result<Option<TensorMemoryMap>, Diagnostic> {
    let (mut tensors, mut end, mut span) = (BTreeMap::<TensorId, Columns>::new(), 0u32, None);
    let over = overlays(whole);
    for (i, pipeline) in whole.pipelines.iter().enumerate() {
        for id in pipeline.tensors.iter().filter(|id| whole.tensor(**id).memory() == Memory::Tensor) {
            let columns = matrix(&whole.shape(*id)).map_or(0, |[_, n]| n);
            let stage = TensorMemory::columns_of(columns, whole.tensor(*id).dtype);
            let all = stage.saturating_mul(pipeline.stages);
            let (pipeline, over) = (PipelineId(i as u32), over.get(id).copied());
            tensors.insert(*id, Columns { pipeline, first: end, stage, all, over });
            end = end.saturating_add(if over.is_some() { 0 } else { all });
            span = span.or(Some(whole.tensor(*id).span));
        }
    }
    let places = tensors.clone();
    for columns in tensors.values_mut() {
        if let Some(below) = columns.over.and_then(|id| places.get(&id)) {
            columns.first = below.first + below.all - columns.all;
        }
    }
    let Some(span) = span else { return Ok(None) };
    let mut scales = ScaleColumns { whole, end, by_product: BTreeMap::new(), tensors: Vec::new() };
    for body in std::iter::once(&whole.body).chain(whole.roles().iter().map(|role| &role.body)) {
        scales.body(body, &mut BTreeMap::new());
    }
    let ScaleColumns { end, by_product, tensors: scale_tensors, .. } = scales;
    let Some(columns) = TensorMemory::allocation(end) else {
        let of_scales =
            scale_tensors.iter().map(|(id, _, columns)| format!("`{}` {columns}", whole.tensor(*id).name));
        let list: Vec<String> = tensors
            .iter()
            .filter(|(_, columns)| columns.over.is_none())
            .map(|(id, columns)| {
                let stages = whole.pipeline(columns.pipeline).stages;
                format!("`{}` {} × {stages}", whole.tensor(*id).name, columns.stage)
            })
            .chain(of_scales)
            .collect();
        let message = format!(
            "the block's tensor memory takes {end} columns, and a multiprocessor has {}",
            TensorMemory::COLUMNS
        );
        let help = format!("make the tiles narrower or the stages fewer; in columns: {}", list.join(", "));
        return Err(Diagnostic::new(Code::Unsatisfiable, span, message).help(help));
    };
    Ok(Some(TensorMemoryMap { columns, word: 0, tensors, scales: by_product, scale_tensors }))
}

/// The sides of a pipeline of one stage, each of one role.
struct Ends {
    tensor: TensorId,
    columns: u32,
    fills: usize,
    reads: usize,
}

/// The ends of a pipeline that has one tensor of tensor memory and one stage, filled by one role and read by one.
fn ends(whole: &Program, id: PipelineId) -> Option<Ends> {
    let pipeline = whole.pipeline(id);
    let [tensor] = pipeline.tensors[..] else { return None };
    let of = whole.tensor(tensor);
    if pipeline.stages != 1 || of.memory() != Memory::Tensor {
        return None;
    }
    let [_, n] = matrix(&whole.shape(tensor))?;
    let role = |side: Side| {
        let has = |(_, role): &(usize, &Role)| stages(&role.body).contains(&(id, side));
        let mut on = whole.roles().iter().enumerate().filter(has).map(|(i, _)| i);
        on.next().filter(|_| on.next().is_none())
    };
    let columns = TensorMemory::columns_of(n, of.dtype);
    Some(Ends { tensor, columns, fills: role(Side::Produce)?, reads: role(Side::Consume)? })
}

/// The tensors that lie over another, with that one.
fn overlays(whole: &Program) -> BTreeMap<TensorId, TensorId> {
    let ends: Vec<(PipelineId, Ends)> = (0..whole.pipelines.len() as u32)
        .map(PipelineId)
        .filter_map(|id| Some((id, ends(whole, id)?)))
        .collect();
    let mut over: BTreeMap<TensorId, TensorId> = BTreeMap::new();
    for (below, first) in &ends {
        for (above, second) in &ends {
            let taken = [first.tensor, second.tensor]
                .iter()
                .any(|id| over.contains_key(id) || over.values().any(|of| of == id));
            let fits = first.tensor != second.tensor && second.columns <= first.columns;
            let roles = [(first.fills, second.reads), (second.fills, first.reads)];
            if taken || !fits || roles.iter().any(|(fills, reads)| fills != reads) {
                continue;
            }
            // Sums that stay from stage to stage are needed while the second is there.
            if !begun_anew(&whole.roles()[first.fills].body, *below, first.tensor, false) {
                continue;
            }
            let alone = |role: usize| {
                let role = &whole.roles()[role];
                (role.threads == WARPGROUP || issues(whole, &role.body))
                    && in_turns(&role.body, [*below, *above], false) == Some(false)
            };
            if alone(first.fills) && alone(second.fills) {
                over.insert(second.tensor, first.tensor);
            }
        }
    }
    over
}

/// True if each stage of a pipeline that is filled in some statements begins its tensor by a fill ahead of its products, and no fill stands elsewhere.
fn begun_anew(body: &[Stmt], pipeline: PipelineId, tensor: TensorId, mut begun: bool) -> bool {
    body.iter().all(|stmt| match &stmt.kind {
        StmtKind::Stage { pipeline: of, side: Side::Produce, body } if *of == pipeline => {
            let fills = |stmt: &Stmt| matches!(&stmt.kind, StmtKind::Fill { dst, .. } if *dst == tensor);
            let Some(at) = body.iter().position(fills) else { return false };
            begun_anew(&body[..at], pipeline, tensor, false)
                && begun_anew(&body[at + 1..], pipeline, tensor, true)
        }
        StmtKind::Fill { dst, .. } if *dst == tensor => std::mem::replace(&mut begun, true),
        StmtKind::GemmAsync { c, .. } if *c == tensor => begun,
        StmtKind::Copy { dst, .. } if dst.tensor == tensor => begun,
        kind => begun_anew(kind.body(), pipeline, tensor, begun),
    })
}

/// The sides of pipelines in some statements.
fn stages(body: &[Stmt]) -> BTreeSet<(PipelineId, Side)> {
    let mut all = BTreeSet::new();
    for stmt in body {
        if let StmtKind::Stage { pipeline, side, .. } = &stmt.kind {
            all.insert((*pipeline, *side));
        }
        all.extend(stages(stmt.kind.body()));
    }
    all
}

/// True if some statements multiply into tensor memory, which one thread issues.
fn issues(whole: &Program, body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        StmtKind::GemmAsync { c, .. } => whole.tensor(*c).memory() == Memory::Tensor,
        kind => issues(whole, kind.body()),
    })
}

/// The state behind some statements in which stages of two pipelines stand in turns, the first one first: true where the second one's is next. `None` where they do not, or may
/// not.
fn in_turns(body: &[Stmt], pair: [PipelineId; 2], mut second: bool) -> Option<bool> {
    let touches = |body: &[Stmt]| stages(body).iter().any(|(id, _)| pair.contains(id));
    for stmt in body {
        let inner = stmt.kind.body();
        match &stmt.kind {
            StmtKind::Stage { pipeline, .. } if pair.contains(pipeline) => {
                if *pipeline != pair[usize::from(second)] || touches(inner) {
                    return None;
                }
                second = !second;
            }
            StmtKind::Stage { .. } => second = in_turns(inner, pair, second)?,
            _ if !touches(inner) => {}
            // A loop may have no round and a branch may not be taken: behind it the same is next as before.
            kind => {
                let same = in_turns(inner, pair, second) == Some(second);
                if !same || kind.may_break() {
                    return None;
                }
            }
        }
    }
    Some(second)
}
