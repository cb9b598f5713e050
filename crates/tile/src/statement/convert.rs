//! Conversion of statements from one form of programs to another.

use super::{Form, PrintItem, ShapeOp, Stmt, StmtKind, TensorRef, TileOrder};

/// An argument of a plain statement, converted.
macro_rules! argument {
    ($converter:ident Int $value:ident) => {
        $converter.int($value)?
    };
    ($converter:ident $other:ident $value:ident) => {
        *$value
    };
}

/// A statement's kind, converted.
macro_rules! converted {
    (
        ($converter:ident, $from:ident)
        $($name:ident($($arg:ident: $shape:ident $noun:literal),*) { $($kind:tt)* })*
    ) => {
        Ok(match $from {
            $($($kind)* => {
                $(let $arg = argument!($converter $shape $arg);)*
                $($kind)*
            })*
            StmtKind::Define(id) => StmtKind::Define(*id),
            StmtKind::Let { symbol, value } => StmtKind::Let { symbol: *symbol, value: value.clone() },
            StmtKind::Copy { src, dst, how } => {
                StmtKind::Copy { src: $converter.reference(src)?, dst: $converter.reference(dst)?, how: *how }
            }
            StmtKind::CopyAsync { src, dst, how } => {
                StmtKind::CopyAsync { src: $converter.reference(src)?, dst: $converter.reference(dst)?, how: *how }
            }
            StmtKind::Gemm { c, a, b, meta, scales, warps } => StmtKind::Gemm {
                c: *c,
                a: *a,
                b: *b,
                meta: *meta,
                scales: *scales,
                warps: $converter.shares(warps)?,
            },
            StmtKind::GemmAsync { c, a, b, meta, scales, warpgroups } => StmtKind::GemmAsync {
                c: *c,
                a: $converter.reference(a)?,
                b: $converter.reference(b)?,
                meta: *meta,
                scales: match scales {
                    Some([left, right]) => Some([$converter.reference(left)?, $converter.reference(right)?]),
                    None => None,
                },
                warpgroups: $converter.shares(warpgroups)?,
            },
            StmtKind::Pipeline(id) => StmtKind::Pipeline(*id),
            StmtKind::Role { name, warpgroups, registers, body } => StmtKind::Role {
                name: $converter.role(name)?,
                warpgroups: $converter.int(warpgroups)?,
                registers: registers.as_ref().map(|n| $converter.int(n)).transpose()?,
                body: $converter.body(body)?,
            },
            StmtKind::Stage { pipeline, side, body } => {
                StmtKind::Stage { pipeline: *pipeline, side: *side, body: $converter.body(body)? }
            }
            StmtKind::Tiles { row, col, previous, rows, cols, order, dynamic, body } => StmtKind::Tiles {
                row: *row,
                col: *col,
                previous: *previous,
                rows: rows.clone(),
                cols: cols.clone(),
                order: match order {
                    TileOrder::Grouped { rows, serpentine } => {
                        TileOrder::Grouped { rows: $converter.int(rows)?, serpentine: *serpentine }
                    }
                    TileOrder::Hilbert { order } => TileOrder::Hilbert { order: $converter.int(order)? },
                    TileOrder::Listed { table } => TileOrder::Listed { table: *table },
                },
                dynamic: *dynamic,
                body: $converter.body(body)?,
            },
            StmtKind::Drain { previous, body } => {
                StmtKind::Drain { previous: *previous, body: $converter.body(body)? }
            }
            StmtKind::Cast { dst, src } => StmtKind::Cast { dst: *dst, src: *src },
            StmtKind::Rearrange { dst, src } => StmtKind::Rearrange { dst: *dst, src: *src },
            StmtKind::Elementwise { dst, expr } => StmtKind::Elementwise { dst: *dst, expr: expr.clone() },
            StmtKind::Shape { dst, src, op } => StmtKind::Shape { dst: *dst, src: *src, op: $converter.shape(op)? },
            StmtKind::Join { dst, a, b } => StmtKind::Join { dst: *dst, a: *a, b: *b },
            StmtKind::Split { lo, hi, src } => StmtKind::Split { lo: *lo, hi: *hi, src: *src },
            StmtKind::Reduce { dst, src, op, axis } => {
                StmtKind::Reduce { dst: *dst, src: *src, op: *op, axis: *axis }
            }
            StmtKind::Scan { dst, operands, axis, reverse } => {
                StmtKind::Scan { dst: *dst, operands: *operands, axis: *axis, reverse: *reverse }
            }
            StmtKind::Combine { dsts, srcs, by, axis, form } => StmtKind::Combine {
                dsts: dsts.clone(),
                srcs: srcs.clone(),
                by: by.clone(),
                axis: *axis,
                form: *form,
            },
            StmtKind::Arg { value, index, src, op, axis } => {
                StmtKind::Arg { value: *value, index: *index, src: *src, op: *op, axis: *axis }
            }
            StmtKind::Sort { dst, src, carried, axis, descending } => StmtKind::Sort {
                dst: *dst,
                src: *src,
                carried: *carried,
                axis: *axis,
                descending: *descending,
            },
            StmtKind::Gather { dst, src, index, axis } => {
                StmtKind::Gather { dst: *dst, src: *src, index: *index, axis: *axis }
            }
            StmtKind::Sync(scope) => StmtKind::Sync(*scope),
            StmtKind::Arrive(id) => StmtKind::Arrive(*id),
            StmtKind::Barrier(id) => StmtKind::Barrier(*id),
            StmtKind::InTurn { turns, body } => StmtKind::InTurn { turns: *turns, body: $converter.body(body)? },
            StmtKind::SyncGrid { counter } => StmtKind::SyncGrid { counter: *counter },
            StmtKind::Signal { flag, value, combine } => {
                StmtKind::Signal { flag: flag.clone(), value: value.clone(), combine: *combine }
            }
            StmtKind::Await { flag, least } => StmtKind::Await { flag: flag.clone(), least: least.clone() },
            StmtKind::Ticket { symbol, flag, count } => {
                StmtKind::Ticket { symbol: *symbol, flag: flag.clone(), count: count.clone() }
            }
            StmtKind::If { condition, otherwise, body } => {
                StmtKind::If { condition: condition.clone(), otherwise: *otherwise, body: $converter.body(body)? }
            }
            StmtKind::ClusterCombine { dsts, by } => {
                StmtKind::ClusterCombine { dsts: dsts.clone(), by: by.clone() }
            }
            StmtKind::Break { condition } => StmtKind::Break { condition: condition.clone() },
            StmtKind::Assert { condition, text } => {
                StmtKind::Assert { condition: condition.clone(), text: text.clone() }
            }
            StmtKind::Print { text, items, iteration } => StmtKind::Print {
                text: text.clone(),
                items: $converter.items(items)?,
                iteration: iteration.clone(),
            },
            StmtKind::IfAny { condition, axis, body } => {
                StmtKind::IfAny { condition: *condition, axis: *axis, body: $converter.body(body)? }
            }
            StmtKind::For { counter, lo, hi, condition, body } => StmtKind::For {
                counter: *counter,
                lo: lo.clone(),
                hi: hi.clone(),
                condition: condition.clone(),
                body: $converter.body(body)?,
            },
        })
    };
}

/// Conversion of the parts of statements that differ between the forms `F` and `G`.
pub trait Convert<F: Form, G: Form> {
    /// Reason why something cannot be converted.
    type Error;
    /// An integer.
    fn int(&mut self, int: &F::Int) -> Result<G::Int, Self::Error>;
    /// An entry of an index.
    fn index(&mut self, index: &F::Index) -> Result<G::Index, Self::Error>;
    /// The name of a role.
    fn role(&mut self, name: &F::RoleName) -> Result<G::RoleName, Self::Error>;

    /// A reference.
    ///
    /// # Errors
    ///
    /// The error of an entry of its index.
    fn reference(&mut self, r: &TensorRef<F>) -> Result<TensorRef<G>, Self::Error> {
        let index = r.index.iter().map(|entry| entry.as_ref().map(|e| self.index(e)).transpose());
        let index = index.collect::<Result<_, _>>()?;
        let TensorRef { tensor, indexed, transposed, span, .. } = *r;
        Ok(TensorRef { tensor, index, indexed, transposed, span })
    }

    /// A number of warps or warpgroups along M and N.
    ///
    /// # Errors
    ///
    /// The error of an integer.
    fn shares(&mut self, shares: &Option<[F::Int; 2]>) -> Result<Option<[G::Int; 2]>, Self::Error> {
        let Some([m, n]) = shares else { return Ok(None) };
        Ok(Some([self.int(m)?, self.int(n)?]))
    }

    /// Statements.
    ///
    /// # Errors
    ///
    /// The error of one of them.
    fn body(&mut self, body: &[Stmt<F>]) -> Result<Vec<Stmt<G>>, Self::Error> {
        body.iter()
            .map(|stmt| Ok(Stmt { id: stmt.id, kind: self.kind(&stmt.kind)?, span: stmt.span }))
            .collect()
    }

    /// Converts the items of a print.
    ///
    /// # Errors
    ///
    /// The error of an entry of an index.
    fn items(&mut self, items: &[PrintItem<F>]) -> Result<Vec<PrintItem<G>>, Self::Error> {
        let mut converted = Vec::new();
        for item in items {
            converted.push(match item {
                PrintItem::Integer(value) => PrintItem::Integer(value.clone()),
                PrintItem::Tensor { of, extents } => {
                    PrintItem::Tensor { of: self.reference(of)?, extents: extents.clone() }
                }
            });
        }
        Ok(converted)
    }

    /// Converts a shape statement's operation.
    ///
    /// # Errors
    ///
    /// The error of an integer.
    fn shape(&mut self, op: &ShapeOp<F>) -> Result<ShapeOp<G>, Self::Error> {
        Ok(match op {
            ShapeOp::Transpose(order) => ShapeOp::Transpose(order.clone()),
            ShapeOp::Reshape(shape) => {
                ShapeOp::Reshape(shape.iter().map(|e| self.int(e)).collect::<Result<_, _>>()?)
            }
            ShapeOp::Expand { axis } => ShapeOp::Expand { axis: *axis },
            ShapeOp::Slice { axis, start, extent } => {
                ShapeOp::Slice { axis: *axis, start: self.int(start)?, extent: self.int(extent)? }
            }
            ShapeOp::Broadcast(shape) => {
                ShapeOp::Broadcast(shape.iter().map(|e| self.int(e)).collect::<Result<_, _>>()?)
            }
        })
    }

    /// Converts a statement's kind and its parts.
    ///
    /// # Errors
    ///
    /// The error of one of the parts.
    fn kind(&mut self, kind: &StmtKind<F>) -> Result<StmtKind<G>, Self::Error> {
        with_plain_statements!(converted!(self, kind))
    }
}
