//! Cluster launch control: clusters of a launch that take the places of others that have not begun.

use crate::features::{Feature, Features};

/// Requests to cancel a cluster that has not begun, of one that runs and does its work then. The answer is written to shared memory by the asynchronous
/// proxy, and an mbarrier counts its bytes.
///
/// Source: PTX ISA 8.6, `clusterlaunchcontrol.try_cancel` and `clusterlaunchcontrol.query_cancel`: a request of a block that has seen an answer by which
/// nothing was cancelled is undefined, and so is the index of the block in such an answer.
pub struct LaunchControl;

impl LaunchControl {
    /// The features that an architecture must have.
    pub const NEEDS: Features = Features::of(&[Feature::LaunchControl, Feature::TransactionBarrier]);

    /// Bytes of an answer, and their alignment.
    pub const ANSWER_BYTES: u32 = 16;

    /// The index of a block where an answer has none: larger than every one of a grid along x.
    pub const NONE: u32 = i32::MAX as u32;

    /// PTX mnemonic of a request; its operands are the addresses of the answer and of the mbarrier.
    pub const TRY_CANCEL: &str =
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128";

    /// PTX mnemonic of the predicate that a cluster was cancelled; its operand is an answer.
    pub const IS_CANCELED: &str = "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128";

    /// PTX mnemonic of the index along x of the first block of the cluster that was cancelled; its operand is an answer.
    pub const FIRST_BLOCK: &str = "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128";

    /// An answer in words, as `ptxas` 13.5 decodes one: the index of the cluster's first block (x; y and z, of 16 bits each), and whether there is one.
    pub fn answer(block: Option<[u32; 3]>) -> [u32; 4] {
        match block {
            Some([x, y, z]) => [x, y & 0xffff | z << 16, 1, 0],
            None => [u32::MAX, u32::MAX, 0, 0],
        }
    }

    /// The index along x of the block in an answer.
    pub fn first_block([x, _, cancelled, _]: [u32; 4]) -> Option<u32> {
        (cancelled & 1 != 0).then_some(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_block_that_was_cancelled() {
        let answer = LaunchControl::answer(Some([70000, 3, 5]));
        assert_eq!(answer, [70000, 3 | 5 << 16, 1, 0]);
        assert_eq!(LaunchControl::first_block(answer), Some(70000));
        assert_eq!(LaunchControl::first_block(LaunchControl::answer(None)), None);
    }
}
