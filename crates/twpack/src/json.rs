//! JSON as packs have it: integers, texts, truth values, lists, and objects with sorted keys, in one form for each value; and the place of each value in errors.

use std::fmt::{self, Write};
use std::rc::Rc;

use crate::error::PackError;

/// The most lists and objects in each other.
const DEPTH: usize = 16;

/// A value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Json {
    Null,
    Truth(bool),
    Int(i64),
    Text(String),
    List(Vec<Json>),
    /// The fields by name, in order.
    Object(Vec<(String, Json)>),
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Json::Truth(value)
    }
}

macro_rules! integers {
    ($($ty:ty)*) => {$(
        impl From<$ty> for Json {
            fn from(value: $ty) -> Self {
                Json::Int(i64::from(value))
            }
        }
    )*};
}
integers! { i64 u32 }

impl From<&str> for Json {
    fn from(value: &str) -> Self {
        Json::Text(value.to_string())
    }
}

impl From<Vec<Json>> for Json {
    fn from(list: Vec<Json>) -> Self {
        Json::List(list)
    }
}

/// An object of these fields, without those that are null, false or empty lists.
pub(crate) fn object<const N: usize>(fields: [(&str, Json); N]) -> Json {
    let says = |(_, value): &(&str, Json)| match value {
        Json::Null | Json::Truth(false) => false,
        Json::List(list) => !list.is_empty(),
        _ => true,
    };
    let mut fields: Vec<(String, Json)> =
        fields.into_iter().filter(says).map(|(name, value)| (name.to_string(), value)).collect();
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    Json::Object(fields)
}

/// True of the characters that a text has in another form.
fn special(c: char) -> bool {
    matches!(c, '"' | '\\') || c < ' '
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    let mut rest = text;
    while let Some(at) = rest.find(special) {
        let (plain, behind) = rest.split_at(at);
        f.write_str(plain)?;
        match behind.as_bytes()[0] {
            b'"' => f.write_str("\\\"")?,
            b'\\' => f.write_str("\\\\")?,
            b'\n' => f.write_str("\\n")?,
            c => write!(f, "\\u{c:04x}")?,
        }
        rest = &behind[1..];
    }
    f.write_str(rest)?;
    f.write_char('"')
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Truth(value) => write!(f, "{value}"),
            Json::Int(value) => write!(f, "{value}"),
            Json::Text(text) => quoted(f, text),
            Json::List(list) => {
                f.write_char('[')?;
                for (i, value) in list.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    value.fmt(f)?;
                }
                f.write_char(']')
            }
            Json::Object(fields) => {
                f.write_char('{')?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    quoted(f, name)?;
                    f.write_char(':')?;
                    value.fmt(f)?;
                }
                f.write_char('}')
            }
        }
    }
}

/// A reader of a text.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

type Parsed<T> = Result<T, (usize, &'static str)>;

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn wrong<T>(&self, expected: &'static str) -> Parsed<T> {
        Err((self.at, expected))
    }

    fn skip(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// True if a character stands here; it is passed.
    fn passes(&mut self, c: u8) -> bool {
        self.skip();
        let here = self.peek() == Some(c);
        self.at += usize::from(here);
        here
    }

    fn take(&mut self, c: u8, expected: &'static str) -> Parsed<()> {
        if self.passes(c) { Ok(()) } else { self.wrong(expected) }
    }

    fn word(&mut self, word: &str, value: Json) -> Parsed<Json> {
        if !self.text[self.at..].starts_with(word) {
            return self.wrong("a value is expected");
        }
        self.at += word.len();
        Ok(value)
    }

    fn value(&mut self, depth: usize) -> Parsed<Json> {
        self.skip();
        if depth > DEPTH {
            return self.wrong("lists and objects are too deep in each other");
        }
        match self.peek() {
            Some(b'n') => self.word("null", Json::Null),
            Some(b't') => self.word("true", Json::Truth(true)),
            Some(b'f') => self.word("false", Json::Truth(false)),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'[') => self.list(depth),
            Some(b'{') => self.object(depth),
            Some(b'-' | b'0'..=b'9') => self.integer(),
            _ => self.wrong("a value is expected"),
        }
    }

    fn integer(&mut self) -> Parsed<Json> {
        let begin = self.at;
        while matches!(self.peek(), Some(b'-' | b'+' | b'.' | b'0'..=b'9' | b'e' | b'E')) {
            self.at += 1;
        }
        let text = &self.text[begin..self.at];
        let digits = text.strip_prefix('-').unwrap_or(text);
        let plain =
            digits.bytes().all(|c| c.is_ascii_digit()) && (digits.len() == 1 || !digits.starts_with('0'));
        match text.parse() {
            Ok(value) if plain => Ok(Json::Int(value)),
            _ => Err((begin, "an integer of 64 bits is expected")),
        }
    }

    fn list(&mut self, depth: usize) -> Parsed<Json> {
        self.at += 1;
        let mut list = Vec::new();
        if self.passes(b']') {
            return Ok(Json::List(list));
        }
        loop {
            list.push(self.value(depth + 1)?);
            if !self.passes(b',') {
                self.take(b']', "`,` or `]` is expected")?;
                return Ok(Json::List(list));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Parsed<Json> {
        self.at += 1;
        let mut fields: Vec<(String, Json)> = Vec::new();
        if self.passes(b'}') {
            return Ok(Json::Object(fields));
        }
        loop {
            self.skip();
            let place = self.at;
            if self.peek() != Some(b'"') {
                return self.wrong("the name of a field is expected");
            }
            let name = self.string()?;
            if fields.last().is_some_and(|(last, _)| *last >= name) {
                return Err((place, "fields are sorted by their names, each once"));
            }
            self.take(b':', "`:` is expected")?;
            fields.push((name, self.value(depth + 1)?));
            if !self.passes(b',') {
                self.take(b'}', "`,` or `}` is expected")?;
                return Ok(Json::Object(fields));
            }
        }
    }

    fn string(&mut self) -> Parsed<String> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(special).unwrap_or(rest.len());
            text.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escaped()?),
                Some(_) => return self.wrong("a text has no control characters"),
                None => return self.wrong("a text has no end"),
            }
        }
    }

    fn escaped(&mut self) -> Parsed<char> {
        let c = match self.text.as_bytes().get(self.at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'n') => '\n',
            Some(b'u') => {
                let digits = self
                    .text
                    .get(self.at + 2..self.at + 6)
                    .filter(|d| d.bytes().all(|d| d.is_ascii_hexdigit()));
                let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                // Only control characters are written so.
                let Some(c) = code.filter(|code| *code < 32).and_then(char::from_u32) else {
                    return self.wrong("`\\u` and the four digits of a control character are expected");
                };
                self.at += 4;
                c
            }
            _ => return self.wrong("`\\\"`, `\\\\`, `\\n` or `\\u` is expected"),
        };
        self.at += 2;
        Ok(c)
    }
}

impl Json {
    /// The value of a text.
    pub(crate) fn of(bytes: &[u8], place: &str) -> Result<Json, PackError> {
        let wrong = |at, reason| PackError::Json { place: place.to_string(), at, reason };
        let text =
            std::str::from_utf8(bytes).map_err(|error| wrong(error.valid_up_to(), "the text is no UTF-8"))?;
        let mut parser = Parser { text, at: 0 };
        let value = parser.value(0).map_err(|(at, reason)| wrong(at, reason))?;
        parser.skip();
        if parser.at < text.len() {
            return Err(wrong(parser.at, "something stands behind the value"));
        }
        Ok(value)
    }
}

/// The way to a value, as text only where something is wrong there.
enum Place {
    Root(String),
    Field(Rc<Place>, &'static str),
    Entry(Rc<Place>, usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Root(name) => f.write_str(name),
            Place::Field(of, name) => write!(f, "{of}.{name}"),
            Place::Entry(of, number) => write!(f, "{of}[{number}]"),
        }
    }
}

/// A value, and the way to it.
#[derive(Clone)]
pub(crate) struct At<'a> {
    pub(crate) value: &'a Json,
    place: Rc<Place>,
}

impl<'a> At<'a> {
    pub(crate) fn new(value: &'a Json, place: &str) -> At<'a> {
        At { value, place: Rc::new(Place::Root(place.to_string())) }
    }

    /// The way, in words.
    pub(crate) fn place(&self) -> String {
        self.place.to_string()
    }

    pub(crate) fn wrong<T>(&self, expected: &'static str) -> Result<T, PackError> {
        Err(PackError::Field { place: self.place(), expected })
    }

    /// A field of an object; null if it has none of the name.
    pub(crate) fn field(&self, name: &'static str) -> Result<At<'a>, PackError> {
        let Json::Object(fields) = self.value else { return self.wrong("an object") };
        let found = fields.iter().find(|(known, _)| known == name);
        let value = found.map_or(&Json::Null, |(_, value)| value);
        Ok(At { value, place: Rc::new(Place::Field(self.place.clone(), name)) })
    }

    pub(crate) fn list(&self) -> Result<Vec<At<'a>>, PackError> {
        let Json::List(list) = self.value else { return self.wrong("a list") };
        let entry = |(i, value)| At { value, place: Rc::new(Place::Entry(self.place.clone(), i)) };
        Ok(list.iter().enumerate().map(entry).collect())
    }

    /// The results of reading each entry; none of a list that is not there.
    pub(crate) fn listed<T>(
        &self,
        read: impl Fn(&At<'_>) -> Result<T, PackError>,
    ) -> Result<Vec<T>, PackError> {
        if self.is_null() { Ok(Vec::new()) } else { self.list()?.iter().map(read).collect() }
    }

    pub(crate) fn text(&self) -> Result<String, PackError> {
        match self.value {
            Json::Text(text) => Ok(text.clone()),
            _ => self.wrong("a text"),
        }
    }

    pub(crate) fn integer(&self) -> Result<i64, PackError> {
        match self.value {
            Json::Int(value) => Ok(*value),
            _ => self.wrong("an integer"),
        }
    }

    pub(crate) fn number<T: TryFrom<i64>>(&self) -> Result<T, PackError> {
        T::try_from(self.integer()?).or_else(|_| self.wrong("an integer in range"))
    }

    pub(crate) fn truth(&self) -> Result<bool, PackError> {
        match self.value {
            Json::Truth(value) => Ok(*value),
            Json::Null => Ok(false),
            _ => self.wrong("true or false"),
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        *self.value == Json::Null
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Json, PackError> {
        Json::of(text.as_bytes(), "a test")
    }

    #[test]
    fn what_is_written_reads_as_the_same() {
        let value = object([
            ("z", vec![Json::Null, true.into(), false.into(), i64::MIN.into(), i64::MAX.into()].into()),
            ("a", "\"quoted\" \\ back, ünïcode 🦀, \n\t\0".into()),
            ("empty", Json::Null),
            ("none", Vec::new().into()),
            ("inner", Json::Object(Vec::new())),
        ]);
        let text = value.to_string();
        assert_eq!(
            text,
            "{\"a\":\"\\\"quoted\\\" \\\\ back, ünïcode 🦀, \\n\\u0009\\u0000\",\"inner\":{},\
             \"z\":[null,true,false,-9223372036854775808,9223372036854775807]}"
        );
        assert_eq!(read(&text).unwrap(), value);
        assert_eq!(read(" { \"a\" : [ 1 , 2 ] } ").unwrap().to_string(), "{\"a\":[1,2]}");
    }

    #[test]
    fn what_packs_do_not_have_is_refused_with_its_place() {
        let deep = format!("{}1{}", "[".repeat(17), "]".repeat(17));
        for (text, at, reason) in [
            ("", 0, "a value is expected"),
            ("nul", 0, "a value is expected"),
            ("[1,]", 3, "a value is expected"),
            ("[1 2]", 3, "`,` or `]` is expected"),
            ("{\"a\" 1}", 5, "`:` is expected"),
            ("{\"a\":1", 6, "`,` or `}` is expected"),
            ("{a:1}", 1, "the name of a field is expected"),
            ("{\"a\":1,\"a\":2}", 7, "fields are sorted by their names, each once"),
            ("{\"b\":1,\"a\":2}", 7, "fields are sorted by their names, each once"),
            ("1.5", 0, "an integer of 64 bits is expected"),
            ("-", 0, "an integer of 64 bits is expected"),
            ("007", 0, "an integer of 64 bits is expected"),
            ("9223372036854775808", 0, "an integer of 64 bits is expected"),
            ("\"a\nb\"", 2, "a text has no control characters"),
            ("\"a", 2, "a text has no end"),
            ("\"\\x\"", 1, "`\\\"`, `\\\\`, `\\n` or `\\u` is expected"),
            ("\"\\u0041\"", 1, "`\\u` and the four digits of a control character are expected"),
            ("\"\\u00é\"", 1, "`\\u` and the four digits of a control character are expected"),
            ("1 1", 2, "something stands behind the value"),
            (&deep, 17, "lists and objects are too deep in each other"),
        ] {
            let expected = PackError::Json { place: "a test".into(), at, reason };
            assert_eq!(read(text), Err(expected), "{text}");
        }
        assert!(matches!(Json::of(b"\"\xff\"", ""), Err(PackError::Json { at: 1, .. })));
    }
}
