//! Facts about the name and the statement at a place: kind, type, shape, layout, and what the statement costs.

use std::fmt::Write;
use std::ops::Range;

use tilewright_machine::Arch;
use tilewright_synth::{Explanation, StatementNote, TensorNote};
use tilewright_tile::{Expr, Origin, Sources, TensorId, TensorKind};

use crate::analysis::{Analysis, Kernel};
use crate::outline::{Declaration, Named, Outline, is_keyword};
use crate::reference::{Entry, entries};
use crate::scan::Kind;

/// The most statements that a statement of a function or of an unrolled loop is shown as.
const MOST_NOTES: usize = 6;

/// The most paragraphs of the reference that a word is shown with.
const MOST_ENTRIES: usize = 2;

/// The facts about a place, as Markdown, and the part of the text that it is about.
pub fn hover(
    text: &str,
    outline: &Outline,
    analysis: &Analysis,
    byte: usize,
) -> Option<(String, Range<usize>)> {
    let token = outline.token_at(byte)?;
    if matches!(token.kind, Kind::Comment | Kind::Newline) {
        return None;
    }
    let number = outline.tokens.iter().position(|other| other.range == token.range)?;
    let word = &text[token.range.clone()];
    let mut parts = Vec::new();
    let declared = outline.meaning(text, number);
    if let Some(declaration) = declared {
        parts.push(of_declaration(text, outline, analysis, declaration));
    }
    let statement = outline.statement_at(byte);
    if let Some(statement) = statement {
        parts.extend(of_statement(analysis, &statement.range, statement.block.as_ref()));
    }
    if declared.is_none() && token.kind == Kind::Word {
        let asynchronous = text[token.range.end..].starts_with(".async");
        parts.extend(of_word(analysis, word, asynchronous));
    }
    let range = if declared.is_some() || token.kind == Kind::Word {
        token.range.clone()
    } else {
        statement?.range.clone()
    };
    (!parts.is_empty()).then(|| (parts.join("\n\n---\n\n"), range))
}

/// A word of the language, or a name of a file that the text uses.
fn of_word(analysis: &Analysis, word: &str, asynchronous: bool) -> Option<String> {
    if let Some((file, outline, declaration)) = in_used_files(&analysis.sources, word) {
        let comment = outline.comment_above(file.text, &declaration);
        let text = &file.text[declaration.whole.clone()];
        return Some(format!(
            "```tile\n{text}\n```\n{comment}\n\n{}, in `{}`",
            declaration.kind.words(),
            file.path
        ));
    }
    // Of `copy` and `gemm` there are two statements.
    let form = format!("{word}.async");
    let fits = |entry: &&Entry| entry.forms.iter().any(|of| of.contains(&form)) == asynchronous;
    let shown: Vec<String> =
        entries(word).iter().filter(fits).take(MOST_ENTRIES).map(Entry::markdown).collect();
    (!shown.is_empty()).then(|| shown.join("\n\n"))
}

/// The declaration of a name at the top level of a file that the text uses.
pub fn in_used_files<'a>(
    sources: &'a Sources,
    name: &str,
) -> Option<(tilewright_tile::sources::File<'a>, Outline, Declaration)> {
    if is_keyword(name) {
        return None;
    }
    sources.all().skip(1).find_map(|file| {
        let outline = Outline::of(file.text);
        let top = |d: &&Declaration| {
            d.name == name && matches!(d.kind, Named::Function | Named::Constant | Named::Size)
        };
        let declaration = outline.declarations.iter().find(top)?.clone();
        Some((file, outline, declaration))
    })
}

fn of_declaration(text: &str, outline: &Outline, analysis: &Analysis, declaration: &Declaration) -> String {
    let mut said = format!("```tile\n{}\n```\n", &text[declaration.whole.clone()]);
    let comment = match declaration.kind {
        Named::Function | Named::Kernel | Named::Size | Named::Constant => {
            outline.comment_above(text, declaration)
        }
        _ => String::new(),
    };
    if !comment.is_empty() {
        let _ = writeln!(said, "{comment}\n");
    }
    let _ = write!(said, "`{}`: {}", declaration.name, declaration.kind.words());
    let mut facts: Vec<String> = Vec::new();
    // An analysis of an older text has other places.
    if analysis.text == text {
        for kernel in &analysis.kernels {
            for fact in facts_of(&analysis.sources, kernel, declaration) {
                if !facts.contains(&fact) {
                    facts.push(fact);
                }
            }
        }
    }
    facts.truncate(MOST_NOTES);
    for fact in facts {
        let _ = write!(said, "\n\n{fact}");
    }
    said
}

/// True if a place, in the file that it stands in, is in the document and within a range.
fn is_within(sources: &Sources, origin: Origin, range: &Range<usize>) -> bool {
    let Some(span) = origin.text() else { return false };
    let span = sources.locate(span).span.range();
    // The document is the first file.
    range.start <= span.start && span.start <= range.end
}

fn facts_of(sources: &Sources, kernel: &Kernel, declaration: &Declaration) -> Vec<String> {
    let verified = &kernel.checked.verified;
    let program = verified.program();
    match declaration.kind {
        Named::Size => {
            let found = program.sizes().find(|(_, symbol, _)| symbol.name == declaration.name);
            found
                .map(|(_, _, default)| format!("{default} by default, known at launch"))
                .into_iter()
                .collect()
        }
        Named::Constant => {
            let value = verified.constants().get(&declaration.name);
            value.map(|value| format!("= {value}")).into_iter().collect()
        }
        Named::Kernel if kernel.program.name == declaration.name => kernel
            .explanation()
            .map(|(arch, explanation)| of_kernel(kernel, arch, explanation))
            .into_iter()
            .collect(),
        Named::Parameter => {
            let found = program.params.iter().find(|param| {
                param.name == declaration.name && is_within(sources, param.span, &declaration.whole)
            });
            found
                .into_iter()
                .flat_map(|param| {
                    let elements = program.params.iter().position(|p| p.name == param.name).map(|i| {
                        let id = tilewright_tile::ParamId(i as u32);
                        let read = verified.inputs().contains(&id) || verified.elements().contains(&id);
                        match (read, verified.outputs().contains(&id)) {
                            (true, true) => "read and written",
                            (true, false) => "read",
                            (false, true) => "written",
                            (false, false) => "not used",
                        }
                    });
                    elements.map(|how| format!("of `{}`, {how}", param.dtype))
                })
                .collect()
        }
        Named::Pipeline => {
            let found = program.pipelines.iter().find(|pipeline| pipeline.name == declaration.name);
            found
                .map(|pipeline| {
                    let tensors: Vec<&str> =
                        pipeline.tensors.iter().map(|id| program.tensor(*id).name.as_str()).collect();
                    let stages =
                        pipeline.stages.as_int().map_or_else(|| "its".to_string(), |n| n.to_string());
                    format!("{stages} stages of `{}`", tensors.join("`, `"))
                })
                .into_iter()
                .collect()
        }
        Named::View | Named::Register | Named::Shared | Named::TensorMemory | Named::Result => {
            of_tensors(sources, kernel, declaration)
        }
        _ => Vec::new(),
    }
}

fn of_kernel(kernel: &Kernel, arch: Arch, explanation: &Explanation) -> String {
    let estimate = &explanation.estimate;
    format!(
        "On {arch}: {} threads, {} registers a thread for fragments, {} bytes of shared memory a block; {} cycles estimated at the default sizes, bound by {}",
        kernel.checked.verified.threads(),
        explanation.fragment_registers,
        explanation.shared_bytes,
        estimate.cycles,
        estimate.bound,
    )
}

/// Type, shape and layout of the tensors that a declaration stands for: one, or one for each call of the function that it is in.
fn of_tensors(sources: &Sources, kernel: &Kernel, declaration: &Declaration) -> Vec<String> {
    let verified = &kernel.checked.verified;
    let program = verified.program();
    let here = |origin: Origin| {
        is_within(sources, origin, &declaration.whole)
            && origin
                .text()
                .is_some_and(|span| sources.locate(span).span.range().start <= declaration.range.start)
    };
    let named = |name: &str| {
        name.strip_prefix(declaration.name.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    let note = |origin: Origin| {
        let (arch, compiled) = kernel.compiled()?;
        let core = compiled.core.tensors.iter().filter(|t| t.span.key() == origin.key());
        let note = |t: &tilewright_tile::core::Tensor| {
            compiled.explanation.tensors.iter().find(|note| note.name == t.name)
        };
        core.filter_map(note).next().map(|note| (arch, note))
    };
    let tensors = program.tensors.iter().enumerate();
    let found = tensors.filter(|(_, t)| here(t.span) && named(&t.name) && t.unnamed.text().is_none());
    found
        .map(|(i, tensor)| {
            let shape = match &tensor.kind {
                TensorKind::View { modes, .. } => {
                    let extent = |mode: &tilewright_tile::ViewMode| {
                        let product = mode.leaves.iter().fold(Expr::Int(1), |all, leaf| all * &leaf.extent);
                        product.as_int().map_or_else(|| "…".to_string(), |n| n.to_string())
                    };
                    modes.iter().map(extent).collect::<Vec<_>>()
                }
                _ => verified.shape(TensorId(i as u32)).iter().map(i64::to_string).collect(),
            };
            let memory = match &tensor.kind {
                TensorKind::View { param, .. } => format!("a view of `{}`", program.param(*param).name),
                TensorKind::Shared { .. } => "in shared memory".to_string(),
                TensorKind::Tensor { .. } => "in tensor memory".to_string(),
                TensorKind::Register { .. } | TensorKind::Part { .. } => "in registers".to_string(),
            };
            let mut said = format!("`{}[{}]` {memory}", tensor.dtype, shape.join(", "));
            if let Some((arch, note)) = note(tensor.span) {
                said += &of_layout(arch, note);
            }
            said
        })
        .collect()
}

fn of_layout(arch: Arch, note: &TensorNote) -> String {
    let size = if note.memory == "shared" {
        format!("{} bytes at {}", note.size, note.offset)
    } else {
        format!("{} registers a thread", note.size)
    };
    format!(", {size} on {arch}\n- layout `{}`\n- because: {}", note.layout, note.why)
}

/// The instructions and costs of a statement; of a loop, what a round of its body costs.
fn of_statement(
    analysis: &Analysis,
    statement: &Range<usize>,
    block: Option<&Range<usize>>,
) -> Option<String> {
    let mut said = String::new();
    for kernel in &analysis.kernels {
        let Some((arch, explanation)) = kernel.explanation() else { continue };
        let at = |note: &&StatementNote, range: &Range<usize>| {
            let start = note.position;
            note.cycles + note.calls > 0
                && is_within(&analysis.sources, tilewright_tile::Span { start, end: start }.into(), range)
        };
        let notes: Vec<&StatementNote> = explanation.statements.iter().filter(|n| at(n, statement)).collect();
        said += &of_notes(arch, &notes);
        if let Some(block) = block.filter(|_| notes.is_empty()) {
            let inner: Vec<&StatementNote> = explanation.statements.iter().filter(|n| at(n, block)).collect();
            let cycles: u64 = inner.iter().map(|note| u64::from(note.cycles)).sum();
            if cycles > 0 {
                let _ = writeln!(
                    said,
                    "**On {arch}**: {cycles} issue cycles a warp in this block, every statement once; most: {}",
                    dearest(&inner)
                );
            }
        }
    }
    (!said.is_empty()).then(|| said.trim_end().to_string())
}

/// The dearest statements.
fn dearest(notes: &[&StatementNote]) -> String {
    let mut notes = notes.to_vec();
    notes.sort_by_key(|note| std::cmp::Reverse(note.cycles));
    let text = |note: &&StatementNote| format!("`{}` {}", note.text, note.cycles);
    notes.iter().take(3).map(text).collect::<Vec<_>>().join(", ")
}

fn of_notes(arch: Arch, notes: &[&StatementNote]) -> String {
    let mut groups: Vec<(&StatementNote, usize)> = Vec::new();
    for note in notes {
        let same = |(other, _): &&mut (&StatementNote, usize)| {
            (&other.instruction, other.calls, other.cycles, other.bank_conflicts)
                == (&note.instruction, note.calls, note.cycles, note.bank_conflicts)
        };
        match groups.iter_mut().find(same) {
            Some((_, count)) => *count += 1,
            None => groups.push((note, 1)),
        }
    }
    let mut said = String::new();
    for (note, count) in groups.iter().take(MOST_NOTES) {
        let _ = write!(
            said,
            "**On {arch}**: {} × {}, {} cycles a warp",
            note.calls, note.instruction, note.cycles
        );
        if note.global_bytes > 0 {
            let _ = write!(said, ", {}-byte global accesses", note.global_bytes);
        }
        if note.shared_bytes > 0 {
            let _ = write!(
                said,
                ", {}-byte shared accesses, {} bank conflicts in {} wavefronts",
                note.shared_bytes, note.bank_conflicts, note.wavefronts
            );
        }
        let _ = match count {
            1 => writeln!(said, " (`{}`)", note.text),
            count => writeln!(said, " (`{}`, and {} like it)", note.text, count - 1),
        };
        for other in note.alternatives.iter().take(4) {
            let _ = writeln!(said, "- not {}: {}", other.instruction, other.reason);
        }
        said.push('\n');
    }
    if groups.len() > MOST_NOTES {
        let _ = writeln!(said, "and {} more", groups.len() - MOST_NOTES);
    }
    said
}
