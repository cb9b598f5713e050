//! Pages of compiled kernels.

use tilewright::compiler::Kernel as Compiled;
use tilewright::runtime::Sizes;
use tilewright::tile::{Diagnostic, Sources, Word, words};

use crate::model::{Buffer, Kernel, Message, Page, Pipeline, Role, Run};
use crate::places::Places;
use crate::ptx::ptx;
use crate::run::NotRun;
use crate::statements::Statements;
use crate::tensors::tensors;
use crate::timeline::{request, timeline};

impl Page {
    /// A page without kernels, of these texts.
    pub fn new(sources: Sources) -> Self {
        let files = Places::new(&sources, Vec::new()).files;
        let of =
            |parts: &[Word]| words().filter(|(_, part)| parts.contains(part)).map(|(text, _)| text).collect();
        let mut keywords: Vec<&'static str> = of(&[Word::Declaration, Word::Block, Word::Other]);
        keywords.extend(["fn", "use", "space"]);
        let words = [keywords, of(&[Word::Type])];
        Page { version: env!("CARGO_PKG_VERSION"), words, files, kernels: Vec::new(), sources }
    }

    /// Adds a kernel with the warnings that are known of its program, and its run on the simulator or the reason why there is none.
    pub fn add(
        &mut self,
        kernel: &Compiled,
        sizes: &Sizes,
        warnings: &[Diagnostic],
        run: std::result::Result<Run, NotRun>,
    ) {
        let sources = self.sources.clone();
        let mut places = Places::new(&sources, std::mem::take(&mut self.files));
        let mut messages: Vec<Message> = warnings.iter().map(|w| places.message("warning", w)).collect();
        let (mut run, not_run) = match run {
            Ok(run) => (Some(run), None),
            Err(why) => (None, Some(why.to_string())),
        };
        let mut statements = Statements::new(kernel, &mut places);
        if let Some(run) = &mut run {
            let known = |found: &Diagnostic| warnings.iter().any(|w| w.repeats(found));
            let found = run.warnings.iter().filter(|found| !known(found));
            messages.extend(found.map(|found| places.message("warning", found)));
            messages.extend(run.findings.iter().map(|found| places.message("error", found)));
            statements.add_costs(&run.profile, &mut places);
            if let Some(trace) = run.trace.take() {
                run.timeline = timeline(&trace, kernel, &mut statements, &mut places);
                run.requests = trace.requests.iter().map(|r| request(r, kernel, &statements)).collect();
            }
        }
        let explanation = &kernel.explanation;
        let synchronisation = explanation.synchronisation.iter();
        let synchronisation =
            synchronisation.map(|note| (statements.at(note.position), note.clone())).collect();
        let tensors = tensors(kernel, &mut places);
        let arch = kernel.function.arch;
        self.kernels.push(Kernel {
            name: kernel.function.name.clone(),
            arch: arch.to_string(),
            threads: kernel.threads(),
            cluster: kernel.function.cluster,
            sizes: sizes.clone(),
            constants: kernel.verified.constants().clone(),
            assumptions: kernel.assumptions.iter().map(|a| (a.size.clone(), a.multiple)).collect(),
            grid: tilewright::tile::interpret::grid(&kernel.verified, sizes).ok(),
            shared_bytes: kernel.shared_bytes(),
            shared_limit: arch.limits().shared_bytes_per_block,
            fragment_registers: explanation.fragment_registers,
            estimate: explanation.estimate.clone(),
            passes: kernel.times.iter().map(|t| (t.name.to_string(), t.time.as_secs_f64() * 1e3)).collect(),
            roles: roles(kernel),
            tensors,
            buffers: buffers(kernel),
            ptx: ptx(&kernel.ptx, &places.files, &statements.list),
            statements: statements.list,
            pipelines: pipelines(kernel),
            synchronisation,
            inserted: explanation.inserted.clone(),
            constraints: explanation.constraints.clone(),
            candidates: explanation.candidates.clone(),
            search: explanation.search.clone(),
            messages,
            run,
            not_run,
        });
        self.files = places.files;
    }
}

fn roles(kernel: &Compiled) -> Vec<Role> {
    let roles = kernel.core.roles.iter();
    roles
        .map(|role| Role {
            name: role.name.clone(),
            first_warp: role.first / 32,
            warps: role.threads / 32,
            registers: role.registers,
        })
        .collect()
}

fn buffers(kernel: &Compiled) -> Vec<Buffer> {
    let shared = kernel.function.shared.iter();
    shared.map(|b| Buffer { name: b.name.clone(), offset: b.offset, bytes: b.bytes }).collect()
}

fn pipelines(kernel: &Compiled) -> Vec<Pipeline> {
    let notes = kernel.explanation.pipelines.iter();
    let core = &kernel.core;
    notes
        .map(|note| {
            let row = core.pipelines.iter().find(|row| row.name == note.name);
            let ids = row.map_or(&[][..], |row| row.tensors.as_slice());
            let tensors = ids.iter().map(|id| core.tensor(*id).name.clone()).collect();
            Pipeline { tensors, note: note.clone() }
        })
        .collect()
}
