//! Weights of checkpoints as public quantisers write them, read into rows of codes.
//!
//! - AWQ (Lin et al., *AWQ: Activation-aware Weight Quantization*, MLSys 2024; `WQLinear_GEMM` of its repository): `qweight[k, n / 8]`, where a word
//!   has eight neighbours along n in the order 0, 2, 4, 6, 1, 3, 5, 7, lowest bits first; `qzeros[k / group, n / 8]` in the same order.
//! - GPTQ (Frantar et al., *GPTQ*, ICLR 2023; the format of AutoGPTQ): `qweight[k / 8, n]`, where a word has eight neighbours along k in order;
//!   `qzeros[k / group, n / 8]`, eight neighbours along n in order, each one less than the zero point; `g_idx[k]`, the group of each column.
//!
//! Both have `scales[k / group, n]`, which are the operator's as they are, and codes without a sign.

use std::fmt;

/// Weights of 4 bits as a quantiser packs them in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checkpoint<'a> {
    /// That of AWQ.
    Awq {
        /// `qweight`.
        weights: &'a [u32],
        /// `qzeros`.
        zeros: &'a [u32],
    },
    /// That of GPTQ.
    Gptq {
        /// `qweight`.
        weights: &'a [u32],
        /// `qzeros`.
        zeros: &'a [u32],
        /// `g_idx`, if the checkpoint has it.
        groups: Option<&'a [i32]>,
    },
}

/// Weights and zero points of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadWeights {
    /// Codes of `n` rows of `k`, row-major: those of `u4`.
    pub weights: Vec<u8>,
    /// Zero points, `[groups, n]`.
    pub zeros: Vec<u8>,
}

/// A checkpoint cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckpointError {
    /// A tensor has another number of words than its sizes ask for.
    Length {
        /// The tensor.
        tensor: &'static str,
        /// Its words.
        found: usize,
        /// The words that it should have.
        wanted: usize,
    },
    /// A size is no multiple of the elements that share a word, or of a group.
    Size {
        /// The size.
        size: &'static str,
        /// Its value.
        value: usize,
        /// The number that should divide it.
        of: usize,
    },
    /// The columns are in the order of their activations (`act_order`, `desc_act`): neighbours have scales of different groups.
    ActOrder {
        /// The first column that is not of its neighbours' group.
        column: usize,
        /// Its group.
        group: i32,
    },
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointError::Length { tensor, found, wanted } => {
                write!(f, "`{tensor}` has {found} words, and the sizes ask for {wanted}")
            }
            CheckpointError::Size { size, value, of } => {
                write!(f, "{size} = {value} must be a multiple of {of}")
            }
            CheckpointError::ActOrder { column, group } => write!(
                f,
                "column {column} is of group {group}: the checkpoint was made with act_order (desc_act), where neighbours along k do not share \
                 scales. Quantise with act_order off, or put the columns, and those of the activations, in the order of `g_idx` first"
            ),
        }
    }
}

impl std::error::Error for CheckpointError {}

/// Elements of a word.
const IN_WORD: usize = 8;

/// The neighbour along n that each place of a word of AWQ has.
const AWQ_ORDER: [usize; IN_WORD] = [0, 2, 4, 6, 1, 3, 5, 7];

/// The neighbour along n that each place of a word of GPTQ has.
const IN_ORDER: [usize; IN_WORD] = [0, 1, 2, 3, 4, 5, 6, 7];

/// The code at a place of a word.
fn code(word: u32, place: usize) -> u8 {
    (word >> (4 * place) & 15) as u8
}

/// Rows of words with eight neighbours along a row in an order, as rows of codes.
fn along_rows(words: &[u32], order: [usize; IN_WORD]) -> Vec<u8> {
    let of_word = |word: &u32| {
        let mut codes = [0; IN_WORD];
        order.iter().enumerate().for_each(|(place, neighbour)| codes[*neighbour] = code(*word, place));
        codes
    };
    words.iter().flat_map(of_word).collect()
}

fn check_length(tensor: &'static str, found: usize, wanted: usize) -> Result<(), CheckpointError> {
    if found == wanted { Ok(()) } else { Err(CheckpointError::Length { tensor, found, wanted }) }
}

fn check_size(size: &'static str, value: usize, of: usize) -> Result<(), CheckpointError> {
    if of > 0 && value.is_multiple_of(of) { Ok(()) } else { Err(CheckpointError::Size { size, value, of }) }
}

impl Checkpoint<'_> {
    /// The codes and zero points of `n` rows of `k` weights in groups of `group`.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] where tensors do not have the sizes, and where columns are in an order of their own.
    pub fn read(&self, [n, k]: [usize; 2], group: usize) -> Result<ReadWeights, CheckpointError> {
        check_size("n", n, IN_WORD)?;
        check_size("k", k, group)?;
        let groups = k / group;
        match *self {
            Checkpoint::Awq { weights, zeros } => {
                check_length("qweight", weights.len(), k * n / IN_WORD)?;
                check_length("qzeros", zeros.len(), groups * n / IN_WORD)?;
                let columns = along_rows(weights, AWQ_ORDER);
                let codes = (0..n).flat_map(|row| (0..k).map(move |column| column * n + row));
                Ok(ReadWeights {
                    weights: codes.map(|at| columns[at]).collect(),
                    zeros: along_rows(zeros, AWQ_ORDER),
                })
            }
            Checkpoint::Gptq { weights, zeros, groups: of_columns } => {
                check_size("k", k, IN_WORD)?;
                check_length("qweight", weights.len(), k / IN_WORD * n)?;
                check_length("qzeros", zeros.len(), groups * n / IN_WORD)?;
                if let Some(of_columns) = of_columns {
                    check_length("g_idx", of_columns.len(), k)?;
                    let elsewhere = |(column, of): &(usize, &i32)| **of != (column / group) as i32;
                    if let Some((column, of)) = of_columns.iter().enumerate().find(elsewhere) {
                        return Err(CheckpointError::ActOrder { column, group: *of });
                    }
                }
                let at =
                    |row: usize, column: usize| code(weights[column / IN_WORD * n + row], column % IN_WORD);
                let codes = (0..n).flat_map(|row| (0..k).map(move |column| at(row, column)));
                // One less is stored, in 4 bits.
                let zeros = along_rows(zeros, IN_ORDER).into_iter().map(|zero| (zero + 1) % 16).collect();
                Ok(ReadWeights { weights: codes.collect(), zeros })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes and zero points that differ from their neighbours.
    fn codes([n, k]: [usize; 2], group: usize) -> ReadWeights {
        let code = |i: usize| (i * 7 + i / 16 + 3) as u8 % 16;
        ReadWeights {
            weights: (0..n * k).map(code).collect(),
            zeros: (0..k / group * n).map(|i| code(i) / 2 + 1).collect(),
        }
    }

    #[test]
    fn awq_has_neighbours_along_n_in_its_own_order() {
        let (n, k, group) = (16, 64, 32);
        let codes = codes([n, k], group);
        // `pack` of the quantiser: place i of a word has column order_map[i].
        let packed = |at: &dyn Fn(usize) -> u8, words: usize| -> Vec<u32> {
            let word = |first: usize| {
                let places = [0, 2, 4, 6, 1, 3, 5, 7].into_iter().enumerate();
                places.fold(0, |word, (i, neighbour)| word | u32::from(at(first + neighbour)) << (4 * i))
            };
            (0..words).map(|i| word(8 * i)).collect()
        };
        let weights = packed(&|i| codes.weights[i % n * k + i / n], n * k / 8);
        let zeros = packed(&|i| codes.zeros[i], n * k / group / 8);
        let checkpoint = Checkpoint::Awq { weights: &weights, zeros: &zeros };
        assert_eq!(checkpoint.read([n, k], group), Ok(codes));
        let error = checkpoint.read([n, 2 * k], group).unwrap_err();
        assert_eq!(error.to_string(), "`qweight` has 128 words, and the sizes ask for 256");
    }

    #[test]
    fn gptq_has_neighbours_along_k_and_zero_points_less_one() {
        let (n, k, group) = (8, 64, 16);
        let codes = codes([n, k], group);
        let mut weights = vec![0u32; n * k / 8];
        for row in 0..n {
            for column in 0..k {
                weights[column / 8 * n + row] |=
                    u32::from(codes.weights[row * k + column]) << (4 * (column % 8));
            }
        }
        let mut zeros = vec![0u32; codes.zeros.len() / 8];
        for (i, zero) in codes.zeros.iter().enumerate() {
            zeros[i / 8] |= ((u32::from(*zero) + 15) % 16) << (4 * (i % 8));
        }
        let groups: Vec<i32> = (0..k).map(|column| (column / group) as i32).collect();
        let checkpoint = Checkpoint::Gptq { weights: &weights, zeros: &zeros, groups: Some(&groups) };
        assert_eq!(checkpoint.read([n, k], group), Ok(codes));
    }

    #[test]
    fn columns_in_the_order_of_activations_are_refused() {
        let (weights, zeros) = ([0; 32], [0; 4]);
        let groups: Vec<i32> = (0..32).map(|column| i32::from(column % 2 == 1)).collect();
        let checkpoint = Checkpoint::Gptq { weights: &weights, zeros: &zeros[..2], groups: Some(&groups) };
        let error = checkpoint.read([8, 32], 16).unwrap_err();
        assert_eq!(error, CheckpointError::ActOrder { column: 1, group: 1 });
        assert!(error.to_string().contains("act_order (desc_act)"));
        assert!(
            checkpoint.read([8, 40], 16).is_err_and(|e| e.to_string() == "k = 40 must be a multiple of 16")
        );
    }
}
