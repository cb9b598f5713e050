//! Prints the launches of layers of experts as JSON, a line for each number of tokens and plan: what `MoeLayer::plans` says. `bench/moe.py` compiles them.
//!
//! `cargo run --release -p tilewright-kernels --example moe_plan -- --experts 256 -k 8 --hidden 7168 --intermediate 256 --tokens 1,64`

use std::error::Error;

use clap::Parser;
use tilewright_kernels::moe::{MoeLaunch, MoeLayer, MoeReduction, MoeRoutingConfig, MoeWeights, Scores};
use tilewright_machine::DType;

/// Print the launches of a layer of experts.
#[derive(Parser)]
struct Args {
    /// The type of activations: f16 or bf16
    #[arg(long, default_value = "bf16")]
    dtype: String,
    /// Weights in e4m3 with scales of blocks
    #[arg(long)]
    fp8: bool,
    /// Weights in i4, with a scale for so many neighbours along a row
    #[arg(long, value_name = "GROUP", conflicts_with = "fp8")]
    int4: Option<i64>,
    /// Weights and activations in e4m3 or i8 with scales of rows
    #[arg(long, value_name = "TYPE", conflicts_with_all = ["fp8", "int4"])]
    rows: Option<String>,
    /// Elements of a token
    #[arg(long, default_value_t = 4096)]
    hidden: i64,
    /// Elements between both products
    #[arg(long, default_value_t = 14336)]
    intermediate: i64,
    /// Experts whose weights are here
    #[arg(long, default_value_t = 8)]
    experts: i64,
    /// Experts of the model, where some lie elsewhere
    #[arg(long)]
    all_experts: Option<i64>,
    /// Experts of a token
    #[arg(short, default_value_t = 2)]
    k: i64,
    /// Choose the experts by logits, with scores by softmax or sigmoid
    #[arg(long, value_name = "SCORES")]
    routing: Option<Scores>,
    /// Add the results of experts in this type as they leave, in an open order
    #[arg(long, value_name = "TYPE")]
    added: Option<String>,
    /// Numbers of tokens
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256,1024,4096")]
    tokens: Vec<i64>,
    /// Plans that the estimate takes for the fastest, for each number of tokens
    #[arg(long, default_value_t = 1)]
    plans: usize,
    /// Multiprocessors of the GPU
    #[arg(long, default_value_t = 132)]
    multiprocessors: i64,
}

/// A list of pairs as an object.
fn object<V: ToString>(pairs: &[(&'static str, V)], quoted: bool) -> String {
    let quote = if quoted { "\"" } else { "" };
    let pairs = pairs.iter().map(|(name, value)| format!("\"{name}\": {quote}{}{quote}", value.to_string()));
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
}

fn line(launch: &MoeLaunch) -> String {
    format!(
        "{{\"operator\": \"{}\", \"program\": {}, \"parameters\": {}, \"sizes\": {}, \"tensors\": {}}}",
        launch.operator,
        launch.program,
        object(&launch.parameters, true),
        object(&launch.sizes, false),
        object(&launch.tensors, true)
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let dtype = [DType::F16, DType::BF16].into_iter().find(|dtype| dtype.to_string() == args.dtype);
    let of_sums = |text: &str| {
        [DType::F16, DType::BF16, DType::F32].into_iter().find(|dtype| dtype.to_string() == text)
    };
    let added = args
        .added
        .as_deref()
        .map(|text| of_sums(text).ok_or("--added must be f16, bf16 or f32"))
        .transpose()?;
    let named = |text: &str| [DType::E4M3, DType::I8].into_iter().find(|dtype| dtype.to_string() == text);
    let rows = args.rows.as_deref().map(|text| named(text).ok_or("--rows must be e4m3 or i8")).transpose()?;
    let experts = args.all_experts.unwrap_or(args.experts);
    let routing =
        args.routing.map(|scores| MoeRoutingConfig { experts, k: args.k, scores, ..Default::default() });
    let layer = MoeLayer {
        dtype: dtype.ok_or("--dtype must be f16 or bf16")?,
        weights: match (args.int4, rows) {
            (Some(group), _) => MoeWeights::Few { dtype: DType::I4, group: Some(group) },
            (_, Some(dtype)) => MoeWeights::Rows(dtype),
            _ if args.fp8 => MoeWeights::Fp8Blocks,
            _ => MoeWeights::Same,
        },
        hidden: args.hidden,
        intermediate: args.intermediate,
        experts: args.experts,
        all_experts: args.all_experts,
        k: args.k,
        routing,
        reduction: added.map_or(MoeReduction::Ordered, MoeReduction::Added),
    };
    for tokens in args.tokens {
        for plan in layer.plans(tokens, args.multiprocessors, args.plans)? {
            let launches: Vec<String> = plan.launches.iter().map(line).collect();
            println!(
                "{{\"tokens\": {tokens}, \"bytes\": {}, \"estimate\": {:.1}, \"why\": \"{}\", \"launches\": [{}]}}",
                plan.bytes,
                plan.estimate,
                plan.reason,
                launches.join(", ")
            );
        }
    }
    Ok(())
}
