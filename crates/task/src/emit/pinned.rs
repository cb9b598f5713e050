//! Layouts that rows of a mapping pin: each is of the place that the row's tensor has, and of nothing else.

use std::collections::BTreeMap;

use tilewright_layout::{Layout, Swizzle, SwizzledLayout};
use tilewright_machine::Memory;
use tilewright_tile::Origin;

use super::{Emit, Res, refused};
use crate::graph::ReplicaId;
use crate::instantiate::{Argument, Call, CallId, ObjectId};
use crate::mapping::{AttributeKind, Placement};
use crate::piece::Piece;
use crate::program::TensorId;

/// The layout of a place.
#[derive(Clone, Debug)]
pub(super) struct Pinned {
    layout: SwizzledLayout,
    span: Origin,
    /// A tensor of the tile program has it.
    used: bool,
}

impl Emit<'_> {
    /// The layouts that rows pin, by places.
    pub(super) fn pin(&mut self) -> Res<()> {
        let mut pinned: BTreeMap<ReplicaId, Pinned> = BTreeMap::new();
        for (id, instance) in self.mapping.instances() {
            for attribute in &instance.attributes {
                let AttributeKind::Layout { tensor, layout } = &attribute.kind else { continue };
                for of in self.graph.calls() {
                    let call = self.graph.tree.call(of);
                    if call.instance != Some(id) {
                        continue;
                    }
                    let place = self.place_of_tensor((of, call), *tensor, attribute.span)?;
                    let new = Pinned { layout: layout.clone(), span: attribute.span, used: false };
                    if let Some(other) = pinned.insert(place, new)
                        && other.layout != *layout
                    {
                        let name = &self.graph.object(self.graph.replica(place).object).name;
                        let message = format!("two layouts of one place of `{name}`");
                        return Err(refused(attribute.span, message)
                            .related(other.span, "the other one")
                            .help("calls that share a place share its layout"));
                    }
                }
            }
        }
        self.pinned = pinned;
        Ok(())
    }

    /// The place of a tensor of a call.
    fn place_of_tensor(&self, of: (CallId, &Call), tensor: TensorId, span: Origin) -> Res<ReplicaId> {
        let (name, object, piece, placement) = self.tensor_of(of, tensor, span)?;
        if placement == Placement::In(Memory::Global) {
            let message = format!("`{name}` lies in global memory, as the launch of the kernel says");
            return Err(
                refused(span, message).help("pin the layout of a tensor in shared memory or in registers")
            );
        }
        let graph = self.graph;
        let used = |id: ReplicaId| {
            graph.nodes.iter().any(|node| node.accesses.iter().any(|access| access.replica == Some(id)))
        };
        let fits = |id: &ReplicaId| {
            let row = graph.replica(*id);
            let memory = row.memory.filter(|memory| *memory != Memory::Global);
            let asked = memory
                .is_some_and(|memory| placement == Placement::None || placement == Placement::In(memory));
            row.object == object && row.piece.same(&piece) && asked && used(*id)
        };
        let places: Vec<ReplicaId> = (0..graph.replicas.len() as u32).map(ReplicaId).filter(fits).collect();
        match places[..] {
            [place] => Ok(place),
            [] => Err(refused(
                span,
                format!("`{name}` has no place of its own here, whose layout could be pinned"),
            )
            .help("pin it in the row whose memory holds the tensor as a whole")),
            _ => Err(refused(span, format!("`{name}` has {} places here", places.len()))
                .help("pin it in the row that names the memory")),
        }
    }

    /// A tensor of a call: its name, the object and the piece of it, and the memory that the row gives it.
    fn tensor_of(
        &self,
        (id, call): (CallId, &Call),
        tensor: TensorId,
        span: Origin,
    ) -> Res<(String, ObjectId, Piece, Placement)> {
        let body = self.program.task(call.task).body(call.variant);
        let row = body.tensor(tensor);
        let tree = &self.graph.tree;
        let found = match row.formal.map(|formal| &call.arguments[formal]) {
            Some(Argument::Tensor(formal)) => {
                let placement = formal.chain.last().map_or(Placement::None, |placed| placed.placement);
                Some((formal.object, formal.piece.clone(), placement))
            }
            Some(_) => None,
            None => {
                let own = tree.objects.iter().position(|object| {
                    object.maker == Some(id) && object.name == row.name && object.span == row.span
                });
                own.map(|at| {
                    let object = &tree.objects[at];
                    (ObjectId(at as u32), Piece::whole(&object.extents), object.placement)
                })
            }
        };
        let (object, piece, placement) = found.ok_or_else(|| {
            tilewright_tile::Diagnostic::internal(span, "a tensor that its call does not have")
        })?;
        Ok((row.name.clone(), object, piece, placement))
    }

    /// The layout of a place in shared memory whose modes are cut no further, with the place of the row; of others, whose parts are indexed, there is
    /// none.
    pub(super) fn pinned_shared(
        &mut self,
        id: ReplicaId,
        cut: bool,
        span: Origin,
    ) -> Res<(Option<SwizzledLayout>, Origin)> {
        let Some(pinned) = self.pinned.get_mut(&id) else { return Ok((None, span)) };
        if cut {
            let message =
                "a layout of a tensor that is used in parts, or whose buffers iterations take in turn";
            return Err(refused(pinned.span, message)
                .help("leave the layout out: synthesis finds one for what is indexed"));
        }
        pinned.used = true;
        Ok((Some(pinned.layout.clone()), pinned.span))
    }

    /// The layout of a place in registers, with the place of the row.
    pub(super) fn pinned_register(&mut self, id: ReplicaId, span: Origin) -> Res<(Option<Layout>, Origin)> {
        let Some(pinned) = self.pinned.get_mut(&id) else { return Ok((None, span)) };
        if pinned.layout.swizzle != Swizzle::NONE {
            return Err(refused(pinned.span, "a swizzled layout of a tensor in registers")
                .help("a register layout maps (thread, value) to coordinates, and has no swizzle"));
        }
        pinned.used = true;
        Ok((Some(pinned.layout.layout.clone()), pinned.span))
    }

    /// Refuses layouts that no tensor of the tile program has.
    pub(super) fn all_pinned(&self) -> Res<()> {
        let unused = self.pinned.iter().find(|(_, pinned)| !pinned.used);
        unused.map_or(Ok(()), |(id, pinned)| {
            let name = &self.graph.object(self.graph.replica(*id).object).name;
            let message = format!("`{name}` is no tensor of its own in the tile program");
            Err(refused(pinned.span, message).help("pin the layout of the tensor that it is computed from"))
        })
    }
}
