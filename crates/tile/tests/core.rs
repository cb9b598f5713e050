//! The core program: each of its invariants is violated once.

use tilewright_tile::core::{self, Changed, Coord, Program, Slot, StmtKind, TensorKind};
use tilewright_tile::{Constants, Expr, Side, SymbolId, TensorId, parse, unroll, verify};

const SOURCE: &str = "size n = 256
    kernel k(x: f32[n], y: f32[n]) grid(1) threads(256) {
        gx = global_view(x, (64, 4) : (e0, 64 * e0))
        sx = shared_tensor(f32, [64])
        p = pipeline(2, sx)
        warpgroup load(1) {
            for i in 0..4 { produce p { copy.async(gx[:, i], sx) } }
        }
        warpgroup store(1) {
            r = register_tensor(f32, [64])
            gy = global_view(y, (64, 4) : (e0, 64 * e0))
            for j in 0..4 { consume p { copy(sx, r); copy(r, gy[:, j]) } }
        }
    }";

fn program() -> Program {
    let verified = verify(&parse(SOURCE).unwrap(), &Constants::new()).unwrap();
    let mut program = core::build(&unroll(&verified).unwrap()).unwrap();
    assert_eq!(core::multi_buffer(&mut program), Changed::Yes);
    core::verify(&program, "the test").unwrap();
    program
}

fn tensor(program: &Program, name: &str) -> TensorId {
    TensorId(program.tensors.iter().position(|t| t.name == name).unwrap() as u32)
}

/// The statements in the stage of a role.
fn stage(program: &mut Program, role: usize) -> &mut Vec<core::Stmt> {
    let last = program.roles[role].body.last_mut().unwrap();
    last.kind.body_mut().unwrap()[0].kind.body_mut().unwrap()
}

#[track_caller]
fn violates(change: impl Fn(&mut Program), message: &str) {
    let mut program = program();
    change(&mut program);
    let error = core::verify(&program, "the test").unwrap_err();
    assert_eq!(
        error.message,
        format!(
            "internal compiler error: after the test, the core program violates invariant {message}; please report it with the program"
        )
    );
}

#[test]
fn ids_are_of_the_tables_and_unique() {
    violates(
        |program| {
            let copy = stage(program, 1)[0].clone();
            stage(program, 1).push(copy);
        },
        "1: `copy(sx[:, p.consumed], r)` has the id of another statement",
    );
    violates(
        |program| stage(program, 1)[0].kind = StmtKind::Fill { dst: TensorId(99), value: 0.0 },
        "1: `fill(?, 0.0)` names no tensor",
    );
}

#[test]
fn tensors_have_shapes_and_pipelines_stages() {
    violates(
        |program| {
            let sx = tensor(program, "sx");
            if let TensorKind::Shared { shape, .. } = &mut program.tensors[sx.0 as usize].kind {
                shape[0] = 0;
            }
        },
        "2: `sx` has no shape",
    );
    violates(|program| program.pipelines[0].stages = 0, "2: `p` has no stages");
}

#[test]
fn roles_have_the_threads_of_the_block() {
    violates(|program| program.roles[1].first = 0, "3: the role `store` has other threads");
    violates(|program| program.threads = 512, "3: its roles do not have its threads");
    violates(
        |program| {
            let id = program.statements.fresh(None);
            program.body.push(core::Stmt { id, kind: StmtKind::Sync, span: Default::default() });
        },
        "3: `syncthreads()` stands beside roles",
    );
}

#[test]
fn tensors_are_used_where_they_live() {
    violates(
        |program| _ = program.roles[1].body.remove(0),
        "4: `copy(sx[:, p.consumed], r)` uses `r` before it is defined",
    );
}

#[test]
fn counters_are_those_of_the_loops_around() {
    violates(
        |program| {
            let id = program.statements.fresh(None);
            let counter = program.symbols.iter().find(|(_, s)| s.name == "i").map(|(id, _)| *id).unwrap();
            let r = tensor(program, "r");
            let expr = tilewright_tile::ElemExpr::Int(Expr::Symbol(counter));
            let kind = StmtKind::Elementwise { dst: r, expr };
            stage(program, 1).push(core::Stmt { id, kind, span: Default::default() });
        },
        "5: `i` is no size or counter in `r = float(i)`",
    );
    violates(
        |program| {
            if let StmtKind::For { hi, .. } = &mut program.roles[0].body[0].kind {
                *hi = Expr::Symbol(SymbolId(77));
            }
        },
        "5: `?` is no size or counter in `for i in 0..?`",
    );
}

#[test]
fn an_index_has_an_entry_a_mode() {
    violates(
        |program| {
            if let StmtKind::Copy { src, .. } = &mut stage(program, 1)[0].kind {
                src.index.push(None);
            }
        },
        "6: `sx` has another number of modes than its index in `copy(sx[:, p.consumed, :], r)`",
    );
}

#[test]
fn a_slot_is_that_of_the_stage_around() {
    violates(
        |program| {
            let pipeline = tilewright_tile::PipelineId(0);
            if let StmtKind::Copy { src, .. } = &mut stage(program, 1)[0].kind {
                src.index[1] = Some(Coord::Slot(Slot { pipeline, side: Side::Produce }));
            }
        },
        "7: `sx` is at no stage of its pipeline in `copy(sx[:, p.produced], r)`",
    );
}
