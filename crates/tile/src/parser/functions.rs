//! Functions and other files: what is read of the texts before a kernel is. Every call of a function gets a copy of the function's text, so that
//! its statements have places of their own ([`Sources`]), and the parser reads the copy where the call stands.

use std::collections::{HashMap, HashSet};

use super::recover::{BEGINS, Mistakes};
use super::{Res, syntax};
use crate::build::check_name;
use crate::diagnostic::{Code, Diagnostic, Diagnostics, Span};
use crate::lexer::{Lexed, Tok, Token, read};
use crate::library::library;
use crate::names::{Word, word};
use crate::sources::{Reader, Sources};

/// The longest text with all copies, in bytes.
const MAX_TEXT: usize = 1 << 24;
/// The most calls of functions, those inside of functions counted for each of their calls.
const MAX_CALLS: usize = 1 << 14;
/// The deepest nesting of calls.
const MAX_NESTED: usize = 32;

/// A function as it is written.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) span: Span,
    pub(super) params: Vec<(String, Span)>,
    /// The token of its `{`.
    body: usize,
    /// The token behind it.
    pub(super) end: usize,
}

/// A declaration of constants or sizes: the name, and the words of its value.
struct Declared {
    name: String,
    words: Vec<String>,
}

/// The texts of a program, in tokens.
pub(super) struct Prepared {
    pub(super) sources: Sources,
    pub(super) tokens: Vec<Token>,
    pub(super) functions: Vec<Function>,
    /// Of the token of a call's name, the function and the first token of its copy.
    pub(super) calls: HashMap<usize, (usize, usize)>,
    /// Of the token of a `use`, the first token of the file; none of one that was read before.
    pub(super) uses: HashMap<usize, usize>,
    /// The tokens of the word `kernel`, in the program's file.
    pub(super) kernels: Vec<usize>,
    declared: Vec<Declared>,
    /// Mistakes of characters and brackets; what else is wrong with their lines follows from them.
    pub(super) errors: Vec<Diagnostic>,
}

/// The message about a text without a kernel.
fn no_kernel(span: Span) -> Diagnostic {
    syntax(span, "there is no kernel in this text")
        .help("a program is text like `kernel name(a: f16[m, k]) grid(m) threads(128) { … }`")
}

impl Prepared {
    /// Reads the file of `sources`, and those that it uses; after a mistake, the texts that it is about.
    pub(super) fn read(sources: Sources, reader: &mut Reader<'_>) -> Result<Self, (Sources, Mistakes)> {
        let mut prepared = Prepared {
            sources,
            tokens: Vec::new(),
            functions: Vec::new(),
            calls: HashMap::new(),
            uses: HashMap::new(),
            kernels: Vec::new(),
            declared: Vec::new(),
            errors: Vec::new(),
        };
        let path = prepared.sources.files().next().unwrap_or_default().to_string();
        let mut files = Files { read: HashMap::new(), open: vec![(path, None)] };
        let read = prepared.file(0, reader, &mut files).and_then(|_| prepared.expand_kernels());
        match read {
            Ok(()) => Ok(prepared),
            Err(errors) => {
                let mistakes = prepared.with_errors(errors.into());
                Err((prepared.sources, mistakes))
            }
        }
    }

    /// Mistakes that the parser found, with those of characters and brackets, from which others on their lines follow.
    pub(super) fn with_errors(&self, mut mistakes: Mistakes) -> Mistakes {
        let text = self.sources.text();
        let line = |error: &Diagnostic| -> Option<usize> {
            let at = self.sources.locate(error.span.text()?).span.start as usize;
            text.get(..at).map(|before| before.matches('\n').count())
        };
        let told: HashSet<usize> = self.errors.iter().filter_map(line).collect();
        mistakes.errors.retain(|error| line(error).is_none_or(|line| !told.contains(&line)));
        mistakes.errors.splice(0..0, self.errors.iter().cloned());
        mistakes
    }

    fn text(&self, token: usize) -> &str {
        self.sources.text().get(self.tokens[token].span.range()).unwrap_or("")
    }

    fn is(&self, token: usize, punct: &str) -> bool {
        matches!(self.tokens.get(token), Some(Token { tok: Tok::Punct(p), .. }) if *p == punct)
    }

    fn is_word(&self, token: usize) -> bool {
        matches!(self.tokens.get(token), Some(Token { tok: Tok::Word, .. }))
    }

    /// The token after this one, or after its closing bracket.
    fn after(&self, token: usize) -> usize {
        match self.tokens[token].tok {
            Tok::Punct("(" | "[" | "{") => self.tokens[token].close + 1,
            _ => token + 1,
        }
    }

    fn skip_newlines(&self, mut token: usize) -> usize {
        while matches!(self.tokens[token].tok, Tok::Newline) {
            token += 1;
        }
        token
    }

    /// The tokens of the file whose text begins at a byte, and what stands at its top level.
    fn file(&mut self, start: u32, reader: &mut Reader<'_>, files: &mut Files) -> Res<usize> {
        let text = self.sources.file(start).text.to_string();
        let moved = |span: Span| Span { start: span.start + start, end: span.end + start };
        let Lexed { tokens, mut errors } = read(&text);
        for error in &mut errors {
            let origins = error.related.iter_mut().map(|(origin, _)| origin);
            for origin in origins.chain([&mut error.span]) {
                *origin = origin.text().map_or(*origin, |span| moved(span).into());
            }
        }
        self.errors.extend(errors);
        let first = self.tokens.len();
        let last = first + tokens.len() - 1;
        self.tokens.extend(tokens.into_iter().map(|token| Token {
            span: moved(token.span),
            close: token.close + first,
            ..token
        }));
        let mut at = first;
        let mut begins = true;
        while at < last {
            let word = if begins && self.is_word(at) { self.text(at).to_string() } else { String::new() };
            begins = matches!(self.tokens[at].tok, Tok::Newline);
            at = match word.as_str() {
                "fn" => self.function(at)?,
                "use" => self.used(at, reader, files)?,
                "const" | "size" => self.declarations(at),
                "kernel" => {
                    if files.open.len() == 1 {
                        self.kernels.push(at);
                    }
                    self.after_kernel(at)
                }
                _ => self.after(at),
            };
            // What follows a block begins a line of its own, as the parser sees to.
            begins |= matches!(word.as_str(), "fn" | "kernel");
        }
        Ok(first)
    }

    /// The token behind a kernel's block.
    pub(super) fn after_kernel(&self, mut at: usize) -> usize {
        while at + 1 < self.tokens.len() && self.tokens[at].tok != Tok::End {
            let block = self.is(at, "{");
            at = self.after(at);
            if block {
                break;
            }
        }
        at
    }

    /// The names and the words of `const A = 1, B = 2 * A`; the token behind.
    fn declarations(&mut self, at: usize) -> usize {
        let mut at = at + 1;
        while self.is_word(at) && self.is(at + 1, "=") {
            let name = self.text(at).to_string();
            at += 2;
            let from = at;
            while !self.is(at, ",") && !matches!(self.tokens[at].tok, Tok::Newline | Tok::End) {
                at = self.after(at);
            }
            let words = (from..at).filter(|i| self.is_word(*i)).map(|i| self.text(i).to_string()).collect();
            self.declared.push(Declared { name, words });
            if self.is(at, ",") {
                at = self.skip_newlines(at + 1);
            }
        }
        at
    }

    /// `fn name(a, b) { … }`; the token behind.
    fn function(&mut self, at: usize) -> Res<usize> {
        let expected = |prepared: &Prepared, at: usize, what: &str| -> Diagnostics {
            syntax(prepared.tokens[at].span, format!("expected {what}"))
                .help("a function is `fn name(a, b) { … return a + b }`")
                .into()
        };
        let name = at + 1;
        if !self.is_word(name) {
            return Err(expected(self, name, "the function's name"));
        }
        let span = self.tokens[name].span;
        check_name(self.text(name), span)?;
        if word(self.text(name)) == Some(Word::Function) {
            let message = format!("`{}` is a function of the language", self.text(name));
            return Err(Diagnostic::new(Code::DuplicateName, span, message)
                .help(format!("choose another name, such as `{}_`", self.text(name)))
                .into());
        }
        if !self.is(name + 1, "(") {
            return Err(expected(self, name + 1, "`(` and the function's parameters"));
        }
        let close = self.tokens[name + 1].close;
        let mut params: Vec<(String, Span)> = Vec::new();
        let mut token = name + 2;
        while token < close {
            if !self.is_word(token) {
                return Err(expected(self, token, "the name of a parameter"));
            }
            let (param, span) = (self.text(token).to_string(), self.tokens[token].span);
            check_name(&param, span)?;
            if let Some((_, first)) = params.iter().find(|(name, _)| *name == param) {
                let message = format!("the name `{param}` is declared twice");
                return Err(Diagnostic::new(Code::DuplicateName, span, message)
                    .label("declared again here")
                    .related(*first, "first declared here")
                    .into());
            }
            params.push((param, span));
            token += 1;
            if token < close && !self.is(token, ",") {
                return Err(expected(self, token, "`,` or `)`"));
            }
            token += 1;
        }
        let body = self.skip_newlines(close + 1);
        if !self.is(body, "{") {
            return Err(expected(self, body, "`{` and the statements"));
        }
        let name = self.text(name).to_string();
        if let Some(first) = self.functions.iter().find(|f| f.name == name) {
            let message = format!("the name `{name}` is declared twice");
            return Err(Diagnostic::new(Code::DuplicateName, span, message)
                .label("declared again here")
                .related(first.span, "first declared here")
                .into());
        }
        let end = self.tokens[body].close + 1;
        self.functions.push(Function { name, span, params, body, end });
        Ok(end)
    }

    /// `use "file.tile"` or `use name`; the token behind.
    fn used(&mut self, at: usize, reader: &mut Reader<'_>, files: &mut Files) -> Res<usize> {
        let token = self.tokens[at + 1];
        let text = self.text(at + 1).to_string();
        let (from, _) = files.open.last().cloned().unwrap_or_default();
        let read = match token.tok {
            Tok::Text => reader(&from, text.trim_matches('"')),
            Tok::Word => library(&text),
            _ => {
                return Err(syntax(token.span, "expected a file or the name of a library")
                    .help("e.g. `use \"activations.tile\"`, or `use activations` for the library's")
                    .into());
            }
        };
        let (path, source) = read.map_err(|why| {
            let shown = text.trim_matches('"');
            Diagnostic::new(Code::UnknownName, token.span, format!("`{shown}` cannot be used: {why}"))
        })?;
        if let Some(i) = files.open.iter().position(|(open, _)| *open == path) {
            let circle: Vec<&str> = files.open[i..].iter().map(|(path, _)| path.as_str()).collect();
            let mut error = syntax(token.span, format!("`{path}` uses itself"))
                .label(format!("{} → {path}", circle.join(" → ")));
            for (_, used) in files.open[i + 1..].iter() {
                if let Some(span) = used {
                    error = error.related(*span, "by way of this");
                }
            }
            return Err(error.help("move what both need to a file of its own").into());
        }
        let behind = at + 2;
        if files.read.contains_key(&path) {
            return Ok(behind);
        }
        self.room(source.len(), token.span)?;
        let start = self.sources.push_file(path.clone(), &source);
        files.open.push((path.clone(), Some(token.span)));
        let first = self.file(start, reader, files)?;
        files.open.pop();
        files.read.insert(path, first);
        self.uses.insert(at, first);
        Ok(behind)
    }

    /// True if a call of this word ends with the token.
    fn is_last_of(&self, word: &str, close: usize) -> bool {
        let open = (1..close).rev().find(|at| self.is(*at, "(") && self.tokens[*at].close == close);
        open.is_some_and(|open| self.text(open - 1) == word)
    }

    fn room(&self, bytes: usize, span: Span) -> Res<()> {
        if self.sources.text().len() + bytes > MAX_TEXT || self.calls.len() >= MAX_CALLS {
            let message = format!(
                "the program and the functions that it calls are more than {MAX_TEXT} bytes or {MAX_CALLS} calls"
            );
            return Err(Diagnostic::new(Code::BadValue, span, message)
                .help("call a function in a loop, not in the text over and over")
                .into());
        }
        Ok(())
    }

    /// Copies the functions that the kernels call.
    fn expand_kernels(&mut self) -> Res<()> {
        if self.functions.is_empty() {
            return Ok(());
        }
        for kernel in self.kernels.clone() {
            self.expand(kernel, self.after_kernel(kernel), &mut Vec::new())?;
        }
        Ok(())
    }

    /// Copies the functions that are called between two tokens, which functions `within` led to, with their calls.
    fn expand(&mut self, from: usize, to: usize, within: &mut Vec<(usize, Span)>) -> Res<()> {
        let by_name: HashMap<String, usize> =
            self.functions.iter().enumerate().map(|(i, f)| (f.name.clone(), i)).collect();
        for at in from..to {
            // A function that is passed stands between commas, or is the last argument of `cluster_reduce`.
            let passed = at > from
                && self.is(at - 1, ",")
                && (self.is(at + 1, ",")
                    || self.is(at + 1, ")") && self.is_last_of("cluster_reduce", at + 1));
            if !self.is_word(at) || !(self.is(at + 1, "(") || passed) {
                continue;
            }
            let Some(number) = by_name.get(self.text(at)).copied() else { continue };
            let span = self.tokens[at].span;
            let Function { name, span: defined, body, .. } = self.functions[number].clone();
            if let Some(i) = within.iter().position(|(other, _)| *other == number) {
                let error = syntax(span, format!("the function `{name}` calls itself"))
                    .label("a call of the function that it is in")
                    .related(defined, "defined here");
                let error = within[i + 1..]
                    .iter()
                    .fold(error, |error, (_, call)| error.related(*call, "by way of this call"));
                return Err(error.help("functions are put in the place of their calls: use a loop").into());
            }
            if within.len() >= MAX_NESTED {
                let message = format!("functions call each other deeper than {MAX_NESTED} levels");
                return Err(syntax(span, message).into());
            }
            let close = self.tokens[body].close;
            let of = self.tokens[body].span.to(self.tokens[close].span);
            self.room(of.range().len(), span)?;
            let start = self.sources.push_call(&name, of, span);
            let first = self.tokens.len();
            let moved =
                |span: Span| Span { start: span.start - of.start + start, end: span.end - of.start + start };
            for i in body..=close {
                let token = self.tokens[i];
                let close = (token.close + first).saturating_sub(body);
                self.tokens.push(Token { span: moved(token.span), close, ..token });
            }
            let end = moved(Span { start: of.end, end: of.end });
            let last = self.tokens.len();
            for tok in [Tok::Newline, Tok::End] {
                self.tokens.push(Token { tok, span: end, close: 0 });
            }
            self.calls.insert(at, (number, first));
            within.push((number, span));
            self.expand(first, last, within)?;
            within.pop();
        }
        Ok(())
    }

    /// The declared names that a kernel mentions, itself, in functions that it calls, or in values of what it mentions.
    pub(super) fn mentioned(&self, kernel: usize) -> HashSet<String> {
        let mut found: HashSet<String> = HashSet::new();
        let mut parts = vec![(kernel, self.after_kernel(kernel))];
        while let Some((from, to)) = parts.pop() {
            for at in (from..to).filter(|at| self.is_word(*at)) {
                found.insert(self.text(at).to_string());
                if let Some((_, copy)) = self.calls.get(&at) {
                    parts.push((*copy, self.tokens[*copy].close));
                }
            }
        }
        // A constant stands after those of its value.
        for declared in self.declared.iter().rev() {
            if found.contains(&declared.name) {
                found.extend(declared.words.iter().cloned());
            }
        }
        found
    }

    /// True of a constant or a size of the texts.
    pub(super) fn is_declared(&self, name: &str) -> bool {
        self.declared.iter().any(|declared| declared.name == name)
    }

    /// Every word of the texts: names that none may be made equal to.
    pub(super) fn words(&self) -> HashSet<String> {
        (0..self.tokens.len()).filter(|at| self.is_word(*at)).map(|at| self.text(at).to_string()).collect()
    }

    /// The kernels of the texts, one or more.
    pub(super) fn some_kernels(&self) -> Result<&[usize], Mistakes> {
        if self.kernels.is_empty() {
            return Err(self.without_kernel());
        }
        Ok(&self.kernels)
    }

    /// The mistake of a text without a kernel: the first line that begins nothing stands perhaps where one should.
    fn without_kernel(&self) -> Mistakes {
        let (mut at, mut begins) = (0, true);
        while self.tokens[at].tok != Tok::End {
            let known = self.is_word(at) && BEGINS.contains(&self.text(at));
            if begins && self.tokens[at].tok != Tok::Newline && !known {
                let message = format!("expected `kernel`, found `{}`", self.text(at));
                let end = self.tokens.iter().find(|token| token.tok == Tok::End).map(|token| token.span);
                let passed = self.tokens[at].span.to(end.unwrap_or_default());
                let error = syntax(self.tokens[at].span, message)
                    .label("no kernel begins in this text")
                    .help("a program is text like `kernel name(a: f16[m, k]) grid(m) threads(128) { … }`");
                return Mistakes { errors: vec![error], passed: vec![passed] };
            }
            begins = self.tokens[at].tok == Tok::Newline || self.is(at, "}");
            at = self.after(at);
            begins |= at > 0 && self.is(at - 1, "}");
        }
        no_kernel(self.tokens[at].span).into()
    }

    /// The kernel of texts that have one.
    pub(super) fn one_kernel(&self) -> Result<usize, Mistakes> {
        match self.some_kernels()? {
            [only] => Ok(*only),
            kernels => Err(syntax(self.tokens[kernels[1]].span, "a second kernel in one program")
                .related(self.tokens[kernels[0]].span, "the first kernel")
                .help("a program is one kernel; a file of several is read with `parse_module`")
                .into()),
        }
    }
}

/// The files that were read, and those that are being read, each with the `use` that led to it.
struct Files {
    read: HashMap<String, usize>,
    open: Vec<(String, Option<Span>)>,
}
