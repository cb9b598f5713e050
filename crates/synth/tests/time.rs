//! The time of searches, counted in steps: the same on every machine. And estimates at the largest grids.

use tilewright_machine::Arch;
use tilewright_synth::{Budget, Multiples, Options, prepare, synthesise};
use tilewright_tile::core::{self, Program};
use tilewright_tile::{Constants, parse, unroll, verify};

/// A kernel of a 64×64 tile with this body between the load of `r0` and the store of `r{last}`.
fn kernel(dtype: &str, body: &str, last: usize) -> Program {
    let source = format!(
        "kernel k(x: {dtype}[64, 64], y: {dtype}[64, 64]) grid(1) threads(128) {{
            gx = global_view(x, (64, 64) : (e0, e1))
            gy = global_view(y, (64, 64) : (e0, e1))
            r0 = register_tensor({dtype}, [64, 64])
            copy(gx, r0)
            {body}
            copy(r{last}, gy)
        }}"
    );
    let verified = verify(&parse(&source).unwrap(), &Constants::new()).unwrap();
    let mut program = core::build(&unroll(&verified).unwrap()).unwrap();
    core::desugar_copies(&mut program);
    program
}

/// Products in a chain, both factors of each made of the one before.
fn chained(products: usize) -> Program {
    let one = |i: usize| {
        format!(
            "h{i} = cast(r{i}, f16)
             g{i} = transpose(h{i})
             r{next} = register_tensor(f32, [64, 64])
             fill(r{next}, 0.0)
             gemm(r{next}, h{i}, g{i})\n",
            next = i + 1
        )
    };
    kernel("f32", &(0..products).map(one).collect::<String>(), products)
}

/// Shared tensors one after the other.
fn shared(tensors: usize) -> Program {
    let one = |i: usize| {
        format!(
            "s{i} = shared_tensor(f16, [64, 64])
             copy(r{i}, s{i})
             syncthreads()
             r{next} = register_tensor(f16, [64, 64])
             copy(s{i}, r{next})
             syncthreads()\n",
            next = i + 1
        )
    };
    kernel("f16", &(0..tensors).map(one).collect::<String>(), tensors)
}

/// Steps of a whole compilation, and why its search ended.
fn steps(verified: &Program, budget: Budget) -> (u64, String) {
    let options = Options { budget, ..Options::new(Arch::SM_80, Multiples::new()) };
    let prepared = prepare(verified, &options).unwrap();
    let search = synthesise(&prepared.verified, &options).unwrap().explanation.search;
    println!("{} + {} steps, {}", prepared.steps, search.steps, search.stopped);
    (prepared.steps + search.steps, search.stopped)
}

fn usual() -> Budget {
    Options::new(Arch::SM_80, Multiples::new()).budget
}

#[test]
fn products_in_a_chain_take_steps_in_proportion_or_nearly() {
    let [two, four, eight] = [2, 4, 8].map(|n| steps(&chained(n), usual()));
    // Each clash is resolved by one insertion, after which the search begins again: quadratic at most.
    assert!(four.0 < 5 * two.0 && eight.0 < 5 * four.0, "{two:?} {four:?} {eight:?}");
    assert!(eight.0 < Options::STEPS / 2, "{eight:?}");
}

#[test]
fn shared_tensors_take_steps_in_proportion_or_nearly() {
    let [some, more, many] = [30, 60, 120].map(|n| steps(&shared(n), usual()));
    assert!(more.0 < 5 * some.0 && many.0 < 5 * more.0, "{some:?} {more:?} {many:?}");
    assert!(many.0 < Options::STEPS, "{many:?}");
}

#[test]
fn steps_end_a_search_with_what_was_found() {
    let program = chained(6);
    let (all, _) = steps(&program, usual());
    for most in [1, 100, 10_000] {
        let (taken, stopped) = steps(&program, Budget { steps: most, ..usual() });
        assert_eq!(stopped, format!("the budget of {most} steps is spent"));
        assert!(taken < all, "{taken} of {all}");
    }
    // Enough is enough: a larger budget changes nothing.
    let options = |steps| Options {
        budget: Budget { steps, ..usual() },
        ..Options::new(Arch::SM_80, Multiples::new())
    };
    let made = |options: &Options| {
        let prepared = prepare(&program, options).unwrap();
        synthesise(&prepared.verified, options).unwrap().statements
    };
    assert_eq!(made(&options(Options::STEPS)), made(&options(u64::MAX)));
}

#[test]
fn waves_of_the_largest_grids_are_counted() {
    // The largest grid of a launch has nearly 2⁶³ blocks, and one of sizes may have more at their defaults, which no launch has.
    let [most, side] = [i64::from(i32::MAX), i64::from(u16::MAX)];
    for (size, grid, blocks) in
        [(1, format!("{most}, {side}, {side}"), most * side * side), (most, "n, n, n".to_string(), i64::MAX)]
    {
        let source = format!(
            "size n = {size}
            kernel k(y: f32[n]) grid({grid}) threads(32) {{
                r = register_tensor(f32, [32])
                fill(r, 1.0)
                gy = global_view(y, (32) : (e0))
                copy(r, gy)
            }}"
        );
        let verified = verify(&parse(&source).unwrap(), &Constants::new()).unwrap();
        let program = core::build(&unroll(&verified).unwrap()).unwrap();
        let options = Options::new(Arch::SM_80, Multiples::new());
        let prepared = prepare(&program, &options).unwrap();
        let estimate = synthesise(&prepared.verified, &options).unwrap().explanation.estimate;
        let together = 108 * u64::from(estimate.resident);
        assert!(estimate.resident > 0);
        assert_eq!(estimate.waves, (blocks as u64).div_ceil(together));
    }
}
