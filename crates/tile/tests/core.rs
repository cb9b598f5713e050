//! The core program: the invariants that its text cannot violate (`tests/core/error/` has the others), and damaged texts.

use proptest::prelude::*;
use tilewright_tile::core::{self, Changed, ParamId, PipelineId, Program, StmtKind, TensorKind};
use tilewright_tile::{Constants, ElemExpr, Expr, SymbolId, TensorId, parse, unroll, verify};

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
    let fill = StmtKind::Fill { dst: TensorId(99), value: 0.0 };
    violates(|program| stage(program, 1)[0].kind = fill.clone(), "1: `fill(?, 0.0)` names no tensor");
    violates(
        |program| {
            let dst = tensor(program, "r");
            let kind = StmtKind::Elementwise { dst, expr: ElemExpr::Scalar(ParamId(99)) };
            stage(program, 1)[0].kind = kind;
        },
        "1: `r = ?` names no parameter",
    );
    violates(
        |program| {
            if let StmtKind::For { hi, .. } = &mut program.roles[0].body[0].kind {
                *hi = Expr::Element(ParamId(99), vec![Expr::Int(0)]);
            }
        },
        "1: `for i in 0..?[0]` names no parameter",
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
fn tables_name_what_there_is() {
    violates(
        |program| program.body[2].kind = StmtKind::Pipeline(PipelineId(99)),
        "1: `? = ?` names no pipeline",
    );
    violates(|program| program.pipelines[0].tensors.push(TensorId(99)), "1: `p` has an unknown tensor");
    violates(
        |program| {
            let gx = tensor(program, "gx");
            if let TensorKind::View { param, .. } = &mut program.tensors[gx.0 as usize].kind {
                *param = ParamId(99);
            }
        },
        "1: `gx` views no parameter",
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_texts_never_panic(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..12usize, "[-a-z0-9_()\\[\\]{}:,.*/+=%; \n]{0,6}"), 1..4),
    ) {
        let mut source = program().to_string();
        for (at, len, new) in cuts {
            let at = at.index(source.len());
            let end = (at + len).min(source.len());
            source.replace_range(at..end, &new);
        }
        if let Ok(program) = core::parse(&source) {
            prop_assert_eq!(&core::parse(&program.to_string()).unwrap(), &program, "{}", source);
            let internal = core::check(&program).is_err_and(|d| d.any_internal());
            prop_assert!(!internal, "{}", source);
        }
    }
}
