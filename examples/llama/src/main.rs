//! The command of the example: words from a checkpoint, and how fast a model of a shape runs.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Parser, Subcommand};
use tilewright::prelude::{Options, Sizes, compile};
use tilewright::runtime::Arg;
use tilewright::tune::{Problem, Target, choose};
use tilewright_llama::{Config, Engine, Format, Limits, Model, Place, Reference, Sampler, Weights};

/// An engine for models of the Llama family whose kernels are all tile programs
#[derive(Parser)]
#[command(name = "tilewright-llama")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes words behind a prompt, by a checkpoint's weights
    Generate(Generate),
    /// Times steps of a model with random weights
    Bench(Bench),
    /// Compares small random models with the reference on the host
    Check(Check),
}

#[derive(Args)]
struct Generate {
    /// Folder with `config.json` and `.safetensors` files
    folder: PathBuf,
    /// Words of the prompt, as numbers
    #[arg(long, value_delimiter = ',', required = true)]
    ids: Vec<u32>,
    /// `f16`, or `i4`: integers of 4 bits with scales, rounded when the checkpoint is read
    #[arg(long, default_value = "f16", value_parser = format)]
    weights: Format,
    /// Words to write
    #[arg(short, long, default_value_t = 32)]
    number: usize,
    /// 0: the most probable word each time
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Part of the probability that the words have together of which one is taken
    #[arg(long, default_value_t = 0.95)]
    top_p: f32,
    /// Seed of the choices
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// `sim`, or the number of a GPU
    #[arg(long, default_value = "0")]
    device: String,
}

#[derive(Args)]
struct Bench {
    /// Sequences at a time
    #[arg(long, value_delimiter = ',', default_value = "1,8,64")]
    batch: Vec<usize>,
    /// Words of each sequence before the first step that is timed
    #[arg(long, default_value_t = 1024)]
    context: usize,
    /// Steps that are timed
    #[arg(long, default_value_t = 64)]
    steps: usize,
    /// Layers, if not those of the shape with 8 billion weights
    #[arg(long)]
    layers: Option<usize>,
    /// `f16`, or `i4`: integers of 4 bits with scales
    #[arg(long, default_value = "f16", value_parser = format)]
    weights: Format,
    /// Also says how long the launches of each kernel take
    #[arg(long)]
    profile: bool,
    /// The number of the GPU
    #[arg(long, default_value_t = 0)]
    device: u32,
}

#[derive(Args)]
struct Check {
    /// `sim`, or the number of a GPU
    #[arg(long, default_value = "0")]
    device: String,
}

type Fallible<T> = Result<T, Box<dyn Error>>;

fn format(text: &str) -> Result<Format, String> {
    match text {
        "f16" => Ok(Format::F16),
        "i4" => Ok(Format::I4),
        _ => Err("must be `f16` or `i4`".to_string()),
    }
}

fn place(device: &str) -> Fallible<Place> {
    if device == "sim" {
        return Ok(Place::sim());
    }
    let number =
        device.parse().map_err(|_| format!("`{device}` is neither `sim` nor the number of a GPU"))?;
    Ok(Place::cuda(number)?)
}

fn generate(args: &Generate) -> Fallible<()> {
    let config = Config::read(&args.folder)?;
    let weights = Weights::read(&config, &args.folder)?;
    let place = place(&args.device)?;
    let model = Model::new(&place, &config, &weights, args.weights)?;
    let limits = Limits { sequences: 1, places: args.ids.len() + args.number };
    let mut engine = Engine::new(&model, limits)?;
    let mut sampler = Sampler::new(args.temperature, args.top_p, args.seed);
    let words = engine.generate(&args.ids, args.number, &mut sampler)?;
    let words: Vec<String> = words.iter().map(u32::to_string).collect();
    println!("{}", words.join(","));
    Ok(())
}

/// The gigabytes a second that a copy moves, those read and those written.
fn copy_speed(place: &Place) -> Fallible<f64> {
    let (m, n) = (65536usize, 8192usize);
    let arch = place.device().arch().ok_or("the simulator has no speed")?;
    let sizes = [("m", m as i64), ("n", n as i64)];
    let problem = Problem::new("copy", &sizes.map(|(name, value)| (name.to_string(), value)).into(), &[])?;
    let choice = choose(&problem, &Target::new(place.device().name(), arch), None)?;
    let program = choice.candidate.programs(problem.operator())?.remove(0);
    let kernel = compile(&program, &Options::new(arch).for_sizes(&program, &sizes))?;
    let device = place.device();
    let (x, y) = (device.alloc(2 * m * n)?, device.alloc(2 * m * n)?);
    let sizes: Sizes = sizes.iter().map(|(name, value)| (name.to_string(), *value)).collect();
    let timing = device.time(&kernel, &sizes, &[Arg::Buffer(&x), Arg::Buffer(&y)], 3, 20)?;
    let timing = timing.ok_or("the device has no clock")?;
    Ok(4.0 * (m * n) as f64 / timing.median_ms / 1e6)
}

fn bench(args: &Bench) -> Fallible<()> {
    let shape = Config::llama3_8b();
    let config = Config { layers: args.layers.unwrap_or(shape.layers), ..shape };
    let began = Instant::now();
    let weights = Weights::repeated(&config, 1);
    println!("{:.1} s for random weights", began.elapsed().as_secs_f64());
    let place = Place::cuda(args.device)?;
    let speed = copy_speed(&place)?;
    println!("{}: a copy moves {speed:.0} GB/s", place.device().name());
    let began = Instant::now();
    let model = Model::new(&place, &config, &weights, args.weights)?;
    println!("{:.1} s for the model on the GPU", began.elapsed().as_secs_f64());
    for &batch in &args.batch {
        let began = Instant::now();
        let limits = Limits { sequences: batch, places: args.context + 2 * args.steps };
        let mut engine = Engine::new(&model, limits)?;
        let ready = began.elapsed().as_secs_f64();
        let word = |sequence: usize, place: usize| (sequence * 7919 + place * 104_729) % config.vocabulary;
        let prompts: Vec<Vec<u32>> = (0..batch)
            .map(|sequence| (0..args.context).map(|place| word(sequence, place) as u32).collect())
            .collect();
        let began = Instant::now();
        engine.begin(&prompts)?;
        println!(
            "batch {batch}: ready in {ready:.1} s, {} launches a step; prompts of {} words in {:.2} s",
            engine.launches().len(),
            args.context,
            began.elapsed().as_secs_f64()
        );
        engine.run(args.steps / 2)?;
        let began = Instant::now();
        let times = engine.run(args.steps)?;
        let wall = began.elapsed().as_secs_f64() * 1e3 / args.steps as f64;
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let length = args.context + args.steps;
        let bytes = config.bytes_of_weights(args.weights) + batch * length * config.bytes_of_token();
        let least = bytes as f64 / speed / 1e6;
        println!(
            "batch {batch}: {mean:.3} ms a step ({wall:.3} by the host's clock), {:.1} tokens/s; {:.2} GB, {least:.3} ms at the speed of a copy: share {:.3}",
            batch as f64 / wall * 1e3,
            bytes as f64 / 1e9,
            least / wall
        );
        if args.profile {
            for (name, count, ms) in engine.profile(10)? {
                println!("    {name}: {count} launches, {:.2} µs each", ms * 1e3 / count as f64);
            }
        }
    }
    Ok(())
}

/// Compares the scores of steps with the reference's: of one sequence, and of several whose prompts have more words than a step takes.
fn check(args: &Check) -> Fallible<()> {
    let place = place(&args.device)?;
    let config = Config { head: 64, hidden: 256, ..Config::small(3) };
    let weights = Weights::random(&config, 3);
    let rounded = weights.rounded_to_4_bits(&config);
    for (sequences, format) in [(1, Format::F16), (3, Format::F16), (1, Format::I4), (3, Format::I4)] {
        let exact = if format == Format::I4 { &rounded } else { &weights };
        let model = Model::new(&place, &config, &weights, format)?;
        let limits = Limits { sequences, places: 128 };
        let mut engine = Engine::new(&model, limits)?;
        let word = |i: usize| (i * 37 % config.vocabulary) as u32;
        let mut sequence: Vec<Vec<u32>> =
            (0..sequences).map(|s| (s..s + 67 + s).map(word).collect()).collect();
        engine.begin(&sequence)?;
        let mut references: Vec<Reference<'_>> = Vec::new();
        for words in &sequence {
            let mut reference = Reference::new(&config, exact);
            words[..words.len() - 1].iter().for_each(|word| drop(reference.step(*word)));
            references.push(reference);
        }
        let mut worst = 0f32;
        for _ in 0..8 {
            engine.run(1)?;
            let scores = engine.logits()?;
            for ((words, reference), scores) in sequence.iter_mut().zip(&mut references).zip(&scores) {
                let expected = reference.step(words[words.len() - 1]);
                let apart = expected.iter().zip(scores).map(|(a, b)| (a - b).abs());
                worst = worst.max(apart.fold(0.0, f32::max));
                words.push(Sampler::new(0.0, 1.0, 0).next(scores));
            }
        }
        println!("{sequences} sequences, {format:?}: scores differ by {worst:.4} from the reference's");
        if worst.is_nan() || worst > 0.03 {
            return Err(format!("scores differ by {worst}").into());
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let done = match &Cli::parse().command {
        Command::Generate(args) => generate(args),
        Command::Bench(args) => bench(args),
        Command::Check(args) => check(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
