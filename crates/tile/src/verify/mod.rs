//! Program to [`Verified`]: every rule of the language that the grammar does not express, checked after the constants
//! have their values.

mod asynchronous;
mod barriers;
mod checker;
mod combine;
mod counters;
mod deadlock;
mod definitions;
mod fold;
mod header;
mod launches;
mod operands;
mod pairs;
mod pipelines;
mod print;
mod products;
mod remedies;
mod roles;
mod rows;
mod scaled;
mod shapes;
mod sparse;
mod stage;
mod statements;
mod tensor_memory;
mod tiles;

use std::sync::Arc;

use checker::Checker;
pub use definitions::MAX_TILE;
pub(crate) use definitions::{SHARED_LAYOUT, shared_layout_problem};
pub(crate) use pairs::is_half;

use crate::diagnostic::{Code, Diagnostic, Diagnostics, Origin};
use crate::expr::{Expr, SymbolId};
use crate::nearest::nearest;
use crate::program::{Param, ParamId, Program, Symbol, SymbolKind};
use crate::verified::{Constants, Verified};

/// Checks a program for given values of its constants; those not named keep their defaults.
///
/// The invariants that [`Verified`] then holds:
///
/// 1. **Constants.** Every given name is a constant. A default is an expression over earlier constants. Every constant
///    has a value.
/// 2. **Sizes.** A size's default is at least 1.
/// 3. **Names.** Every name is an identifier and no word of the language. No two things that exist at one place share one (the kernel's own name
///    stands apart). Ids are indices of the program's tables, and each statement has its own.
/// 4. **Parameters.** A tensor parameter has at least one mode; its extents and strides are expressions over sizes and
///    constants, literals among them at least 1; strides, where given, are one a mode, but none for the mode that counts the tensors of an array. A tile of
///    a view of an array lies in one of its tensors. A scalar is an `f32` or an `i32`.
/// 5. **Launch.** The grid has one to three extents over sizes and constants, literals among them at least 1 and within
///    what the hardware takes (2³¹−1, 65535, 65535). The block has a multiple of 32 threads, at most 1024, known when
///    the kernel is compiled. A cluster has one or two modes and 1 to 16 blocks, constants; a literal extent of the grid along x is a multiple.
/// 6. **Scope.** A tensor is defined once, before its uses, and used only within the loop, role or stage that defines it. A
///    counter is used only in its own loop's body.
/// 7. **Expressions.** No division by a literal zero, no overflow of literals.
/// 8. **Register and shared tensors.** At least one mode; every extent is a positive constant; at most 2²⁰ elements. A
///    pinned register layout has two modes, the first of as many threads as the block has, and reaches every element of
///    the tile and nothing else, once but for thread modes of stride 0. A pinned shared layout has the tile's shape and gives every element an offset of its
///    own, none negative.
/// 9. **Views.** One offset, and at most one end, a mode of the buffer, one or more leaves a mode; leaves walk modes that the buffer has;
///    scales are constants, none negative; literal extents are at least 1.
/// 10. **References.** An index has one entry a mode; a literal index lies within a literal extent. The
///     modes that are kept (at least one) have constant extents, at most 2²⁰ elements together. Only global and shared
///     tensors are transposed.
/// 11. **Copy.** Both tiles have one shape and one element type; at least one of both is in registers, or one is global
///     and the other shared. A view that is written has no scale of 0.
/// 12. **Gemm.** Three register tensors of two modes: M×N, M×K, N×K. The factors have one type, and a row of
///     [`mma_rows`](tilewright_machine::mma_rows) multiplies it into the accumulator's; the accumulator is not a factor. With a sparse left
///     factor, M×K/2, metadata of its shape are in registers (of products into tensor memory: there), of type `u2`, and K is a multiple of 4. Scales of blocks are M×S and N×S, of one
///     type in registers, K a multiple of S, and a row multiplies factors of the type with scales of these blocks; the left factor is not sparse.
/// 13. **Cast, rearrange.** Both in registers, of one shape; a rearrangement keeps the element type.
/// 14. **Fill.** A register tensor; the value is in the range of its element type (integers: exactly).
/// 15. **Elementwise.** The result and all tensors that are read are in registers, with as many modes, of equal extents or 1, the result of
///     the largest and of one
///     floating-point type; scalars are scalar parameters.
/// 16. **Transpose, reshape, expand, slice, broadcast.** Both in registers, of one element type; the result is not the operand,
///     and has the shape that the statement gives it. The order of a transpose lists every mode of the operand once. A
///     reshape gives positive constants, whose product is the operand's number of elements. A new mode stands at 0 to
///     the operand's number of modes. A slice has a positive constant extent, and begins at an expression over constants and
///     counters of `unroll for`, so that it lies within its mode. A broadcast gives one positive constant a mode: the mode's extent, or any where
///     that is 1.
/// 17. **Join, split.** All in registers, of one element type. The parts are two tensors of one shape (at least one
///     mode); the whole has one mode more, its last, of extent 2. No result is an operand; the two halves of a split
///     are two tensors.
/// 18. **Reduce.** Both in registers, of one element type; the mode is one of the operand. The result has the other
///     modes, or shape `[1]` if there are none. The operand of a sum is no 8-bit integer.
/// 19. **Gather.** All in registers; the index is `i32`, has as many modes as what is read, the mode among them, and
///     equal extents but for that mode. The result has the index's shape and the element type of what is read.
/// 20. **Asynchronous copies.** From a view to a shared tensor, or from a shared tensor to a view. The number of a `wait_group` is
///     at least 0, over constants and counters of `unroll for`. `add` goes to a view of `f32`, `f16`, `bf16` or `i32`; `multicast`
///     stands in a `produce`, in clusters of several blocks, along a mode that the cluster has, if it names one; so does `pair`, in
///     clusters whose first mode of several blocks is even; with both, several pairs lie along the mode. In a `produce` the destination is a tensor of the stage.
/// 21. **Unrolled loops.** The bounds of an `unroll for` are expressions over constants and counters of the `unroll for` around.
/// 22. **Parts of register tensors.** An index is an expression over constants and counters of `unroll for`. All uses of a
///     register tensor index the same modes, but for a `fill` of the whole; one of which modes are indexed has no pinned layout. A part is an operand, and
///     nothing is assigned to it.
///
/// 23. **Roles.** They stand at the outermost level, and beside them only definitions and pipelines. A role has a positive constant
///     number of warpgroups, together as many threads as the block. Registers are given for all roles or for none: constants,
///     multiples of 8 from 24 to 240, for all threads together at most 65536.
/// 24. **What a role uses.** Register tensors that it defines, and shared tensors that no other role uses, but for stages and for roles that
///     come to one named barrier.
/// 25. **Pipelines.** They are defined at the outermost level, once, of 1 to 64 stages (a constant); a tensor is that of one
///     pipeline, once. Something fills its stages and something reads them: with roles, one role fills, and
///     one or several others read every stage.
/// 26. **Stages.** The tensors of a pipeline are used only in its `produce`, which only writes them, and all of them, and in its
///     `consume`, which reads them, and may overwrite them by `copy` where one role alone reads the pipeline. One stage of a pipeline is at hand at a time. There is no `syncthreads` or `arrive` in a `produce`.
/// 27. **Loops over tiles.** The grid has one extent, or others of 1. The rows of a group are at least 1, the order of a Hilbert
///     curve is from 1 to 8: constants. A `drain` stands right behind a loop with `after`, and has its counters. Where the launch deals the tiles out, the
///     grid has a cluster for each, a role has one such loop, over the same tiles as other roles, and no `syncgrid` stands in the kernel.
/// 28. **Asynchronous products.** The block or role has whole warpgroups. `c` is a register tensor M×N, `a` a shared or register
///     tensor M×K, `b` a shared tensor N×K. Factors and accumulator are `f16` or 8-bit floats into `f32` or `f16`; `bf16` or
///     `f32` into `f32`; `i8` and `i8` or `u8` and `u8` into `i32`. The accumulator is not a factor. Given warpgroups are positive
///     constants whose product is the number of warpgroups. The number of a `wait_gemm` is a constant from 0 to 7.
/// 29. **Products in flight.** As far as the order of the statements shows it, nothing but another asynchronous product touches an
///     accumulator before the `wait_gemm` that covers it, or overwrites a factor; products that read a stage are in a group when its
///     `consume` ends; and fewer than all stages of a pipeline are held by products in flight when the next is to be read.
/// 30. **Sums over clusters.** A register tensor of `f32`, in clusters of several blocks, outside of stages.
/// 31. **Elements and parameters as integers.** The buffer is a tensor parameter of type `i32` that no statement writes, with one index a mode. Elements
///     and scalar parameters of type `i32` stand where counters may: not in the grid, nor in the shapes and strides of parameters.
/// 32. **Launches that overlap.** No statement writes a parameter that is `constant`. A kernel that waits for the launches before it or lets
///     those behind it begin waits in every block, whatever its sizes. As far as the order of the statements shows it, no role accesses a
///     parameter that is not `constant` before it waits or gets a stage from a role that did.
///
/// 35. **Barriers.** `syncthreads(warpgroup)` stands where threads are whole warpgroups. Named barriers are defined beside roles, once; several roles come to
///     each, and one of them waits. With those of roles and of their warpgroups the block has at most 16 barriers.
/// 36. **Turns.** They are defined beside roles, once; several roles take them, each outside of stages that it fills, and not one within another of the same.
/// 34. **`if any`.** The condition is a register tensor of truth values that has the mode. No other stands in its body, which holds
///     definitions of register tensors, elementwise statements, casts, `fill`, copies between registers and between these and tensor memory (a warp
///     copies its own lanes), reductions and scans along the condition's mode, and branches and loops over integers with these. Warps of a warpgroup wait together (PTX ISA,
///     `wgmma.wait_group`), so that no `wait_gemm` stands there. What it writes has rows: the condition's modes, of
///     equal extents but along `axis` (or 1 in the condition), or all but that.
/// 35. **Flags.** They are elements of a tensor parameter of type `i32`, with one index a mode, which nothing but `signal`, `wait` and `ticket`
///     touches. A number of tickets that is a constant is at least 1. A `syncgrid` of a role has a counter of its own.
/// 36. **Print.** Items are integers, register tensors or parts of them, and shared tensors that may be indexed by integers, as they lie.
/// 37. **Pairs.** What is copied with `pair` is always, and is nothing but the right factor of products into tensor memory, without scales. The
///     right factors of all such products are, and their sums have 128 rows; left factors are in shared memory. No stage that they read is filled
///     with `multicast` to both blocks of a pair, or read by another role.
/// 33. **Deadlocks.** As far as the text shows it, whatever the sizes, no role waits for ever for a stage to be filled or released, and each
///     reads as many stages as are filled. Pipelines may lead in a circle.
///
/// Reports every violation it finds, up to fifty; of rules 29, 32, 33 and 37 once there are no others.
///
/// ```
/// use tilewright_tile::{Code, Constants, parse, verify};
/// let source = "const T = 100
///     kernel idle(x: f32[4]) grid(1) threads(T) { }";
/// let errors = verify(&parse(source)?, &Constants::new()).unwrap_err();
/// assert_eq!(errors.0[0].code, Code::BadLaunch);
/// assert!(verify(&parse(source)?, &Constants::from([("T".to_string(), 96)])).is_ok());
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
pub fn verify(program: &Program, constants: &Constants) -> Result<Verified, Diagnostics> {
    checked(program, constants).map_err(|errors| program.unnamed().in_words(errors))
}

fn checked(program: &Program, constants: &Constants) -> Result<Verified, Diagnostics> {
    let (values, by_name) = constant_values(program, constants)?;
    let folded = fold::program(program, &values)?;
    let mut check = Checker::new(program, &folded);
    check.names();
    check.params();
    let threads = check.launch();
    check.cluster();
    if check.ids_are_legal() {
        check.roles(threads);
        check.body(threads);
        check.uses();
        check.issuers();
        check.meetings(threads);
        check.counters_are_apart();
        check.all_blocks_begin();
        check.elements_stay();
        if check.errors.is_empty() {
            let mut errors = products::check(&folded);
            errors.extend(launches::check(&folded));
            errors.extend(deadlock::check(&folded));
            errors.extend(pairs::check(&folded));
            errors.into_iter().for_each(|error| check.report(error));
        }
    }
    let Checker { errors, inputs, outputs, elements, counters, flags, .. } = check;
    if !errors.is_empty() {
        return Err(Diagnostics(errors));
    }
    let mut counters: Vec<ParamId> = counters.into_keys().chain(flags.into_keys()).collect();
    counters.sort_unstable();
    let strides = folded.params.iter().map(Param::strides).collect();
    let listed = |used: &[bool]| {
        used.iter().enumerate().filter(|(_, u)| **u).map(|(i, _)| ParamId(i as u32)).collect::<Vec<_>>()
    };
    Ok(Verified {
        source: Arc::new(program.clone()),
        constants: by_name,
        threads: threads.unwrap_or(0),
        strides,
        outputs: listed(&outputs),
        inputs: listed(&inputs),
        elements: elements.into_keys().collect(),
        counters,
        program: folded,
    })
}

/// The value of every symbol that is a constant, and all constants by name.
fn constant_values(
    program: &Program,
    given: &Constants,
) -> Result<(Vec<Option<i64>>, Constants), Diagnostics> {
    let mut errors = Vec::new();
    let names: Vec<&str> = program.constants().map(|(_, s, _)| s.name.as_str()).collect();
    for name in given.keys() {
        if names.contains(&name.as_str()) {
            continue;
        }
        let shown: String = name.chars().take(60).collect();
        let list =
            if names.is_empty() { "it has none".to_string() } else { format!("it has {}", names.join(", ")) };
        let help = match nearest(&shown, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`? {list}"),
            None => list,
        };
        let message = format!("the kernel `{}` has no constant `{shown}`", program.name);
        errors.push(Diagnostic::new(Code::UnknownName, Origin::Unknown, message).help(help));
    }
    let mut values: Vec<Option<i64>> = vec![None; program.symbols.len()];
    let mut by_name = Constants::new();
    for (id, symbol, default) in program.constants() {
        let value = match given.get(&symbol.name) {
            Some(value) => Some(*value),
            None => {
                let value = |s: SymbolId| values.get(s.0 as usize).copied().flatten().map(Expr::Int);
                let folded = default.substitute(&value);
                folded.as_int()
            }
        };
        match value {
            Some(value) => {
                values[id.0 as usize] = Some(value);
                by_name.insert(symbol.name.clone(), value);
            }
            None => errors.push(no_default(program, symbol, default, &values)),
        }
    }
    if errors.is_empty() { Ok((values, by_name)) } else { Err(Diagnostics(errors)) }
}

/// The message about a constant whose default has no value, given the values of the constants before it.
fn no_default(program: &Program, symbol: &Symbol, default: &Expr, values: &[Option<i64>]) -> Diagnostic {
    let name = &symbol.name;
    let value = |id: SymbolId| values.get(id.0 as usize).copied().flatten();
    let mut sizes = Vec::new();
    default.symbols(&mut |id| sizes.push(program.symbol(id)));
    sizes.retain(|row| matches!(row.kind, SymbolKind::Size(_)));
    let Some(size) = sizes.first() else {
        let message = format!("the default of the constant `{name}` has no value");
        return Diagnostic::new(Code::BadValue, symbol.span, message).help(
            "a default is an expression over numbers and earlier constants; it may not divide by zero or overflow",
        );
    };
    let message = format!(
        "the constant `{name}` is computed from `{}`, which is a size: a launch gives sizes, and constants are known before, when the \
         kernel is compiled",
        size.name
    );
    let with_sizes = |id: SymbolId| match program.symbol(id).kind {
        SymbolKind::Size(default) => Some(Expr::Int(default)),
        _ => value(id).map(Expr::Int),
    };
    let number = default.substitute(&with_sizes).as_int();
    let number = number.map_or_else(String::new, |number| {
        format!(" (`{name} = {number}` at the default of `{}`)", size.name)
    });
    Diagnostic::new(Code::BadValue, symbol.span, message)
        .related(size.span, format!("`{}` is a size", size.name))
        .help(format!(
            "give `{name}` a number that is large enough{number}, or declare `{}` with `const`",
            size.name
        ))
}
