//! Layouts that TMA and wgmma require: before synthesis solves for layouts, those that tensor copies and the matrix products of
//! warpgroups need are pinned.
//!
//! A product's accumulator has the layout of its instructions. A shared tensor that such a product reads must have one that a
//! descriptor describes; one that is copied between shared and global memory can be copied by the tensor memory accelerator if its
//! layout is a row of boxes. Both are the layouts of [`swizzle_atom_layout`](descriptor::swizzle_atom_layout) tiles, contiguous along one mode, swizzled within 128, 64, 32 or
//! no bytes: the widest swizzle that every use can have is taken, for it has the fewest bank conflicts and the fewest boxes. What
//! tensor copies cannot do is left to other instructions (Hexcute, section V).

mod candidates;
pub mod descriptor;
pub mod halves;
mod pixels;
mod plans;
pub mod tensor_memory;
pub mod tma;
pub mod wgmma;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tilewright_layout::{Layout, SwizzledLayout};
use tilewright_machine::{CopyRow, Memory, Sparsity, SumsScaling, SwizzleMode, TensorOp, TensorRow};
use tilewright_tile::core::{Program, Role, Stmt, StmtKind, TensorKind, TensorRef};
use tilewright_tile::{AsyncCopyAttrs, Code, Diagnostic, Side, StmtId, TensorId};

use crate::copies::Agreed;
use crate::divisibility::Divisibility;
use crate::explain::Words;
use crate::options::Options;
use crate::reason::{Lost, NotTaken, Why};
use crate::reject::{Reject, TensorMemoryReject, TmaReject, WgmmaReject};
use crate::tv::TvLayout;
use halves::{asks_for_pairs, even_block_suffices, pinned_to_halves, tensor_copies_bring_halves};
pub use plans::{copy_plan, product_plan, tensor_copy_plan};
use plans::{peers, sums_of, tile_of};
use tensor_memory::Sums;
use wgmma::{Grid, SharedOperand};

/// A program whose asynchronous statements have their layouts.
#[derive(Clone, Debug)]
pub struct AsyncLayouts {
    /// The program: layouts are pinned, and copies that the tensor memory accelerator does are marked.
    pub verified: Program,
    /// The reason of each shared tensor's layout.
    pub reasons: BTreeMap<TensorId, Why>,
    /// The reason why tensor copies could not do a copy, by copy.
    pub refused: BTreeMap<StmtId, NotTaken>,
    /// The tensors that several roles touch and nothing prescribes a layout of: roles may agree on another ([`agree`](crate::agree)).
    pub open: BTreeSet<TensorId>,
}

/// A product whose factors lie in shared memory.
#[derive(Clone, Copy)]
enum Product {
    /// Of warpgroups.
    Warpgroups(Grid),
    /// With its sums in tensor memory.
    Sums(Sums),
}

impl Product {
    /// The description by which the hardware reads a factor in shared memory.
    fn operand(&self, left: bool, layout: &SwizzledLayout) -> Result<SharedOperand, WgmmaReject> {
        match self {
            Product::Warpgroups(grid) => grid.operand(left, layout),
            Product::Sums(sums) => sums.operand(left, layout),
        }
    }

    /// The family of its instructions, as reports name it.
    fn word(&self) -> &'static str {
        match self {
            Product::Warpgroups(_) => "wgmma",
            Product::Sums(_) => "tcgen05.mma",
        }
    }
}

/// A use of a shared tensor.
#[derive(Clone)]
enum Use {
    /// As an operand of a product.
    Product { product: Product, left: bool, reference: TensorRef, stmt: Stmt },
    /// As the scales of a factor of a product with its sums in tensor memory.
    Scales { sums: Sums, left: bool, reference: TensorRef, stmt: Stmt },
    /// By an asynchronous copy.
    Copy { view: TensorRef, reference: TensorRef, how: AsyncCopyAttrs, op: TensorOp, copy: StmtId },
}

impl Use {
    /// The statement of a product that reads it, and the family of its instructions.
    fn product(&self) -> Option<(&Stmt, &'static str)> {
        match self {
            Use::Product { stmt, product, .. } => Some((stmt, product.word())),
            Use::Scales { stmt, .. } => Some((stmt, SumsScaling::COPY)),
            Use::Copy { .. } => None,
        }
    }

    /// The layout that scales have.
    fn scales_layout(&self) -> Option<SwizzledLayout> {
        match self {
            Use::Scales { sums, left, .. } => sums.scales_layout(*left),
            Use::Product { .. } | Use::Copy { .. } => None,
        }
    }
}

struct AsyncAssignment<'a> {
    v: &'a Program,
    divisibility: Divisibility<'a>,
    options: &'a Options,
    /// True if products with their sums in tensor memory are of pairs of blocks.
    pairs: bool,
    uses: BTreeMap<TensorId, Vec<Use>>,
    /// Every other reference to a shared tensor.
    others: BTreeMap<TensorId, Vec<TensorRef>>,
    registers: BTreeMap<TensorId, (Layout, Grid)>,
    /// The register tensors that are copied from tensor memory or to it.
    copied: BTreeMap<TensorId, (Layout, &'static CopyRow)>,
    /// Copies that the tensor memory accelerator does with no layout.
    refused: Vec<(StmtId, NotTaken)>,
}

/// The operation by which the tensor memory accelerator may copy a statement's tile: in a `produce`, loads; outside, stores; none where the
/// program leaves the copy to threads.
fn tensor_op(v: &Program, src: &TensorRef, how: AsyncCopyAttrs, produces: bool) -> Option<TensorOp> {
    let stores = v.tensor(src.tensor).memory() == Memory::Shared;
    match (stores, produces) {
        _ if how.threads => None,
        (true, _) => Some(if how.add { TensorOp::Add } else { TensorOp::Store }),
        (false, true) => Some(TensorOp::Load),
        (false, false) => None,
    }
}

/// Fixes the layouts that TMA and wgmma require, and those of what several roles share: as they `agreed`, if they did. Blocks multiply in pairs where the
/// program asks for it, a layout has halves, tensor copies bring these, and roles that multiply do nothing else; else each for itself, which means the same.
///
/// # Errors
///
/// Something that the architecture lacks; a product that no instruction does, or of which no layout of its operands can be read.
pub fn assign_async_layouts(
    v: &Program,
    options: &Options,
    agreed: &BTreeMap<TensorId, Agreed>,
) -> Result<AsyncLayouts, Diagnostic> {
    if asks_for_pairs(v) {
        let halved = pinned_to_halves(v);
        match (assign(v, options, agreed, true), halved) {
            (Ok(found), _)
                if tensor_copies_bring_halves(&found.verified) && even_block_suffices(&found.verified) =>
            {
                return Ok(found);
            }
            (Ok(_), Some(id)) => {
                let tensor = v.tensor(id);
                let message = format!(
                    "`{}` is pinned so that each block of a pair has half of it, and here each block multiplies for itself",
                    tensor.name
                );
                let help = "pairs need rows of multiples of 16 bytes, which tensor copies read, and a role that does nothing but multiply: see to that, or leave the layout open";
                return Err(Diagnostic::new(Code::Unsatisfiable, tensor.span, message).help(help));
            }
            (Err(why), Some(_)) => return Err(why),
            (_, None) => {}
        }
    }
    assign(v, options, agreed, false)
}

fn assign(
    v: &Program,
    options: &Options,
    agreed: &BTreeMap<TensorId, Agreed>,
    pairs: bool,
) -> Result<AsyncLayouts, Diagnostic> {
    let divisibility = Divisibility::new(v, &options.multiples);
    let mut pass = AsyncAssignment {
        v,
        divisibility,
        options,
        pairs,
        uses: BTreeMap::new(),
        others: BTreeMap::new(),
        registers: BTreeMap::new(),
        copied: BTreeMap::new(),
        refused: Vec::new(),
    };
    pass.collect(&v.body, v.threads(), false)?;
    for role in v.roles() {
        pass.collect(&role.body, role.threads, false)?;
    }
    let mut result = v.clone();
    let mut reasons = BTreeMap::new();
    let mut tensors = BTreeSet::new();
    let mut refused: BTreeMap<StmtId, NotTaken> = pass.refused.iter().cloned().collect();
    for (id, (layout, grid)) in &pass.registers {
        reasons.insert(*id, Why::Wgmma { row: grid.row, warpgroups: grid.warpgroups });
        result.pin_register(*id, layout.clone());
    }
    for (id, (layout, row)) in &pass.copied {
        reasons.insert(*id, Why::TensorMemory { row });
        result.pin_register(*id, layout.clone());
    }
    for (id, uses) in &pass.uses {
        let Some(choice) = pass.choose(*id, uses)? else { continue };
        if let Some(layout) = choice.layout {
            result.pin_shared(*id, layout);
        }
        if let Some(why) = choice.why {
            reasons.insert(*id, why);
        }
        tensors.extend(choice.tensor_copies);
        refused.extend(choice.refused);
    }
    pass.check_requirements(&tensors, &refused)?;
    let mut open = BTreeSet::new();
    for id in tensors_shared_by_roles(v) {
        let TensorKind::Shared { pinned: None, .. } = &result.tensor(id).kind else { continue };
        if let Some(Agreed { layout, constraint, stage }) = agreed.get(&id) {
            result.pin_shared(id, layout.clone());
            reasons.insert(id, Why::Agreed { constraint: constraint.clone(), stage: *stage });
            continue;
        }
        open.insert(id);
        let uses = pass.uses.get(&id).map_or(&[][..], Vec::as_slice);
        if let Some(layout) = pass.common(id, uses) {
            result.pin_shared(id, layout);
            reasons.insert(id, Why::SharedByRoles);
        }
    }
    result.mark_tensor_copies(&tensors);
    Ok(AsyncLayouts { verified: result, reasons, refused, open })
}

/// The shared tensors that more than one role touches. Each role is synthesised alone, so they must not be left to it.
fn tensors_shared_by_roles(v: &Program) -> BTreeSet<TensorId> {
    let mut roles: BTreeMap<TensorId, usize> = BTreeMap::new();
    for id in v.roles().iter().flat_map(Role::touched) {
        *roles.entry(id).or_default() += 1;
    }
    let shared = |id: &TensorId| v.tensor(*id).memory() == Memory::Shared;
    roles.into_iter().filter(|(_, roles)| *roles > 1).map(|(id, _)| id).filter(shared).collect()
}

/// The decision about a shared tensor.
struct Choice {
    /// The layout; `None` leaves it to synthesis, or to the program.
    layout: Option<SwizzledLayout>,
    why: Option<Why>,
    /// The copies that the tensor memory accelerator does.
    tensor_copies: Vec<StmtId>,
    refused: Vec<(StmtId, NotTaken)>,
}

/// A layout, with the tensor copies that it allows, the refused ones, and the products that cannot read it.
struct Tried {
    layout: SwizzledLayout,
    mode: Option<SwizzleMode>,
    copies: Vec<StmtId>,
    refused: Vec<(StmtId, NotTaken)>,
    failed: Option<(Stmt, Reject)>,
}

impl AsyncAssignment<'_> {
    fn collect(&mut self, body: &[Stmt], threads: u32, produces: bool) -> Result<(), Diagnostic> {
        for stmt in body {
            let inside = produces || matches!(&stmt.kind, StmtKind::Stage { side: Side::Produce, .. });
            match &stmt.kind {
                StmtKind::GemmAsync { c, a, b, meta, scales, .. } if self.memory(*c) == Memory::Tensor => {
                    self.sums(stmt, *c, (a, b), (*meta, scales.as_ref()))?;
                }
                StmtKind::GemmAsync { c, a, b, meta, warpgroups, .. } => {
                    self.product(stmt, threads, *c, (a, b), *meta, warpgroups.as_ref())?;
                }
                StmtKind::CopyAsync { src, dst, how } => {
                    let stores = self.memory(src.tensor) == Memory::Shared;
                    let (view, reference) = if stores { (dst, src) } else { (src, dst) };
                    // A box has no rows from anywhere, but some chips gather them by the threads of the role.
                    let rows = self.v.tile(src).shape.first().copied().unwrap_or(0);
                    let divides = tma::gathered_indices(rows, i64::from(threads)).is_some();
                    let gathers = self.options.arch.has(TensorRow::GATHER_NEEDS) && divides;
                    if src.indexed.is_some()
                        && self.options.arch.has(TensorRow::GATHER_NEEDS)
                        && !divides
                        && tensor_op(self.v, src, *how, produces) == Some(TensorOp::Load)
                    {
                        let why = TmaReject::GatheringThreads(rows, threads);
                        self.refused.push((stmt.id, NotTaken::rejected(word(TensorOp::Load), why)));
                    }
                    let indexed = dst.indexed.is_some() || src.indexed.is_some() && !gathers;
                    let op = tensor_op(self.v, src, *how, produces).filter(|_| !indexed);
                    match op.filter(|_| self.options.arch.has(TensorRow::NEEDS)) {
                        Some(op) => self.uses.entry(reference.tensor).or_default().push(Use::Copy {
                            view: view.clone(),
                            reference: reference.clone(),
                            how: *how,
                            op,
                            copy: stmt.id,
                        }),
                        None => self.others.entry(reference.tensor).or_default().push(reference.clone()),
                    }
                }
                StmtKind::Copy { src, dst, .. } => {
                    self.copied(stmt, (src, dst), threads)?;
                    for r in [src, dst] {
                        if self.memory(r.tensor) == Memory::Shared {
                            self.others.entry(r.tensor).or_default().push(r.clone());
                        }
                    }
                }
                _ => {}
            }
            self.collect(stmt.kind.body(), threads, inside)?;
        }
        Ok(())
    }

    fn memory(&self, id: TensorId) -> Memory {
        self.v.tensor(id).memory()
    }

    /// Checks that the accelerator does what a copy is asked for besides copying and no other instruction does. (A tile that blocks share
    /// is copied by each where it cannot be shared out, and a hint changes no value: reports say so.)
    fn check_requirements(
        &self,
        done: &BTreeSet<StmtId>,
        refused: &BTreeMap<StmtId, NotTaken>,
    ) -> Result<(), Diagnostic> {
        let words = Words { verified: self.v, statements: &[] };
        for one in self.uses.values().flatten() {
            let Use::Copy { view, how, copy, .. } = one else { continue };
            let folds = self.v.tile(view).global.is_some_and(|global| global.folded.is_some());
            if !(how.add || folds) || done.contains(copy) {
                continue;
            }
            let reason = match refused.get(copy) {
                Some(refused) => words.lost(&refused.why),
                None => TmaReject::NoBoxes.to_string(),
            };
            if folds {
                let name = &self.v.tensor(view.tensor).name;
                return Err(Diagnostic::new(
                    Code::Unsatisfiable,
                    view.span,
                    format!("nothing can read this tile of `{name}`, which folds modes of its buffer: {reason}"),
                )
                .help(
                    "only tensor copies in im2col mode do: of a buffer of 3 to 5 modes, channels contiguous and the first mode of images the last digit; \
                     a view with tiles along each mode, `(4, 16, 2) : (e2, e1, e0)`, is copied in boxes",
                ));
            }
            return Err(Diagnostic::new(
                Code::Unsatisfiable,
                view.span,
                format!("nothing can add this tile to global memory: {reason}"),
            )
            .help(
                "only tensor copies add: let rows of the shared tile and of the buffer be multiples of 16 bytes, and the tile \
                 contiguous in the buffer",
            ));
        }
        Ok(())
    }

    fn product(
        &mut self,
        stmt: &Stmt,
        threads: u32,
        c: TensorId,
        (a, b): (&TensorRef, &TensorRef),
        meta: Option<TensorId>,
        asked: Option<&[i64; 2]>,
    ) -> Result<(), Diagnostic> {
        let program = self.v;
        let fail = |why: &dyn fmt::Display| {
            Diagnostic::new(
                Code::Unsatisfiable,
                stmt.span,
                format!("no instruction can do this product: {why}"),
            )
        };
        let dtype = |id: TensorId| program.tensor(id).dtype;
        let types = (dtype(a.tensor), dtype(b.tensor), dtype(c));
        let (left, right) = (self.v.tile(a).shape, self.v.tile(b).shape);
        let asked = asked.copied();
        let extents = [left[0], right[0], right[1]];
        let grid =
            Grid::new(types, meta.is_some(), extents, i64::from(threads / 128), asked).map_err(|why| {
                let sums = format!("the accumulator, {} × {}", left[0], right[0]);
                fail(&why).related(program.tensor(c).span, sums)
            })?;
        let too_large = || fail(&"its tile is too large");
        let mut pinned = vec![(c, grid.accumulator().ok_or_else(too_large)?)];
        if self.memory(a.tensor) == Memory::Register {
            pinned.push((a.tensor, grid.left().ok_or_else(too_large)?));
        }
        if let Some(meta) = meta {
            pinned.push((meta, grid.metadata().ok_or_else(too_large)?));
        }
        for (id, tv) in pinned {
            let known = self.registers.insert(id, (tv.layout().clone(), grid));
            if let Some((layout, other)) = known
                && layout != *tv.layout()
            {
                return Err(fail(&format!(
                    "`{}` is also an operand of a product by {} of {} × {} warpgroups, which has another layout",
                    program.tensor(id).name, other.row.name, other.warpgroups[0], other.warpgroups[1]
                ))
                .help("give both products the same warpgroups and tiles, or use two register tensors"));
            }
        }
        for (reference, left) in [(a, true), (b, false)] {
            if self.memory(reference.tensor) == Memory::Shared {
                let (reference, stmt) = (reference.clone(), stmt.clone());
                let product = Product::Warpgroups(grid);
                let one = Use::Product { product, left, reference: reference.clone(), stmt };
                self.uses.entry(reference.tensor).or_default().push(one);
            }
        }
        Ok(())
    }

    /// A product with its sums in tensor memory.
    fn sums(
        &mut self,
        stmt: &Stmt,
        c: TensorId,
        (a, b): (&TensorRef, &TensorRef),
        (meta, scales): (Option<TensorId>, Option<&[TensorRef; 2]>),
    ) -> Result<(), Diagnostic> {
        let sums = sums_of(self.v, c, (a, b), (meta.is_some(), scales), self.pairs).map_err(|why| {
            let message = format!("no instruction can do this product: {why}");
            let help = match why {
                TensorMemoryReject::K(..) | TensorMemoryReject::Scales(..) => {
                    "make the steps along K such a multiple"
                }
                TensorMemoryReject::ScaledRows(..) => {
                    "give the shared tensor of scales these rows, and its view tiles of as many, each a factor's rows behind the one before"
                }
                _ => "give the tile one of these shapes",
            };
            Diagnostic::new(Code::Unsatisfiable, stmt.span, message)
                .related(self.v.tensor(c).span, "the sums")
                .help(help)
        })?;
        for (reference, left) in [(a, true), (b, false)] {
            if self.memory(reference.tensor) == Memory::Tensor {
                continue;
            }
            let (reference, stmt) = (reference.clone(), stmt.clone());
            let product = Product::Sums(sums);
            let one = Use::Product { product, left, reference: reference.clone(), stmt };
            self.uses.entry(reference.tensor).or_default().push(one);
        }
        let bits = sums.row.a.bits();
        if let Some(meta) = meta
            && self.factor_bits(meta).into_iter().any(|other| other != bits)
        {
            let name = &self.v.tensor(meta).name;
            let message = format!("`{name}` has the metadata of factors of {bits} bits, and of others");
            return Err(Diagnostic::new(Code::Unsatisfiable, stmt.span, message)
                .related(self.v.tensor(meta).span, "the metadata")
                .help("metadata of 8-bit and of 16-bit factors lie otherwise in tensor memory: give each a tensor of its own"));
        }
        for (scale, left) in scales.into_iter().flatten().zip([true, false]) {
            let one = Use::Scales { sums, left, reference: scale.clone(), stmt: stmt.clone() };
            self.uses.entry(scale.tensor).or_default().push(one);
        }
        Ok(())
    }

    /// The bits of the elements of the sparse factors that metadata are of.
    fn factor_bits(&self, meta: TensorId) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        self.v.visit(&mut |stmt, _| {
            if let StmtKind::GemmAsync { a, meta: Some(of), .. } = &stmt.kind
                && *of == meta
            {
                found.insert(self.v.tensor(a.tensor).dtype.bits());
            }
        });
        found
    }

    /// Pins the layout of a register tensor that a copy brings from tensor memory or there, unless the author has.
    fn copied(
        &mut self,
        stmt: &Stmt,
        (src, dst): (&TensorRef, &TensorRef),
        threads: u32,
    ) -> Result<(), Diagnostic> {
        let (loads, stores) =
            (self.memory(src.tensor) == Memory::Tensor, self.memory(dst.tensor) == Memory::Tensor);
        if !loads && !stores {
            return Ok(());
        }
        let (part, register) = if loads { (src, dst.tensor) } else { (dst, src.tensor) };
        let sums = part.tensor;
        let fail = |why: &dyn fmt::Display| {
            let message = format!("no instruction can do this copy: {why}");
            Diagnostic::new(Code::Unsatisfiable, stmt.span, message)
                .related(self.v.tensor(sums).span, "in tensor memory")
        };
        let Some([m, n]) = tensor_memory::matrix(&self.v.tile(part).shape) else {
            return Err(fail(&"its tile is no matrix"));
        };
        let bits = self.v.tensor(sums).dtype.bits();
        let threads = i64::from(threads);
        let pinned = match &self.v.tensor(register).kind {
            TensorKind::Register { pinned: Some(layout), .. } => TvLayout::from_layout(layout.clone()).ok(),
            _ => None,
        };
        let open = pinned.is_none();
        let tv = match pinned {
            Some(tv) => tv,
            None if self.v.tensor(sums).dtype == Sparsity::META => {
                let of = self.factor_bits(sums).into_iter().next().unwrap_or(8);
                tensor_memory::metadata_registers([m, n], of, threads).map_err(|why| fail(&why))?
            }
            None => tensor_memory::register_layout([m, n], threads).map_err(|why| fail(&why))?,
        };
        let plan = tensor_memory::copy_plan(loads, ([m, n], bits), &tv, threads).map_err(|why| fail(&why))?;
        if open {
            self.copied.insert(register, (tv.layout().clone(), plan.row));
        }
        Ok(())
    }

    /// The reason why there is no layout that tensor copies could move.
    fn without_layout(&self, id: TensorId, uses: &[Use]) -> Lost {
        let dtype = self.v.tensor(id).dtype;
        let stages = self.stages(id, uses);
        let extents = self.v.shape(id).into_iter().enumerate().filter(|(mode, _)| !stages.contains(mode));
        let bytes = extents.map(|(_, extent)| extent * i64::from(dtype.bits()) / 8).collect();
        Lost::RowBytes { tensor: id, bytes }
    }

    fn attempt(
        &self,
        id: TensorId,
        layout: SwizzledLayout,
        mode: Option<SwizzleMode>,
        uses: &[Use],
    ) -> Tried {
        let mut tried = Tried { layout, mode, copies: Vec::new(), refused: Vec::new(), failed: None };
        for one in uses {
            let seen = |reference| tile_of(self.v, &self.divisibility, reference, &tried.layout);
            match one {
                Use::Product { product, left, reference, stmt } => {
                    let reads = seen(reference).and_then(|tile| {
                        product.operand(*left, &tile.layout)?;
                        let bits = self.v.tensor(id).dtype.bits();
                        let mode = SwizzleMode::of(&tile.layout.swizzle, bits).unwrap_or(SwizzleMode::None);
                        let period = if mode == SwizzleMode::None { 16 } else { mode.period() };
                        Ok(tile.begins_at(period, bits)?)
                    });
                    if let Err(why) = reads {
                        tried.failed.get_or_insert((stmt.clone(), why));
                    }
                }
                Use::Scales { sums, left, reference, stmt } => {
                    let reads = seen(reference).and_then(|tile| {
                        sums.check_scales(*left, &tile.layout)?;
                        let bits = self.v.tensor(id).dtype.bits();
                        Ok(tile.begins_at(SwizzleMode::None.period(), bits)?)
                    });
                    if let Err(why) = reads {
                        tried.failed.get_or_insert((stmt.clone(), why));
                    }
                }
                Use::Copy { view, reference, how, op, copy } => {
                    let plan = seen(reference).and_then(|tile| {
                        let peers = peers(self.v, *how);
                        Ok(tma::plan(&self.divisibility, *op, &self.v.tile(view), &tile, peers, how.hint)?)
                    });
                    match plan {
                        Ok(_) => tried.copies.push(*copy),
                        Err(why) => tried.refused.push((*copy, NotTaken::rejected(word(*op), why))),
                    }
                }
            }
        }
        tried
    }

    fn choose(&self, id: TensorId, uses: &[Use]) -> Result<Option<Choice>, Diagnostic> {
        let product = uses.iter().find_map(Use::product);
        let copies = uses.iter().filter(|u| matches!(u, Use::Copy { .. })).count();
        let mut tried: Vec<Tried> = Vec::new();
        for (layout, mode) in self.candidates(id, uses) {
            let one = self.attempt(id, layout, mode, uses);
            // No later one allows more.
            let all = one.failed.is_none() && one.copies.len() == copies;
            tried.push(one);
            if all {
                break;
            }
        }
        let name = &self.v.tensor(id).name;
        // The first of those that allow the most tensor copies.
        let most = tried.iter().filter(|t| t.failed.is_none()).map(|t| t.copies.len()).max();
        let Some(most) = most else {
            let Some((stmt, word)) = product else {
                let why = self.without_layout(id, uses);
                let refuse = |one: &Use| match one {
                    Use::Copy { op, copy, .. } => {
                        let (instruction, why) = (word(*op).to_string(), why.clone());
                        Some((*copy, NotTaken { instruction, why }))
                    }
                    Use::Product { .. } | Use::Scales { .. } => None,
                };
                let refused = uses.iter().filter_map(refuse).collect();
                return Ok(Some(Choice { layout: None, why: None, tensor_copies: Vec::new(), refused }));
            };
            let failed = tried.into_iter().find_map(|t| t.failed);
            let why = failed.map_or(WgmmaReject::SubByte.into(), |(_, why)| why);
            return Err(Diagnostic::new(
                Code::Unsatisfiable,
                stmt.span,
                format!("no layout of `{name}` can be read by this product: {why}"),
            )
            .help(if uses.iter().any(|one| matches!(one, Use::Scales { .. })) {
                "leave the layout of scales open".to_string()
            } else if self.halves(uses, 2).is_some() {
                format!("half of its rows must be a multiple of 8, and its extent along K one of 32 bytes; in a pinned layout the mode of rows is two times a half that {word} reads, with stride 0: `((64,2),64):((64,0),1)`")
            } else {
                format!("its extents must be multiples of 8 rows and of 32 bytes along K, and a pinned layout one that {word} reads")
            }));
        };
        let Some(best) = tried.into_iter().find(|t| t.failed.is_none() && t.copies.len() == most) else {
            return Ok(None);
        };
        if product.is_none() && best.copies.is_empty() {
            return Ok(Some(Choice {
                layout: None,
                why: None,
                tensor_copies: Vec::new(),
                refused: best.refused,
            }));
        }
        let why = match best.mode {
            None => Why::Pinned,
            Some(swizzle) => Why::AsyncEngines {
                swizzle,
                tensor_copies: best.copies.len(),
                products: product.map(|(_, word)| word),
            },
        };
        let layout = best.mode.is_some().then_some(best.layout);
        Ok(Some(Choice { layout, why: Some(why), tensor_copies: best.copies, refused: best.refused }))
    }
}

/// The family of a tensor copy's instructions, as reports name it.
fn word(op: TensorOp) -> &'static str {
    match op {
        TensorOp::Load => "tma.load",
        TensorOp::Store => "tma.store",
        TensorOp::Add => "tma.add",
    }
}

/// A tile's layout with the stages of its tensor, each at a multiple of what the swizzle repeats after.
fn with_stages(
    tile: &SwizzledLayout,
    shape: &[i64],
    stages: &[usize],
    mode: SwizzleMode,
    bits: u32,
) -> Option<SwizzledLayout> {
    tile.with_stages(shape, stages, tile.stage_distance(i64::from(mode.period() * 8 / bits))?).ok()
}
