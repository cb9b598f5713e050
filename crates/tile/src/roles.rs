//! The roles of a program's warpgroups, and the program of each.

use std::collections::BTreeSet;

use tilewright_layout::{Layout, SwizzledLayout};
use tilewright_machine::WARPGROUP;

use crate::ids::StmtId;
use crate::program::{Operand, PipelineId, Stmt, StmtKind, TensorId, TensorKind};
use crate::verified::Verified;

/// A role: what some warpgroups of the block do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Role<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its first thread in the block.
    pub first: u32,
    /// Its threads.
    pub threads: u32,
    /// Registers of each thread; `None`: an even share.
    pub registers: Option<u32>,
}

/// The tensors and pipelines that statements name.
#[derive(Default)]
struct Used {
    tensors: BTreeSet<TensorId>,
    pipelines: BTreeSet<PipelineId>,
}

impl Used {
    fn collect(&mut self, body: &[Stmt]) {
        for operand in body.iter().flat_map(|stmt| stmt.kind.operands()) {
            match operand {
                Operand::Tensor(_, id) => drop(self.tensors.insert(*id)),
                Operand::Reference(_, r) => drop(self.tensors.insert(r.tensor)),
                Operand::Pipeline(_, id) => drop(self.pipelines.insert(*id)),
                Operand::Body(body) => self.collect(body),
                _ => {}
            }
        }
    }
}

impl Verified {
    /// The roles, in the order of their threads; none if all threads do the same.
    pub fn roles(&self) -> Vec<Role<'_>> {
        let mut first = 0;
        let mut roles = Vec::new();
        for stmt in &self.program.body {
            if let StmtKind::Role { name, warpgroups, registers, .. } = &stmt.kind {
                let number = |e: &crate::Expr| e.as_int().and_then(|n| u32::try_from(n).ok());
                let threads = WARPGROUP * number(warpgroups).unwrap_or(0);
                let registers = registers.as_ref().and_then(number);
                roles.push(Role { name, first, threads, registers });
                first += threads;
            }
        }
        roles
    }

    /// The program of role `index` alone: the definitions outside roles that it uses, and its body. Its threads are the role's.
    /// Ids are those of the whole program.
    pub fn of_role(&self, index: usize) -> Verified {
        let mut result = self.clone();
        let threads = self.roles().get(index).map_or(0, |role| role.threads);
        let bodies = self.program.body.iter().filter_map(|stmt| match &stmt.kind {
            StmtKind::Role { body, .. } => Some(body),
            _ => None,
        });
        let body = bodies.clone().nth(index).cloned().unwrap_or_default();
        let mut used = Used::default();
        used.collect(&body);
        let outside = self.program.body.iter().filter(|stmt| match &stmt.kind {
            StmtKind::Define(id) => used.tensors.contains(id),
            StmtKind::Pipeline(id) => used.pipelines.contains(id),
            _ => false,
        });
        result.program.body = outside.cloned().chain(body).collect();
        result.program.threads = crate::Expr::Int(i64::from(threads));
        result.threads = threads;
        result
    }

    /// The tensors that statements define, read or write. The tables of a role's program list others too: the whole program's.
    pub fn touched(&self) -> BTreeSet<TensorId> {
        let mut used = Used::default();
        used.collect(&self.program.body);
        used.tensors
    }

    /// Pins the layout of a register tensor.
    pub fn pin_register(&mut self, id: TensorId, layout: Layout) {
        if let TensorKind::Register { pinned, .. } = &mut self.program.tensors[id.0 as usize].kind {
            *pinned = Some(layout);
        }
    }

    /// Pins the layout of a shared tensor.
    pub fn pin_shared(&mut self, id: TensorId, layout: SwizzledLayout) {
        if let TensorKind::Shared { pinned, .. } = &mut self.program.tensors[id.0 as usize].kind {
            *pinned = Some(layout);
        }
    }

    /// Marks asynchronous copies as done by the tensor memory accelerator, or as not.
    pub fn mark_tensor_copies(&mut self, which: &BTreeSet<StmtId>) {
        fn go(body: &mut [Stmt], which: &BTreeSet<StmtId>) {
            for stmt in body {
                if let StmtKind::CopyAsync { how, .. } = &mut stmt.kind {
                    how.tensor = which.contains(&stmt.id);
                }
                if let Some(body) = stmt.kind.body_mut() {
                    go(body, which);
                }
            }
        }
        go(&mut self.program.body, which);
    }
}
