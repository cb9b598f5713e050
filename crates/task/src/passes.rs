//! The passes from the instantiated tree to a graph whose edges say who waits for whom, in their order.

pub mod demand;
pub mod depend;
pub mod discipline;
pub mod fit;
pub(crate) mod groups;
pub mod join;
pub mod place;
pub mod registers;
pub mod retime;
pub mod rings;
pub mod roles;
pub mod schedule;
pub mod synchronise;

use tilewright_tile::{Diagnostic, Diagnostics, Origin};

use crate::graph::{Graph, verify_graph};
use crate::instantiate::instantiate;
use crate::mapping::Mapping;
use crate::program::Program;

/// The event graph of a program under a mapping: instantiated, with its dependences, joined over processors, placed, with roles, retimed, with rings, fitted into shared memory and registers, scheduled, synchronised, and with the conditions without which nodes need not be done. Needs: a
/// verified program. The invariants of graphs are checked after every pass.
///
/// ```
/// let program = tilewright_task::parse(
///     "size n = 4096
///      task double(y: write f32[N], x: read f32[N]) {
///          inner host {
///              yp = blocks(y, [1024])
///              xp = blocks(x, [1024])
///              for i in prange(ceil_div(N, 1024)) { launch double(yp[i], xp[i]) }
///          }
///          leaf all { y = x + x }
///      }
///      mapping a100 for sm_80 {
///          entry double.host on host (global, global)
///          double.all on block (register, register)
///      }",
/// )?;
/// let graph = tilewright_task::passes::graph(&program, &program.mappings[0])?;
/// let text = "p0: y in global
/// p1: y[i] in register of p0
/// p2: x in global
/// p3: x[i] in register of p2
/// prange i in 0..ceil_div(n, 1024) on block
///   e2 = copy(x:p2, x:p3), {}
///   e0 = y = x + x on block [write y[i]:p1; read x[i]:p3], {e2}
///   e1 = copy(y:p1, y:p0), {e0}
/// ";
/// assert_eq!(graph.text(), text);
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
///
/// # Errors
///
/// Those of the passes.
pub fn graph(program: &Program, mapping: &Mapping) -> Result<Graph, Diagnostics> {
    let mut graph = with_rings(program, mapping)?;
    fit::fit(program, mapping, &mut graph, with_rings)?;
    graph = verified("fit", graph)?;
    registers::registers(program, mapping, &mut graph)?;
    schedule::schedule(program, mapping, &mut graph)?;
    graph = verified("schedule", graph)?;
    synchronise::synchronise(program, &mut graph)?;
    demand::demand(program, &mut graph);
    verified("synchronise", graph)
}

/// The event graph as far as its rings.
///
/// # Errors
///
/// Those of the passes.
pub fn with_rings(program: &Program, mapping: &Mapping) -> Result<Graph, Diagnostics> {
    let tree = instantiate(program, mapping)?;
    let mut graph = verified("depend", depend::depend(program, tree)?)?;
    join::join(program, &mut graph)?;
    graph = verified("join", graph)?;
    place::place(program, &mut graph)?;
    graph = verified("place", graph)?;
    roles::roles(mapping, &mut graph);
    graph = verified("roles", graph)?;
    retime::retime(program, mapping, &mut graph)?;
    graph = verified("retime", graph)?;
    rings::rings(program, mapping, &mut graph)?;
    verified("rings", graph)
}

/// The graph, if its invariants hold.
fn verified(pass: &str, graph: Graph) -> Result<Graph, Diagnostics> {
    let broken = verify_graph(&graph);
    if broken.is_empty() {
        return Ok(graph);
    }
    let errors =
        broken.iter().map(|what| Diagnostic::internal(Origin::Unknown, format!("after {pass}: {what}")));
    Err(Diagnostics(errors.collect()))
}
