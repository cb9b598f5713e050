//! Pictures of layouts of rank 1 and 2: rows are mode 0, columns mode 1. A [`Picture`] is made of labelled cells and
//! drawn as text, as SVG, or as LaTeX (a standalone TikZ document).
//!
//! ```
//! use tilewright_layout_calc::draw::Picture;
//! let picture = Picture::offsets(&"(2,3):(3,1)".parse::<tilewright_layout::Layout>()?)?;
//! assert_eq!(picture.text(), "     0  1  2\n  +---------\n0 |  0  1  2\n1 |  3  4  5\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt::Write;
use thiserror::Error;
use tilewright_layout::{HTuple, Layout, LayoutError, LinearLayout, Shape, Stride, SwizzledLayout};

/// The most cells in a picture.
pub const MAX_CELLS: i64 = 1 << 14;
/// The most indices that a picture looks at.
const MAX_INPUTS: i64 = 1 << 20;
/// Banks of shared memory, and the bits of the word that each delivers at a time.
const BANKS: i64 = 32;
const BANK_BITS: i64 = 32;

/// Reasons why there is no picture.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum DrawError {
    /// The layout does not have one or two modes.
    #[error(
        "a layout of rank {rank} has no picture: it must have one or two modes; join modes by grouping them"
    )]
    Rank {
        /// The rank of the layout.
        rank: usize,
    },
    /// There are too many cells.
    #[error("a picture of {cells} cells is too large: it has at most {MAX_CELLS}")]
    TooLarge {
        /// The cells that it would have.
        cells: i64,
    },
    /// A thread's value lies outside the tile.
    #[error("thread {thread}, value {value} is at {coord}, which is not in the tile of {rows} × {cols}")]
    Outside {
        /// The thread.
        thread: i64,
        /// The value.
        value: i64,
        /// Its path.
        coord: i64,
        /// The rows of the tile.
        rows: i64,
        /// The columns of the tile.
        cols: i64,
    },
    /// An element width for which banks are not defined.
    #[error("elements of {bits} bits do not fall into banks: the width must be between 1 and 128")]
    Width {
        /// The width.
        bits: i64,
    },
    /// A register layout, where banks were asked for.
    #[error("only a layout from `offset` alone has banks")]
    NotMemory,
    /// The layout has no value somewhere.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// One cell: what is written in it and its colour.
#[derive(Clone, Debug, Default)]
struct Cell {
    lines: Vec<String>,
    /// Red, green, blue.
    color: Option<[u8; 3]>,
    /// Neighbours in a row with the same group are drawn as one cell.
    group: Option<i64>,
}

/// A grid of labelled, coloured cells.
#[derive(Clone, Debug)]
pub struct Picture {
    rows: usize,
    cols: usize,
    cells: Vec<Cell>,
    /// After how many rows and columns a heavier line is drawn, if anywhere.
    group: (usize, usize),
}

/// The rows and columns of a shape of rank 1 (one row) or 2.
fn extents(shape: &Shape) -> Result<(i64, i64), DrawError> {
    let (rows, cols) = match shape.modes() {
        [one] => (1, one.size()?),
        [rows, cols] => (rows.size()?, cols.size()?),
        modes => return Err(DrawError::Rank { rank: modes.len() }),
    };
    check(rows, cols)?;
    Ok((rows, cols))
}

fn check(rows: i64, cols: i64) -> Result<(), DrawError> {
    match rows.checked_mul(cols) {
        Some(cells) if cells <= MAX_CELLS => Ok(()),
        cells => Err(DrawError::TooLarge { cells: cells.unwrap_or(i64::MAX) }),
    }
}

/// The extent of the fastest mode of a nested mode: where a reader wants to see a boundary.
fn boundary(mode: Option<&Shape>) -> usize {
    match mode {
        Some(HTuple::Tuple(t)) if t.len() > 1 => {
            t.first().and_then(|s| s.size().ok()).and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
        }
        _ => 0,
    }
}

fn boundaries(shape: &Shape) -> (usize, usize) {
    match shape.modes() {
        [rows, cols] => (boundary(Some(rows)), boundary(Some(cols))),
        _ => (0, 0),
    }
}

impl Picture {
    /// The value at every coordinate. Equal values have the same colour, which says how far they are from the least.
    pub fn offsets<S: Stride>(layout: &Layout<S>) -> Result<Picture, DrawError> {
        let mut picture = Picture::new(layout.shape(), |i| Ok(layout.checked_eval(i)?.to_string()))?;
        picture.color_by_order();
        Ok(picture)
    }

    /// The same for a swizzled layout.
    pub fn swizzled_offsets(layout: &SwizzledLayout) -> Result<Picture, DrawError> {
        let mut picture = Picture::new(layout.layout.shape(), |i| {
            Ok(layout.swizzle.apply(layout.layout.checked_eval(i)?).to_string())
        })?;
        picture.color_by_order();
        Ok(picture)
    }

    /// A layout (thread, value) → coordinate of a tile, coordinates counting down the columns: each cell of the tile says
    /// which thread holds it as which of its values, in a colour for each thread. A cell that several hold names the
    /// first and says how many more there are.
    pub fn thread_values(layout: &Layout, tile: (i64, i64)) -> Result<Picture, DrawError> {
        let (threads, values) = match layout.shape().modes() {
            [threads, values] => (threads.size()?, values.size()?),
            modes => return Err(DrawError::Rank { rank: modes.len() }),
        };
        check(threads, values)?;
        let (rows, cols) = tile;
        HTuple::from((rows, cols)).check_shape()?;
        check(rows, cols)?;
        let (rows_n, cols_n) = (to_usize(rows), to_usize(cols));
        let mut cells = vec![Cell::default(); rows_n * cols_n];
        let mut more = vec![0usize; cells.len()];
        for value in 0..values {
            for thread in 0..threads {
                let coord = layout.checked_eval(thread + value * threads)?;
                let outside = DrawError::Outside { thread, value, coord, rows, cols };
                if !(0..rows * cols).contains(&coord) {
                    return Err(outside);
                }
                let at = to_usize((coord % rows) * cols + coord / rows);
                let (Some(cell), Some(more)) = (cells.get_mut(at), more.get_mut(at)) else {
                    return Err(outside);
                };
                if cell.lines.is_empty() {
                    cell.lines = vec![format!("T{thread}"), format!("V{value}")];
                    cell.color = Some(wheel(thread, threads));
                } else {
                    *more += 1;
                }
            }
        }
        for (cell, more) in cells.iter_mut().zip(more) {
            if let (Some(line), 1..) = (cell.lines.last_mut(), more) {
                let _ = write!(line, "+{more}");
            }
        }
        Ok(Picture { rows: rows_n, cols: cols_n, cells, group: (0, 0) })
    }

    /// The bank of shared memory of every element of `bits` bits, in a colour for each bank. Neighbours in one word of a
    /// bank are drawn as one cell; elements wider than a word are labelled with their first bank.
    pub fn banks(layout: &SwizzledLayout, bits: i64) -> Result<Picture, DrawError> {
        if !(1..=128).contains(&bits) {
            return Err(DrawError::Width { bits });
        }
        let mut picture = Picture::new(layout.layout.shape(), |_| Ok(String::new()))?;
        let (rows, cols) = (picture.rows, picture.cols);
        for (at, cell) in picture.cells.iter_mut().enumerate() {
            let index = (at / cols) + (at % cols) * rows;
            let offset = layout.swizzle.apply(layout.layout.checked_eval(index as i64)?);
            let word = offset
                .checked_mul(bits)
                .ok_or(LayoutError::Overflow { what: "an address in bits" })?
                .div_euclid(BANK_BITS);
            let bank = word.rem_euclid(BANKS);
            cell.lines = vec![bank.to_string()];
            cell.color = Some(wheel(bank, BANKS));
            cell.group = Some(word);
        }
        Ok(picture)
    }

    /// A linear layout to one or two outputs: rows count the first, columns the second. Where its input is `offset` each
    /// cell has its offset, in a colour that says how large it is. Otherwise each cell says who holds it, `W1L3` and
    /// register `R2`, in a colour for each lane; a cell that several hold names the first and says how many more there
    /// are.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// use tilewright_layout_calc::draw::Picture;
    /// let l: LinearLayout = "[register: (0,1); lane: (1,0)] -> [y:2, x:2]".parse()?;
    /// let text = "        0     1\n  +------------\n0 |  L0R0  L0R1\n1 |  L1R0  L1R1\n";
    /// assert_eq!(Picture::linear(&l)?.text(), text);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn linear(layout: &LinearLayout) -> Result<Picture, DrawError> {
        let offsets = is_memory(layout);
        let lanes = layout.in_size("lane");
        let label = |holder: u64| {
            if offsets {
                return (vec![holder.to_string()], None);
            }
            let indices = layout.unflatten_in(holder);
            let (mut place, mut register, mut lane) = (String::new(), Vec::new(), 0);
            for (dim, index) in layout.ins().iter().zip(indices).rev().filter(|(dim, _)| dim.bits > 0) {
                let letter = dim.name.chars().next().unwrap_or('?').to_ascii_uppercase();
                match dim.name.as_str() {
                    "register" => register.push(format!("{letter}{index}")),
                    _ => place.push_str(&format!("{letter}{index}")),
                }
                lane = if dim.name == "lane" { index } else { lane };
            }
            let lines = [place].into_iter().filter(|p| !p.is_empty()).chain(register).collect();
            (lines, Some(wheel(lane as i64, lanes as i64)))
        };
        let mut picture = Picture::holders(layout, |holder| {
            let (lines, color) = label(holder);
            Cell { lines, color, group: None }
        })?;
        if offsets {
            picture.color_by_order();
        }
        Ok(picture)
    }

    /// The bank of shared memory of every element of `bits` bits of a linear layout from `offset`, as in
    /// [`banks`](Self::banks).
    pub fn linear_banks(layout: &LinearLayout, bits: i64) -> Result<Picture, DrawError> {
        if !(1..=128).contains(&bits) {
            return Err(DrawError::Width { bits });
        }
        if !is_memory(layout) {
            return Err(DrawError::NotMemory);
        }
        Picture::holders(layout, |offset| {
            let word = (offset as i64 * bits).div_euclid(BANK_BITS);
            let bank = word.rem_euclid(BANKS);
            Cell { lines: vec![bank.to_string()], color: Some(wheel(bank, BANKS)), group: Some(word) }
        })
    }

    /// A cell for each output of a linear layout, made from the first index that leads there.
    fn holders(layout: &LinearLayout, cell: impl Fn(u64) -> Cell) -> Result<Picture, DrawError> {
        let (rows, cols) = match layout.outs() {
            [one] => (1, one.size()),
            [rows, cols] => (rows.size(), cols.size()),
            outs => return Err(DrawError::Rank { rank: outs.len() }),
        };
        let (rows, cols) = (rows as i64, cols as i64);
        check(rows, cols)?;
        let inputs = 1i64 << layout.in_bits();
        if inputs > MAX_INPUTS {
            return Err(DrawError::TooLarge { cells: inputs });
        }
        let (rows, cols) = (to_usize(rows), to_usize(cols));
        let mut cells = vec![Cell::default(); rows * cols];
        let mut more = vec![0usize; cells.len()];
        for index in 0..inputs as u64 {
            let image = layout.at(index) as usize;
            let at = (image % rows) * cols + image / rows;
            if let (Some(here), Some(more)) = (cells.get_mut(at), more.get_mut(at)) {
                *more += 1;
                if *more == 1 {
                    *here = cell(index);
                }
            }
        }
        for (cell, more) in cells.iter_mut().zip(more) {
            if let (Some(line), 2..) = (cell.lines.last_mut(), more) {
                let _ = write!(line, "+{}", more - 1);
            }
        }
        Ok(Picture { rows, cols, cells, group: (0, 0) })
    }

    /// A picture of a shape with a label for each integral coordinate.
    fn new(shape: &Shape, label: impl Fn(i64) -> Result<String, DrawError>) -> Result<Picture, DrawError> {
        let (rows, cols) = extents(shape)?;
        let mut cells = Vec::new();
        for row in 0..rows {
            for col in 0..cols {
                cells.push(Cell { lines: vec![label(row + col * rows)?], color: None, group: None });
            }
        }
        Ok(Picture { rows: to_usize(rows), cols: to_usize(cols), cells, group: boundaries(shape) })
    }

    /// Colours numbers from light to dark; anything else by the order of its text.
    fn color_by_order(&mut self) {
        let key = |c: &Cell| {
            let text = c.lines.first().cloned().unwrap_or_default();
            (text.parse::<i64>().unwrap_or(i64::MAX), text)
        };
        let mut keys: Vec<_> = self.cells.iter().map(key).collect();
        keys.sort();
        keys.dedup();
        let last = keys.len().saturating_sub(1).max(1) as f64;
        for cell in &mut self.cells {
            let at = keys.binary_search(&key(cell)).unwrap_or(0);
            cell.color = Some(ramp(at as f64 / last));
        }
    }

    fn cell(&self, row: usize, col: usize) -> Option<&Cell> {
        self.cells.get(row * self.cols + col)
    }

    /// The cells of a row that are drawn as one: (first column, columns, cell).
    fn runs(&self, row: usize) -> Vec<(usize, usize, &Cell)> {
        let mut runs: Vec<(usize, usize, &Cell)> = Vec::new();
        for col in 0..self.cols {
            let Some(cell) = self.cell(row, col) else { continue };
            match runs.last_mut() {
                Some((_, n, before)) if cell.group.is_some() && before.group == cell.group => *n += 1,
                _ => runs.push((col, 1, cell)),
            }
        }
        runs
    }

    /// The widest line in any cell, in characters.
    fn widest(&self) -> usize {
        let lines = self.cells.iter().flat_map(|c| &c.lines);
        lines.map(|l| l.chars().count()).max().unwrap_or(1).max(1)
    }

    /// The picture as text: a row of cells a line, with the coordinates of rows and columns.
    pub fn text(&self) -> String {
        let joined = |c: &Cell| c.lines.join("");
        let widths = self.cells.iter().map(|c| joined(c).chars().count());
        let width = widths.max().unwrap_or(1).max(digits(self.cols)) + 2;
        let margin = digits(self.rows);
        let mut out = String::new();
        let _ = write!(out, "{:margin$}  ", "");
        for col in 0..self.cols {
            let _ = write!(out, "{col:>width$}");
        }
        let _ = write!(out, "\n{:margin$} +{}\n", "", "-".repeat(width * self.cols));
        for row in 0..self.rows {
            let _ = write!(out, "{row:>margin$} |");
            for col in 0..self.cols {
                let _ = write!(out, "{:>width$}", self.cell(row, col).map(joined).unwrap_or_default());
            }
            out.push('\n');
        }
        out
    }

    /// The picture as an SVG document that needs nothing else.
    pub fn svg(&self) -> String {
        let two = self.cells.iter().any(|c| c.lines.len() > 1);
        let shared = self.cells.iter().any(|c| c.group.is_some());
        let h = if two { 34.0 } else { 26.0 };
        let least = if shared { 17.0 } else { h };
        let w = f64::max(least, 7.4 * self.widest() as f64 + 8.0) * if shared { 0.75 } else { 1.0 };
        let left = 9.0 + 7.0 * digits(self.rows) as f64;
        let top = 20.0;
        let (width, height) = (left + w * self.cols as f64 + 3.0, top + h * self.rows as f64 + 3.0);
        let mut out = String::new();
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.1}\" height=\"{height:.1}\" \
             viewBox=\"0 0 {width:.1} {height:.1}\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" \
             text-anchor=\"middle\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
             <g font-size=\"10\" fill=\"#777777\">\n"
        );
        let every = if w < 7.0 * digits(self.cols) as f64 + 3.0 { 2 } else { 1 };
        for col in (0..self.cols).step_by(every) {
            let x = left + w * (col as f64 + 0.5);
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{:.1}\">{col}</text>", top - 6.0);
        }
        for row in 0..self.rows {
            let y = top + h * (row as f64 + 0.5) + 3.5;
            let x = left - 6.0;
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{row}</text>");
        }
        out.push_str("</g>\n<g stroke=\"#555555\" stroke-width=\"0.6\">\n");
        for row in 0..self.rows {
            for (col, n, cell) in self.runs(row) {
                let (x, y) = (left + w * col as f64, top + h * row as f64);
                let fill = hex(cell.color.unwrap_or([255; 3]));
                let _ = writeln!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{h:.1}\" fill=\"#{fill}\"/>",
                    w * n as f64
                );
            }
        }
        out.push_str("</g>\n<g font-size=\"12\" fill=\"#111111\">\n");
        for row in 0..self.rows {
            for (col, n, cell) in self.runs(row) {
                let x = left + w * (col as f64 + n as f64 / 2.0);
                let step = 13.0;
                let first = top + h * (row as f64 + 0.5) + 4.2 - step * (cell.lines.len() as f64 - 1.0) / 2.0;
                for (k, line) in cell.lines.iter().enumerate() {
                    let y = first + step * k as f64;
                    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape_xml(line));
                }
            }
        }
        out.push_str("</g>\n<g stroke=\"#111111\" stroke-width=\"1.6\" fill=\"none\">\n");
        let (right, bottom) = (left + w * self.cols as f64, top + h * self.rows as f64);
        let _ = writeln!(
            out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
            right - left,
            bottom - top
        );
        for row in lines(self.group.0, self.rows) {
            let y = top + h * row as f64;
            let _ = writeln!(out, "<path d=\"M{left:.1} {y:.1}H{right:.1}\"/>");
        }
        for col in lines(self.group.1, self.cols) {
            let x = left + w * col as f64;
            let _ = writeln!(out, "<path d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>");
        }
        out.push_str("</g>\n</svg>\n");
        out
    }

    /// The picture as a standalone LaTeX document that needs TikZ.
    pub fn latex(&self) -> String {
        let two = self.cells.iter().any(|c| c.lines.len() > 1);
        let shared = self.cells.iter().any(|c| c.group.is_some());
        let width = f64::max(1.0, 0.27 * self.widest() as f64 + 0.2) * if shared { 0.5 } else { 1.0 };
        let size = if two { "\\footnotesize" } else { "\\small" };
        let mut out = format!(
            "\\documentclass[border=2pt]{{standalone}}\n\\usepackage{{tikz}}\n\\begin{{document}}\n\
             \\begin{{tikzpicture}}[x={width:.2}cm,y=-1cm,every node/.style={{font=\\sffamily{size},align=center,inner \
             sep=0pt}}]\n"
        );
        for col in 0..self.cols {
            let _ = writeln!(out, "\\node[gray] at ({}.5,-0.3) {{{col}}};", col);
        }
        for row in 0..self.rows {
            let _ = writeln!(out, "\\node[gray] at (-0.35,{row}.5) {{{row}}};");
            for (col, n, cell) in self.runs(row) {
                let [r, g, b] = cell.color.unwrap_or([255; 3]);
                let (x, y) = (col as f64 + n as f64 / 2.0, row as f64 + 0.5);
                let _ = writeln!(
                    out,
                    "\\definecolor{{c}}{{RGB}}{{{r},{g},{b}}}\\draw[fill=c] ({col},{row}) rectangle ({},{});\n\
                     \\node at ({x},{y}) {{{}}};",
                    col + n,
                    row + 1,
                    cell.lines.iter().map(|l| escape_latex(l)).collect::<Vec<_>>().join("\\\\")
                );
            }
        }
        let _ = writeln!(out, "\\draw[very thick] (0,0) rectangle ({},{});", self.cols, self.rows);
        for row in lines(self.group.0, self.rows) {
            let _ = writeln!(out, "\\draw[very thick] (0,{row}) -- ({},{row});", self.cols);
        }
        for col in lines(self.group.1, self.cols) {
            let _ = writeln!(out, "\\draw[very thick] ({col},0) -- ({col},{});", self.rows);
        }
        out.push_str("\\end{tikzpicture}\n\\end{document}\n");
        out
    }
}

/// True if a linear layout leads from places in memory.
fn is_memory(layout: &LinearLayout) -> bool {
    matches!(layout.ins(), [one] if one.name == "offset")
}

/// Positions of the heavier lines.
fn lines(group: usize, of: usize) -> impl Iterator<Item = usize> {
    let every = if group > 1 { group } else { of.max(1) };
    (every..of).step_by(every)
}

fn to_usize(n: i64) -> usize {
    usize::try_from(n).unwrap_or(0)
}

/// The digits of the greatest of `count` coordinates.
fn digits(count: usize) -> usize {
    count.saturating_sub(1).to_string().len()
}

fn hex([r, g, b]: [u8; 3]) -> String {
    format!("{r:02x}{g:02x}{b:02x}")
}

fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Labels are made of letters, digits, signs, braces and commas.
fn escape_latex(text: &str) -> String {
    text.replace('{', "\\{").replace('}', "\\}").replace('_', "\\_").replace('-', "$-$")
}

/// From white to a blue on which black is still read well.
fn ramp(t: f64) -> [u8; 3] {
    let mix = |from: f64, to: f64| (from + (to - from) * t).round().clamp(0.0, 255.0) as u8;
    [mix(250.0, 122.0), mix(252.0, 173.0), mix(255.0, 222.0)]
}

/// A light colour on the wheel for each of `n`; neighbours differ in lightness too.
fn wheel(k: i64, n: i64) -> [u8; 3] {
    let hue = 360.0 * k as f64 / n.max(1) as f64;
    let lightness = if n > 8 && k % 2 == 1 { 0.86 } else { 0.74 };
    let chroma = (1.0 - (2.0 * lightness - 1.0f64).abs()) * 0.72;
    let channel = |shift: f64| {
        let x = ((hue + shift).rem_euclid(360.0)) / 60.0;
        let level = (2.0 - (x - 3.0).abs()).clamp(0.0, 1.0);
        ((lightness + chroma * (0.5 - level)) * 255.0).round().clamp(0.0, 255.0) as u8
    };
    [channel(0.0), channel(240.0), channel(120.0)]
}
