//! Parts of a linear layout: the columns of an input along one mode (LL 5.5), which say whether a gather along it stays within a
//! warp or a thread.

use super::{LinearLayout, refuse, total};
use crate::error::LayoutError;

impl LinearLayout {
    /// The columns of one input, restricted to the bits of one output: `L_in^mode` (LL 5.5).
    pub fn part(&self, input: &str, mode: &str) -> Result<Vec<u64>, LayoutError> {
        let Some(k) = self.outs().iter().position(|o| o.name == mode) else {
            return refuse("a part of a linear layout", self, format!("it has no mode {mode}"));
        };
        let (at, size) = (total(&self.outs()[..k]), self.outs()[k].size());
        Ok(self.bases(input).iter().map(|c| c >> at & (size - 1)).collect())
    }
}
