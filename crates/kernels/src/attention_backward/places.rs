//! Places of tensors in memory: of batches of as many places each, or of sequences of their own lengths one behind the other.

use super::Writer;
use crate::attention::Modes;

impl Writer<'_> {
    /// The modes of a tensor: its places, heads and elements of a head.
    pub(super) fn of(&self, places: &str, heads: &str, elements: &str) -> String {
        match (self.config.varlen, self.config.modes) {
            (true, _) => format!("[{}, {heads}, {elements}]", all(places)),
            (false, Modes::Bshd) => format!("[b, {places}, {heads}, {elements}]"),
            (false, Modes::Bhsd) => format!("[b, {heads}, {places}, {elements}]"),
        }
    }

    /// The view of a tensor by batches, places of a block, blocks, heads and elements; of sequences by places of a block, the first of them, heads
    /// and elements.
    pub(super) fn view(&self, name: &str, [rows, size, of, elements]: [&str; 4]) -> String {
        if self.config.varlen {
            return self.part(name, "", [rows, size, of, elements]);
        }
        let (places, heads) = match self.config.modes {
            Modes::Bshd => ("e1", "e2"),
            Modes::Bhsd => ("e2", "e1"),
        };
        format!(
            "    g{name} = global_view({name}, (b, {rows}, ceil_div({size}, {rows}), {of}, {elements}) : (e0, {places}, {rows} * {places}, {heads}, e3))\n"
        )
    }

    /// The view of a tensor of sequences up to a place, `[: end, :, :]`, or of all of it.
    pub(super) fn part(&self, name: &str, until: &str, [rows, size, of, elements]: [&str; 4]) -> String {
        format!(
            "    g{name} = global_view({name}{until}, ({rows}, {}, {of}, {elements}) : (e0, e0, e1, e2))\n",
            all(size)
        )
    }

    /// A block of a view, where the blocks of batches and the first places of sequences have these numbers.
    pub(super) fn block(&self, name: &str, [batch, number]: [&str; 2], first: &str, head: &str) -> String {
        match self.config.varlen {
            true => format!("g{name}[:, {first}, {head}, :]"),
            false => format!("g{name}[{batch}, :, {number}, {head}, :]"),
        }
    }

    /// The statements that bring a block from shared memory to a tensor, by threads of warps so many of which have so many rows. A block of
    /// a sequence ends with it: threads write its rows, in place of a bulk copy.
    pub(super) fn leave(
        &self,
        from: &str,
        to: &str,
        [rows, size, of, elements]: [&str; 4],
        [threads, width]: [i64; 2],
    ) -> String {
        let dtype = self.config.dtype;
        let (end, first) = if size == "sq" { ("qe", "q0 + row") } else { ("k0 + nk", "k0 + key") };
        let head = if of == "hq" { "head" } else { "of_key" };
        let layout = crate::attention::rows_by_warp(threads / 2, threads / 32, width);
        format!(
            "r{to} = register_tensor({dtype}, [{rows}, {elements}], layout = {layout})\n\
             copy({from}, r{to})\n\
             {view}\
             copy(r{to}, g{to}[:, {first}, {head}, :])\n",
            view = self.part(to, &format!("[: {end}, :, :]"), [rows, size, of, elements]),
        )
    }

    /// The number of blocks of queries of all batches, or sequences, with the modes before it. A sequence begins at a block of its own: behind
    /// the whole blocks of the queries before it and one more for each sequence.
    pub(super) fn blocks_of_queries(&self) -> (&'static str, &'static str) {
        if self.config.varlen { ("", "tq / BM + b") } else { ("b, ", "ceil_div(sq, BM)") }
    }

    /// The declaration of the logarithms and deltas of queries.
    pub(super) fn stats(&self) -> String {
        let (batches, blocks) = self.blocks_of_queries();
        match self.config.varlen {
            true => format!("stats: f32[hq, 2, BM * ({blocks})]"),
            false => format!("stats: f32[{batches}hq, 2, BM * {blocks}]"),
        }
    }

    /// The view of these by blocks of queries.
    pub(super) fn view_of_stats(&self) -> &'static str {
        match self.config.varlen {
            true => "    gstats = global_view(stats, (hq, 2, BM, tq / BM + b) : (e0, e1, e2, BM * e2))\n",
            false => {
                "    gstats = global_view(stats, (b, hq, 2, BM, ceil_div(sq, BM)) : (e0, e1, e2, e3, BM * e3))\n"
            }
        }
    }

    /// The declaration of the sums of dq.
    pub(super) fn sums(&self) -> String {
        let (batches, blocks) = self.blocks_of_queries();
        format!("sums: f32[{batches}hq, {blocks}, BM * D / 256, 256]")
    }

    /// The view of these by blocks of queries, where the elements of a thread are side by side.
    pub(super) fn view_of_sums(&self) -> String {
        let (batches, blocks) = self.blocks_of_queries();
        let modes = if self.config.varlen { "e0, e1, e3, e2" } else { "e0, e1, e2, e4, e3" };
        format!("gsums = global_view(sums, ({batches}hq, {blocks}, 256, BM * D / 256) : ({modes}))\n")
    }

    /// The index of a block of queries of a workspace, with other modes between the head and the block.
    pub(super) fn of_block(&self, [batch, number]: [&str; 2], head: &str, between: &str) -> String {
        match self.config.varlen {
            true => format!("{head}, {between}q_block + {number}"),
            false => format!("{batch}, {head}, {between}{number}"),
        }
    }

    /// The sizes of a program's text, of queries alone or of keys, too.
    pub(super) fn sizes(&self, keys: bool) -> String {
        let mut text = format!("size b = 1, hq = 4{}, sq = 384", if keys { ", hk = 2" } else { "" });
        if keys {
            text += ", sk = 384";
        }
        if self.config.varlen {
            text += if keys { ", tq = 384, tk = 384" } else { ", tq = 384" };
        }
        if keys && self.config.bias {
            text += ", bb = 1, bh = 1";
        }
        text + "\n"
    }

    /// Parameters that say where sequences of queries begin, and of keys where there are some.
    pub(super) fn begins(&self, keys: bool) -> &'static str {
        match (self.config.varlen, keys) {
            (false, _) => "",
            (true, false) => ", cu_q: i32[b + 1]",
            (true, true) => ", cu_q: i32[b + 1], cu_k: i32[b + 1]",
        }
    }

    /// The ends of a batch's sequence of queries and its first block in workspaces.
    pub(super) fn queries_of(&self, batch: &str) -> String {
        let end = |at: &str| format!("min(max(cu_q[{at}], 0), tq)");
        format!("q0 = {}, qe = {}, q_block = q0 / BM + {batch}", end(batch), end(&format!("{batch} + 1")))
    }

    /// The lengths of a batch's sequences, of which `batch` is known.
    pub(super) fn lengths_of_sequences(&self) -> String {
        if !self.config.varlen {
            return String::new();
        }
        let end = |at: &str| format!("min(max(cu_k[{at}], 0), tk)");
        format!(
            "let {}, nq = max(qe - q0, 0), k0 = {}, nk = {} - k0\n",
            self.queries_of("batch"),
            end("batch"),
            end("batch + 1")
        )
    }

    /// The numbers of queries and keys of a batch.
    pub(super) fn lengths(&self) -> [&'static str; 2] {
        if self.config.varlen { ["nq", "nk"] } else { ["sq", "sk"] }
    }

    /// Statements for the tiles of a sequence only: as many blocks are launched for each as the longest has.
    pub(super) fn within(&self, condition: &str, body: &str) -> String {
        match self.config.varlen {
            true => format!("if {condition} {{\n{body}}}\n"),
            false => body.to_string(),
        }
    }
}

/// The size of all sequences, of that of the longest.
fn all(size: &str) -> &'static str {
    if size == "sq" { "tq" } else { "tk" }
}
