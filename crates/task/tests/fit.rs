//! Shared memory and registers of a block: what a mapping must give up to fit, and what it says where it cannot; circuits that decide how long iterations
//! take; pictures.

use crate::common;
use tilewright_task::critical::Estimate;
use tilewright_task::draw::svg;
use tilewright_task::graph::Why;
use tilewright_task::parse;
use tilewright_task::passes::graph;

fn outcome(text: &str, mapping: &str) -> String {
    let program = parse(text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let mapping = program.mappings.iter().find(|row| row.name == mapping).unwrap();
    match graph(&program, mapping) {
        Ok(graph) => graph.memory_text(),
        Err(errors) => {
            let said = errors.0.iter().map(|error| {
                let notes: String = error.notes.iter().map(|note| format!("  note: {note}\n")).collect();
                format!("{}: {error}\n{notes}", error.code)
            });
            said.collect()
        }
    }
}

/// The text of an example whose mapping says something else.
fn changed(name: &str, from: &str, to: &str) -> String {
    let (_, program) = common::examples().into_iter().find(|(of, _)| of == name).unwrap();
    let text = program.to_string();
    assert!(text.contains(from), "{text}");
    text.replace(from, to)
}

#[test]
fn rings_shrink_as_far_as_the_mapping_allows() {
    let of = |bytes: &str| {
        let to = format!("pipeline(2..4) in_flight(1) shared <= {bytes}");
        outcome(&changed("gemm", "pipeline(4) in_flight(1) shared <= 232448", &to), "h200")
    };
    common::snapshot("fit.room", &of("232448"));
    common::snapshot("fit.two_stages", &of("150000"));
    // What the row allows is too much; fewer stages would fit.
    common::snapshot("fit.exceeded", &of("100000"));
    // No number of stages fits: the tile is to be halved.
    common::snapshot("fit.tile", &of("60000"));
}

/// Two tensors in shared memory, one after the other, in each iteration of a loop; each is written in quarters and read in halves. BOUND is what there is.
const TWO: &str = "const N = 1024
task f(y: write f32[N], x: read f32[N]) {
    inner host {
        yp = blocks(y, [N])
        xp = blocks(x, [N])
        for b in prange(1) { launch f(yp[b], xp[b]) } }
    inner body {
        sum = tensor(f32, [N])
        xp = blocks(x, [N / 4])
        up = blocks(sum, [N / 2])
        launch clear(sum)
        for j in srange(4) {
            first = tensor(f32, [N])
            second = tensor(f32, [N])
            fp = blocks(first, [N / 4])
            gp = blocks(first, [N / 2])
            sp = blocks(second, [N / 4])
            tp = blocks(second, [N / 2])
            for a in srange(4) { launch twice(fp[a], xp[a]) }
            for b in srange(2) { launch add(up[b], gp[b]) }
            for c in srange(4) { launch twice(sp[c], xp[c]) }
            for d in srange(2) { launch add(up[d], tp[d]) }
        }
        launch twice(y, sum) }
}
task clear(x: write f32[N]) { leaf zero { fill(x, 0.0) } }
task twice(y: write f32[N], x: read f32[N]) { leaf all { y = x + x } }
task add(y: read_write f32[N], x: read f32[N]) { leaf all { y = y + x } }
mapping m for sm_80 {
    entry f.host on host (global, global)
    f.body on block (global, global) local(first = shared) local(second = shared) local(sum = register) shared <= BOUND
}
";

#[test]
fn places_that_are_never_needed_together_use_one_memory() {
    common::snapshot("fit.apart", &outcome(&TWO.replace("BOUND", "8192"), "m"));
    let text = TWO.replace("BOUND", "8191");
    common::snapshot("fit.one_memory", &outcome(&text, "m"));
    // Both ways round: the next iteration writes the first where the second is.
    let program = parse(&text).unwrap();
    let graph = graph(&program, &program.mappings[0]).unwrap_or_else(|errors| panic!("{errors}"));
    let edges = graph.edges.iter().filter(|edge| edge.why == Why::SamePlace);
    let distances: Vec<&[i64]> = edges.map(|edge| &edge.distance[..]).collect();
    assert!(distances.contains(&&[][..]) && distances.contains(&&[0, 1][..]), "{distances:?}");
    common::snapshot("fit.one_is_too_large", &outcome(&TWO.replace("BOUND", "4000"), "m"));
}

#[test]
fn fragments_are_counted_against_registers() {
    let roles = "warpspecialize(2) pipeline(4) in_flight(1) shared <= 232448";
    let with = |roles_of: &str| outcome(&changed("gemm", roles, roles_of), "h200");
    common::snapshot("registers.exceeded", &with("warpspecialize(1) pipeline(4) in_flight(1)"));
    common::snapshot(
        "registers.too_few",
        &with("warpspecialize(2) pipeline(4) in_flight(1) registers(24, 136)"),
    );
    common::snapshot(
        "registers.of_the_launch",
        &with("warpspecialize(2) pipeline(4) in_flight(1) registers(32, 240)"),
    );
}

#[test]
fn circuits_of_the_examples() {
    let mut text = String::new();
    common::mappings(|name, program, mapping| {
        let graph = graph(program, mapping).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        for circuit in Estimate::of(program, mapping, &graph).circuits(&graph.edges) {
            text += &format!("{name}: {}\n", graph.circuit_text(&circuit));
        }
    });
    common::snapshot("circuits", &text);
}

/// The names of the elements of a text of XML that are opened and not closed where they must be.
fn unbalanced(xml: &str) -> Vec<String> {
    let (mut open, mut wrong) = (Vec::new(), Vec::new());
    for part in xml.split('<').skip(1) {
        let Some((tag, text)) = part.split_once('>') else {
            wrong.push(part.to_string());
            continue;
        };
        // A `&` begins an entity, and a tag's attributes are in quotes.
        let entities = ["&amp;", "&lt;", "&gt;", "&quot;"];
        let rest = entities.iter().fold(text.to_string(), |text, entity| text.replace(entity, ""));
        if rest.contains('&') || rest.contains('>') || tag.matches('"').count() % 2 != 0 {
            wrong.push(part.to_string());
        }
        let name = tag.split([' ', '/']).find(|word| !word.is_empty()).unwrap_or_default().to_string();
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) if open.pop().as_ref() == Some(&name) => {}
            (true, _) => wrong.push(part.to_string()),
            (false, true) => {}
            (false, false) => open.push(name),
        }
    }
    wrong.extend(open);
    wrong
}

#[test]
fn pictures_are_xml_and_show_all_statements() {
    assert_eq!(unbalanced("<a><b x=\"1\"/>&lt;</a>"), [""; 0]);
    assert_eq!(unbalanced("<a>x & y</a><b>").len(), 2);
    common::mappings(|name, program, mapping| {
        let graph = graph(program, mapping).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let picture = svg(program, mapping, &graph);
        assert_eq!(unbalanced(&picture), [""; 0], "{name}");
        assert_eq!(picture.matches("<rect class=\"node").count(), graph.nodes.len(), "{name}");
        assert_eq!(picture.matches("marker-end").count(), graph.edges.len(), "{name}");
        assert!(picture.contains("class=\"critical"), "{name}");
        // Expressions have comparisons in them.
        assert!(name != "attention.fa3" || picture.contains("if rest &lt; N"));
        let roles = picture.matches("class=\"lane\"").count();
        assert_eq!(roles, if name.contains("ampere") { 1 } else { 2 }, "{name}");
    });
}
