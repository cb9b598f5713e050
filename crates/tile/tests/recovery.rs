//! Texts with several mistakes: each is told, in one go, and nothing that follows from it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tilewright_tile::{Sources, parse, parse_module, read_beside};

/// The lines and messages of the mistakes of a text.
fn mistakes(text: &str) -> Vec<(usize, String)> {
    let errors = parse(text).expect_err("a text with mistakes");
    let line = |at: u32| text[..at as usize].matches('\n').count() + 1;
    errors.0.iter().map(|d| (line(d.span.text().expect("a place").start), d.message.clone())).collect()
}

/// The mistakes are on these lines, each with these words.
#[track_caller]
fn told(text: &str, expected: &[(usize, &str)]) {
    let found = mistakes(text);
    let alike = found.len() == expected.len()
        && found.iter().zip(expected).all(|((line, said), (at, words))| line == at && said.contains(words));
    assert!(alike, "expected {expected:#?}, found {found:#?}");
}

#[test]
fn every_mistake_of_a_text_is_told_and_nothing_that_follows_from_it() {
    told(
        "size m = 64, n = 64
const BM = 16
kernel f(x: float16[m, n], y: f16[m, n] z: f32[m]) grid(ceil_div(m, BM)) threads(128)
{
    gx = global_view(x[block.x * BM :, :], (BM, 64) : (e0, e1))
    gy = global_view(y[block.x * BM :, :], (BM, 64) : (e0, e1))
    r = register_tensor(half, [BM, 64])
    copy(gx, r)
    acc += r
    for i in range(4) {
        copy(r gx)
        s = tl.dot(r, r)
        t = acc + s
    }
    u = r @ r
    v = nothing + u
    if (u) w = v
    copy(w, gy))
    copy(u, gy)
}
",
        &[
            (3, "`float16` is `f16` here"),
            (3, "expected `)` or `,`, found `z`"),
            (7, "`half` is `f16` here"),
            (9, "there is no `+=`"),
            (10, "`range` is Python's"),
            (11, "expected `,` and the destination"),
            (12, "`dot` is Triton's"),
            (15, "there is no operator `@`"),
            (16, "nothing is named `nothing`"),
            (17, "expected `{` and the statements"),
            (18, "closes nothing"),
        ],
    );
}

#[test]
fn characters_and_brackets_do_not_end_the_reading() {
    told(
        "size n = 64
kernel f(x: f32[n], y: f32[n]) grid(1) threads(32)
{
    /* a comment
       of C */
    gx = global_view(x, (64) : (e0)
    r = register_tensor(f32, [64])
    copy(gx, r)
    s = r \u{2212} 1e-5f
    t = s ? r : s
    u = fill(t, 'inf')
    assert(n <= 64, \u{201c}too long\u{201d})
    v = r + zeros(64)
}
",
        &[
            (4, "there is no `/*"),
            (6, "this `(` is never closed"),
            (9, "(U+2212) is no character"),
            (9, "numbers have no suffix"),
            (10, "there is no `? :`"),
            (11, "an infinity is a number"),
            (12, "(U+201C) is no character"),
            (13, "there is no function `zeros`"),
        ],
    );
}

#[test]
fn the_brace_that_is_missing_or_too_much_is_found_by_the_indentation() {
    told(
        "size n = 64
kernel f(x: f32[n]) grid(1) threads(32)
{
    for i in 0..4 {
        if i == 0 {
            syncthreads()
    }
}
",
        &[(5, "this `{` is never closed")],
    );
    told(
        "size n = 64
kernel f(x: f32[n]) grid(1) threads(32)
{
    for i in 0..4 {
        syncthreads()
        }
    }
    syncthreads()
}
",
        &[(6, "this `}` ends a block that begins further to the left")],
    );
}

#[test]
fn the_top_level_goes_on_at_the_next_line_that_begins_something() {
    told(
        "import triton
const BM = 16f
@triton.jit
const BN = 8 8
kernel f(x: f32[BN], y: f32[BM) grid(1) threads(32)
{
    g = global_view(x, (BN) : (e0))
    fill(g 0.0)
}
",
        &[
            (1, "`import` is Python's"),
            (2, "numbers have no suffix"),
            (3, "decorators are Python's"),
            (4, "expected the end of the line, found `8`"),
            (5, "this `[` is never closed"),
            (8, "expected `,` and a number"),
        ],
    );
}

#[test]
fn a_mistake_in_a_function_is_told_once() {
    told(
        "size n = 64
fn twice(x) {
    y = x **2
    return y + y
}
kernel f(x: f32[n]) grid(1) threads(32)
{
    g = global_view(x, (64) : (e0))
    r = register_tensor(f32, [64])
    copy(g, r)
    a = twice(r)
    b = twice(a) + twice(r)
    copy(b g)
}
",
        &[(3, "there is no `**`"), (13, "expected `,` and the destination")],
    );
}

#[test]
fn twenty_mistakes_are_enough() {
    let text = format!("kernel f(x: f32[1]) grid(1) threads(32)\n{{\n{}}}\n", "    foo bar\n".repeat(100));
    assert_eq!(mistakes(&text).len(), 20);
    let text = "(".repeat(1000);
    assert!(!mistakes(&text).is_empty());
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "tile") {
            found.push(path);
        }
    }
}

/// Whatever is left out, doubled or put in the place of another: the reading ends, with at most twenty mistakes, each in the text.
#[test]
fn texts_with_a_token_less_or_more_never_end_in_a_panic() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = Vec::new();
    ["tests", "examples", "crates"].iter().for_each(|folder| files(&root.join(folder), &mut paths));
    paths.sort();
    assert!(paths.len() > 500);
    let strange = [
        "(", ")", "{", "}", "[", "]", ",", "=", "\"", "@", "for", "kernel", "0", "\n", ";", "\u{2212}", "/*",
    ];
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below.max(1)
    };
    for path in &paths {
        let text = std::fs::read_to_string(path).expect("a text");
        for _ in 0..4 {
            let mut words: Vec<&str> = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()).collect();
            let at = random(words.len());
            match random(3) {
                0 => drop(words.remove(at)),
                1 => words.insert(at, strange[random(strange.len())]),
                _ => words[at] = strange[random(strange.len())],
            }
            let changed = words.concat();
            let began = Instant::now();
            let read = parse_module(Sources::new(path.to_string_lossy(), changed.as_str()), &mut read_beside);
            assert!(began.elapsed() < Duration::from_secs(20), "{}", path.display());
            if let Err(misread) = read {
                assert!((1..=20).contains(&misread.diagnostics.0.len()), "{}", path.display());
            }
            // Formatting is refused or gives a text that stays as it is.
            if let Ok(formatted) = tilewright_tile::format(&changed) {
                assert_eq!(
                    tilewright_tile::format(&formatted).as_ref(),
                    Ok(&formatted),
                    "{}",
                    path.display()
                );
            }
        }
    }
}
