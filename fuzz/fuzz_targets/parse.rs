//! What reads from any text prints as text that reads as the same thing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fmt::{Debug, Display};
use std::str::FromStr;
use tilewright_layout::{Coord, F2, Layout, Poly, Slice, Swizzle, SwizzledLayout, Tiler};

fn round_trip<T: FromStr<Err: Debug> + Display + Debug + PartialEq>(text: &str) {
    let Ok(value) = text.parse::<T>() else { return };
    let printed = value.to_string();
    match printed.parse::<T>() {
        Ok(again) => assert_eq!(again, value, "{text} prints as {printed}"),
        Err(error) => panic!("{text} prints as {printed}, which does not read: {error:?}"),
    }
}

fuzz_target!(|text: &str| {
    round_trip::<Layout>(text);
    round_trip::<Layout<Coord>>(text);
    round_trip::<Layout<F2>>(text);
    round_trip::<Layout<Poly>>(text);
    round_trip::<Swizzle>(text);
    round_trip::<SwizzledLayout>(text);
    round_trip::<Tiler>(text);
    round_trip::<Slice>(text);
    round_trip::<Coord>(text);
    round_trip::<F2>(text);
    round_trip::<Poly>(text);
});
