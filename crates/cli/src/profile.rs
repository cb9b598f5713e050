//! The profile of a run on the simulator, as tables.

use comfy_table::{CellAlignment, Table, presets};
use tilewright::sim::{Bytes, Class, Profile};
use tilewright::simt::Position;

use crate::places::Places;

/// Characters of a statement that are shown.
const STATEMENT: usize = 44;

/// Cost of instructions together.
#[derive(Default)]
struct Sum {
    /// Warp instructions by [`Class`].
    mix: [u64; 4],
    bytes: Bytes,
    issue: u64,
    stall: u64,
}

impl Sum {
    fn add(&mut self, row: &Profile) {
        self.mix[row.class as usize] += row.calls;
        self.bytes.add(&row.bytes);
        self.issue += row.issue_cycles;
        self.stall += row.stall_cycles;
    }

    fn cells(&self) -> Vec<String> {
        let Bytes { global_read, global_written, shared_read, shared_written, unit_read, unit_written } =
            self.bytes;
        let bytes = [global_read, global_written, unit_read, unit_written, shared_read, shared_written];
        let cycles = [self.issue, self.stall];
        self.mix.iter().chain(&bytes).chain(&cycles).map(|n| grouped(*n)).collect()
    }
}

/// A number in groups of three digits; nothing for 0.
fn grouped(n: u64) -> String {
    if n == 0 {
        return "·".to_string();
    }
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

fn table(header: &[&str], left: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A count of each request with its ideal where they differ: `4.00 (of 1.00)`.
fn each(count: u64, ideal: u64, requests: u64) -> String {
    if requests == 0 {
        return "·".to_string();
    }
    let of = |n: u64| n as f64 / requests as f64;
    if count == ideal {
        format!("{:.2}", of(count))
    } else {
        format!("{:.2} (ideal {:.2})", of(count), of(ideal))
    }
}

/// The row of an instruction.
fn instruction_cells(line: &str, row: &Profile) -> [String; 8] {
    let counts = &row.counts;
    let conflicts = match counts.shared_ideal {
        0 => "·".to_string(),
        ideal => format!("{:.2}×", counts.shared_wavefronts as f64 / ideal as f64),
    };
    [
        line.to_string(),
        row.instruction.to_string(),
        grouped(row.calls),
        grouped(row.unit_cycles),
        grouped(row.stall_cycles),
        each(counts.global_sectors, counts.global_ideal, counts.global_requests),
        each(counts.shared_wavefronts, counts.shared_ideal, counts.shared_requests),
        conflicts,
    ]
}

/// Two tables in program order: what statements cost, and what their instructions do to memory and the tensor cores.
pub fn profile(places: &Places<'_>, rows: &[Profile]) -> String {
    let mut by_statement = table(
        &[
            "line",
            "statement",
            "scalar",
            "memory",
            "tensor",
            "barrier",
            "global read",
            "written",
            "TMA in",
            "out",
            "shared read",
            "written",
            "issue",
            "stall",
        ],
        2,
    );
    let mut by_instruction = table(
        &[
            "line",
            "instruction",
            "calls",
            "unit cycles",
            "stall",
            "sectors/request",
            "wavefronts/request",
            "conflicts",
        ],
        2,
    );
    let mut order: Vec<(&str, Option<Position>)> = Vec::new();
    rows.iter().for_each(|row| {
        if !order.contains(&(&row.origin, row.position)) {
            order.push((&row.origin, row.position));
        }
    });
    let mut total = Sum::default();
    for (origin, position) in order {
        let line = match position {
            Some(Position::Text(byte)) => places.line(byte).map_or(String::new(), |line| line.to_string()),
            Some(Position::Rust(location)) => location.to_string(),
            None => String::new(),
        };
        let own: Vec<&Profile> =
            rows.iter().filter(|row| row.origin == origin && row.position == position).collect();
        let mut sum = Sum::default();
        for row in &own {
            sum.add(row);
            total.add(row);
        }
        let name = if origin.is_empty() { "before the first statement" } else { origin };
        let mut cells = vec![line.clone(), shortened(name)];
        cells.extend(sum.cells());
        by_statement.add_row(cells);
        for row in own.iter().filter(|row| row.class != Class::Scalar) {
            by_instruction.add_row(instruction_cells(&line, row));
        }
    }
    let mut cells = vec![String::new(), "total".to_string()];
    cells.extend(total.cells());
    by_statement.add_row(cells);
    format!(
        "\nprofile: warp instructions, bytes, and cycles of warps by statement\n{by_statement}\n\n\
         instructions but scalar ones\n{by_instruction}\n\n"
    )
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= STATEMENT {
        return text.to_string();
    }
    text.chars().take(STATEMENT - 1).chain(['…']).collect()
}
