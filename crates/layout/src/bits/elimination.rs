//! Linear algebra over F2 on columns of at most 64 bits. A matrix is its columns, first input bit first; bit `i` of a
//! column is row `i`. Vectors of input bits are integers, too: bit `j` chooses column `j`.

/// A column space in echelon form that remembers how each of its vectors was made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Echelon {
    /// (vector, combination of columns that gives it), each with a highest bit that no other has.
    rows: Vec<(u64, u64)>,
}

impl Echelon {
    /// The echelon form of all columns.
    pub(crate) fn of(columns: &[u64]) -> Echelon {
        let mut echelon = Echelon::default();
        for (j, column) in columns.iter().enumerate() {
            echelon.insert(*column, 1 << j);
        }
        echelon
    }

    /// Remainder of `vector` after all that is known, and the combination that was taken away.
    fn reduce(&self, mut vector: u64, mut combination: u64) -> (u64, u64) {
        for (row, made_of) in &self.rows {
            if vector >> top(*row) & 1 == 1 {
                vector ^= row;
                combination ^= made_of;
            }
        }
        (vector, combination)
    }

    /// Adds a vector that is the combination `made_of`; whether it is new. Nothing changes where it is not.
    pub(crate) fn insert(&mut self, vector: u64, made_of: u64) -> bool {
        let (vector, made_of) = self.reduce(vector, made_of);
        if vector == 0 {
            return false;
        }
        for row in &mut self.rows {
            if row.0 >> top(vector) & 1 == 1 {
                row.0 ^= vector;
                row.1 ^= made_of;
            }
        }
        self.rows.push((vector, made_of));
        true
    }

    /// The combination of columns that gives `vector`, made of columns that were new when they were inserted only;
    /// `None` where there is none.
    pub(crate) fn solve(&self, vector: u64) -> Option<u64> {
        let (left, combination) = self.reduce(vector, 0);
        (left == 0).then_some(combination)
    }

    /// The dimension of the space.
    pub(crate) fn rank(&self) -> usize {
        self.rows.len()
    }

    /// A basis of the space: the reduced vectors, smallest first.
    pub(crate) fn basis(&self) -> Vec<u64> {
        let mut basis: Vec<u64> = self.rows.iter().map(|r| r.0).collect();
        basis.sort_unstable();
        basis
    }
}

fn top(vector: u64) -> u32 {
    63 - vector.leading_zeros()
}

/// The image of the input bits `x`.
pub(crate) fn apply(columns: &[u64], x: u64) -> u64 {
    let mut x = x;
    let mut sum = 0;
    while x != 0 {
        sum ^= columns.get(x.trailing_zeros() as usize).copied().unwrap_or(0);
        x &= x - 1;
    }
    sum
}

/// A basis of the inputs that the matrix takes to zero, one for each column that depends on those before it.
pub(crate) fn kernel(columns: &[u64]) -> Vec<u64> {
    let mut echelon = Echelon::default();
    let mut kernel = Vec::new();
    for (j, column) in columns.iter().enumerate() {
        match echelon.solve(*column) {
            Some(combination) => kernel.push(combination | 1 << j),
            None => {
                echelon.insert(*column, 1 << j);
            }
        }
    }
    kernel
}

/// The matrix of `a` after `b`.
pub(crate) fn multiply(a: &[u64], b: &[u64]) -> Vec<u64> {
    b.iter().map(|column| apply(a, *column)).collect()
}

/// A basis of the intersection of two spaces.
pub(crate) fn intersection(a: &[u64], b: &[u64]) -> Vec<u64> {
    // Where Σ a = Σ b the sum of both is zero: the kernel of [A B].
    let (a, b) = (Echelon::of(a).basis(), Echelon::of(b).basis());
    let both: Vec<u64> = a.iter().chain(&b).copied().collect();
    let mut found = Echelon::default();
    for combination in kernel(&both) {
        found.insert(apply(&a, combination & ((1u64 << a.len()) - 1)), 0);
    }
    found.basis()
}

/// Unit vectors of `bits` bits that complete the span of `known` to the whole space.
pub(crate) fn complement(known: &[u64], bits: u32) -> Vec<u64> {
    let mut echelon = Echelon::of(known);
    (0..bits).map(|i| 1u64 << i).filter(|unit| echelon.insert(*unit, 0)).collect()
}
