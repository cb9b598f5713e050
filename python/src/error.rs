//! Errors as exceptions of the package's classes, which `tilewright/errors.py` defines.

use pyo3::prelude::*;
use serde_json::Value;
use tilewright::excerpts::{Form, Severity, as_json, excerpt};
use tilewright::tile::{Diagnostic, Diagnostics, Sources};

/// Classes of exceptions, by their names in Python.
#[derive(Clone, Copy, Debug)]
pub enum Class {
    /// The program is refused.
    Compile,
    /// A launch or its arguments are refused.
    Launch,
    /// An operation on layouts is refused.
    Layout,
    /// A kernel is not ready, and must not be compiled now.
    NotReady,
    /// There is no GPU, or no driver.
    Device,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Class::Compile => "CompileError",
            Class::Launch => "LaunchError",
            Class::Layout => "LayoutError",
            Class::NotReady => "NotReady",
            Class::Device => "DeviceError",
        }
    }
}

/// An exception of a class, made of a text and its diagnostics as JSON.
pub fn raised(py: Python<'_>, class: Class, text: &str, diagnostics: &Value) -> PyErr {
    let made = py
        .import("tilewright.errors")
        .and_then(|module| module.getattr(class.name()))
        .and_then(|class| class.call_method1("_of", (text, diagnostics.to_string())));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// An exception that says one sentence.
pub fn said(py: Python<'_>, class: Class, text: impl std::fmt::Display) -> PyErr {
    let text = text.to_string();
    let diagnostics = serde_json::json!([{ "severity": "error", "message": text }]);
    raised(py, class, &text, &diagnostics)
}

/// An exception about a program, beside the lines that it is about.
pub fn refused(py: Python<'_>, class: Class, sources: &Sources, diagnostics: &Diagnostics) -> PyErr {
    let text: Vec<String> = diagnostics.0.iter().map(|d| shown(sources, d, Severity::Error)).collect();
    raised(py, class, &text.join("\n\n"), &listed(sources, &diagnostics.0, Severity::Error))
}

/// A message beside the lines that it is about.
pub fn shown(sources: &Sources, diagnostic: &Diagnostic, severity: Severity) -> String {
    excerpt(sources, diagnostic, severity, Form::Plain)
}

/// Messages as JSON, each with its text.
pub fn listed(sources: &Sources, diagnostics: &[Diagnostic], severity: Severity) -> Value {
    let each = diagnostics.iter().map(|d| {
        let mut value = as_json(sources, d, severity);
        value["text"] = shown(sources, d, severity).into();
        value
    });
    each.collect()
}
