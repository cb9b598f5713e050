//! SHA-256 (FIPS 180-4). A program that only reads packs has no crate of others for it.

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes (section 4.2.2).
const ROUNDS: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];
/// The first 32 bits of the fractional parts of the square roots of the first 8 primes (section 5.3.3).
const START: [u32; 8] =
    [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
const BLOCK: usize = 64;

/// The hash of bytes.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut state = START;
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    blocks.iter().for_each(|block| compress(&mut state, block));
    // The rest, a bit, zeros, and the number of bits in the last 8 bytes (section 5.1.1).
    let mut end = [0u8; 2 * BLOCK];
    end[..rest.len()].copy_from_slice(rest);
    end[rest.len()] = 0x80;
    let length = if rest.len() < BLOCK - 8 { BLOCK } else { 2 * BLOCK };
    end[length - 8..length].copy_from_slice(&(8 * bytes.len() as u64).to_be_bytes());
    end[..length].as_chunks::<BLOCK>().0.iter().for_each(|block| compress(&mut state, block));
    let mut hash = [0u8; 32];
    hash.as_chunks_mut::<4>().0.iter_mut().zip(state).for_each(|(to, word)| *to = word.to_be_bytes());
    hash
}

/// The state after a block (section 6.2.2).
fn compress(state: &mut [u32; 8], block: &[u8; BLOCK]) {
    let mut w = [0u32; 64];
    w.iter_mut().zip(block.as_chunks::<4>().0).for_each(|(to, bytes)| *to = u32::from_be_bytes(*bytes));
    for t in 16..64 {
        let (a, b) = (w[t - 15], w[t - 2]);
        let s0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
        let s1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
        w[t] = w[t - 16].wrapping_add(s0).wrapping_add(w[t - 7]).wrapping_add(s1);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (w, k) in w.iter().zip(ROUNDS) {
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let first = h.wrapping_add(s1).wrapping_add((e & f) ^ (!e & g)).wrapping_add(k).wrapping_add(*w);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let second = s0.wrapping_add((a & b) ^ (a & c) ^ (b & c));
        (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(first), c, b, a, first.wrapping_add(second));
    }
    state.iter_mut().zip([a, b, c, d, e, f, g, h]).for_each(|(to, word)| *to = to.wrapping_add(word));
}

/// The digits of a hash.
pub(crate) fn hex(hash: &[u8; 32]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    let mut text = String::with_capacity(2 * hash.len());
    for byte in hash {
        text.push(digit(byte >> 4));
        text.push(digit(*byte));
    }
    text
}

/// The hash with these digits, as [`hex`] writes them.
pub(crate) fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0u8; 32];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != hash.len() || !rest.is_empty() {
        return None;
    }
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_others() {
        use sha2::Digest;
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * i % 251) as u8).collect();
        for length in (0..200).chain([255, 256, 511, 999, 1000]) {
            let hash = sha256(&bytes[..length]);
            assert_eq!(hash[..], sha2::Sha256::digest(&bytes[..length])[..], "{length}");
            assert_eq!(unhex(&hex(&hash)), Some(hash));
        }
        // The example of FIPS 180-4, "abc".
        let digits = hex(&sha256(b"abc"));
        assert_eq!(digits, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(unhex(&digits[1..]), None);
        assert_eq!(unhex(&digits.to_uppercase()), None);
    }
}
