//! Tensor copies: the tensor memory accelerator's instructions.

use std::collections::BTreeMap;

use tilewright_machine::{ScalarOp, TensorOp};
use tilewright_simt::{Address, Op, Operand, Reg, Special, TensorMap};
use tilewright_synth::async_layout::tma::Gather;
use tilewright_synth::{TmaCall, TmaPlan};
use tilewright_tile::core::TensorRef;
use tilewright_tile::{Diagnostic, Expr, GlobalTile, IntOp, Multicast, Origin, Peers, Side, SymbolId};

use crate::context::{Lower, internal};
use crate::maps::MapRecipe;
use crate::scalar::{self, add, condition, int};

/// A coordinate from which no box reaches into a tensor. It is above all tensors: an H100 takes a box that is written at a negative one for an illegal
/// instruction.
const OUTSIDE: i64 = 1 << 30;

impl Lower<'_> {
    /// The tensor map of a tensor of an array, given its index, and the condition that there is one, where that is not known: the first stands
    /// in where there is none.
    fn tensor_map(&mut self, map: u32, index: &Expr, number: &Expr) -> (Option<Operand>, Option<Operand>) {
        let mut at = self.expr(index);
        let symbols = &self.symbols;
        let symbol = |id: SymbolId| symbols[&id];
        let inside = scalar::lies_inside(self.b, self.divisibility, &symbol, (index, at), number);
        if let Some(inside) = inside {
            at = self.b.scalar(ScalarOp::Select, &[at, int(0), inside]);
        }
        (Some(self.b.tensor_map(map, at, self.state.tma_issuer)), inside)
    }

    /// A copy by the tensor memory accelerator.
    pub(crate) fn tensor_copy(
        &mut self,
        src: &TensorRef,
        dst: &TensorRef,
        plan: &TmaPlan,
    ) -> Result<(), Diagnostic> {
        let loads = plan.row.op == TensorOp::Load;
        let (view, shared) = if loads { (src, dst) } else { (dst, src) };
        let tile = self.verified.tile(view);
        let span = view.span;
        let global = tile.global.ok_or_else(|| internal(span, "a tensor copy without a view"))?;
        let param = self.verified.param(global.param);
        let dims: Vec<usize> = plan.dims.iter().map(|d| *d as usize).collect();
        let units = |elements: &Expr| match plan.per_unit {
            1 => elements.clone(),
            n => Expr::binary(IntOp::Div, elements.clone(), Expr::Int(n)),
        };
        // Along the contiguous mode, which is dimension 0, and from one step along the others to the next. That mode may have two dimensions.
        let along = |k: usize, of: &[Expr]| match plan.span {
            Some(span) if dims[k] == dims[0] => {
                let spans = Expr::binary(IntOp::Div, of[dims[k]].clone(), Expr::Int(plan.per_unit * span));
                if k == 0 { None } else { Some(spans) }
            }
            _ if k == 0 => Some(units(&of[dims[0]])),
            _ => Some(of[dims[k]].clone()),
        };
        let extent = |k: usize| along(k, &global.shape).unwrap_or(Expr::Int(plan.span.unwrap_or(1)));
        let stride = |k: usize| match plan.span {
            Some(span) if dims[k] == dims[0] => Expr::Int(span),
            _ => units(&global.strides[dims[k]]),
        };
        let recipe = MapRecipe {
            param: global.param,
            array: global.array,
            extents: (0..dims.len()).map(extent).collect(),
            strides: (1..dims.len()).map(stride).collect(),
        };
        let map = TensorMap { name: param.name.clone(), shape: plan.shape.clone() };
        let map = self.maps.index(map, recipe);
        let place = plan.multicast.map(|share| self.place_of_peer(share.peers));
        let half = plan.halves.map(|_| self.place_in_pair());
        let (one, inside) = match (global.tensor_of_array(), global.shape.first()) {
            (Some(index), Some(number)) => self.tensor_map(map, index, number),
            _ => (None, None),
        };
        let mut base: Vec<Operand> = Vec::new();
        // Of pixels the places are those of each call.
        let boxed = if plan.row.im2col { 0 } else { dims.len() };
        for k in 0..boxed {
            let begin = along(k, &global.base).unwrap_or(Expr::Int(0));
            let mut at = self.expr(&begin);
            if let (Some(share), Some(place)) = (plan.multicast.filter(|s| s.dim == k), place) {
                let own = scalar::scale(self.b, place, share.step);
                at = add(self.b, at, own);
            }
            if let (Some(halves), Some(half)) = (plan.halves.filter(|halves| halves.dim == k), half) {
                let own = scalar::scale(self.b, half, halves.step);
                at = add(self.b, at, own);
            }
            // One element of a mode at a place that a kernel reads, such as a group that there is not: as an unsigned number a negative one lies behind.
            let single = plan.shape.extents[k] == 1 && plan.calls.iter().all(|call| call.coords[k] == 0);
            if !loads && single && !self.divisibility.is_nonnegative(&begin) {
                at = self.b.scalar(ScalarOp::MinU32, &[at, int(OUTSIDE)]);
            }
            if let Some(inside) = inside.filter(|_| k == 0) {
                // A tensor that the array does not have: all of the box is outside of another.
                at = self.b.scalar(ScalarOp::Select, &[at, int(OUTSIDE), inside]);
            }
            base.push(at);
        }
        let (constant, dynamic) = self.begins(shared, false, span)?;
        let mut at = self.shared_base();
        if let Some(dynamic) = dynamic {
            at = add(self.b, at, dynamic);
        }
        if let (Some(share), Some(place)) = (plan.multicast, place) {
            let own = scalar::scale(self.b, place, share.bytes);
            at = add(self.b, at, own);
        }
        let (barrier, of_pair) = match self.state.stage {
            Some((id, Side::Produce, slot)) if loads => {
                let pipeline = self.pipeline(id, span)?;
                let full = self.barrier(pipeline, false, slot);
                (Some(if pipeline.pair { self.in_even_block(full) } else { full }), pipeline.pair)
            }
            _ if loads => return Err(internal(span, "a tensor copy that fills no stage")),
            _ => (None, false),
        };
        let multicast = plan.multicast.map(|share| self.ranks_of_peers(share.peers));
        let mut issuer = self.state.tma_issuer;
        let rows = match &plan.gather {
            Some(gather) => {
                let mut thread = Operand::Value(self.b.special(Special::ThreadIndex));
                let mut threads = gather.threads;
                if let Some(half) = half {
                    // Those of the odd block's rows follow those of the even one's.
                    threads /= 2;
                    let before = scalar::scale(self.b, half, threads);
                    thread = self.b.scalar(ScalarOp::SubI32, &[thread, before]);
                }
                let own = scalar::scale(self.b, thread, gather.bytes);
                at = add(self.b, at, own);
                issuer = condition(self.b, ScalarOp::LtU32, thread, int(threads));
                Some(self.rows_of_thread(view, gather)?)
            }
            None => None,
        };
        let mut copies = Vec::new();
        for call in &plan.calls {
            let mut coords = Vec::new();
            for (at, more) in base.iter().zip(&call.coords) {
                coords.push(add(self.b, *at, int(*more)));
            }
            if plan.row.im2col {
                coords = self.pixels(&global, plan, call, [place, half], span)?;
            }
            if let Some(rows) = &rows {
                // The rows are where their indices say.
                coords.truncate(1);
                coords.extend(rows);
            }
            let shared = Address { base: at, offset: (constant + call.shared) as i32 };
            copies.push(Op::Tensor {
                row: plan.row,
                map,
                one,
                coords,
                shared,
                barrier,
                multicast,
                even: of_pair && multicast.is_some(),
                hint: plan.hint,
            });
        }
        self.guarded(issuer, |lower| copies.into_iter().for_each(|copy| lower.b.bulk(copy)));
        Ok(())
    }

    /// The coordinates of the first pixel of a call in im2col mode, and the offsets of its pixels.
    fn pixels(
        &mut self,
        global: &GlobalTile,
        plan: &TmaPlan,
        call: &TmaCall,
        [place, half]: [Option<Operand>; 2],
        span: Origin,
    ) -> Result<Vec<Operand>, Diagnostic> {
        let wrong = || internal(span, "pixels of a view that folds none");
        let folded = global.folded.as_ref().ok_or_else(wrong)?;
        let [channels, number, ..] = call.coords[..] else { return Err(wrong()) };
        let dims: Vec<usize> = plan.dims.iter().map(|dim| *dim as usize).collect();
        let first = self.expr(&global.base[dims[0]]);
        let mut coords = vec![add(self.b, first, int(channels))];
        let mut rest = self.expr(global.base.last().ok_or_else(wrong)?);
        let part = plan.multicast.map(|share| (share.dim, share.step)).zip(place);
        let own_half = plan.halves.map(|halves| (halves.dim, halves.step)).zip(half);
        for ((dim, step), place) in part.into_iter().chain(own_half) {
            let own = scalar::scale(self.b, place, step);
            // Blocks share out channels or pixels.
            let shared = if dim == 0 { &mut coords[0] } else { &mut rest };
            *shared = add(self.b, *shared, own);
        }
        rest = add(self.b, rest, int(number));
        // The digits of its number. No tile begins at a negative one, and the extents of images that have pixels are positive.
        let mut places = BTreeMap::new();
        for (i, (extent, dim, step)) in folded.leaves.iter().enumerate() {
            let mut digit = rest;
            if i + 1 < folded.leaves.len() {
                let all = self.expr(extent);
                let quotient = match extent.as_int() {
                    Some(extent) => scalar::divide(self.b, rest, extent),
                    None => self.b.scalar(ScalarOp::DivU32, &[rest, all]),
                };
                let before = self.b.scalar(ScalarOp::MulI32, &[quotient, all]);
                digit = self.b.scalar(ScalarOp::SubI32, &[rest, before]);
                rest = quotient;
            }
            places.insert(*dim as usize, scalar::scale(self.b, digit, *step));
        }
        for dim in &dims[1..] {
            let begins = self.expr(&folded.offsets[*dim]);
            coords.push(places.get(dim).map_or(begins, |place| add(self.b, begins, *place)));
        }
        let spatial = &dims[1..dims.len() - 1];
        for (dim, more) in spatial.iter().zip(&call.coords[2..]) {
            let tap = self.expr(&folded.taps[*dim]);
            coords.push(add(self.b, tap, int(*more)));
        }
        Ok(coords)
    }

    /// The rows that a thread gathers, by the indices that it holds.
    fn rows_of_thread(&mut self, view: &TensorRef, gather: &Gather) -> Result<Vec<Operand>, Diagnostic> {
        let wrong = || internal(view.span, "indices that threads do not hold");
        let by = view.indexed.as_ref().ok_or_else(wrong)?.by;
        let held = self.synthesis.register(by).ok_or_else(wrong)?.clone();
        let array = self.array(by)?;
        let mut rows = Vec::new();
        for row in 0..gather.rows {
            let own = |value: &i64| {
                (0..gather.threads).all(|thread| held.at(thread, *value) == thread * gather.rows + row)
            };
            let value = (0..held.count() as i64).find(own).ok_or_else(wrong)?;
            rows.push(self.b.read(Reg { array, index: value as u32 }));
        }
        Ok(rows)
    }

    /// The block's place among its peers of a multicast.
    fn place_of_peer(&mut self, peers: Peers) -> Operand {
        let rank = Operand::Value(self.b.special(Special::ClusterRank));
        let counted = scalar::divide(self.b, rank, i64::from(peers.stride));
        match peers.blocks * peers.stride == self.verified.cluster() {
            true => counted,
            false => scalar::remainder(self.b, counted, i64::from(peers.blocks)),
        }
    }

    /// The block's place in its pair.
    fn place_in_pair(&mut self) -> Operand {
        self.place_of_peer(Multicast::Pair.peers(self.verified.cluster_shape()))
    }

    /// The ranks of the block's peers of a multicast, as the bits of a mask.
    pub(crate) fn ranks_of_peers(&mut self, peers: Peers) -> Operand {
        let mask = int(i64::from(peers.mask()));
        if peers.blocks == self.verified.cluster() {
            return mask;
        }
        let rank = Operand::Value(self.b.special(Special::ClusterRank));
        let place = self.place_of_peer(peers);
        let from_first = scalar::scale(self.b, place, i64::from(peers.stride));
        let first = self.b.scalar(ScalarOp::SubI32, &[rank, from_first]);
        self.b.scalar(ScalarOp::ShlB32, &[mask, first])
    }
}
