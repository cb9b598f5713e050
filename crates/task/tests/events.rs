//! Event graphs of the examples, as text.

mod common;

use tilewright_task::graph::verify_graph;
use tilewright_task::instantiate::instantiate;
use tilewright_task::passes::depend::depend;
use tilewright_task::passes::place::place;

#[test]
fn dependences_of_the_examples() {
    common::mappings(|name, program, mapping| {
        let tree = instantiate(program, mapping).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let graph = depend(program, tree).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        assert_eq!(verify_graph(&graph), [""; 0], "{name}");
        common::snapshot(&format!("{name}.events"), &graph.text());
    });
}

#[test]
fn places_of_the_examples() {
    common::mappings(|name, program, mapping| {
        let tree = instantiate(program, mapping).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let mut graph = depend(program, tree).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        place(program, &mut graph).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        common::snapshot(&format!("{name}.places"), &(graph.text() + "\n" + &graph.copies_text(program)));
        assert_eq!(verify_graph(&graph), [""; 0], "{name}\n{}", graph.text());
    });
}
