//! `tilewright devices`.

use std::process::ExitCode;

use comfy_table::{Table, presets};
use serde_json::json;
use tilewright::runtime;

use crate::args::DevicesArgs;
use crate::messages::{Failure, print};

/// Lists the devices that kernels can run on.
pub fn devices(args: &DevicesArgs) -> Result<ExitCode, Failure> {
    let list = runtime::devices();
    if args.json {
        let devices: Vec<_> = list
            .devices
            .iter()
            .map(|d| {
                json!({
                    "device": d.choice.to_string(),
                    "name": d.name,
                    "compute_capability": d.compute_capability.map(|(major, minor)| format!("{major}.{minor}")),
                    "memory_bytes": d.memory_bytes,
                    "arch": d.arch.map(|a| a.to_string()),
                })
            })
            .collect();
        let list = json!({ "devices": devices, "cuda_absent": list.cuda_absent });
        print(&format!("{list:#}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "device",
        "name",
        "compute capability",
        "memory",
        "compiles for",
    ]);
    for d in &list.devices {
        table.add_row([
            d.choice.to_string(),
            d.name.clone(),
            d.compute_capability.map_or("any".to_string(), |(major, minor)| format!("{major}.{minor}")),
            d.memory_bytes
                .map_or("the host's".to_string(), |b| format!("{:.1} GiB", b as f64 / (1u64 << 30) as f64)),
            d.arch.map_or("every architecture".to_string(), |a| a.to_string()),
        ]);
    }
    let absent = list.cuda_absent.map_or(String::new(), |why| format!("no CUDA device: {why}\n"));
    print(&format!("{table}\n{absent}"))?;
    Ok(ExitCode::SUCCESS)
}
