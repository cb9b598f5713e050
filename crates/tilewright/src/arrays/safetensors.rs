//! `.safetensors`: the length of a header in 8 bytes, the header as JSON, and the elements of its tensors.

use serde_json::{Map, Value, json};

use super::{Array, ELEMENTS, Written, decoded, element_of, encode};

/// The tensors of a file.
pub(super) struct Tensors<'a> {
    header: Map<String, Value>,
    data: &'a [u8],
}

impl<'a> Tensors<'a> {
    /// Reads the header.
    pub(super) fn of(bytes: &'a [u8]) -> Result<Self, String> {
        let short = "it ends in its header";
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or(short)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| short)?;
        let (header, data) = rest.split_at_checked(length).ok_or(short)?;
        let header =
            serde_json::from_slice(header).map_err(|e| format!("its header is no JSON object: {e}"))?;
        Ok(Tensors { header, data })
    }

    /// The names of its tensors, in order.
    pub(super) fn names(&self) -> Vec<String> {
        self.header.keys().filter(|name| *name != "__metadata__").cloned().collect()
    }

    /// A tensor; `None` where there is none of this name.
    pub(super) fn read(&self, name: &str) -> Result<Option<Array>, String> {
        let Some(row) = self.header.get(name).filter(|_| name != "__metadata__") else { return Ok(None) };
        let wrong = |what: &str| format!("`{what}` of its tensor `{name}` is missing or wrong");
        let dtype = row["dtype"].as_str().ok_or_else(|| wrong("dtype"))?;
        let element = ELEMENTS
            .iter()
            .find(|e| e.safetensors == dtype)
            .ok_or_else(|| format!("elements of type {dtype}, as its tensor `{name}` has, are not read"))?;
        let numbers = |key: &str| -> Result<Vec<usize>, String> {
            let list = row[key].as_array().ok_or_else(|| wrong(key))?;
            let number = |x: &Value| x.as_u64().and_then(|x| usize::try_from(x).ok());
            list.iter().map(|x| number(x).ok_or_else(|| wrong(key))).collect()
        };
        let place = numbers("data_offsets")?;
        let data = match place[..] {
            [from, to] => self.data.get(from..to),
            _ => None,
        };
        let data = data.ok_or_else(|| wrong("data_offsets"))?;
        decoded(element, numbers("shape")?, data).map(Some)
    }
}

/// The bytes of a file.
pub(super) fn write(tensors: &[Written<'_>]) -> Vec<u8> {
    let mut header = Map::new();
    let mut data = Vec::new();
    for tensor in tensors {
        let element = element_of(tensor.dtype, false);
        let from = data.len();
        data.extend(encode(element, tensor.values));
        let row = json!({ "dtype": element.safetensors, "shape": tensor.shape, "data_offsets": [from, data.len()] });
        header.insert(tensor.name.to_string(), row);
    }
    let mut header = Value::Object(header).to_string();
    // The elements begin at a multiple of 8 bytes.
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.into_bytes());
    bytes.extend(data);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let file = |header: &str, data: &[u8]| {
            [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
        };
        let said = |header: &str, data: &[u8]| {
            let bytes = file(header, data);
            let tensors = Tensors::of(&bytes)?;
            tensors
                .read("x")
                .map(|array| array.map_or("none".to_string(), |a| format!("{:?}", a.values.floats())))
        };
        let row = |dtype: &str, shape: &str, to: u32| {
            format!("{{\"x\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[0,{to}]}}}}")
        };
        assert_eq!(said(&row("I16", "[2]", 4), &[1, 0, 255, 255]).unwrap(), "[1.0, -1.0]");
        assert_eq!(said("{\"__metadata__\":{}}", &[]).unwrap(), "none");
        assert!(said(&row("F4", "[2]", 1), &[0]).unwrap_err().contains("type F4"));
        assert!(said(&row("I16", "[2]", 5), &[0; 4]).unwrap_err().contains("`data_offsets`"));
        assert!(said(&row("I16", "[3]", 4), &[0; 4]).unwrap_err().contains("4 bytes of data"));
        assert!(said(&row("I16", "3", 4), &[0; 4]).unwrap_err().contains("`shape`"));
        assert!(said("[]", &[]).unwrap_err().contains("no JSON object"));
        assert!(Tensors::of(&[0; 7]).is_err() && Tensors::of(&[255; 9]).is_err());
    }
}
