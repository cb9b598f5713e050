//! Tensors with their layouts as extents and strides.

use tilewright::compiler::Kernel as Compiled;
use tilewright::layout::{Layout, SwizzledLayout};
use tilewright::machine::DType;
use tilewright::synth::TensorNote;

use crate::model::Tensor;
use crate::places::Places;

/// The register and shared tensors of a kernel.
pub fn tensors(kernel: &Compiled, places: &mut Places<'_>) -> Vec<Tensor> {
    let notes = kernel.explanation.tensors.iter();
    notes.map(|note| tensor(kernel, note, places)).collect()
}

fn tensor(kernel: &Compiled, note: &TensorNote, places: &mut Places<'_>) -> Tensor {
    let row = kernel.core.tensors.iter().find(|row| row.name == note.name);
    let span = row.and_then(|row| row.span.text());
    let expression = row.and_then(|row| row.unnamed.text()).map(str::to_string);
    // A definition begins with the tensor's name; unrolling and inlining put something behind it.
    let word = span.and_then(|span| places.word(span.start));
    let word = word.filter(|word| expression.is_none() && note.name.starts_with(word.as_str()));
    let mut tensor = Tensor {
        name: note.name.clone(),
        word,
        expression,
        place: span.map(|span| places.at(span).0),
        memory: note.memory.clone(),
        dtype: note.dtype.clone(),
        bits: note.dtype.parse().map_or(0, |dtype: DType| dtype.bits()),
        shape: note.shape.clone(),
        layout: note.layout.clone(),
        threads: Vec::new(),
        values: Vec::new(),
        modes: Vec::new(),
        swizzle: [0; 3],
        size: note.size,
        offset: note.offset,
        why: note.why.clone(),
    };
    if note.memory == "register" {
        let modes = note.layout.parse::<Layout>().map(|layout| layout.modes()).unwrap_or_default();
        if let [threads, values] = modes.as_slice() {
            (tensor.threads, tensor.values) = (threads.leaves(), values.leaves());
        }
    } else if let Ok(SwizzledLayout { layout, swizzle, .. }) = note.layout.parse() {
        tensor.modes = modes_of(&layout, note.shape.len());
        tensor.swizzle = [swizzle.bits(), swizzle.base(), swizzle.shift()];
    }
    tensor
}

/// The leaves of each mode of a layout. A tensor of one mode has a layout of that mode, whatever its nesting.
fn modes_of(layout: &Layout, rank: usize) -> Vec<Vec<(i64, i64)>> {
    if rank == 1 {
        return vec![layout.leaves()];
    }
    layout.modes().iter().map(Layout::leaves).collect()
}
