//! Paths of files and the URIs by which editors name them (RFC 8089, RFC 3986).

use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use lsp_types::Uri;

/// The path of a file, without `.` and `..`; of a document that is no file, its URI.
pub fn path_of(uri: &Uri) -> String {
    let text = uri.as_str();
    let Some(rest) = text.strip_prefix("file://") else { return text.to_string() };
    // An authority, such as `localhost`, ends at the path's `/`.
    let path = rest.find('/').map_or(rest, |at| &rest[at..]);
    let path = decoded(path);
    // `/c:/a.tile` is `c:/a.tile`.
    let bytes = path.as_bytes();
    let drive = bytes.len() > 2 && bytes[0] == b'/' && bytes[1].is_ascii_alphabetic() && bytes[2] == b':';
    normal(if drive { &path[1..] } else { &path })
}

/// The URI of a file's path, if it has one.
pub fn uri_of(path: &str) -> Option<Uri> {
    if let Ok(uri) = Uri::from_str(path)
        && !path.contains('\\')
        && path.split_once(':').is_some_and(|(scheme, _)| scheme.len() > 1)
    {
        return Some(uri);
    }
    let forward = path.replace('\\', "/");
    let absolute = if forward.starts_with('/') { forward } else { format!("/{forward}") };
    Uri::from_str(&format!("file://{}", encoded(&absolute))).ok()
}

/// A path without `.` and `..`, as far as its text says; links are not followed.
pub fn normal(path: &str) -> String {
    let mut parts: Vec<Component<'_>> = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(parts.last(), Some(Component::Normal(_))) => {
                parts.pop();
            }
            Component::ParentDir if matches!(parts.last(), Some(Component::RootDir)) => {}
            other => parts.push(other),
        }
    }
    parts.iter().collect::<PathBuf>().display().to_string()
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|b| (*b as char).to_digit(16));
    let (mut found, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                found.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                found.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&found).into_owned()
}

fn encoded(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/:".contains(&b);
    path.bytes().map(|b| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_uris_are_inverse() {
        for path in ["/a/b.tile", "/with space/ä%.tile", "/a+b,c;d.tile"] {
            let uri = uri_of(path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(path_of(&uri), path);
        }
        let of = |text: &str| path_of(&Uri::from_str(text).unwrap_or_else(|_| panic!("{text}")));
        assert_eq!(of("file:///a/../b/./c.tile"), "/b/c.tile");
        assert_eq!(of("file://localhost/b%2Fc"), "/b/c");
        assert_eq!(of("file:///c:/x.tile"), "c:/x.tile");
        assert_eq!(of("untitled:Untitled-1"), "untitled:Untitled-1");
        assert_eq!(
            uri_of("untitled:Untitled-1").map(|uri| uri.to_string()),
            Some("untitled:Untitled-1".to_string())
        );
        assert_eq!(normal("a/../../b"), "../b");
    }
}
