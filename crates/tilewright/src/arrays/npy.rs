//! NumPy's `.npy`: a magic, a version, the length of a header, the header as a Python dictionary, and the elements.

use super::{Array, ELEMENTS, Written, decoded, element_of, encode};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The value of a key of the header: what stands after `'key':`.
fn value<'a>(header: &'a str, key: &str) -> Result<&'a str, String> {
    let missing = || format!("its header has no `{key}`");
    let at = header.find(&format!("'{key}'")).ok_or_else(missing)?;
    let rest = header[at..].split_once(':').ok_or_else(missing)?.1;
    Ok(rest.trim_start())
}

fn shape(text: &str) -> Option<Vec<usize>> {
    let inside = text.strip_prefix('(')?.split_once(')')?.0;
    inside.split(',').map(str::trim).filter(|s| !s.is_empty()).map(|s| s.parse().ok()).collect()
}

/// Reads an array.
pub(super) fn read(bytes: &[u8]) -> Result<Array, String> {
    let short = || "it ends in its header".to_string();
    let rest = bytes.strip_prefix(MAGIC).ok_or("it does not begin as a `.npy` file does")?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
    let (length, rest) = if version[0] == 1 {
        let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
        (usize::from(u16::from_le_bytes(*length)), rest)
    } else {
        let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        (u32::from_le_bytes(*length) as usize, rest)
    };
    let (header, data) = rest.split_at_checked(length).ok_or_else(short)?;
    let header = std::str::from_utf8(header).map_err(|_| "its header is not text")?;
    let descr = value(header, "descr")?;
    let quoted = descr.strip_prefix('\'').and_then(|d| d.split_once('\'')).map(|(inside, _)| inside);
    let descr = quoted.ok_or("its elements are records, not numbers")?;
    let (order, code) = descr.split_at_checked(1).ok_or("its `descr` is empty")?;
    let element = ELEMENTS.iter().find(|e| e.npy == Some(code)).ok_or_else(|| {
        format!("elements of `{descr}` are not read: floats of 2, 4 and 8 bytes, integers of 1 to 8 bytes and booleans are")
    })?;
    let shape = shape(value(header, "shape")?).ok_or("its `shape` is no tuple of numbers")?;
    let swapped: Vec<u8>;
    let data = if order == ">" {
        swapped = data.chunks(element.bytes()).flat_map(|chunk| chunk.iter().rev().copied()).collect();
        &swapped
    } else {
        data
    };
    if !value(header, "fortran_order")?.starts_with("True") {
        return decoded(element, shape, data);
    }
    // The first mode is contiguous: read it as the array with its modes reversed, and put the elements in their order.
    let array = decoded(element, shape, data)?;
    let strides = array.shape.iter().scan(1usize, |product, n| {
        let stride = *product;
        *product *= n;
        Some(stride)
    });
    let strides: Vec<usize> = strides.collect();
    let place_of = |mut index: usize| {
        let mut offset = 0;
        for (n, stride) in array.shape.iter().zip(&strides).rev() {
            offset += index % n * stride;
            index /= n;
        }
        offset
    };
    let values = array.values.picked((0..array.values.len()).map(place_of));
    Ok(Array { values, ..array })
}

/// The bytes of a file.
pub(super) fn write(array: &Written<'_>) -> Vec<u8> {
    let element = element_of(array.dtype, true);
    let code = element.npy.unwrap_or_default();
    let order = if element.bytes() == 1 { '|' } else { '<' };
    let extents: Vec<String> = array.shape.iter().map(|n| format!("{n},")).collect();
    let mut header =
        format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': ({}), }}", extents.join(" "));
    // The elements begin at a multiple of 64 bytes; the header ends with a newline.
    let before = MAGIC.len() + 4;
    let padding = (before + header.len() + 1).next_multiple_of(64) - (before + header.len() + 1);
    header.push_str(&" ".repeat(padding));
    header.push('\n');
    let mut bytes = [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
    bytes.extend(encode(element, array.values));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with this header.
    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
    }

    #[test]
    fn orders_of_bytes_and_of_modes() {
        let fortran = file(
            "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n",
            &[0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 255, 255],
        );
        let array = read(&fortran).unwrap();
        assert_eq!((array.shape, array.values.floats()), (vec![2, 3], vec![1.0, 3.0, 5.0, 2.0, 4.0, -1.0]));
        let scalar = read(&file("{'descr': '|u1', 'fortran_order': False, 'shape': (), }", &[7])).unwrap();
        assert_eq!((scalar.shape, scalar.values.floats()), (vec![], vec![7.0]));
    }

    #[test]
    fn mistakes_are_named() {
        let said = |bytes: &[u8]| read(bytes).unwrap_err();
        assert!(said(b"PK").contains("does not begin"));
        assert!(said(&[MAGIC, &[1, 0, 9]].concat()).contains("ends in its header"));
        let header = |descr: &str, shape: &str| {
            format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}")
        };
        assert!(said(&file(&header("'<c8'", "(1,)"), &[0; 8])).contains("`<c8` are not read"));
        assert!(said(&file(&header("[('a', '<i4')]", "(1,)"), &[0; 4])).contains("records"));
        assert!(said(&file(&header("'<i4'", "(3,)"), &[0; 4])).contains("has 4 bytes of data"));
        assert!(said(&file(&header("'<i4'", "(99999999999, 99999999999)"), &[])).contains("bytes of data"));
    }
}
