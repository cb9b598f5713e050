//! The parts of a program: the whole, or one for each role of its warpgroups; each is prepared and synthesised on its own, for they
//! meet only in shared memory, whose layouts are assigned before.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{Timing, WARPGROUP};
use tilewright_simt::Function;
use tilewright_synth::block::Part;
use tilewright_synth::cost::{Estimate, together};
use tilewright_synth::{Agreed, AsyncLayouts, Explanation, Options, Prepared, Synthesis, Words, agree};
use tilewright_tile::core::{Program, Role};
use tilewright_tile::{Code, Diagnostic, TensorId, statement_text};

/// A part, synthesised.
pub struct Synthesised {
    /// Index of the role; `None` for a program without roles.
    role: Option<usize>,
    prepared: Prepared,
    synthesis: Synthesis,
}

/// Prepares and synthesises every part of a program. A candidate that is asked for is one of the part that has the most.
pub fn parts(whole: &Program, options: &Options) -> Result<Vec<Synthesised>, Diagnostic> {
    let roles = whole.roles();
    if roles.is_empty() {
        return Ok(vec![part(whole, None, options)?]);
    }
    let share = options.arch.limits().registers_of_a_thread(whole.threads() * whole.resident());
    let of = |i: usize, candidate: Option<usize>| {
        let registers = Some(roles[i].registers.unwrap_or(share));
        part(&whole.of_role(i), Some(i), &Options { registers, candidate, ..options.clone() })
            .map_err(|error| of_role(error, &roles[i], whole.threads()))
    };
    let mut found = (0..roles.len()).map(|i| of(i, None)).collect::<Result<Vec<_>, _>>()?;
    if let Some(asked) = options.candidate {
        let most = (0..found.len()).rev().max_by_key(|i| found[*i].synthesis.explanation.candidates.len());
        if let Some(most) = most {
            found[most] = of(most, Some(asked))?;
        }
    }
    Ok(found)
}

/// A message of a role's synthesis: where registers do not suffice, with the declaration that says how many threads share the tiles.
fn of_role(error: Diagnostic, role: &Role, threads: u32) -> Diagnostic {
    // In larger blocks a thread has too few registers for half of the values, too.
    if error.code != Code::RegistersExceeded || threads + role.threads > 4 * WARPGROUP {
        return error;
    }
    let label = format!(
        "`{}` has {} threads: with `{}({})` and `threads({})`, each would have half as much",
        role.name,
        role.threads,
        role.name,
        2 * role.threads / WARPGROUP,
        threads + role.threads
    );
    error.related(role.span, label)
}

fn part(program: &Program, role: Option<usize>, options: &Options) -> Result<Synthesised, Diagnostic> {
    let prepared = tilewright_synth::prepare(program, options)?;
    let synthesis = tilewright_synth::synthesise(&prepared.verified, options);
    let mut synthesis = synthesis.map_err(|error| prepared.explain(error))?;
    synthesis.explanation.inserted.clone_from(&prepared.inserted);
    Ok(Synthesised { role, prepared, synthesis })
}

/// The layouts of the tensors `open` on which the parts agree.
pub fn agreed(
    open: &BTreeSet<TensorId>,
    parts: &[Synthesised],
    options: &Options,
) -> BTreeMap<TensorId, Agreed> {
    let roles: Vec<_> = parts.iter().map(|part| (&part.prepared.verified, &part.synthesis)).collect();
    if open.is_empty() || options.without.shared_layouts {
        BTreeMap::new()
    } else {
        agree(open, &roles, options)
    }
}

/// The parts as lowering takes them.
pub fn lowered<'a>(whole: &'a Program, parts: &'a [Synthesised]) -> Vec<Part<'a>> {
    let roles = whole.roles();
    let taken = |part: &'a Synthesised| Part {
        verified: &part.prepared.verified,
        synthesis: &part.synthesis,
        role: part.role.and_then(|i| roles.get(i)),
    };
    parts.iter().map(taken).collect()
}

/// One explanation of all parts.
pub fn explain(
    whole: &Program,
    assigned: &AsyncLayouts,
    parts: Vec<Synthesised>,
    function: &Function,
    timing: &Timing,
) -> Explanation {
    let mut joined = Explanation::default();
    let estimates: Vec<Estimate> =
        parts.iter().map(|part| part.synthesis.explanation.estimate.clone()).collect();
    for (i, part) in parts.into_iter().enumerate() {
        let mut of_part = part.synthesis.explanation;
        if part.role.is_some() {
            let touched = part.prepared.verified.touched();
            let program = part.prepared.verified;
            of_part.tensors.retain(|tensor| touched.iter().any(|id| program.tensor(*id).name == tensor.name));
        }
        if i == 0 {
            joined = of_part;
            continue;
        }
        for tensor in of_part.tensors {
            if !joined.tensors.iter().any(|t| t.name == tensor.name) {
                joined.tensors.push(tensor);
            }
        }
        joined.statements.extend(of_part.statements);
        joined.constraints.extend(of_part.constraints);
        joined.inserted.extend(of_part.inserted);
        joined.fragment_registers = joined.fragment_registers.max(of_part.fragment_registers);
        if of_part.candidates.len() >= joined.candidates.len() {
            (joined.candidates, joined.search) = (of_part.candidates, of_part.search);
        }
    }
    let words = Words { verified: &assigned.verified, statements: &[] };
    for (id, why) in &assigned.reasons {
        let name = &whole.tensor(*id).name;
        joined.tensors.iter_mut().filter(|t| t.name == *name).for_each(|t| t.why = words.why(why));
    }
    assigned.verified.visit(&mut |stmt, _| {
        if let Some(refused) = assigned.refused.get(&stmt.id) {
            let refused = words.alternative(refused);
            let mut notes = joined.statements.iter_mut().filter(|note| note.id == stmt.id).peekable();
            if notes.peek().is_none() {
                let text = statement_text(&assigned.verified, stmt);
                let what = format!(
                    "copies through registers for `{text}`: no {}, {}",
                    refused.instruction, refused.reason
                );
                joined.inserted.push(what);
            }
            for note in notes {
                note.alternatives.insert(0, refused.clone());
            }
        }
    });
    if !whole.roles().is_empty() {
        for tensor in &mut joined.tensors {
            if let Some(buffer) = function.shared.iter().find(|b| b.name == tensor.name) {
                tensor.offset = buffer.offset;
            }
        }
        joined.shared_bytes = function.shared_bytes;
        let share = timing.arch.limits().registers_of_a_thread(whole.threads() * whole.resident());
        joined.estimate = together(whole, timing, &estimates, share, function.shared_bytes);
    }
    joined
}
