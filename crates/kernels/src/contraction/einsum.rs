//! Contractions as text: the Einstein notation of `numpy.einsum` and `torch.einsum`, of two operands.

use std::fmt;
use std::str::FromStr;

/// The group of an index of a contraction (the CuTe paper, section 1.3): which of the tensors have it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Group {
    /// Rows: in the first operand and in the result.
    M,
    /// Columns: in the second operand and in the result.
    N,
    /// Summed: in both operands.
    K,
    /// Batches: in all three.
    L,
}

impl Group {
    /// All of them.
    pub const ALL: [Group; 4] = [Group::M, Group::N, Group::K, Group::L];

    /// The name of its extent in a matrix product.
    pub fn name(self) -> &'static str {
        match self {
            Group::M => "m",
            Group::N => "n",
            Group::K => "k",
            Group::L => "l",
        }
    }

    /// Returns whether the first operand, the second one and the result have indices of the group.
    pub fn of(self) -> [bool; 3] {
        match self {
            Group::M => [true, false, true],
            Group::N => [false, true, true],
            Group::K => [true, true, false],
            Group::L => [true, true, true],
        }
    }
}

/// A tensor of a contraction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// The first factor.
    A,
    /// The second factor.
    B,
    /// The result.
    C,
}

impl Operand {
    /// All of them, in order.
    pub const ALL: [Operand; 3] = [Operand::A, Operand::B, Operand::C];

    /// The name of its buffer.
    pub fn name(self) -> &'static str {
        match self {
            Operand::A => "a",
            Operand::B => "b",
            Operand::C => "c",
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operand::A => "the first operand",
            Operand::B => "the second operand",
            Operand::C => "the result",
        })
    }
}

/// The reason why a text is no contraction of two operands, or why sizes and strides do not go with one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EinsumError {
    /// The text does not have two operands.
    #[error("there are {0} operands, and a contraction has 2, with a comma between: mk,kn->mn")]
    Operands(usize),
    /// There is more than one arrow.
    #[error("`->` stands {0} times, and once is right: mk,kn->mn")]
    Arrows(usize),
    /// Something else than a letter names an index.
    #[error("`{found}` in {operand} is no index: an index is one letter, a to z or A to Z")]
    NoLetter {
        /// The character.
        found: char,
        /// The tensor that it stands for an index of.
        operand: Operand,
    },
    /// A tensor has an index twice.
    #[error(
        "`{letter}` stands twice in {operand}: take the diagonal first, as a view with one index in place of both"
    )]
    Diagonal {
        /// The index.
        letter: char,
        /// The tensor.
        operand: Operand,
    },
    /// An operand is summed along an index that the other one does not have.
    #[error("`{letter}` stands in {operand} alone: sum {operand} along it first, or name it behind `->`")]
    SumOfOne {
        /// The index.
        letter: char,
        /// The operand that has it.
        operand: Operand,
    },
    /// The result has an index that no operand has.
    #[error("`{letter}` stands behind `->` and in no operand: the result's indices are those of operands")]
    NoSource {
        /// The index.
        letter: char,
    },
    /// A tensor has more indices than folding takes.
    #[error("{operand} has {found} indices, and there can be {most}")]
    TooMany {
        /// The tensor.
        operand: Operand,
        /// Its indices.
        found: usize,
        /// The most that there can be.
        most: usize,
    },
    /// An index has no size.
    #[error("`{letter}` has no size: give one of at least 1")]
    NoSize {
        /// The index.
        letter: char,
    },
    /// An index has a size below 1.
    #[error("`{letter}` has the size {size}, which must be at least 1")]
    Size {
        /// The index.
        letter: char,
        /// The size.
        size: i64,
    },
    /// A size is given for an index that there is not.
    #[error("`{letter}` is no index of {einsum}, and has a size")]
    NoIndex {
        /// The letter.
        letter: char,
        /// The contraction.
        einsum: String,
    },
    /// A tensor has another number of strides than indices.
    #[error(
        "{operand} has {found} strides, and must have one for each of its {wanted} indices, in their order"
    )]
    Strides {
        /// The tensor.
        operand: Operand,
        /// The strides that are given.
        found: usize,
        /// Its indices.
        wanted: usize,
    },
    /// A stride is below 1.
    #[error("the stride of `{letter}` in {operand} is {stride}, which must be at least 1")]
    Stride {
        /// The index.
        letter: char,
        /// The tensor.
        operand: Operand,
        /// The stride.
        stride: i64,
    },
    /// A tensor has more elements than there are numbers.
    #[error("{operand} has more than 2⁶² elements: use smaller sizes")]
    TooLarge {
        /// The tensor.
        operand: Operand,
    },
}

impl From<EinsumError> for String {
    fn from(error: EinsumError) -> Self {
        error.to_string()
    }
}

/// A contraction of two operands: `c[…] = Σ a[…] · b[…]` over the indices that both operands have and the result does not.
///
/// The text form is that of `torch.einsum`: a letter for each index, spaces where one likes. Without `->` the result has the indices that
/// stand once, in the order of the alphabet, capitals first.
///
/// ```
/// use tilewright_kernels::contraction::{Einsum, Group};
/// let einsum: Einsum = "bhqd, bhkd -> bhqk".parse()?;
/// assert_eq!(einsum.group('h'), Some(Group::L));
/// assert_eq!(einsum.group('d'), Some(Group::K));
/// assert_eq!("ij,jk".parse::<Einsum>()?.to_string(), "ij,jk->ik");
/// # Ok::<(), tilewright_kernels::contraction::EinsumError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Einsum {
    operands: [Vec<char>; 3],
}

/// Indices of a tensor, at most: products of as many small primes are integers of 64 bits.
pub(super) const MOST_INDICES: usize = 10;

impl Einsum {
    /// `mk,nk->mn`.
    pub fn matrix_product() -> Einsum {
        Einsum { operands: [vec!['m', 'k'], vec!['n', 'k'], vec!['m', 'n']] }
    }

    /// The indices of a tensor, in the order in which it has them.
    pub fn indices(&self, operand: Operand) -> &[char] {
        &self.operands[operand as usize]
    }

    /// The group of an index; `None` for a letter that is none.
    pub fn group(&self, letter: char) -> Option<Group> {
        let of = self.operands.each_ref().map(|indices| indices.contains(&letter));
        Group::ALL.into_iter().find(|group| group.of() == of)
    }

    /// All indices: those of the first operand, then those of the second that it does not have.
    pub fn letters(&self) -> Vec<char> {
        let [a, b, _] = &self.operands;
        a.iter().chain(b.iter().filter(|letter| !a.contains(letter))).copied().collect()
    }

    /// The same contraction with the operands the other way round: M and N change places.
    #[must_use]
    pub fn exchanged(&self) -> Einsum {
        let [a, b, c] = self.operands.clone();
        Einsum { operands: [b, a, c] }
    }

    /// The same contraction of tensors of which these have their indices in the order that makes each group one mode, as far as the others allow:
    /// batches, then summed indices and those of the result, the latter as the result has them, or, if it is permuted too, the factor that is not. A
    /// factor stays contiguous along the same index where that is the last of its group; else it is along k. The result has rows ahead of columns.
    #[must_use]
    pub(super) fn permuted(&self, [of_a, of_b, of_c]: [bool; 3]) -> Einsum {
        let of = |operand: Operand, group: Group| -> Vec<char> {
            let in_group = |letter: &&char| self.group(**letter) == Some(group);
            self.indices(operand).iter().filter(in_group).copied().collect()
        };
        // The order of the summed indices is that of a factor that stays as it is.
        let summed = of(if of_a && !of_b { Operand::B } else { Operand::A }, Group::K);
        // Those of the result are in the order of a tensor that stays as it is, if one that has them does.
        let kept = [(!of_c, Operand::C), (!of_a, Operand::A), (!of_b, Operand::B)];
        let ordered = |group: Group| {
            let leads = kept.iter().find(|(kept, operand)| *kept && group.of()[*operand as usize]);
            of(leads.map_or(Operand::C, |(_, operand)| *operand), group)
        };
        let factor = |operand: Operand, group: Group| {
            let (batches, own) = (ordered(Group::L), ordered(group));
            let last = self.indices(operand).last();
            let along_own = last == own.last() && last.is_some();
            let order =
                if along_own { [batches, summed.clone(), own] } else { [batches, own, summed.clone()] };
            order.concat()
        };
        let [a, b, c] = self.operands.clone();
        Einsum {
            operands: [
                if of_a { factor(Operand::A, Group::M) } else { a },
                if of_b { factor(Operand::B, Group::N) } else { b },
                if of_c { [Group::L, Group::M, Group::N].map(ordered).concat() } else { c },
            ],
        }
    }

    /// Checks the indices of each tensor and that each is in a group.
    fn checked(operands: [Vec<char>; 3]) -> Result<Self, EinsumError> {
        for (operand, indices) in Operand::ALL.into_iter().zip(&operands) {
            if indices.len() > MOST_INDICES {
                return Err(EinsumError::TooMany { operand, found: indices.len(), most: MOST_INDICES });
            }
            let twice = indices.iter().enumerate().find(|(i, letter)| indices[..*i].contains(letter));
            if let Some((_, letter)) = twice {
                return Err(EinsumError::Diagonal { letter: *letter, operand });
            }
        }
        let einsum = Einsum { operands };
        for operand in Operand::ALL {
            for letter in einsum.indices(operand).iter().copied() {
                match einsum.group(letter) {
                    Some(_) => {}
                    None if operand == Operand::C => return Err(EinsumError::NoSource { letter }),
                    None => return Err(EinsumError::SumOfOne { letter, operand }),
                }
            }
        }
        Ok(einsum)
    }
}

/// The indices of a tensor's text.
fn indices(operand: Operand, text: &str) -> Result<Vec<char>, EinsumError> {
    let letters = text.chars().filter(|c| !c.is_whitespace());
    letters
        .map(|found| match found {
            'a'..='z' | 'A'..='Z' => Ok(found),
            _ => Err(EinsumError::NoLetter { found, operand }),
        })
        .collect()
}

impl FromStr for Einsum {
    type Err = EinsumError;

    fn from_str(text: &str) -> Result<Self, EinsumError> {
        let sides: Vec<&str> = text.split("->").collect();
        let (left, right) = match sides[..] {
            [left] => (left, None),
            [left, right] => (left, Some(right)),
            _ => return Err(EinsumError::Arrows(sides.len() - 1)),
        };
        let factors: Vec<&str> = left.split(',').collect();
        let [a, b] = factors[..] else { return Err(EinsumError::Operands(factors.len())) };
        let (a, b) = (indices(Operand::A, a)?, indices(Operand::B, b)?);
        let c = match right {
            Some(right) => indices(Operand::C, right)?,
            None => {
                let once = |letter: &&char| a.iter().chain(&b).filter(|other| other == letter).count() == 1;
                let mut once: Vec<char> = a.iter().chain(&b).filter(once).copied().collect();
                once.sort_unstable();
                once
            }
        };
        Einsum::checked([a, b, c])
    }
}

impl fmt::Display for Einsum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c] = self.operands.each_ref().map(|indices| indices.iter().collect::<String>());
        write!(f, "{a},{b}->{c}")
    }
}
