//! Options of methods of products: the programs that a call chooses, interpreted, compute what the method says, by plain loops over small whole numbers, of which every sum is exact.

mod common;

use std::collections::BTreeMap;

use common::{Turn, view, view_mut};
use tilewright_kernels::operator;
use tilewright_launch::DType::{self, F16, I4};
use tilewright_launch::{View, ViewMut};
use tilewright_ops::{Library, Why};
use tilewright_tile::interpret::{Argument, interpret, tensor_len};
use tilewright_tile::{Constants, ParamId, ParamKind, Program, verify};

/// A tensor of small whole numbers.
struct Tensor {
    dtype: DType,
    shape: Vec<i64>,
    values: Vec<f64>,
}

impl Tensor {
    /// Numbers from `least` to `most`, in an order without a pattern.
    fn new(dtype: DType, shape: &[i64], [least, most]: [i64; 2], seed: u64) -> Tensor {
        let mut state = seed | 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (least + (state >> 33) as i64 % (most - least + 1)) as f64
        };
        let count = shape.iter().product();
        Tensor { dtype, shape: shape.to_vec(), values: (0..count).map(|_| next()).collect() }
    }

    fn zeros(dtype: DType, shape: &[i64]) -> Tensor {
        Tensor::new(dtype, shape, [0, 0], 0)
    }

    fn place(&self, at: &[i64]) -> Option<usize> {
        assert_eq!(at.len(), self.shape.len());
        let inside = at.iter().zip(&self.shape).all(|(x, extent)| (0..*extent).contains(x));
        inside.then(|| at.iter().zip(&self.shape).fold(0, |place, (x, extent)| place * extent + x) as usize)
    }

    /// An element; 0 outside.
    fn at(&self, at: &[i64]) -> f64 {
        self.place(at).map_or(0.0, |place| self.values[place])
    }

    /// Adds to an element, if it is one.
    fn add(&mut self, at: &[i64], value: f64) {
        if let Some(place) = self.place(at) {
            self.values[place] += value;
        }
    }

    fn view(&self, address: u64) -> View<'static> {
        view(address, self.dtype, &self.shape)
    }

    fn view_mut(&self, address: u64) -> ViewMut<'static> {
        view_mut(address, self.dtype, &self.shape)
    }
}

/// Words `name=value`, or `name = value` behind each other with commas.
fn pairs(text: &str) -> Vec<(&str, &str)> {
    let words =
        text.split(|c: char| c.is_whitespace() || c == ',' || c == '=').filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

/// The programs of a choice.
fn programs(why: &Why) -> Vec<Program> {
    (operator(&why.operator).unwrap().programs)(&pairs(&why.parameters)).unwrap()
}

/// The tensors behind the programs of a choice.
fn interpreted(why: &Why, given: &[(&str, &Tensor)]) -> BTreeMap<String, Vec<f64>> {
    let mut tensors: BTreeMap<String, Vec<f64>> =
        given.iter().map(|(name, of)| (name.to_string(), of.values.clone())).collect();
    for program in programs(why) {
        let verified = verify(&program, &Constants::new()).unwrap();
        let all =
            pairs(&why.sizes).into_iter().map(|(name, value)| (name.to_string(), value.parse().unwrap()));
        let sizes: BTreeMap<String, i64> =
            all.filter(|(name, _)| program.sizes().any(|(_, symbol, _)| symbol.name == *name)).collect();
        let params = || program.params.iter().enumerate();
        let argument = |(i, param): (usize, &tilewright_tile::Param)| match param.kind {
            ParamKind::Tensor { .. } => {
                let len = tensor_len(&verified, ParamId(i as u32), &sizes).unwrap();
                let values = tensors.get(&param.name).cloned().unwrap_or_else(|| vec![0.0; len]);
                assert_eq!(values.len(), len, "{} of {why}", param.name);
                Argument::Tensor(values)
            }
            ParamKind::Scalar { default } => Argument::Scalar(default),
        };
        let mut arguments: Vec<Argument> = params().map(argument).collect();
        interpret(&verified, &sizes, &mut arguments).unwrap_or_else(|error| panic!("{error} of {why}"));
        for ((_, param), argument) in params().zip(arguments) {
            if let Argument::Tensor(values) = argument {
                tensors.insert(param.name.clone(), values);
            }
        }
    }
    tensors
}

/// Libraries for the architectures that differ in programs of products.
fn each(of: impl Fn(&Turn, &Library)) {
    for capability in [80, 90, 100] {
        let turn = Turn::new(capability);
        of(&turn, &turn.library());
    }
}

fn same(what: &str, why: &Why, found: &[f64], expected: &Tensor) {
    assert!(expected.values.iter().any(|value| *value != 0.0), "{what}");
    let other = found.iter().zip(&expected.values).position(|(found, expected)| found != expected);
    assert!(found.len() == expected.values.len() && other.is_none(), "{what}: element {other:?} of {why}");
}

/// A convolution's modes: (stride, padding, dilation) of rows and of columns.
type Modes = [[i64; 3]; 2];

/// Calls `of` for each term: the places in x, f and y.
fn terms(x: &Tensor, f: &Tensor, y: &Tensor, modes: Modes, mut of: impl FnMut([&[i64]; 3])) {
    let [nb, p, q, kout] = *y.shape else { panic!("{:?}", y.shape) };
    let [_, r, s, c] = *f.shape else { panic!("{:?}", f.shape) };
    assert_eq!((x.shape[0], x.shape[3]), (nb, c));
    let input = |mode: usize, out: i64, tap: i64| {
        let [stride, padding, dilation] = modes[mode];
        out * stride - padding + tap * dilation
    };
    for (n, p, q, k) in (0..nb).flat_map(|n| {
        (0..p).flat_map(move |p| (0..q).flat_map(move |q| (0..kout).map(move |k| (n, p, q, k))))
    }) {
        for (r, s, c) in (0..r).flat_map(|r| (0..s).flat_map(move |s| (0..c).map(move |c| (r, s, c)))) {
            of([&[n, input(0, p, r), input(1, q, s), c], &[k, r, s, c], &[n, p, q, k]]);
        }
    }
}

#[test]
fn convolutions_with_strides_padding_and_dilation() {
    let numbers = [-2, 2];
    // Images of 9 × 8, a filter of 3 × 2.
    let cases: [(Modes, [i64; 2], [&str; 3]); 2] =
        [([[2, 1, 1]; 2], [5, 5], ["2", "1", "1"]), ([[2, 0, 1], [1, 0, 3]], [4, 5], ["2x1", "0", "1x3"])];
    for capability in [90, 100] {
        let turn = Turn::new(capability);
        let (lib, stream) = (turn.library(), turn.stream());
        for (modes, [p, q], [stride, padding, dilation]) in cases {
            let x = Tensor::new(F16, &[2, 9, 8, 16], numbers, 1);
            let f = Tensor::new(F16, &[24, 3, 2, 16], numbers, 2);
            let dy = Tensor::new(F16, &[2, p, q, 24], numbers, 3);
            let [mut y, mut dx, mut df] = [&dy, &x, &f].map(|of| Tensor::zeros(F16, &of.shape));
            terms(&x, &f, &dy, modes, |[at_x, at_f, at_y]| {
                y.add(at_y, x.at(at_x) * f.at(at_f));
                dx.add(at_x, dy.at(at_y) * f.at(at_f));
                df.add(at_f, dy.at(at_y) * x.at(at_x));
            });
            let (vx, vf, vy) = (x.view(0x1000_0000), f.view(0x2000_0000), dy.view(0x3000_0000));
            let (mut ry, mut rx, mut rf) =
                (dy.view_mut(0x4000_0000), x.view_mut(0x5000_0000), f.view_mut(0x6000_0000));
            let call = lib.conv(stream, &vx, &vf, &mut ry);
            let why = call.stride(stride).padding(padding).dilation(dilation).why().unwrap();
            same("y", &why, &interpreted(&why, &[("x", &x), ("f", &f)])["y"], &y);
            let call = lib.conv_data_gradient(stream, &vy, &vf, &mut rx);
            let why = call.stride(stride).padding(padding).dilation(dilation).why().unwrap();
            same("dx", &why, &interpreted(&why, &[("dy", &dy), ("f", &f)])["dx"], &dx);
            let call = lib.conv_weight_gradient(stream, &vy, &vx, &mut rf);
            let why = call.stride(stride).padding(padding).dilation(dilation).why().unwrap();
            same("df", &why, &interpreted(&why, &[("dy", &dy), ("x", &x)])["df"], &df);
        }
    }
}

/// `c[m, n] = Σ a[m, k] · s[k / group, n] · (w[n, k] − z[k / group, n])`.
fn weighted(a: &Tensor, w: &Tensor, s: &Tensor, z: Option<&Tensor>, group: i64) -> Tensor {
    let (m, n, k) = (a.shape[0], w.shape[0], w.shape[1]);
    let mut c = Tensor::zeros(F16, &[m, n]);
    for (i, j, kk) in (0..m).flat_map(|i| (0..n).flat_map(move |j| (0..k).map(move |kk| (i, j, kk)))) {
        let scale = [kk / group, j];
        c.add(&[i, j], a.at(&[i, kk]) * s.at(&scale) * (w.at(&[j, kk]) - z.map_or(0.0, |z| z.at(&scale))));
    }
    c
}

#[test]
fn groups_and_zero_points_of_weights() {
    let [m, n, k] = [5, 72, 256];
    let a = Tensor::new(F16, &[m, k], [-1, 1], 1);
    let w = Tensor::new(I4, &[n, k], [-8, 7], 2);
    each(|turn, lib| {
        let stream = turn.stream();
        for (group, with_zeros) in [(64, true), (64, false), (256, true)] {
            let scales = [k / group, n];
            let s = Tensor::new(F16, &scales, [1, 2], 3);
            let z = Tensor::new(F16, &scales, [-3, 3], 4);
            let expected = weighted(&a, &w, &s, with_zeros.then_some(&z), group);
            let (va, vw, vs, vz) =
                (a.view(0x1000_0000), w.view(0x2000_0000), s.view(0x3000_0000), z.view(0x4000_0000));
            let mut c = expected.view_mut(0x5000_0000);
            let given = [("a", &a), ("w", &w), ("s", &s), ("z", &z)];
            let mut call = lib.w4a16(stream, &va, &vw, &vs, &mut c).group(group);
            if with_zeros {
                call = call.zero_points(&vz);
            }
            let why = call.why().unwrap();
            same("w4a16", &why, &interpreted(&why, &given)["c"], &expected);
            if lib.arch() == tilewright_machine::Arch::SM_80 {
                continue;
            }
            // In the order in which the kernel loads them.
            let stored = [(n as u64).div_ceil(64) as i64, (k as u64).div_ceil(64) as i64 * 2, 2048];
            let mut packed = view_mut(0x6000_0000, I4, &stored);
            let why = lib.repack_weights(stream, &vw, &mut packed).group(group).why().unwrap();
            let values = interpreted(&why, &[("x", &w)]).remove("w").unwrap();
            let packed = Tensor { dtype: I4, shape: stored.to_vec(), values };
            let vp = packed.view(0x6000_0000);
            let mut call = lib.gemm_weights(stream, &va, &vp, &vs, &mut c).group(group);
            if with_zeros {
                call = call.zero_points(&vz);
            }
            let why = call.why().unwrap();
            let given = [("a", &a), ("w", &packed), ("s", &s), ("z", &z)];
            same("gemm_weights", &why, &interpreted(&why, &given)["c"], &expected);
        }
    });
}
