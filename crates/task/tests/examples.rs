//! The programs of `examples/tasks`: their text form.

use std::fs;
use std::path::Path;

use tilewright_task::parse;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tasks")
}

#[test]
fn programs_print_and_parse_back() {
    for file in fs::read_dir(folder()).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let program = parse(&text).unwrap_or_else(|errors| panic!("{}: {errors}", path.display()));
        let printed = program.to_string();
        let again =
            parse(&printed).unwrap_or_else(|errors| panic!("{}: {errors}\n{printed}", path.display()));
        assert_eq!(again, program, "{printed}");
        assert_eq!(again.to_string(), printed);
    }
}
