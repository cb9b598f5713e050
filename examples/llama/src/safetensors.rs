//! Tensors in `.safetensors` files, read one at a time: a model's file need not fit in memory twice.
//!
//! Source: the format section of the safetensors repository's README.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use serde_json::{Map, Value};

use crate::error::LlamaError;

/// The longest header that is read, in bytes.
const LONGEST_HEADER: u64 = 1 << 27;

/// The tensors of the files of a folder.
pub(crate) struct Checkpoint(Vec<Part>);

struct Part {
    path: PathBuf,
    header: Map<String, Value>,
    /// The byte at which the elements begin.
    data: u64,
}

/// The list of a checkpoint's tensors with the files that have them, where it has several.
const INDEX: &str = "model.safetensors.index.json";

/// The files that an index names, in order; nothing of a folder without one.
fn listed(folder: &Path) -> Result<Option<Vec<PathBuf>>, LlamaError> {
    let path = folder.join(INDEX);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(LlamaError::File { path, source }),
    };
    let wrong = || {
        let what = "it is no JSON object whose `weight_map` has a file of the folder for each tensor";
        LlamaError::Content { path: path.clone(), what: what.to_string() }
    };
    let json: Value = serde_json::from_slice(&text).map_err(|_| wrong())?;
    let map = json["weight_map"].as_object().ok_or_else(wrong)?;
    let mut names: Vec<&str> = map.values().map(Value::as_str).collect::<Option<_>>().ok_or_else(wrong)?;
    if names.iter().any(|name| Path::new(name).file_name() != Some(OsStr::new(name))) {
        return Err(wrong());
    }
    names.sort_unstable();
    names.dedup();
    Ok(Some(names.into_iter().map(|name| folder.join(name)).collect()))
}

impl Checkpoint {
    /// Reads the headers of the files that the folder's index names, or of all its `.safetensors` files.
    pub(crate) fn open(folder: &Path) -> Result<Self, LlamaError> {
        if let Some(paths) = listed(folder)? {
            return paths.into_iter().map(Part::open).collect::<Result<_, _>>().map(Checkpoint);
        }
        let file = |source| LlamaError::File { path: folder.to_path_buf(), source };
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(file)? {
            let path = entry.map_err(file)?.path();
            if path.extension().is_some_and(|extension| extension == "safetensors") {
                paths.push(path);
            }
        }
        paths.sort();
        paths.into_iter().map(Part::open).collect::<Result<_, _>>().map(Checkpoint)
    }

    /// A tensor of these extents, in f16. Elements may be f16, bf16 or f32.
    pub(crate) fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f16>, LlamaError> {
        let missing = || LlamaError::Missing { name: name.to_string() };
        let part = self.0.iter().find(|part| part.header.contains_key(name)).ok_or_else(missing)?;
        part.read(name, shape)
    }
}

impl Part {
    fn open(path: PathBuf) -> Result<Self, LlamaError> {
        let error = |source| LlamaError::File { path: path.clone(), source };
        let wrong = |what: &str| LlamaError::Content { path: path.clone(), what: what.to_string() };
        let mut file = File::open(&path).map_err(error)?;
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(error)?;
        let length = u64::from_le_bytes(length);
        if length > LONGEST_HEADER {
            return Err(wrong("its header is longer than 128 MiB"));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(error)?;
        let header = serde_json::from_slice(&header).map_err(|_| wrong("its header is no JSON object"))?;
        Ok(Part { path, header, data: 8 + length })
    }

    fn read(&self, name: &str, expected: &[usize]) -> Result<Vec<f16>, LlamaError> {
        let error = |source| LlamaError::File { path: self.path.clone(), source };
        let wrong = |what: String| LlamaError::Content { path: self.path.clone(), what };
        let row = &self.header[name];
        let numbers = |key: &str| -> Result<Vec<u64>, LlamaError> {
            let list = row[key].as_array().map(|list| list.iter().map(Value::as_u64).collect());
            list.flatten().ok_or_else(|| wrong(format!("`{key}` of tensor `{name}` is missing or wrong")))
        };
        let shape: Vec<usize> = numbers("shape")?.into_iter().map(|extent| extent as usize).collect();
        if shape != expected {
            let (name, expected) = (name.to_string(), expected.to_vec());
            return Err(LlamaError::Shape { name, given: shape, expected });
        }
        let (size, decode): (usize, fn(&[u8]) -> f16) = match row["dtype"].as_str().unwrap_or("") {
            "F16" => (2, |b| f16::from_le_bytes([b[0], b[1]])),
            "BF16" => (2, |b| f16::from_f32(bf16::from_le_bytes([b[0], b[1]]).to_f32())),
            "F32" => (4, |b| f16::from_f32(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))),
            other => {
                return Err(wrong(format!("tensor `{name}` is of type {other}: F16, BF16 and F32 are read")));
            }
        };
        let bytes = size * shape.iter().product::<usize>();
        let place = numbers("data_offsets")?;
        let [from, to] = place[..] else {
            return Err(wrong(format!("`data_offsets` of `{name}` are no two")));
        };
        if to.checked_sub(from) != Some(bytes as u64) {
            return Err(wrong(format!("tensor `{name}` has not the {bytes} bytes of its shape")));
        }
        let mut data = vec![0; bytes];
        let mut file = File::open(&self.path).map_err(error)?;
        file.seek(SeekFrom::Start(self.data.saturating_add(from))).map_err(error)?;
        file.read_exact(&mut data).map_err(error)?;
        Ok(data.chunks_exact(size).map(decode).collect())
    }
}
