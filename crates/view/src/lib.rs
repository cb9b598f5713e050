//! A compiled kernel as one HTML page that needs nothing else: the source with the cost of each line, layouts as pictures, the pipeline as a
//! timeline, bank maps of shared tensors, and each statement's alternatives with the reason why they lost.
//!
//! [`Page`] is the data: it serialises, and [`html`] puts it into the page, whose markup, style and script are the files in `page/`.
//! Layouts are handed over as extents and strides, which the script evaluates; all that is text is that of the compiler's report.
//!
//! ```
//! use tilewright::prelude::*;
//! use tilewright_view::{Page, html, simulate};
//!
//! let text = "size n = 64
//!     kernel scale(x: f32[n], y: f32[n]) grid(1) threads(32) {
//!         gx = global_view(x, (64) : (e0))
//!         gy = global_view(y, (64) : (e0))
//!         r = register_tensor(f32, [64])
//!         copy(gx, r)
//!         twice = 2.0 * r
//!         copy(twice, gy)
//!     }";
//! let program = parse(text)?;
//! let kernel = compile(&program, &Options::new(Arch::SM_80).for_sizes(&program, &[]))?;
//! let sizes = [("n".to_string(), 64)].into_iter().collect();
//! let run = simulate(&kernel, &sizes, &Default::default());
//! let mut page = Page::new(program.sources.clone());
//! page.add(&kernel, &sizes, &[], run);
//! assert!(html(&page).starts_with("<!doctype html>"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod build;
mod html;
mod model;
mod places;
mod ptx;
mod run;
mod statements;
mod tensors;
mod timeline;

pub use html::html;
pub use model::{
    Buffer, CallSite, Choice, Events, Kernel, Kind, Message, Page, Pipeline, Place, Ptx, Related, Request,
    Result, Role, Run, SourceFile, Statement, Tensor, Timeline, Track,
};
pub use run::{NotRun, WORK_LIMIT, simulate};
