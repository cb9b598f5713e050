//! `tilewright layout` from outside: answers, JSON, lines, pictures, and what it says to mistakes.

use serde_json::{Value, json};

use crate::common::{Run, tilewright};

fn layout(args: &[&str], input: &[u8]) -> Run {
    tilewright(&[&["layout"], args].concat(), Some(input))
}

#[track_caller]
fn json_of(expression: &str) -> Value {
    let run = layout(&[expression, "--json"], b"");
    serde_json::from_str(&run.out).unwrap_or_else(|e| panic!("{e}: {}{}", run.out, run.err))
}

#[test]
fn the_issue_s_examples() {
    for (expression, answer) in [
        ("compose((4,2,8):(3,12,97), 3:3)", "3:9"),
        ("((2,2),(4,2)):((1,8),(2,16)) (22)", "26"),
        ("let L = (4,8):(8,1); L(2,_)", "{16} o 8:1"),
        ("logical_divide((8,16):(20,1), <4:1,8:2>)", "((4,2),(8,2)):((20,80),(2,1))"),
        ("blocked_product((3,4):(4,1), (2,5):(1,2))", "((3,2),(4,5)):((4,12),(1,24))"),
        ("right_inverse((3,7,5):(5,15,1))", "(5,21):(21,1)"),
        ("swizzle(3,4,3) o (8,64):(64,1)", "Sw<3,4,3> o (8,64):(64,1)"),
        ("compatible(30, (2,15))", "true"),
    ] {
        let run = layout(&[expression], b"");
        assert_eq!((run.code, run.out.trim_end()), (Some(0), answer), "{expression}: {}", run.err);
    }
}

#[test]
fn json_says_what_a_layout_is() {
    assert_eq!(
        json_of("((2,2),8):((1,16),2)"),
        json!({
            "text": "((2,2),8):((1,16),2)", "kind": "layout", "shape": [[2, 2], 8], "stride": [[1, 16], 2],
            "size": 32, "cosize": 32, "rank": 2, "depth": 2
        })
    );
    assert_eq!(json_of("(8,8):(e0,2e1)")["stride"], json!(["e0", "2e1"]));
    assert_eq!(json_of("4:1(3)")["value"], 3);
    assert_eq!(json_of("compact(4:1)")["value"], true);
    assert_eq!(json_of("(4,8):(8,1)(2,_)")["offset"], 16);
    assert_eq!(json_of("Sw<3,4,3> o (8,64):(64,1)")["swizzle"], json!({"bits": 3, "base": 4, "shift": 3}));
}

#[test]
fn json_says_what_a_linear_layout_is() {
    assert_eq!(
        json_of("[register: (1,0) (0,1); lane: (2,0); warp:] -> [x:4, y:2]"),
        json!({
            "text": "[register: (1,0) (0,1); lane: (2,0); warp:] -> [x:4, y:2]", "kind": "linear_layout",
            "ins": [["register", 4], ["lane", 2], ["warp", 1]], "outs": [["x", 4], ["y", 2]],
            "bases": {"register": [[1, 0], [0, 1]], "lane": [[2, 0]], "warp": []}
        })
    );
    assert_eq!(json_of("flip([lane: 1 2] -> [x:4], [x])")["offset"], json!([3]));
    assert_eq!(json_of("[lane:3, x]")["value"], json!([["lane", 3], ["x", null]]));
    assert_eq!(json_of("{a = 1, b = 4:1}")["fields"]["b"]["size"], 4);
}

#[test]
fn json_says_what_an_error_is() {
    let error = &json_of("compose((6,2):(1,12), 4:5)")["error"];
    assert_eq!(error["kind"], "composition");
    assert_eq!(error["condition"], "stride divisibility");
    assert_eq!(error["mode"], 0);
    assert!(error["message"].as_str().unwrap().starts_with("cannot compose (6,2):(1,12) with 4:5"));
    assert_eq!(json_of("nonsense(")["error"]["kind"], "expression");
    assert_eq!(json_of("(4294967296,4294967296):(0,0)")["error"]["kind"], "overflow");
    assert_eq!(layout(&["0:1", "--json"], b"").code, Some(1));
}

#[test]
fn every_line_has_an_answer_and_names_stay() {
    let input = b"let A = (4,8):(8,1)\nright_inverse(A)\nlet B = 2:1; compose(A, B)\nB\n\n\xff\nA(1,2)\nlet A = 4:1\nA";
    let run = layout(&["-"], input);
    let lines: Vec<&str> = run.out.lines().collect();
    assert_eq!(run.code, Some(1));
    assert_eq!(lines.len(), 9, "{}", run.out);
    assert_eq!((lines[0], lines[1], lines[2]), ("(4,8):(8,1)", "(8,4):(4,1)", "2:8"));
    assert!(
        lines[3].contains("`B` is not defined"),
        "a name bound before an expression is gone: {}",
        lines[3]
    );
    assert!(lines[4].starts_with("error: at byte 0: expected an expression"), "{}", lines[4]);
    assert!(lines[5].starts_with("error: at byte 0: this line is not UTF-8"), "{}", lines[5]);
    assert_eq!((lines[6], lines[7], lines[8]), ("10", "4:1", "4:1"));
    let run = layout(&["-", "--json"], b"4:1\noops\n4:1(2)\n");
    let values: Vec<Value> = run.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!((values[0]["size"].clone(), values[2]["value"].clone()), (json!(4), json!(2)));
    assert_eq!(values[1]["error"]["kind"], "expression");
    assert_eq!(layout(&["-"], b"4:1\r\n8:1\r\n").out, "4:1\n8:1\n");
}

#[test]
fn a_hundred_thousand_lines_are_answered() {
    let run = layout(&["-"], "compose((4,2,8):(3,12,97), 3:3)\n".repeat(100_000).as_bytes());
    assert_eq!((run.code, run.out.lines().count()), (Some(0), 100_000));
}

#[test]
fn pictures() {
    let run = layout(&["(2,3):(3,1)", "--draw", "text"], b"");
    assert_eq!(run.out, "     0  1  2\n  +---------\n0 |  0  1  2\n1 |  3  4  5\n");
    let run = layout(&["((4,8),(2,2)):((32,1),(16,8))", "--draw", "text", "--tile", "16,8"], b"");
    assert!(run.out.contains("0 |   T0V0   T0V1   T1V0   T1V1"), "{}", run.out);
    let run = layout(&["swizzle(3,3,3) o (8,64):(64,1)", "--draw", "text", "--banks", "f16"], b"");
    assert!(run.out.lines().nth(3).unwrap().starts_with("1 |   4   4   5   5"), "{}", run.out);
    let svg = layout(&["(4,8):(8,1)", "--draw", "svg"], b"").out;
    assert!(svg.starts_with("<svg xmlns") && svg.ends_with("</svg>\n"), "{svg}");
    assert_eq!(svg.matches("<rect ").count(), 32 + 2, "cells, background and frame");
    let latex = layout(&["(4,8):(e0,e1)", "--draw", "latex"], b"").out;
    assert!(latex.starts_with("\\documentclass") && latex.ends_with("\\end{document}\n"), "{latex}");
    assert_eq!(latex.matches("\\node at").count(), 32);
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    for (args, code, says) in [
        (&["4:1(2)", "--draw", "text"][..], 1, "only a layout can be drawn"),
        (&["(2,2,2):(1,2,4)", "--draw", "svg"], 1, "it must have one or two modes"),
        (&["(1000,1000):(1,1000)", "--draw", "svg"], 1, "too large"),
        (&["(4,4):(1,4)", "--draw", "svg", "--tile", "2,2"], 1, "which is not in the tile of 2 × 2"),
        (&["(4,4):(1,4)", "--draw", "svg", "--tile", "2"], 2, "--tile takes rows,columns"),
        (&["(4,4):(1,4)", "--draw", "svg", "--banks", "long"], 2, "--banks takes an element type"),
        (&["(4,4):(1,4)", "--draw", "svg", "--banks", "f999"], 1, "999 bits do not fall into banks"),
        (&["(4,4):(1,4)", "--banks", "f16"], 2, "add --draw"),
        (&["-", "--draw", "svg"], 2, "--draw draws one expression"),
        (&["4:1", "--draw", "png"], 2, "it is one of text, svg, latex"),
    ] {
        let run = layout(args, b"");
        assert_eq!(run.code, Some(code), "{args:?}: {}{}", run.out, run.err);
        assert!(run.err.contains(says), "{args:?} should say `{says}`:\n{}", run.err);
    }
}
