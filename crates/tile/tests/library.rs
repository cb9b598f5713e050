//! Functions that come with the language.

use std::collections::BTreeMap;

use tilewright_tile::interpret::Argument;
use tilewright_tile::{Constants, interpret, parse, verify};

/// The first known answer of the authors' reference (`kat_vectors` of Random123): of a counter and a key of zeros.
#[test]
fn philox_gives_the_words_of_its_reference() {
    let program = parse(
        "use philox
        kernel words(y: u32[4, 32]) grid(1) threads(32) {
            gy = global_view(y, (4, 32) : (e0, e1))
            counter = register_tensor(u32, [32])
            counter = index(0)
            a, b, c, d = philox(counter, 0, 0)
            copy(a, gy[0, :])
            copy(b, gy[1, :])
            copy(c, gy[2, :])
            copy(d, gy[3, :])
        }",
    )
    .unwrap();
    let verified = verify(&program, &Constants::new()).unwrap();
    let mut arguments = [Argument::Tensor(vec![0.0; 128])];
    interpret(&verified, &BTreeMap::new(), &mut arguments).unwrap();
    let Argument::Tensor(words) = &arguments[0] else { panic!("a tensor was given") };
    let first = [0, 32, 64, 96].map(|at| words[at] as u32);
    assert_eq!(first, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
}
