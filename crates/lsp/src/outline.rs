//! Declarations of a text and the scopes of their names, whether or not the text is a program. The language has no shadowing, so a name's
//! declaration is that of the blocks around it; the rules are those of `docs/tile-language.md`.

use std::ops::Range;

use tilewright_tile::{Word, words};

use crate::scan::{Kind, Token, scan};

/// The kind of thing that a name is declared for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// `size`.
    Size,
    /// `const`.
    Constant,
    /// `fn`.
    Function,
    /// A function's parameter.
    Argument,
    /// `kernel`.
    Kernel,
    /// A kernel's parameter.
    Parameter,
    /// `global_view`.
    View,
    /// `register_tensor`.
    Register,
    /// `shared_tensor`.
    Shared,
    /// `tensor_memory`.
    TensorMemory,
    /// `pipeline`.
    Pipeline,
    /// `named_barrier` or `turns`.
    Barrier,
    /// `warpgroup`.
    Role,
    /// A loop's counter.
    Counter,
    /// `let`.
    Integer,
    /// The result of a statement.
    Result,
}

impl Named {
    /// Words for a reader.
    pub fn words(self) -> &'static str {
        match self {
            Named::Size => "size",
            Named::Constant => "constant",
            Named::Function => "function",
            Named::Argument => "parameter of the function",
            Named::Kernel => "kernel",
            Named::Parameter => "parameter of the kernel",
            Named::View => "view of global memory",
            Named::Register => "register tensor",
            Named::Shared => "shared tensor",
            Named::TensorMemory => "tensor in tensor memory",
            Named::Pipeline => "pipeline",
            Named::Barrier => "barrier",
            Named::Role => "role",
            Named::Counter => "counter of a loop",
            Named::Integer => "integer",
            Named::Result => "register tensor, a result",
        }
    }
}

/// A declaration of a name. Ranges are of bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Declaration {
    /// The name.
    pub name: String,
    /// The kind of thing.
    pub kind: Named,
    /// The name in its declaration.
    pub range: Range<usize>,
    /// The statement or declaration, without a block that follows.
    pub whole: Range<usize>,
    /// The part of the text in which the name means this.
    pub scope: Range<usize>,
}

/// A `use`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Used {
    /// The path or the library's name.
    pub name: String,
    /// True for a file.
    pub file: bool,
    /// The path or name in the text.
    pub range: Range<usize>,
}

/// A statement or declaration: without a block that follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// Its bytes.
    pub range: Range<usize>,
    /// The block behind it, from its `{`.
    pub block: Option<Range<usize>>,
}

/// Declarations, uses and statements of a text.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    /// The tokens.
    pub tokens: Vec<Token>,
    /// Declarations, in the order of the text.
    pub declarations: Vec<Declaration>,
    /// Files and libraries.
    pub uses: Vec<Used>,
    /// Statements, in the order in which they begin.
    pub statements: Vec<Statement>,
    /// Blocks, from `{` to behind `}`.
    pub blocks: Vec<Range<usize>>,
}

impl Outline {
    /// That of a text.
    pub fn of(text: &str) -> Outline {
        let mut reader = Reader {
            text,
            tokens: scan(text).into_iter().filter(|token| token.kind != Kind::Comment).collect(),
            at: 0,
            open: Vec::new(),
            pending: Vec::new(),
            left: Vec::new(),
            until: 0,
            outline: Outline::default(),
        };
        reader.read();
        let mut outline = reader.outline;
        outline.tokens = scan(text);
        outline.statements.sort_by_key(|statement| statement.range.start);
        outline.declarations.sort_by_key(|declaration| declaration.range.start);
        outline
    }

    /// The token in or at the end of which a byte is, words first.
    pub fn token_at(&self, byte: usize) -> Option<&Token> {
        let near = self.tokens.iter().filter(|t| (t.range.start..=t.range.end).contains(&byte));
        near.clone().find(|t| t.kind == Kind::Word).or_else(|| near.clone().find(|t| t.range.contains(&byte)))
    }

    /// The declaration that a name at a place means; `called` where a parenthesis follows.
    pub fn resolve(&self, name: &str, byte: usize, called: bool) -> Option<&Declaration> {
        let fits = |d: &&Declaration| {
            d.name == name
                && (d.scope.start..=d.scope.end).contains(&byte)
                && (!called || d.kind == Named::Function)
        };
        self.declarations.iter().filter(fits).min_by_key(|d| d.scope.len())
    }

    /// The declaration that the word at a token means; none of a word behind a point, of a keyword, or of a name that nothing declares.
    pub fn meaning(&self, text: &str, token: usize) -> Option<&Declaration> {
        let here = self.tokens.get(token).filter(|t| t.kind == Kind::Word)?;
        let sign = |t: Option<&Token>| t.map_or("", |t| &text[t.range.clone()]);
        if token.checked_sub(1).is_some_and(|before| sign(self.tokens.get(before)) == ".") {
            return None;
        }
        let called = sign(self.tokens.get(token + 1)) == "(";
        let name = &text[here.range.clone()];
        let declared = self.declarations.iter().find(|d| d.range == here.range);
        declared.or_else(|| self.resolve(name, here.range.start, called))
    }

    /// The tokens that mean a declaration of this text, its own among them.
    pub fn uses_of<'a>(
        &'a self,
        text: &'a str,
        declaration: &'a Declaration,
    ) -> impl Iterator<Item = &'a Token> {
        let same = move |token: &usize| {
            text[self.tokens[*token].range.clone()] == declaration.name
                && self.meaning(text, *token).is_some_and(|d| d.range == declaration.range)
        };
        (0..self.tokens.len()).filter(same).map(|token| &self.tokens[token])
    }

    /// The declarations whose names can be used at a byte, inner ones first.
    pub fn visible(&self, byte: usize) -> Vec<&Declaration> {
        let mut found: Vec<&Declaration> =
            self.declarations.iter().filter(|d| (d.scope.start..=d.scope.end).contains(&byte)).collect();
        found.sort_by_key(|d| d.scope.len());
        found
    }

    /// The innermost statement around a byte.
    pub fn statement_at(&self, byte: usize) -> Option<&Statement> {
        let around = self.statements.iter().filter(|s| (s.range.start..=s.range.end).contains(&byte));
        around.min_by_key(|s| s.range.len())
    }

    /// True of a text with a kernel.
    pub fn has_kernel(&self) -> bool {
        self.declarations.iter().any(|d| d.kind == Named::Kernel)
    }

    /// The comment on the lines above a declaration, without its signs.
    pub fn comment_above(&self, text: &str, declaration: &Declaration) -> String {
        let first = self.tokens.partition_point(|t| t.range.start < declaration.whole.start);
        let mut lines: Vec<&str> = Vec::new();
        let mut tokens = self.tokens[..first].iter().rev();
        // A comment on a line of its own: the line's end behind it, and another one, or the text's beginning, before.
        while let (Some(Token { kind: Kind::Newline, .. }), Some(comment)) = (tokens.next(), tokens.next()) {
            let begins = text[..comment.range.start].trim_end_matches([' ', '\t']);
            if comment.kind != Kind::Comment || !(begins.is_empty() || begins.ends_with('\n')) {
                break;
            }
            lines.push(text[comment.range.clone()].trim_start_matches(['/', '#']).trim());
        }
        lines.reverse();
        lines.join("\n")
    }
}

/// A bracket that is open.
struct Open {
    brace: bool,
    start: usize,
    /// The first of the declarations whose scope ends with it.
    first: usize,
    /// The statement in front of a block.
    statement: Option<usize>,
}

struct Reader<'a> {
    text: &'a str,
    /// Without comments.
    tokens: Vec<Token>,
    at: usize,
    open: Vec<Open>,
    /// Declarations whose scope is the next block.
    pending: Vec<Declaration>,
    /// Counters of the loop that has just ended: a `drain` behind it has them, too.
    left: Vec<Declaration>,
    /// The token behind the statement that has begun last.
    until: usize,
    outline: Outline,
}

impl Reader<'_> {
    fn word(&self, token: usize) -> &str {
        self.tokens.get(token).map_or("", |t| &self.text[t.range.clone()])
    }

    fn is_name(&self, token: usize) -> bool {
        self.tokens.get(token).is_some_and(|t| t.kind == Kind::Word)
    }

    fn starts_of(&self, token: usize) -> usize {
        self.tokens.get(token).map_or(self.text.len(), |t| t.range.start)
    }

    /// True where ends of lines and statements count: in a block, or outside of all brackets.
    fn counts(&self) -> bool {
        self.open.last().is_none_or(|open| open.brace)
    }

    fn read(&mut self) {
        let mut begins = true;
        while self.at < self.tokens.len() {
            // In the parentheses of a statement there may be a function with statements of its own.
            let behind = self.at >= self.until || self.open.iter().any(|open| !open.brace);
            if begins && behind && self.counts() && self.is_name(self.at) {
                self.statement();
            }
            let token = self.tokens[self.at].clone();
            let sign = self.text[token.range.clone()].to_string();
            begins = token.kind == Kind::Newline || matches!(sign.as_str(), ";" | "{" | "}");
            if token.kind == Kind::Newline && !self.counts() && self.forgets(self.at) {
                while self.open.pop_if(|open| !open.brace).is_some() {}
            }
            match sign.as_str() {
                "(" | "[" => self.open.push(Open {
                    brace: false,
                    start: token.range.start,
                    first: self.outline.declarations.len(),
                    statement: None,
                }),
                "{" => self.block(token.range.start),
                ")" | "]" | "}" => self.close(&sign, token.range.end),
                "fn" if !self.counts() => self.passed_function(),
                _ => {}
            }
            self.at += 1;
        }
        while let Some(open) = self.open.pop() {
            self.end(&open, self.text.len());
        }
        let end = self.text.len();
        for mut declaration in std::mem::take(&mut self.pending) {
            declaration.scope = declaration.range.start..end;
            self.outline.declarations.push(declaration);
        }
    }

    /// A block begins: what was pending is declared in it.
    fn block(&mut self, start: usize) {
        let first = self.outline.declarations.len();
        // Only the statement in front of it has it, and not one in whose parentheses it is.
        let last = self.outline.statements.len().checked_sub(1);
        let statement = last.filter(|i| {
            self.outline.statements[*i].block.is_none() && self.outline.statements[*i].range.end <= start
        });
        if let Some(i) = statement {
            self.outline.statements[i].block = Some(start..self.text.len());
        }
        for mut declaration in std::mem::take(&mut self.pending) {
            declaration.scope = declaration.range.start..self.text.len();
            self.outline.declarations.push(declaration);
        }
        self.open.push(Open { brace: true, start, first, statement });
    }

    /// A bracket closes; one that does not fit closes those that were forgotten, and a brace more than that.
    fn close(&mut self, sign: &str, end: usize) {
        let brace = sign == "}";
        let Some(last) = self.open.iter().rposition(|open| open.brace == brace) else { return };
        // A parenthesis closes none beyond the block that it is in.
        if !brace && self.open[last..].iter().any(|open| open.brace) {
            return;
        }
        while self.open.len() > last {
            if let Some(open) = self.open.pop() {
                self.end(&open, end);
            }
        }
    }

    fn end(&mut self, open: &Open, end: usize) {
        if !open.brace {
            return;
        }
        self.outline.blocks.push(open.start..end);
        if let Some(i) = open.statement {
            self.outline.statements[i].block = Some(open.start..end);
        }
        self.left.clear();
        let declared = self.outline.declarations.len().min(open.first);
        for declaration in &mut self.outline.declarations[declared..] {
            if declaration.scope.end == self.text.len() {
                declaration.scope.end = end;
            }
            if declaration.range.start < open.start && declaration.kind == Named::Counter {
                self.left.push(declaration.clone());
            }
        }
    }

    /// The token behind the statement that begins at one: its line's end, a `;`, or the brace of its block.
    fn behind(&self, from: usize) -> usize {
        // For each bracket that is open, whether it is a brace.
        let mut open: Vec<bool> = Vec::new();
        let mut at = from;
        while let Some(token) = self.tokens.get(at) {
            match &self.text[token.range.clone()] {
                "(" | "[" => open.push(false),
                "{" if open.is_empty() => break,
                "{" => open.push(true),
                "}" if open.iter().all(|brace| !brace) => break,
                ")" | "]" | "}" => {
                    open.pop();
                }
                ";" if open.is_empty() => break,
                _ if token.kind == Kind::Newline && open.is_empty() && !self.goes_on(from, at) => break,
                _ if token.kind == Kind::Newline && open.last() == Some(&false) && self.forgets(at) => break,
                // An open parenthesis would swallow the rest of the text: a keyword at the beginning of a line ends it.
                "kernel" | "fn" if at > from && self.begins_line(at) && self.word(at + 2) == "(" => break,
                _ => {}
            }
            at += 1;
        }
        at
    }

    /// True of a line's end in parentheses that someone has not closed yet: an operand stands before it and a word behind it, which no expression
    /// has.
    fn forgets(&self, newline: usize) -> bool {
        let infix = |word: &str| matches!(word, "and" | "or" | "not");
        let before = newline
            .checked_sub(1)
            .and_then(|at| self.tokens.get(at).map(|token| (token.kind, self.word(at))));
        let ends = before.is_some_and(|(kind, word)| match kind {
            Kind::Word => !infix(word),
            Kind::Number | Kind::Text => true,
            _ => matches!(word, ")" | "]" | "}"),
        });
        let next = (newline..self.tokens.len()).find(|at| self.tokens[*at].kind != Kind::Newline);
        ends && next.is_some_and(|at| self.is_name(at) && !infix(self.word(at)))
    }

    fn begins_line(&self, token: usize) -> bool {
        self.tokens.get(token.wrapping_sub(1)).is_none_or(|t| t.kind == Kind::Newline)
    }

    /// True where a line's end does not end the statement: behind a comma or an operator, and in a kernel's head.
    fn goes_on(&self, from: usize, newline: usize) -> bool {
        let before = self.word(newline.saturating_sub(1));
        let next = (newline..self.tokens.len()).find(|at| self.tokens[*at].kind != Kind::Newline);
        let next = next.map_or("", |at| self.word(at));
        let head = matches!(self.word(from), "kernel" | "fn")
            && matches!(next, "grid" | "threads" | "cluster" | "{" | "(");
        head || matches!(before, "," | "+" | "-" | "*" | "/" | "%" | "=" | "&" | "|" | "^" | "and" | "or")
    }

    fn declare(&mut self, kind: Named, token: usize, whole: &Range<usize>, pending: bool) {
        if !self.is_name(token) || (self.word(token) == "_") {
            return;
        }
        let range = self.tokens[token].range.clone();
        let name = self.text[range.clone()].to_string();
        // Names of the top level are known in all of the text; others from where they stand.
        let top = matches!(kind, Named::Size | Named::Constant | Named::Function | Named::Kernel);
        let scope = if top { 0..self.text.len() } else { range.start..self.text.len() };
        if !top && !pending && self.is_declared(&name) {
            return;
        }
        let declaration = Declaration { name, kind, range, whole: whole.clone(), scope };
        if pending { self.pending.push(declaration) } else { self.outline.declarations.push(declaration) }
    }

    /// True of a name that a block around declares already: what follows is not its declaration.
    fn is_declared(&self, name: &str) -> bool {
        let end = self.text.len();
        self.outline
            .declarations
            .iter()
            .any(|d| d.name == name && d.scope.end == end && d.kind != Named::Function)
    }

    /// Notes the statement that begins here, with what it declares.
    fn statement(&mut self) {
        let from = self.at;
        let first = self.word(from).to_string();
        let begins_top = match first.as_str() {
            "kernel" => true,
            "fn" => self.is_name(from + 1),
            _ => false,
        };
        if begins_top {
            // A text whose braces are out of order begins anew with a kernel or a function.
            let start = self.starts_of(from);
            while let Some(open) = self.open.pop() {
                self.end(&open, start);
            }
            self.pending.clear();
        }
        let behind = self.behind(from);
        self.until = self.until.max(behind);
        let last = (from..behind).rev().find(|at| self.tokens[*at].kind != Kind::Newline).unwrap_or(from);
        let whole = self.starts_of(from)..self.tokens[last].range.end;
        self.outline.statements.push(Statement { range: whole.clone(), block: None });
        let top = self.open.is_empty();
        match first.as_str() {
            "size" | "const" if top => {
                let kind = if first == "size" { Named::Size } else { Named::Constant };
                self.list(kind, from + 1, behind, &whole);
            }
            "let" => self.list(Named::Integer, from + 1, behind, &whole),
            "use" if top => self.used(from + 1),
            "kernel" => {
                self.declare(Named::Kernel, from + 1, &whole, false);
                self.typed(from + 2, behind);
            }
            "fn" => {
                self.declare(Named::Function, from + 1, &whole, false);
                self.names(Named::Argument, from + 2, behind, &whole);
            }
            "for" | "unroll" => self.counters(from, behind, &whole),
            "drain" => {
                self.pending = std::mem::take(&mut self.left);
            }
            "warpgroup" if !top => self.declare(Named::Role, from + 1, &whole, false),
            _ if !top => self.results(from, behind, &whole),
            _ => {}
        }
    }

    /// Names in front of `=` between commas.
    fn list(&mut self, kind: Named, from: usize, to: usize, whole: &Range<usize>) {
        let mut depth = 0usize;
        for at in from..to {
            match self.word(at) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth = depth.saturating_sub(1),
                "=" if depth == 0 => {
                    let begins = at == from + 1 || (at >= 2 && self.separates(at - 2));
                    if begins {
                        self.declare(kind, at - 1, whole, false);
                    }
                }
                _ => {}
            }
        }
        // A value that is not written yet.
        if to == from + 1 {
            self.declare(kind, from, whole, false);
        }
    }

    fn separates(&self, token: usize) -> bool {
        self.word(token) == "," || self.tokens.get(token).is_some_and(|t| t.kind == Kind::Newline)
    }

    fn used(&mut self, token: usize) {
        let Some(of) = self.tokens.get(token) else { return };
        let text = &self.text[of.range.clone()];
        if matches!(of.kind, Kind::Text | Kind::Word) {
            let used = Used {
                name: text.trim_matches('"').to_string(),
                file: of.kind == Kind::Text,
                range: of.range.clone(),
            };
            self.outline.uses.push(used);
        }
    }

    /// The names in the parenthesis that follows, for the next block.
    fn names(&mut self, kind: Named, from: usize, to: usize, whole: &Range<usize>) {
        for at in from + 1..to {
            match self.word(at) {
                ")" => break,
                "," => {}
                _ => self.declare(kind, at, whole, true),
            }
        }
    }

    /// The parameters of a kernel: names in front of `:` in the parenthesis that follows.
    fn typed(&mut self, from: usize, to: usize) {
        let mut depth = 0usize;
        for at in from..to {
            match self.word(at) {
                "(" | "[" => depth += 1,
                ")" if depth <= 1 => break,
                ")" | "]" => depth = depth.saturating_sub(1),
                ":" if depth == 1 && self.is_name(at - 1) => {
                    let end = self.end_of_param(at, to);
                    let whole = self.starts_of(at - 1)..self.tokens[end].range.end;
                    self.declare(Named::Parameter, at - 1, &whole, true);
                }
                _ => {}
            }
        }
    }

    /// The last token of the parameter whose `:` this is.
    fn end_of_param(&self, colon: usize, to: usize) -> usize {
        let mut depth = 0usize;
        for at in colon + 1..to {
            match self.word(at) {
                "(" | "[" => depth += 1,
                ")" | "," if depth == 0 => return at - 1,
                ")" | "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        (to - 1).max(colon)
    }

    /// `for i in`, `unroll(2) for i in`, `for (i, j) previous (p, q) in tiles(…)`.
    fn counters(&mut self, from: usize, to: usize, whole: &Range<usize>) {
        self.pending.clear();
        let Some(start) = (from..to).find(|at| self.word(*at) == "for") else { return };
        for at in start + 1..to {
            match self.word(at) {
                "in" => break,
                "(" | ")" | "," | "previous" => {}
                _ => self.declare(Named::Counter, at, whole, true),
            }
        }
    }

    /// `a = …` and `a, b = …`.
    fn results(&mut self, from: usize, to: usize, whole: &Range<usize>) {
        let mut end = from + 1;
        while end < to && self.word(end) == "," && self.is_name(end + 1) {
            end += 2;
        }
        if self.word(end) != "=" {
            return;
        }
        let mut value = end + 1;
        while self.tokens.get(value).is_some_and(|t| t.kind == Kind::Newline) {
            value += 1;
        }
        let kind = match self.word(value) {
            "global_view" => Named::View,
            "register_tensor" => Named::Register,
            "shared_tensor" => Named::Shared,
            "tensor_memory" => Named::TensorMemory,
            "pipeline" => Named::Pipeline,
            "named_barrier" | "turns" => Named::Barrier,
            _ => Named::Result,
        };
        for at in (from..end).step_by(2) {
            self.declare(kind, at, whole, false);
        }
    }

    /// `fn(a, b) { … }` as an argument: its parameters.
    fn passed_function(&mut self) {
        let Some(close) = (self.at..self.tokens.len()).find(|at| self.word(*at) == ")") else { return };
        if self.word(self.at + 1) == "(" {
            let whole = self.starts_of(self.at)..self.tokens[close].range.end;
            self.names(Named::Argument, self.at + 1, close, &whole);
        }
    }
}

/// True of a word of the language that is never a name.
pub fn is_keyword(name: &str) -> bool {
    words().any(|(text, word)| text == name && word != Word::Function)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "// halves
// its argument
fn half(x) { y = 0.5 * x
  return y }
size m = 4, n = 8
const BM = 64,
      BN = 2 * BM
kernel k(a: f16[m, n], alpha: f32 = 1.0)
    grid(ceil_div(m, BM)) threads(128)
{
    ga = global_view(a[block.x * BM :, :], (BM, BN) : (e0, e1))
    ra = register_tensor(f16, [BM, BN])
    let q = 2 * n, r = min(q, 3)
    for i in 0..q {
        t = half(ra); u, v = split(t)
        t = t + u
    }
    for (x, y) previous (px, py) in tiles(m, n) { ra = x } drain { ra = px }
    s = reduce(ra, fn(a, b) {
        c = a + b
        return c
    }, 0)
    warpgroup load(1) { copy(ga, ra) }
}
";

    fn declared<'a>(outline: &'a Outline, name: &str) -> Vec<&'a Declaration> {
        outline.declarations.iter().filter(|d| d.name == name).collect()
    }

    #[test]
    fn everything_that_a_text_declares_is_found_once() {
        let outline = Outline::of(TEXT);
        let names: Vec<(&str, Named)> =
            outline.declarations.iter().map(|d| (d.name.as_str(), d.kind)).collect();
        use Named::*;
        let wanted = [
            ("half", Function),
            ("x", Argument),
            ("y", Result),
            ("m", Size),
            ("n", Size),
            ("BM", Constant),
            ("BN", Constant),
            ("k", Kernel),
            ("a", Parameter),
            ("alpha", Parameter),
            ("ga", View),
            ("ra", Register),
            ("q", Integer),
            ("r", Integer),
            ("i", Counter),
            ("t", Result),
            ("u", Result),
            ("v", Result),
            ("x", Counter),
            ("y", Counter),
            ("px", Counter),
            ("px", Counter),
            ("py", Counter),
            ("py", Counter),
            ("s", Result),
            ("a", Argument),
            ("b", Argument),
            ("c", Result),
            ("load", Role),
        ];
        let mut found = names.clone();
        found.retain(|name| !(matches!(name.1, Counter) && ["x", "y"].contains(&name.0)));
        let mut wanted: Vec<_> = wanted.to_vec();
        wanted.retain(|name| !(matches!(name.1, Counter) && ["x", "y"].contains(&name.0)));
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_name_means_the_declaration_of_the_blocks_around() {
        let outline = Outline::of(TEXT);
        let at = |text: &str| TEXT.find(text).unwrap_or_else(|| panic!("{text}"));
        let kind = |name: &str, byte: usize| outline.resolve(name, byte, false).map(|d| d.kind);
        assert_eq!(kind("x", at("0.5 * x")), Some(Named::Argument));
        assert_eq!(kind("x", at("ra = x")), Some(Named::Counter));
        assert_eq!(kind("px", at("ra = px")), Some(Named::Counter));
        assert_eq!(kind("x", at("s = reduce")), None);
        assert_eq!(kind("a", at("a + b")), Some(Named::Argument));
        assert_eq!(kind("a", at("ra = register")), Some(Named::Parameter));
        assert_eq!(kind("t", at("s = reduce")), None);
        assert_eq!(kind("alpha", at("fn half")), None);
        let t = declared(&outline, "t");
        assert_eq!(outline.uses_of(TEXT, t[0]).count(), 4);
        assert_eq!(outline.comment_above(TEXT, declared(&outline, "half")[0]), "halves\nits argument");
    }

    #[test]
    fn statements_end_before_their_blocks() {
        let outline = Outline::of(TEXT);
        let of = |text: &str| {
            let byte = TEXT.find(text).unwrap_or_default();
            outline.statement_at(byte).map(|s| &TEXT[s.range.clone()])
        };
        assert_eq!(of("in 0..q"), Some("for i in 0..q"));
        assert_eq!(of("u, v"), Some("u, v = split(t)"));
        assert_eq!(of("2 * BM"), Some("const BM = 64,\n      BN = 2 * BM"));
        let kernel = outline.statements.iter().find(|s| TEXT[s.range.clone()].starts_with("kernel"));
        let block = kernel.and_then(|s| s.block.clone()).unwrap_or_default();
        assert!(TEXT[block.clone()].starts_with('{') && block.end == TEXT.trim_end().len());
    }

    #[test]
    fn a_parenthesis_that_is_not_closed_yet_ends_with_its_line() {
        let text =
            TEXT.replace("        t = t + u\n", "        t = t + u\n        copy(ra[:, i\n        w = t\n");
        let outline = Outline::of(&text);
        let w = outline.declarations.iter().find(|d| d.name == "w");
        assert_eq!(w.map(|d| &text[d.whole.clone()]), Some("w = t"));
        // Blocks end where they would.
        assert_eq!(outline.declarations.iter().find(|d| d.name == "load").map(|d| d.kind), Some(Named::Role));
        let block = outline.statements.iter().find(|s| text[s.range.clone()].starts_with("kernel"));
        assert_eq!(block.and_then(|s| s.block.clone()).map(|b| b.end), Some(text.trim_end().len()));
    }

    #[test]
    fn every_beginning_of_a_text_and_every_text_without_a_line_has_an_outline() {
        for end in 0..=TEXT.len() {
            let outline = Outline::of(&TEXT[..end]);
            assert!(
                outline.declarations.iter().all(|d| TEXT[d.range.clone()] == d.name && d.scope.end <= end)
            );
        }
        let lines: Vec<&str> = TEXT.lines().collect();
        for left_out in 0..lines.len() {
            let kept: Vec<&str> =
                lines.iter().enumerate().filter(|(i, _)| *i != left_out).map(|(_, l)| *l).collect();
            let text = kept.join("\n");
            let outline = Outline::of(&text);
            assert!(left_out == 7 || outline.has_kernel(), "without {}", lines[left_out]);
        }
    }
}
