//! Races: what the two statements do to each other, and what orders them or keeps them apart.

use std::collections::BTreeMap;

use tilewright_sim::{Party, Race, RaceKind};
use tilewright_tile::core::StmtKind;
use tilewright_tile::{Code, Diagnostic, Origin, ParamKind};

use super::clash::{Between, Clash, actor};
use super::overlap;
use super::reader::Reader;
use crate::coordinate::coordinate;

/// Statements beside the first that a message marks.
const RELATED: usize = 4;

/// The messages of races: of those of one kind between the same statements one, and of all that one statement overwrites.
pub(super) fn races(reader: &Reader<'_>, races: &[Race]) -> Vec<Diagnostic> {
    let mut groups: BTreeMap<_, Vec<Clash<'_>>> = BTreeMap::new();
    for race in races {
        let clash = Clash::new(reader, race);
        let written = clash.writer();
        let key = match race.kind {
            RaceKind::ReadWrite if clash.between >= Between::Cluster => clash.places[written].key(),
            _ => clash.places[0].key(),
        };
        let other = match race.kind {
            RaceKind::ReadWrite if clash.between >= Between::Cluster => None,
            _ => Some(clash.places[1].key()),
        };
        // What both sides do does not depend on which came first.
        let (key, other) = match other {
            Some(other) if kind(race.kind) == "order" && other < key => (other, Some(key)),
            other => (key, other),
        };
        let group = (kind(race.kind), clash.between, race.buffer.clone(), key, other);
        groups.entry(group).or_default().push(clash);
    }
    let mut all: Vec<(u64, Diagnostic)> = groups.into_values().map(|group| message(reader, &group)).collect();
    all.sort_by_key(|(order, _)| *order);
    all.into_iter().map(|(_, diagnostic)| diagnostic).collect()
}

/// Races of one kind are told alike.
fn kind(kind: RaceKind) -> &'static str {
    match kind {
        RaceKind::WriteWrite => "overlap",
        RaceKind::ReadWrite => "order",
        RaceKind::AsyncPending => "pending",
        RaceKind::AsyncRead => "held",
        RaceKind::MissingProxyFence | RaceKind::ReadWithoutProxyFence => "fence",
    }
}

/// The message of races that are told together, and where it stands among others.
fn message(reader: &Reader<'_>, group: &[Clash<'_>]) -> (u64, Diagnostic) {
    let clash = &group[0];
    let diagnostic = match clash.race.kind {
        RaceKind::WriteWrite => overlap::message(reader, clash),
        RaceKind::ReadWrite => order(reader, group),
        RaceKind::AsyncPending | RaceKind::AsyncRead => in_flight(reader, clash),
        RaceKind::MissingProxyFence | RaceKind::ReadWithoutProxyFence => fence(reader, clash),
    };
    let times: u64 = group.iter().map(|clash| clash.race.count).sum();
    let machine = group.iter().map(|clash| machine(clash.race));
    let order = clash.places.iter().filter_map(|place| place.text()).map(|span| span.start).min();
    let diagnostic = diagnostic.note(first_place(reader, clash.race, times));
    (u64::from(order.unwrap_or(u32::MAX)), reader.told(diagnostic, machine))
}

/// The element at which a race was found, and how often there was one.
fn first_place(reader: &Reader<'_>, race: &Race, times: u64) -> String {
    let again = if times == 1 { String::new() } else { format!(", {times} accesses in all") };
    match element(reader, race) {
        Some(at) => format!("first at element {at:?} of `{}`{again}", race.buffer),
        None => format!("first at byte {} of `{}`{again}", race.offset, race.buffer),
    }
}

/// The coordinate of the element in which a byte of a parameter lies.
fn element(reader: &Reader<'_>, race: &Race) -> Option<Vec<i64>> {
    if race.memory != "global" {
        return None;
    }
    let verified = &reader.kernel.verified;
    let params = &verified.program().params;
    for (number, param) in
        params.iter().enumerate().filter(|(_, p)| matches!(p.kind, ParamKind::Tensor { .. }))
    {
        let id = tilewright_tile::ParamId(number as u32);
        let array = tilewright_tile::interpret::tensors_of_array(verified, id, reader.sizes).ok()?;
        let of_array = |tensors| (0..tensors).any(|i| race.buffer == format!("{}[{i}]", param.name));
        if !array.map_or(param.name == race.buffer, of_array) {
            continue;
        }
        let first = usize::from(array.is_some());
        let shape = tilewright_tile::interpret::tensor_shape(verified, id, reader.sizes).ok()?;
        let strides = tilewright_tile::interpret::tensor_strides(verified, id, reader.sizes).ok()?;
        let offset = race.offset * 8 / u64::from(param.dtype.bits());
        return Some(coordinate(offset as usize, shape.get(first..)?, strides.get(first..)?));
    }
    None
}

/// The race in words of the machine.
fn machine(race: &Race) -> String {
    let does = |p: &Party| {
        let unit = if p.asynchronous { "the asynchronous operation of " } else { "" };
        let word = if p.write { "writes" } else { "reads" };
        format!("{unit}thread {} of block {:?} {word} (`{}`)", p.thread, p.block, p.instruction)
    };
    let fence = race.fence.map_or(String::new(), |fence| format!(", without {fence}"));
    format!(
        "byte {} of {} `{}`: {}, then {}{fence} ({} times)",
        race.offset,
        race.memory,
        race.buffer,
        does(&race.first),
        does(&race.second),
        race.count
    )
}

fn said(reader: &Reader<'_>, party: &Party) -> String {
    reader.statements.said(party.position, &party.origin)
}

/// A read and a write, with nothing that says which comes first.
fn order(reader: &Reader<'_>, group: &[Clash<'_>]) -> Diagnostic {
    let clash = &group[0];
    let (writer, reads) = (clash.writer(), 1 - clash.writer());
    let [w, r] = [clash.parties()[writer], clash.parties()[reads]];
    let [wrote, read] = [said(reader, w), said(reader, r)];
    let tensor = &clash.race.buffer;
    let label = |p: &Party, word: &str| format!("{} {word} `{tensor}`", actor(reader, clash.between, p));
    if clash.between >= Between::Cluster {
        let who = if clash.between == Between::Cluster { "blocks of the cluster" } else { "blocks" };
        let message = format!(
            "race on `{tensor}`: `{wrote}` writes elements that other {who} read, and nothing orders them"
        );
        let mut diagnostic =
            Diagnostic::new(Code::Race, clash.places[writer], message).label(label(w, "writes"));
        let mut marked: Vec<Origin> = Vec::new();
        for other in group {
            let reads = 1 - other.writer();
            let place = other.places[reads];
            if marked.len() < RELATED && !marked.iter().any(|known| known.key() == place.key()) {
                marked.push(place);
                diagnostic = diagnostic.related(place, label(other.parties()[reads], "reads"));
            }
        }
        return diagnostic.help(between_blocks(reader, clash));
    }
    let behind = reads_behind(reader, clash);
    let who = if clash.between == Between::Roles {
        clash.parties().map(|p| actor(reader, clash.between, p))
    } else {
        ["other threads".to_string(), "other threads".to_string()]
    };
    let none = if clash.between == Between::Roles {
        "and nothing orders the two"
    } else {
        "with no barrier between"
    };
    if behind {
        let message = format!(
            "race on `{tensor}`: `{read}` reads what {} write{} in `{wrote}`, {none}",
            who[writer],
            plural(clash)
        );
        return Diagnostic::new(Code::Race, clash.places[reads], message)
            .label(label(r, "reads"))
            .related(clash.places[writer], label(w, "writes"))
            .help(help_of_order(reader, clash, behind));
    }
    let message = format!(
        "race on `{tensor}`: `{wrote}` overwrites what {} may still read in `{read}`, {none}",
        who[reads]
    );
    Diagnostic::new(Code::Race, clash.places[writer], message)
        .label(label(w, "writes"))
        .related(clash.places[reads], label(r, "reads"))
        .help(help_of_order(reader, clash, behind))
}

fn plural(clash: &Clash<'_>) -> &'static str {
    if clash.between == Between::Roles { "s" } else { "" }
}

/// True if what is written is meant for the statement that reads: it comes first in the text with no barrier between, or around a loop.
fn reads_behind(reader: &Reader<'_>, clash: &Clash<'_>) -> bool {
    let writer = clash.writer();
    let (Some(w), Some(r)) = (clash.numbers[writer], clash.numbers[1 - writer]) else { return writer == 0 };
    if clash.between == Between::Roles {
        return writer == 0;
    }
    let (first, second) = (w.min(r), w.max(r));
    let around = reader.statements.common_loop(w, r).is_some();
    // With a barrier on the way through the text, it is missing on the way back to the beginning of the loop.
    let wraps = around && reader.statements.meets_between(first, second);
    (w < r) != wraps
}

/// Statements that keep blocks in order, of a kernel that has some.
fn orders_blocks(reader: &Reader<'_>) -> bool {
    let ordering = |kind: &StmtKind| {
        matches!(
            kind,
            StmtKind::Signal { .. }
                | StmtKind::Await { .. }
                | StmtKind::Ticket { .. }
                | StmtKind::SyncGrid { .. }
        )
    };
    reader.statements.iter().any(|(_, site)| ordering(&site.stmt.kind))
}

/// The remedy of what one block writes and another reads.
fn between_blocks(reader: &Reader<'_>, clash: &Clash<'_>) -> String {
    let tensor = &clash.race.buffer;
    let writer = clash.writer();
    let read = said(reader, clash.parties()[1 - writer]);
    let wrote = said(reader, clash.parties()[writer]);
    if clash.race.memory == "shared" {
        return "let the blocks of the cluster meet between, by a pipeline or `cluster_reduce`".to_string();
    }
    if orders_blocks(reader) {
        return format!(
            "the block that writes has to `signal` a flag behind `{wrote}`, and the block that reads has to `wait` for it before `{read}`; \
             or let all blocks meet between in `syncgrid`"
        );
    }
    let in_place = match clash.numbers {
        [Some(first), Some(second)] => {
            let (w, r) = if writer == 0 { (first, second) } else { (second, first) };
            r < w
        }
        _ => false,
    };
    if in_place {
        format!(
            "give the results a tensor of their own, one more parameter beside `{tensor}`, so that what other blocks read stays as it was; \
             a second launch can go on from there"
        )
    } else {
        format!(
            "let all blocks meet between `{wrote}` and `{read}`: `syncgrid(counter)`; or let the one `signal` a flag for which the other \
             does `wait`; or read `{tensor}` in a second kernel"
        )
    }
}

/// The remedy of threads or roles of one block.
fn help_of_order(reader: &Reader<'_>, clash: &Clash<'_>, behind: bool) -> String {
    let writer = clash.writer();
    let [w, r] = [clash.parties()[writer], clash.parties()[1 - writer]];
    let [wrote, read] = [said(reader, w), said(reader, r)];
    let tensor = &clash.race.buffer;
    if clash.between == Between::Roles {
        let pipeline =
            if clash.race.memory == "shared" { "in a pipeline (`produce`, `consume`), or " } else { "" };
        return if behind {
            format!(
                "hand `{tensor}` over {pipeline}by a named barrier: `arrive(b)` behind `{wrote}`, and `syncthreads(b)` in the other role \
                 before `{read}`"
            )
        } else {
            format!(
                "let the role that writes wait until the other has read: a second named barrier, with `arrive(b)` behind `{read}` and \
                 `syncthreads(b)` before `{wrote}`; a pipeline (`produce`, `consume`) does both"
            )
        };
    }
    let (Some(w), Some(r)) = (clash.numbers[writer], clash.numbers[1 - writer]) else {
        return "put `syncthreads()` between".to_string();
    };
    let copied = matches!(reader.statements.site(w).stmt.kind, StmtKind::CopyAsync { .. });
    if behind && copied && clash.race.memory == "shared" {
        return format!(
            "put `syncthreads()` behind the wait for `{wrote}` and before `{read}`: a wait covers the thread's own copies, and a barrier \
             behind it those of all; one before the wait does not"
        );
    }
    let (before, after) = if behind { (w, r) } else { (r, w) };
    let [first, last] = if behind { [&wrote, &read] } else { [&read, &wrote] };
    match reader.statements.common_loop(w, r).filter(|_| after < before) {
        Some(stmt) => format!(
            "put `syncthreads()` behind `{first}`, at the end of {}: the next round does `{last}` while other threads are still there",
            reader.statements.loop_words(stmt)
        ),
        None if behind => format!(
            "put `syncthreads()` between `{first}` and `{last}`: a thread sees what others have written only behind a barrier"
        ),
        None => format!("put `syncthreads()` between `{first}` and `{last}`"),
    }
}

/// Memory that is touched while an asynchronous operation has it.
fn in_flight(reader: &Reader<'_>, clash: &Clash<'_>) -> Diagnostic {
    let [first, second] = clash.parties();
    let [started, touches] = [said(reader, first), said(reader, second)];
    let tensor = &clash.race.buffer;
    let pending = clash.race.kind == RaceKind::AsyncPending;
    let (word, has) = match (second.write, pending) {
        (false, _) => ("reads", "is still on its way there"),
        (true, true) => ("overwrites", "still writes it"),
        (true, false) => ("overwrites", "may still read it"),
    };
    let message = if clash.is_alone() {
        format!(
            "`{touches}` {word} `{tensor}` again while it is in flight from before: no wait covers it yet"
        )
    } else {
        format!("`{touches}` {word} `{tensor}` while `{started}` {has}: no wait covers it yet")
    };
    let diagnostic = Diagnostic::new(Code::InFlight, clash.places[1], message).label(format!(
        "{} {} `{tensor}`",
        actor(reader, clash.between, second),
        if second.write { "writes" } else { "reads" }
    ));
    let diagnostic = match clash.is_alone() {
        true => diagnostic,
        false => diagnostic.related(clash.places[0], "in flight since here"),
    };
    diagnostic.help(clash.race.suggestion.clone())
}

/// Ordinary accesses and asynchronous ones that a barrier orders, and no fence.
fn fence(reader: &Reader<'_>, clash: &Clash<'_>) -> Diagnostic {
    let [first, second] = clash.parties();
    let [ordinary, engine] = [said(reader, first), said(reader, second)];
    let tensor = &clash.race.buffer;
    let (does, did) = if second.write { ("overwrites", "read") } else { ("reads", "write") };
    let message = format!(
        "race on `{tensor}`: `{engine}` {does} what threads {did} in `{ordinary}`, with no barrier between that covers asynchronous copies and products"
    );
    Diagnostic::new(Code::Race, clash.places[1], message)
        .label(format!("an asynchronous engine {} `{tensor}`", if second.write { "writes" } else { "reads" }))
        .related(clash.places[0], format!("threads {did} `{tensor}`"))
        .help(format!("put `syncthreads()` between `{ordinary}` and `{engine}`: it places the fence that the engine needs"))
}
