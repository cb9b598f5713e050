//! The engine: a model with the cache and the steps of some sequences.

use crate::error::LlamaError;
use crate::model::Model;
use crate::programs::{PAGE, Programs};
use crate::sample::Sampler;
use crate::step::{Cache, Step, bytes_of_words};

/// Tokens of a prompt that a step takes at a time.
const CHUNK: usize = 64;

/// The most that an engine has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Sequences at a time.
    pub sequences: usize,
    /// Words of a sequence.
    pub places: usize,
}

/// A model with the cache of some sequences, and the steps that it takes.
pub struct Engine<'d> {
    model: &'d Model<'d>,
    limits: Limits,
    /// Words of the longest sequence, those of its prompt and those that steps have chosen.
    longest: usize,
    /// All sequences, a token of each.
    all: Step<'d>,
    /// One sequence, a token; nothing where there is but one.
    one: Option<Step<'d>>,
    /// One sequence, tokens of its prompt.
    chunk: Option<Step<'d>>,
}

impl Limits {
    /// Pages of a sequence.
    pub(crate) fn pages(self) -> usize {
        self.places.div_ceil(PAGE)
    }

    /// Pages of all sequences.
    pub(crate) fn all_pages(self) -> usize {
        self.sequences * self.pages()
    }

    /// The pages of a sequence: those of several lie between each other, as they do where sequences grow in turn.
    pub(crate) fn table(self, sequence: usize) -> impl Iterator<Item = i64> {
        (0..self.pages()).map(move |page| (page * self.sequences + sequence) as i64)
    }
}

impl<'d> Engine<'d> {
    /// Makes room for sequences, and the launches of their steps.
    ///
    /// # Errors
    ///
    /// A device without so much memory, or one that none of the kernels runs on.
    pub fn new(model: &'d Model<'d>, limits: Limits) -> Result<Self, LlamaError> {
        for (field, value) in [("sequences", limits.sequences), ("places", limits.places)] {
            if value == 0 {
                let wanted = "must be at least 1".to_string();
                return Err(LlamaError::Config { field, value: "0".to_string(), wanted });
            }
        }
        let place = model.place;
        let mut programs = Programs::new(&place.chosen_for(), place.arch(), place.multiprocessors());
        let cache = Cache::new(model, limits)?;
        let mut step = |shape| Step::new(&mut programs, model, &cache, shape);
        let all = step([limits.sequences, 1])?;
        let one = (limits.sequences > 1).then(|| step([1, 1])).transpose()?;
        let chunk = (limits.places > CHUNK).then(|| step([1, CHUNK])).transpose()?;
        Ok(Engine { model, limits, longest: 1, all, one, chunk })
    }

    /// Begins sequences: after it, the engine has read all words of each but its last, which [`Engine::run`] reads first.
    ///
    /// # Errors
    ///
    /// Another number of prompts than of sequences, words that there are not or that have no room, or a device that fails.
    pub fn begin(&mut self, prompts: &[Vec<u32>]) -> Result<(), LlamaError> {
        let (limits, vocabulary) = (self.limits, self.model.config.vocabulary);
        let room = limits.pages() * PAGE;
        if prompts.len() != limits.sequences || prompts.iter().any(Vec::is_empty) {
            let given = format!(
                "{} prompts, the shortest of {:?} words",
                prompts.len(),
                prompts.iter().map(Vec::len).min()
            );
            return Err(LlamaError::Prompts { given, sequences: limits.sequences });
        }
        if let Some(word) = prompts.iter().flatten().find(|word| **word as usize >= vocabulary) {
            return Err(LlamaError::Word { word: *word, vocabulary });
        }
        if let Some(words) = prompts.iter().map(Vec::len).find(|words| *words > room) {
            return Err(LlamaError::Room { words, room });
        }
        let (device, single) = (self.model.place.device(), self.one.as_ref().unwrap_or(&self.all));
        for (sequence, prompt) in prompts.iter().enumerate() {
            let mut at = 0;
            while at + 1 < prompt.len() {
                let left = prompt.len() - 1 - at;
                let step = self.chunk.as_ref().filter(|chunk| chunk.tokens <= left).unwrap_or(single);
                step.begin(device, limits, sequence, &[(at, &prompt[at..at + step.tokens])])?;
                step.run(self.model.place, 1)?;
                at += step.tokens;
            }
        }
        let last = |prompt: &Vec<u32>| prompt.len() - 1;
        let words: Vec<(usize, &[u32])> =
            prompts.iter().map(|prompt| (last(prompt), &prompt[last(prompt)..])).collect();
        self.longest = prompts.iter().map(Vec::len).max().unwrap_or(1);
        self.all.begin(device, limits, 0, &words)
    }

    /// Takes a step with every sequence, as often as is said, each time with the word that had the largest score. Returns the milliseconds of each on a GPU.
    ///
    /// # Errors
    ///
    /// Words that have no room any more, or a device that fails.
    pub fn run(&mut self, steps: usize) -> Result<Vec<f64>, LlamaError> {
        // The last word that is chosen is not read any more.
        let (words, room) = (self.longest + steps, self.limits.pages() * PAGE + 1);
        if words > room {
            return Err(LlamaError::Room { words, room });
        }
        self.longest = words;
        self.all.run(self.model.place, steps)
    }

    /// Replaces the words that the next step reads, one a sequence.
    ///
    /// # Errors
    ///
    /// Another number of words, a word that there is not, or a device that fails.
    pub fn choose(&mut self, words: &[u32]) -> Result<(), LlamaError> {
        let (sequences, vocabulary) = (self.limits.sequences, self.model.config.vocabulary);
        if words.len() != sequences {
            return Err(LlamaError::Prompts { given: format!("{} words", words.len()), sequences });
        }
        if let Some(word) = words.iter().find(|word| **word as usize >= vocabulary) {
            return Err(LlamaError::Word { word: *word, vocabulary });
        }
        let words = words.iter().map(|word| i64::from(*word));
        Ok(self.model.place.device().upload(&self.all.ids, &bytes_of_words(words))?)
    }

    /// Words behind a prompt of the only sequence, each chosen by a sampler.
    ///
    /// # Errors
    ///
    /// Several sequences, a prompt that is not taken or leaves no room, or a device that fails.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        number: usize,
        sampler: &mut Sampler,
    ) -> Result<Vec<u32>, LlamaError> {
        let room = self.limits.pages() * PAGE;
        if prompt.len() + number > room {
            return Err(LlamaError::Room { words: prompt.len() + number, room });
        }
        self.begin(&[prompt.to_vec()])?;
        let mut words = Vec::with_capacity(number);
        for _ in 0..number {
            self.run(1)?;
            let word = self.logits()?.first().map_or(0, |scores| sampler.next(scores));
            self.choose(&[word])?;
            words.push(word);
        }
        Ok(words)
    }

    /// The scores of words after the last step, of each sequence.
    ///
    /// # Errors
    ///
    /// A device that fails.
    pub fn logits(&self) -> Result<Vec<Vec<f32>>, LlamaError> {
        let Some(logits) = &self.all.logits else { return Ok(Vec::new()) };
        let bytes = self.model.place.device().download(logits)?;
        let numbers: Vec<f32> =
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        Ok(numbers.chunks_exact(self.model.config.vocabulary).map(<[f32]>::to_vec).collect())
    }

    /// The words at some places of each sequence, of those that steps have chosen.
    ///
    /// # Errors
    ///
    /// A device that fails.
    pub fn words(&self, places: std::ops::Range<usize>) -> Result<Vec<Vec<u32>>, LlamaError> {
        let bytes = self.model.place.device().download(&self.all.noted)?;
        let words: Vec<u32> =
            bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let room = self.limits.pages() * PAGE;
        let of = |row: &[u32]| row.get(places.clone()).unwrap_or_default().to_vec();
        Ok(words.chunks_exact(room).map(of).collect())
    }

    /// The milliseconds that the launches of each kernel of a step take, all of a kernel's behind each other, by name with their number; nothing on the
    /// simulator. Sequences are begun anew afterwards: the launches have moved them on.
    ///
    /// # Errors
    ///
    /// A device that fails.
    pub fn profile(&self, times: usize) -> Result<Vec<(String, usize, f64)>, LlamaError> {
        self.all.profile(self.model.place, times)
    }

    /// The launches of a step of all sequences.
    pub fn launches(&self) -> Vec<String> {
        self.all.launches.iter().map(|launch| launch.kernel.program().name.clone()).collect()
    }
}
