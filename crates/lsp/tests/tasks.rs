//! Task programs in the language server: what the analysis of a document says of them.

use std::collections::HashMap;

use tilewright_lsp::analysis::{Analysis, Job};

fn codes(text: &str) -> Vec<String> {
    let (path, text) = ("halve.task".to_string(), text.to_string());
    let analysis = Analysis::unguarded(&Job { path, version: 1, text, open: HashMap::new(), arch: None });
    analysis.found.iter().map(|found| found.diagnostic.code.to_string()).collect()
}

const HALVE: &str = "size n = 1000
task halve(y: write f32[N], x: read f32[N]) {
    inner host {
        yp = blocks(y, [128])
        xp = blocks(x, [128])
        for i in prange(ceil_div(N, 128)) { launch half(yp[i], xp[i]) }
    }
}
task half(y: write f32[N], x: read f32[N]) {
    leaf all { y = 0.5 * x }
}
mapping a100 for sm_80 {
    entry halve.host on host(global, global)
    half.all on block(register, register) warps(4)
}
";

#[test]
fn a_task_program_is_parsed_verified_and_its_graphs_are_made() {
    assert_eq!(codes(HALVE), [""; 0]);
    assert_eq!(codes(&HALVE.replace("launch half", "launch third")), ["unknown-name"]);
    let swapped = HALVE.replace("launch half(yp[i], xp[i])", "launch half(xp[i], yp[i])");
    assert_eq!(codes(&swapped), ["privilege", "not-written"]);
    // What only the graph of a mapping says.
    assert_eq!(codes(&HALVE.replace("128", "65536")), ["registers-exceeded"]);
}
