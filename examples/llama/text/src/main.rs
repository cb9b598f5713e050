//! A command that writes on behind a text, by a checkpoint.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tilewright_llama::{Config, Engine, Format, Limits, Model, Place, Sampler, Weights};
use tilewright_llama_text::Tokenizer;

/// Writes on behind a text, by a checkpoint's weights and tokenizer
#[derive(Parser)]
#[command(name = "tilewright-llama-text")]
struct Cli {
    /// Folder with `config.json`, `tokenizer.json` and `.safetensors` files
    folder: PathBuf,
    /// The text
    prompt: String,
    /// Words to write
    #[arg(short, long, default_value_t = 64)]
    number: usize,
    /// 0: the most probable word each time
    #[arg(long, default_value_t = 0.7)]
    temperature: f32,
    /// Part of the probability that the words have together of which one is taken
    #[arg(long, default_value_t = 0.95)]
    top_p: f32,
    /// Seed of the choices
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The number of the GPU
    #[arg(long, default_value_t = 0)]
    device: u32,
}

fn run(args: &Cli) -> Result<String, Box<dyn Error>> {
    let tokenizer = Tokenizer::read(&args.folder)?;
    let prompt = tokenizer.words(&args.prompt)?;
    let config = Config::read(&args.folder)?;
    let weights = Weights::read(&config, &args.folder)?;
    let place = Place::cuda(args.device)?;
    let model = Model::new(&place, &config, &weights, Format::F16)?;
    let limits = Limits { sequences: 1, places: prompt.len() + args.number };
    let mut engine = Engine::new(&model, limits)?;
    let mut sampler = Sampler::new(args.temperature, args.top_p, args.seed);
    Ok(tokenizer.text(&engine.generate(&prompt, args.number, &mut sampler)?)?)
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
