//! Checks of definitions: shapes, pinned layouts, views.

use tilewright_layout::{Layout, SwizzledLayout};

use super::checker::{Allowed, Checker, count, shape_text, static_shape};
use super::pairs::is_half;
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::Expr;
use crate::program::{ParamKind, TensorId, TensorKind, ViewLeaf, ViewMode};
use crate::statement::visit;

/// The most elements that a tensor of the block has.
pub const MAX_TILE: i64 = 1 << 20;

/// The meaning of a shared layout, for messages.
pub(crate) const SHARED_LAYOUT: &str = "a shared layout maps the tile's coordinate to an offset in elements";

/// The reason why a shared tensor of this shape cannot have a layout.
///
/// Each block of a pair has half of a tensor in `halves`: two elements have one offset there.
pub(crate) fn shared_layout_problem(
    name: &str,
    layout: &SwizzledLayout,
    shape: &[i64],
    halves: bool,
) -> Option<String> {
    let modes: Vec<i64> =
        (0..layout.layout.rank()).filter_map(|i| layout.layout.mode(i).ok()).map(|m| m.size()).collect();
    if modes != shape {
        let (has, wants) = (shape_text(&modes), shape_text(shape));
        return Some(format!("the layout of `{name}` has shape {has}, the tensor {wants}"));
    }
    if layout.layout.leaves().iter().any(|(_, d)| *d < 0) {
        return Some(format!("the layout of `{name}` has a negative stride"));
    }
    let mut offsets: Vec<i64> = layout.layout.image();
    offsets.sort_unstable();
    let mut last = layout.swizzle.apply(offsets.last().copied().unwrap_or(0));
    for offset in &offsets {
        last = last.max(layout.swizzle.apply(*offset));
    }
    let most = if halves { 2 } else { 1 };
    if offsets.chunk_by(|x, y| x == y).any(|alike| alike.len() > most) {
        return Some(format!("the layout of `{name}` puts two elements at one offset"));
    }
    let size = shape.iter().product();
    (last >= 4 * MAX_TILE.max(size)).then(|| format!("the layout of `{name}` reaches offset {last}"))
}

impl Checker<'_> {
    pub(super) fn definition(&mut self, id: TensorId, span: Origin, threads: Option<u32>) {
        let before = self.errors.len();
        self.check_definition(id, span, threads);
        self.broken[id.0 as usize] = self.errors.len() > before;
    }

    fn check_definition(&mut self, id: TensorId, span: Origin, threads: Option<u32>) {
        let tensor = self.program.tensor(id);
        let name = tensor.name.as_str();
        match &tensor.kind {
            TensorKind::Register { shape, pinned } => {
                if let (Some(size), Some(layout)) = (self.tile_size(name, shape, span), pinned) {
                    self.pinned_register(name, layout, size, threads, span);
                }
            }
            TensorKind::Shared { shape, pinned } => {
                if let (Some(_), Some(layout)) = (self.tile_size(name, shape, span), pinned) {
                    self.pinned_shared(id, layout, &static_shape(&tensor.kind), span);
                }
            }
            TensorKind::Tensor { shape } => self.tensor_memory(id, shape, span),
            TensorKind::View { param, offsets, ends, modes, fold } => {
                self.view(name, *param, (offsets, ends), (modes, fold), span);
            }
            TensorKind::Part { .. } => {
                let message = format!("`{name}` is a part of a tensor and is not defined on its own");
                let help = "define the whole tensor";
                self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
            }
        }
    }

    /// The number of elements of a register or shared tensor, if its shape is legal.
    pub(super) fn tile_size(&mut self, name: &str, shape: &[Expr], span: Origin) -> Option<i64> {
        if shape.is_empty() {
            self.report(
                Diagnostic::new(Code::WrongRank, span, format!("`{name}` has no modes"))
                    .help("a shape is e.g. `[BM, BK]`"),
            );
            return None;
        }
        let mut size = Some(1i64);
        for e in shape {
            let extent = self.extent(e, span, &format!("an extent of `{name}`"))?;
            size = size.and_then(|s| s.checked_mul(extent));
        }
        self.tile_limit(name, size, span)
    }

    pub(super) fn tile_limit(&mut self, name: &str, size: Option<i64>, span: Origin) -> Option<i64> {
        if let Some(size) = size
            && size <= MAX_TILE
        {
            return Some(size);
        }
        let has = size.map_or("too many to count".to_string(), |s| s.to_string());
        self.report(
            Diagnostic::new(
                Code::BadValue,
                span,
                format!("a tile of `{name}` has more than {MAX_TILE} elements ({has})"),
            )
            .help("a block works on a tile of at most 2^20 elements: choose smaller constants"),
        );
        None
    }

    fn layout_error(&mut self, span: Origin, message: String, help: &str) {
        self.report(Diagnostic::new(Code::LayoutConflict, span, message).help(help));
    }

    fn pinned_register(
        &mut self,
        name: &str,
        layout: &Layout,
        size: i64,
        threads: Option<u32>,
        span: Origin,
    ) {
        let help = "a register layout maps (thread, value) to the tile's linear coordinate";
        let Some(threads) = threads else { return };
        let thread_mode = layout.mode(0).map(|m| m.size());
        if layout.rank() != 2 || thread_mode != Ok(i64::from(threads)) {
            let has = thread_mode.map_or(String::new(), |n| format!(", the first of size {n}"));
            let modes = layout.rank();
            self.layout_error(
                span,
                format!("the layout of `{name}` needs two modes, the first of {threads} threads; it has {modes}{has}"),
                help,
            );
            return;
        }
        if layout.size() > 4 * MAX_TILE
            || layout.leaves().iter().any(|(_, d)| *d < 0)
            || layout.cosize() > size
        {
            let message = format!("the layout of `{name}` reaches outside its {size} elements");
            self.layout_error(span, message, help);
            return;
        }
        // Strides are not negative and the largest value fits: every value is an index of the tile.
        let mut reached = vec![false; size as usize];
        for value in layout.image() {
            if let Some(slot) = reached.get_mut(value as usize) {
                *slot = true;
            }
        }
        if let Some(missing) = reached.iter().position(|r| !r) {
            self.layout_error(
                span,
                format!("the layout of `{name}` gives element {missing} to no thread"),
                help,
            );
            return;
        }
        // Threads may hold what others hold, whole fragments at a time: thread modes of stride 0. Nothing else repeats.
        let repeats: i64 = layout
            .mode(0)
            .map(|threads| threads.leaves().iter().filter(|(_, d)| *d == 0).map(|(n, _)| n).product())
            .unwrap_or(1);
        if layout.size() / repeats != size {
            self.layout_error(
                span,
                format!("the layout of `{name}` gives some elements to several threads or values"),
                "only thread modes of stride 0 repeat elements; all others give each its own",
            );
        }
    }

    fn pinned_shared(&mut self, id: TensorId, layout: &SwizzledLayout, shape: &[i64], span: Origin) {
        let name = self.program.tensor(id).name.as_str();
        let mut halves = false;
        visit(&self.program.body, 0, &mut |stmt, _| halves |= is_half(&stmt.kind, id));
        if let Some(message) = shared_layout_problem(name, layout, shape, halves) {
            self.layout_error(span, message, SHARED_LAYOUT);
        }
    }

    fn view(
        &mut self,
        name: &str,
        param: crate::program::ParamId,
        (offsets, ends): (&[Expr], &[Option<Expr>]),
        (modes, fold): (&[ViewMode], &[ViewLeaf]),
        span: Origin,
    ) {
        let buffer = self.program.param(param);
        let rank = match &buffer.kind {
            ParamKind::Tensor { shape, .. } => shape.len(),
            ParamKind::Scalar { .. } => 0,
        };
        if offsets.len() != rank || ends.len() != rank {
            self.report(
                Diagnostic::new(
                    Code::WrongRank,
                    span,
                    format!(
                        "`{}` has {}, and the view `{name}` gives {}",
                        buffer.name,
                        count(rank, "mode"),
                        count(offsets.len(), "offset")
                    ),
                )
                .related(buffer.span, "the buffer")
                .help("give one offset a mode: `expression :`, or `:` for 0"),
            );
        }
        for e in offsets {
            self.expr(e, Allowed::All, span, &format!("an offset of `{name}`"));
        }
        for e in ends.iter().flatten() {
            self.expr(e, Allowed::All, span, &format!("the end of `{name}`"));
        }
        if modes.is_empty() || modes.iter().any(|m| m.leaves.is_empty()) {
            let message = format!("the view `{name}` has no modes");
            self.report(Diagnostic::new(Code::WrongRank, span, message).help("a shape is e.g. `(BM, BK)`"));
        }
        self.folded(name, param, fold, span);
        // Modes walk that which folds some like one more of the buffer.
        let walked = rank + usize::from(!fold.is_empty());
        let of_modes = modes.iter().flat_map(|m| &m.leaves).map(|leaf| (leaf, walked));
        for (leaf, rank) in of_modes.chain(fold.iter().map(|leaf| (leaf, rank))) {
            if leaf.dim as usize >= rank {
                self.report(
                    Diagnostic::new(
                        Code::WrongRank,
                        span,
                        format!(
                            "the view `{name}` walks mode {} of `{}`, which has {}",
                            leaf.dim,
                            buffer.name,
                            count(rank, "mode")
                        ),
                    )
                    .related(buffer.span, "the buffer")
                    .help("modes count from 0: e0 is the first"),
                );
            }
            let what = format!("an extent of `{name}`");
            if self.expr(&leaf.extent, Allowed::All, span, &what) {
                self.at_least_one(&leaf.extent, span, &what);
            }
            if let Some(scale) = self.literal(&leaf.scale, span, &format!("a stride of `{name}`")) {
                let message = match scale {
                    ..0 => format!("a stride of `{name}` is {scale}; it must not be negative"),
                    // A tile has 2²⁰ elements at most: no product of both overflows. Whether places fit is seen at launch.
                    _ if scale > 1 << 40 => {
                        format!("a stride of `{name}` is {scale}; it must be 2⁴⁰ at most")
                    }
                    _ => continue,
                };
                self.report(Diagnostic::new(Code::BadValue, span, message));
            }
        }
    }

    /// Checks what a view folds by itself: each mode of the buffer once, in steps, and of one tensor.
    fn folded(&mut self, name: &str, param: crate::program::ParamId, fold: &[ViewLeaf], span: Origin) {
        let buffer = self.program.param(param);
        if fold.is_empty() {
            return;
        }
        if buffer.is_array() {
            let message = format!("the view `{name}` folds modes of `{}`, an array of tensors", buffer.name);
            self.report(
                Diagnostic::new(Code::BadValue, span, message)
                    .related(buffer.span, "an array of tensors")
                    .help("only modes of one tensor are folded"),
            );
        }
        for (i, leaf) in fold.iter().enumerate() {
            let message = if leaf.scale.as_int() == Some(0) {
                format!("the view `{name}` folds mode {} of `{}` in steps of 0", leaf.dim, buffer.name)
            } else if fold[..i].iter().any(|other| other.dim == leaf.dim) {
                format!("the view `{name}` folds mode {} of `{}` twice", leaf.dim, buffer.name)
            } else {
                continue;
            };
            let help = "each digit of a folded mode steps along a mode of the buffer of its own: `fold = (q, p, nb) : (e2, e1, e0)`";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
        }
    }
}
