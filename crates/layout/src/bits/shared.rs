//! Shared memory between two register layouts (LL 5.4 and 9.2): the swizzled layout under which both sides use the widest
//! accesses without bank conflicts, and the count of wavefronts of any such access (lemma 9.4, made exact).
//! Register layouts lead from `register`, `lane` and `warp` to the tile, memory layouts from `offset` to the tile.

use super::elimination::{Echelon, apply, complement, intersection};
use super::{Dim, LinearLayout, refuse};
use crate::error::LayoutError;

/// log₂ of the bytes that all banks give in one wavefront: 32 banks of 4 bytes.
const ROW: u32 = 7;
/// log₂ of the bytes of a bank.
const WORD: u32 = 2;
/// log₂ of the bytes of the widest access.
const WIDEST: u32 = 4;

/// One side of an exchange through shared memory: what a thread does, vector by vector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedAccess {
    /// The bits of `register` that make a vector, in the order of rising offsets.
    pub vector: Vec<u32>,
    /// Instructions a thread issues; registers that hold what others hold are not stored twice.
    pub instructions: u64,
    /// Wavefronts of one instruction of one warp.
    pub wavefronts: u64,
}

/// The wavefronts that one access of a warp takes: lanes read or write 2^`vector` elements of 2^`log_bytes` bytes at their
/// places in shared memory. `memory` leads from `offset` to the tile and is a bijection; `layout` is the register layout.
///
/// The count is that of [`lane_wavefronts`].
pub fn wavefronts(
    memory: &LinearLayout,
    layout: &LinearLayout,
    log_bytes: u32,
    vector: u32,
) -> Result<u64, LayoutError> {
    let widest = log_bytes.checked_add(vector).is_some_and(|access| access <= WIDEST);
    if !widest || memory.out_bits() + log_bytes > super::MAX_BITS {
        let reason =
            format!("accesses of 2^{vector} elements of 2^{log_bytes} bytes; they have at most 16 bytes");
        return refuse("wavefronts", layout, reason);
    }
    let offsets = memory.inverse()?.compose(layout)?;
    let lanes: Vec<u64> = offsets.bases("lane").iter().map(|c| c << log_bytes).collect();
    Ok(lane_wavefronts(&lanes, vector + log_bytes))
}

/// The wavefronts of an access of 2^`access` bytes, at most 16, by lanes whose addresses are linear over the bits of the lane:
/// `lanes[b]` is the byte address of lane 2^b, a multiple of the access. A constant that is added by exclusive or changes nothing.
///
/// Accesses of 8 and 16 bytes go half and quarter warp by quarter warp, and more than 32 lanes by 32. Within each such phase the number of wavefronts is
/// the largest number of distinct words of one bank. For linear layouts it is 2^(rank of the lanes' words − rank of the
/// lanes' banks): with whole words that is lemma 9.4's `c`, and where lanes share words it is what the lemma only bounds.
///
/// ```
/// use tilewright_layout::lane_wavefronts;
/// assert_eq!(lane_wavefronts(&[4, 8, 16, 32, 64], 2), 1); // neighbouring words
/// assert_eq!(lane_wavefronts(&[128, 256, 512, 1024, 2048], 2), 32); // one bank
/// assert_eq!(lane_wavefronts(&[16, 32, 64, 128, 256], 4), 4); // a quarter warp at a time
/// ```
pub fn lane_wavefronts(lanes: &[u64], access: u32) -> u64 {
    let phase = 5u32.saturating_sub(access.saturating_sub(WORD)).min(lanes.len() as u32);
    let (lanes, later) = lanes.split_at(phase as usize);
    // The words of a vector are in different banks; each phase reads all of a vector at once.
    let shift = WORD.max(access);
    let banks = (1u64 << ROW >> shift) - 1;
    let words = lanes.iter().map(|address| address >> shift);
    (1 << later.len()) << (small_rank(words.clone()) - small_rank(words.map(|word| word & banks)))
}

/// The rank of at most five vectors.
fn small_rank(vectors: impl Iterator<Item = u64>) -> usize {
    let (mut basis, mut rank) = ([0u64; 5], 0);
    for vector in vectors {
        // Each vector of the basis has a highest bit that no later one has.
        let left = basis[..rank].iter().fold(vector, |vector, row| vector.min(vector ^ row));
        if left != 0 {
            basis[rank] = left;
            rank += 1;
        }
    }
    rank
}

/// A memory layout with what the storing and the loading side do.
type Swizzled = (LinearLayout, SharedAccess, SharedAccess);

/// The shared layout through which `from` and `to` exchange a tile with the fewest wavefronts (LL 5.4, "optimal
/// swizzling"), from `offset` to the tile, with what each side does. Elements have `bits` bits: 8, 16, 32 or 64.
///
/// The vector of both sides is what their registers have in common; one side may use a wider one where that saves
/// wavefronts (the paper keeps to the common one). Banks are chosen so that a phase of either side meets each bank once,
/// which lemma 9.5 shows to be always possible with the common vector.
///
/// ```
/// use tilewright_layout::{LinearLayout, optimal_swizzle};
/// // A 32×32 transposition of f32, one warp: rows in, columns out.
/// let rows: LinearLayout = "[register: (0,1) (0,2) (0,4) (0,8) (0,16); lane: (1,0) (2,0) (4,0) (8,0) (16,0)] -> [i:32, j:32]".parse()?;
/// let columns: LinearLayout = "[register: (1,0) (2,0) (4,0) (8,0) (16,0); lane: (0,1) (0,2) (0,4) (0,8) (0,16)] -> [i:32, j:32]".parse()?;
/// let (memory, store, load) = optimal_swizzle(&rows, &columns, 32)?;
/// assert!(memory.is_bijective());
/// // One side moves 16 bytes at a time, 4 wavefronts each, and neither has a conflict.
/// assert_eq!((store.instructions * store.wavefronts, load.instructions * load.wavefronts), (32, 32));
/// assert_eq!((store.vector.len(), load.vector.len()), (2, 0));
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn optimal_swizzle(from: &LinearLayout, to: &LinearLayout, bits: u32) -> Result<Swizzled, LayoutError> {
    swizzle_between(from, to, bits, true)
}

/// [`optimal_swizzle`] for a side that loads one element at a time, as a gather does: the elements that the lanes of `to`
/// hold in one register lie in different banks.
pub fn single_element_swizzle(
    from: &LinearLayout,
    to: &LinearLayout,
    bits: u32,
) -> Result<Swizzled, LayoutError> {
    swizzle_between(from, to, bits, false)
}

fn swizzle_between(
    from: &LinearLayout,
    to: &LinearLayout,
    bits: u32,
    load_vectors: bool,
) -> Result<Swizzled, LayoutError> {
    if !matches!(bits, 8 | 16 | 32 | 64) {
        return refuse(
            "an optimal swizzle",
            from,
            format!("elements of {bits} bits; they have 8, 16, 32 or 64"),
        );
    }
    let log_bytes = bits.trailing_zeros() - 3;
    let to = to.transpose_outs_like(from)?;
    for layout in [from, &to] {
        if !layout.is_surjective() {
            return refuse("an optimal swizzle", layout, "it does not hold all of the tile");
        }
    }
    let widest = (WIDEST - log_bytes) as usize;
    let (mine, theirs) = (from.bases("register"), to.bases("register"));
    let mut known = Echelon::default();
    let mut common: Vec<u64> =
        mine.iter().copied().filter(|c| theirs.contains(c) && known.insert(*c, 0)).collect();
    common.truncate(if load_vectors { widest } else { 0 });
    // The common vector, extended by registers that only one side has: first those that lanes of the other walk along,
    // so that they meet different banks.
    let extended = |registers: &[u64], other: &LinearLayout| {
        let (near, far): (Vec<u64>, Vec<u64>) =
            registers.iter().copied().partition(|c| other.bases("lane").contains(c));
        let mut vector = common.clone();
        let mut known = Echelon::of(&vector);
        for column in near.into_iter().chain(far) {
            if vector.len() < widest && known.insert(column, 0) {
                vector.push(column);
            }
        }
        vector
    };
    let mut candidates: Vec<(Vec<u64>, Vec<u64>)> = vec![(common.clone(), common.clone())];
    let (longer_store, longer_load) = (extended(mine, &to), extended(theirs, from));
    for length in common.len() + 1..=widest {
        if longer_store.len() >= length {
            candidates.push((longer_store[..length].to_vec(), common.clone()));
        }
        if load_vectors && longer_load.len() >= length {
            candidates.push((common.clone(), longer_load[..length].to_vec()));
        }
    }
    // Without vectors there is always a layout.
    candidates.push((Vec::new(), Vec::new()));
    let mut best: Option<((u64, u64, u64), Swizzled)> = None;
    for (store, load) in candidates {
        let memory = arrange(from, &to, &store, &load, log_bytes)?;
        let (Some(store), Some(load)) =
            (access(&memory, from, store.len(), log_bytes)?, access(&memory, &to, load.len(), log_bytes)?)
        else {
            continue;
        };
        // One element at a time is what the layout is for there: first of all it has no conflicts.
        let cost = (
            if load_vectors { 0 } else { load.wavefronts },
            store.instructions * store.wavefronts + load.instructions * load.wavefronts,
            store.instructions + load.instructions,
        );
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, (memory, store, load)));
        }
    }
    match best {
        Some((_, best)) => Ok(best),
        None => refuse("an optimal swizzle", from, "its registers do not make the vectors"),
    }
}

/// The accesses of a side by vectors of 2^`vector` elements; `None` where registers do not give such vectors bit by bit.
fn access(
    memory: &LinearLayout,
    layout: &LinearLayout,
    vector: usize,
    log_bytes: u32,
) -> Result<Option<SharedAccess>, LayoutError> {
    let offsets = memory.inverse()?.compose(layout)?;
    let bits = offsets.vector_bits("register");
    // Vectors are aligned: nothing but the vector's own registers leads within it.
    let within = (1u64 << vector) - 1;
    let inside = offsets.columns().iter().filter(|c| *c & within != 0).count();
    if bits.len() < vector || inside != vector {
        return Ok(None);
    }
    let distinct = Echelon::of(offsets.bases("register")).rank();
    Ok(Some(SharedAccess {
        vector: bits[..vector].to_vec(),
        instructions: 1 << (distinct - vector),
        wavefronts: wavefronts(memory, layout, log_bytes, vector as u32)?,
    }))
}

/// The memory layout for given vectors, of which one begins with the other: offsets count the longer vector, the rest of
/// a row of banks, and then rows.
fn arrange(
    from: &LinearLayout,
    to: &LinearLayout,
    store: &[u64],
    load: &[u64],
    log_bytes: u32,
) -> Result<LinearLayout, LayoutError> {
    let bits = from.out_bits();
    let mut low = if store.len() > load.len() { store.to_vec() } else { load.to_vec() };
    let row = ((ROW - log_bytes) as usize).min(bits as usize);
    // Vectors narrower than a word: any direction fills it, for lanes that share a word do not conflict. Registers are
    // taken first, then lanes that both sides have.
    let word = (WORD.saturating_sub(log_bytes) as usize).min(bits as usize);
    let mut known = Echelon::of(&low);
    let shared = intersection(from.bases("lane"), to.bases("lane"));
    let fill = from.bases("register").iter().chain(to.bases("register")).chain(&shared);
    for column in fill.copied().chain((0..bits).map(|i| 1 << i)) {
        if low.len() < word && known.insert(column, 0) {
            low.push(column);
        }
    }
    // All else is laid out in a complement of the vector that holds what both sides walk along, so that vectors stay
    // aligned.
    let inputs = ["lane", "warp", "register"];
    let walked = inputs.iter().flat_map(|i| from.bases(i).iter().chain(to.bases(i)).copied());
    let mut known = Echelon::of(&low);
    let mut rest = Vec::new();
    for column in walked.chain((0..bits).map(|i| 1 << i)) {
        if known.insert(column, 0) {
            rest.push(column);
        }
    }
    let basis: Vec<u64> = low.iter().chain(&rest).copied().collect();
    let coordinates = Echelon::of(&basis);
    // What a phase of each side spreads over, in coordinates of that complement: rows must avoid both spaces.
    let space = |layout: &LinearLayout, vector: usize| {
        let access = vector as u32 + log_bytes;
        let phase = 5u32.saturating_sub(access.saturating_sub(WORD)) as usize;
        let lanes = layout.bases("lane").iter().take(phase);
        let space: Vec<u64> = lanes.filter_map(|c| coordinates.solve(*c)).map(|c| c >> low.len()).collect();
        Echelon::of(&space).basis()
    };
    let within = rest.len() as u32;
    let rows = avoiding(&space(from, store.len()), &space(to, load.len()), within, bits as usize - row);
    // The banks: whatever completes vector and rows.
    let mut taken = Echelon::default();
    let mut independent = Vec::new();
    for row in rows {
        if taken.insert(row, 0) {
            independent.push(row);
        }
    }
    let banks: Vec<u64> = (0..within).map(|i| 1 << i).filter(|unit| taken.insert(*unit, 0)).collect();
    let mut columns = low;
    columns.extend(banks.into_iter().chain(independent).map(|c| apply(&rest, c)));
    LinearLayout::from_columns(vec![Dim::new("offset", bits)], from.outs().to_vec(), columns)
}

/// A basis of `count` vectors whose span meets neither space, as far as that is possible (LL lemma 9.5): what lies
/// outside of both, then sums of a vector of only the one and a vector of only the other; where these do not suffice,
/// vectors of the larger space.
fn avoiding(u: &[u64], w: &[u64], bits: u32, count: usize) -> Vec<u64> {
    let both = intersection(u, w);
    let rest = |space: &[u64]| {
        let mut known = Echelon::of(&both);
        space.iter().copied().filter(|v| known.insert(*v, 0)).collect::<Vec<_>>()
    };
    let (e, f) = (rest(u), rest(w));
    let all: Vec<u64> = both.iter().chain(&e).chain(&f).copied().collect();
    let mut rows = complement(&all, bits);
    rows.extend(e.iter().zip(&f).map(|(e, f)| e ^ f));
    let longer = if e.len() > f.len() { &e } else { &f };
    rows.extend(longer.iter().skip(e.len().min(f.len())));
    rows.extend(&both);
    rows.truncate(count);
    rows
}
