//! PTX beside the statements that it is of.

use crate::model::{Ptx, SourceFile, Statement};

/// Bytes of PTX that a page has at most.
const LIMIT: usize = 600_000;

/// The PTX text without its line table, each line with the statement that the table names for it.
pub fn ptx(text: &str, files: &[SourceFile], statements: &[Statement]) -> Ptx {
    let mut ptx = Ptx::default();
    // The page's files by the number of the table's.
    let mut numbers: Vec<(usize, usize)> = Vec::new();
    let (mut here, mut bytes) = (None, 0);
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(file) = trimmed.strip_prefix(".file ") {
            numbers.extend(file_of(file, files));
            continue;
        }
        if let Some(place) = trimmed.strip_prefix(".loc ") {
            here = statement_of(place, &numbers, statements);
            continue;
        }
        // What comes before the first place and behind the function's end is of no statement.
        if !line.starts_with([' ', '$', '\t']) {
            here = None;
        }
        bytes += line.len();
        if bytes > LIMIT {
            ptx.cut = true;
            break;
        }
        ptx.lines.push(line.to_string());
        ptx.statements.push(here.filter(|_| !trimmed.starts_with("//")));
    }
    ptx
}

/// The number of a `.file`, and the page's file: that of the longest path with which the table's ends.
fn file_of(text: &str, files: &[SourceFile]) -> Option<(usize, usize)> {
    let (number, path) = text.split_once(' ')?;
    let path = path.trim().trim_matches('"');
    let found = files.iter().enumerate().filter(|(_, file)| path.ends_with(&file.path));
    let (index, _) = found.max_by_key(|(_, file)| file.path.len())?;
    Some((number.parse().ok()?, index))
}

/// The statement at a place of the table: `FILE LINE COLUMN`.
fn statement_of(text: &str, numbers: &[(usize, usize)], statements: &[Statement]) -> Option<usize> {
    let mut parts = text.split([' ', ',']).map(str::parse::<usize>);
    let [file, line, column] = [parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?];
    let (_, file) = numbers.iter().find(|(number, _)| *number == file)?;
    let at = |s: &&Statement| s.place.is_some_and(|p| (p.file, p.line, p.column) == (*file, line, column));
    statements.iter().position(|s| at(&s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Kind, Place};

    #[test]
    fn lines_have_the_statement_of_the_place_before_them() {
        let files =
            ["a.tile", "b/a.tile"].map(|path| SourceFile { path: path.to_string(), text: String::new() });
        let place = Place { file: 1, line: 3, column: 5, end_line: 3, end_column: 5 };
        let statement = Statement {
            place: Some(place),
            calls: Vec::new(),
            text: "copy(x, y)".to_string(),
            kind: Kind::Global,
            role: None,
            tensors: Vec::new(),
            choices: Vec::new(),
            costs: Vec::new(),
        };
        let text = ".version 8.8\n.file 1 \"/c/b/a.tile\"\n{\n    .loc 1 2 1\n    mov;\n    // copy(x, y)\n    \
                    .loc 1 3 5, function_name $f, inlined_at 1 9 9\n    ld;\n$L1:\n    st;\n}\n";
        let found = ptx(text, &files, &[statement]);
        assert_eq!(
            found.lines,
            [".version 8.8", "{", "    mov;", "    // copy(x, y)", "    ld;", "$L1:", "    st;", "}"]
        );
        assert_eq!(found.statements, [None, None, None, None, Some(0), Some(0), Some(0), None]);
        assert!(!found.cut);
    }
}
