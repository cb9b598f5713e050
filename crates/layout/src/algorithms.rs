//! The generic COPY and GEMM (paper 2.6): reference algorithms, written for vectors and matrices, that the layouts of
//! their tensors turn into transposes, gathers, tensor contractions and convolutions. The first mode is the fastest.

use crate::error::LayoutError;
use crate::layout::Layout;
use crate::stride::Stride;
use crate::tensor::{Accessor, AccessorMut, Tensor};
use std::ops::{Add, Mul};

/// COPY (paper 2.6.1): `dst(i) = src(i)` for every integral coordinate, ascending. The sizes must agree; an error
/// otherwise, or where an accessor leaves its data.
///
/// ```
/// use tilewright_layout::{Layout, Pointer, PointerMut, Tensor, copy};
/// let (src, mut dst) = ([1, 2, 3, 4, 5, 6], [0; 6]);
/// let from = Tensor::new(Pointer::new(&src), "(2,3):(1,2)".parse::<Layout>()?);
/// let to = Tensor::new(PointerMut::new(&mut dst), "(2,3):(3,1)".parse::<Layout>()?);
/// copy(&from, &to)?;
/// assert_eq!(dst, [1, 3, 5, 2, 4, 6]); // transposed
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn copy<S, D, A, B>(src: &Tensor<A, S>, dst: &Tensor<B, D>) -> Result<(), LayoutError>
where
    S: Stride,
    D: Stride,
    A: Accessor<S>,
    B: AccessorMut<D, Value = A::Value>,
{
    same("copy", &src.layout, &dst.layout)?;
    for i in 0..dst.layout.size() {
        dst.set_at(i, src.at(i)?)?;
    }
    Ok(())
}

/// GEMM (paper 2.6.2): `C(m,n) += A(m,k)·B(n,k)` at the integral coordinates of the modes of `A` (M,K), `B` (N,K) and `C`
/// (M,N); `m` is the fastest, `k` the slowest. All must have rank 2 and agree in M, N and K.
pub fn gemm<SA, SB, SC, A, B, C, T>(
    a: &Tensor<A, SA>,
    b: &Tensor<B, SB>,
    c: &Tensor<C, SC>,
) -> Result<(), LayoutError>
where
    SA: Stride,
    SB: Stride,
    SC: Stride,
    A: Accessor<SA, Value = T>,
    B: Accessor<SB, Value = T>,
    C: AccessorMut<SC, Value = T>,
    T: Add<Output = T> + Mul<Output = T>,
{
    for (rank, size) in [
        (a.layout.rank(), a.layout.size()),
        (b.layout.rank(), b.layout.size()),
        (c.layout.rank(), c.layout.size()),
    ] {
        if rank != 2 {
            return Err(LayoutError::RankMismatch {
                operation: "gemm",
                left: rank,
                right: 2,
                expected: "all three tensors must have rank 2; fold their modes",
            });
        }
        debug_assert!(size > 0);
    }
    same("gemm, M of A and C", &a.layout.mode(0)?, &c.layout.mode(0)?)?;
    same("gemm, N of B and C", &b.layout.mode(0)?, &c.layout.mode(1)?)?;
    same("gemm, K of A and B", &a.layout.mode(1)?, &b.layout.mode(1)?)?;
    for k in 0..b.layout.mode(1)?.size() {
        for n in 0..b.layout.mode(0)?.size() {
            let right = (n, k).into();
            for m in 0..a.layout.mode(0)?.size() {
                let at = (m, n).into();
                c.set(&at, c.get(&at)? + a.get(&(m, k).into())? * b.get(&right)?)?;
            }
        }
    }
    Ok(())
}

/// Batched GEMM (paper equation 2): `C(m,n,l) += A(m,k,l)·B(n,k,l)` for each batch `l`; all must have rank 3.
pub fn batched_gemm<SA, SB, SC, A, B, C, T>(
    a: &Tensor<A, SA>,
    b: &Tensor<B, SB>,
    c: &Tensor<C, SC>,
) -> Result<(), LayoutError>
where
    SA: Stride,
    SB: Stride,
    SC: Stride,
    A: Accessor<SA, Value = T>,
    B: Accessor<SB, Value = T>,
    C: AccessorMut<SC, Value = T>,
    T: Add<Output = T> + Mul<Output = T>,
{
    same("batched gemm, batches of A and C", &a.layout.mode(2)?, &c.layout.mode(2)?)?;
    same("batched gemm, batches of B and C", &b.layout.mode(2)?, &c.layout.mode(2)?)?;
    let batch = |l: i64| {
        crate::Slice(crate::HTuple::Tuple(vec![
            crate::HTuple::Leaf(None),
            crate::HTuple::Leaf(None),
            crate::HTuple::Leaf(Some(l)),
        ]))
    };
    for l in 0..c.layout.mode(2)?.size() {
        gemm(&a.slice(&batch(l))?, &b.slice(&batch(l))?, &c.slice(&batch(l))?)?;
    }
    Ok(())
}

fn same<S: Stride, D: Stride>(
    operation: &'static str,
    left: &Layout<S>,
    right: &Layout<D>,
) -> Result<(), LayoutError> {
    if left.size() == right.size() {
        return Ok(());
    }
    Err(LayoutError::SizeMismatch { operation, left: left.to_string(), right: right.to_string() })
}
