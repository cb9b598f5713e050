//! `tilewright fmt` from outside.

use crate::common::tilewright;

const UNTIDY: &str = "kernel k( x:f32[n] ) grid(1) threads(32) { // none\nsyncthreads( );\n}\n";
const TIDY: &str = "kernel k(x: f32[n]) grid(1) threads(32) { // none\n    syncthreads()\n}\n";

#[test]
fn a_text_is_formatted_from_standard_input() {
    for text in [UNTIDY, TIDY] {
        let run = tilewright(&["fmt", "-"], Some(text.as_bytes()));
        assert_eq!((run.code, run.out.as_str()), (Some(0), TIDY), "{}", run.err);
    }
}

#[test]
fn files_are_written_only_where_they_change_and_never_with_check() {
    let folder = std::env::temp_dir().join(format!("tilewright-fmt-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("k.tile");
    std::fs::write(&path, UNTIDY).unwrap();
    let name = path.to_str().unwrap();
    let read = || std::fs::read_to_string(&path).unwrap();

    let run = tilewright(&["fmt", "--check", name], None);
    assert_eq!((run.code, read().as_str()), (Some(1), UNTIDY));
    assert!(run.err.contains("is not formatted: line 1 would change"), "{}", run.err);

    assert_eq!(tilewright(&["fmt", name], None).code, Some(0));
    assert_eq!(read(), TIDY);
    let written = std::fs::metadata(&path).unwrap().modified().unwrap();
    assert_eq!(tilewright(&["fmt", name], None).code, Some(0));
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), written);
    assert_eq!(tilewright(&["fmt", "--check", name], None).code, Some(0));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_text_without_a_form_is_refused_with_its_place() {
    let run = tilewright(&["fmt", "-"], Some(b"kernel k(x: f32[n]) {\n  copy(x\n}"));
    assert_eq!(run.code, Some(1));
    assert!(run.out.is_empty());
    for text in ["this `(` is never closed", "-:2:7"] {
        assert!(run.err.contains(text), "{text}: {}", run.err);
    }
}
