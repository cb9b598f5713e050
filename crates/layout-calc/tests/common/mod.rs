//! Checks that the tests of the calculator share.

use tilewright_layout_calc::{Value, evaluate};

/// The value or the error of an expression must print as expected.
#[track_caller]
pub fn check(expr: &str, expected: &str) {
    let found = match evaluate(expr) {
        Ok(value) => value.to_string(),
        Err(error) => error.to_string(),
    };
    assert_eq!(found, expected, "{expr}");
}

/// No list of tokens makes the calculator panic, with or without spaces between them.
pub fn survives(tokens: &[String]) {
    let _ = evaluate(&tokens.join(" "));
    let _ = evaluate(&tokens.concat());
}

/// The value of an expression, if it has one, must print as an expression with the same text. As text: zero strides of any kind read as
/// integers.
pub fn reads_again(expr: &str) {
    match evaluate(expr) {
        Ok(Value::Bool(_) | Value::Text(_)) | Err(_) => {}
        Ok(value) => {
            let printed = value.to_string();
            assert_eq!(evaluate(&printed).map(|v| v.to_string()), Ok(printed));
        }
    }
}
