//! `tilewright fidelity`: does the simulator do what a device does?

use std::process::ExitCode;

use comfy_table::{Table, presets};
use serde_json::json;
use tilewright::lab::fidelity::{self, Accuracy, Config, FunctionConfig, Row, Sample};
use tilewright::runtime::{self, Device, DeviceKind};

use crate::args::FidelityArgs;
use crate::messages::{Failure, bar, error, print, progress};

/// Compares the simulator with a device, row by row.
pub fn fidelity(args: &FidelityArgs) -> Result<ExitCode, Failure> {
    if let Some(dir) = &args.ptx_dir {
        return crate::calibrate::write_ptx(dir, args.arch.as_deref(), fidelity::ptx);
    }
    if !(1..=1024).contains(&args.blocks) {
        return Err(Failure::usage(format!("`--blocks {}`: it must be from 1 to 1024", args.blocks)));
    }
    let failed = |e: runtime::RuntimeError| Failure::program(error(e));
    let device = crate::device::open(&args.device)?;
    if args.functions {
        return functions(args, &*device);
    }
    let bar = bar(0);
    let config = Config { blocks: args.blocks, seed: args.seed };
    let rows = fidelity::fidelity(&*device, &config, |done, total, name| progress(&bar, done, total, name));
    bar.finish_and_clear();
    let rows = rows.map_err(failed)?;
    let text =
        if args.json { format!("{:#}\n", as_json(&rows, &*device, &config)) } else { table(&rows, &*device) };
    print(&text)?;
    Ok(if rows.iter().all(Row::is_right) { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Measures the functions of elementwise statements.
fn functions(args: &FidelityArgs, device: &dyn Device) -> Result<ExitCode, Failure> {
    let config = FunctionConfig { arguments: args.arguments, seed: args.seed };
    let bar = bar(0);
    let rows = fidelity::functions(device, &config, |done, total, name| progress(&bar, done, total, name));
    bar.finish_and_clear();
    let rows = rows.map_err(|e| Failure::program(error(e)))?;
    let right = rows.iter().all(Accuracy::is_right);
    let text = if args.json {
        let rows: Vec<_> = rows.iter().map(accuracy_json).collect();
        format!(
            "{:#}\n",
            json!({ "device": device.name(), "seed": args.seed, "functions": rows, "right": right })
        )
    } else {
        accuracy_table(&rows, device)
    };
    print(&text)?;
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn accuracy_json(row: &Accuracy) -> serde_json::Value {
    let sample = |sample: &Option<Sample>| {
        sample.map(|s| {
            json!({
                "error": s.error,
                "argument": s.argument.to_string(),
                "found": s.found.to_string(),
                "exact": s.exact.to_string(),
            })
        })
    };
    json!({
        "function": row.name,
        "arguments": row.arguments,
        "ulps": sample(&row.ulps),
        "absolute": sample(&row.absolute),
        "of_bound": sample(&row.ratio),
        "bound": row.bound,
        "wrong": row.wrong,
        "first": sample(&row.first),
        "right": row.is_right(),
    })
}

fn accuracy_table(rows: &[Accuracy], device: &dyn Device) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "",
        "y = f(x)",
        "arguments",
        "max ulp (at x)",
        "max absolute (at x)",
        "of the bound",
        "bound",
    ]);
    for row in rows {
        let verdict = if row.is_right() { "ok" } else { "WRONG" };
        let at = |sample: &Option<Sample>, digits: usize| match sample {
            Some(s) if digits == 0 => format!("{:.1e} ({:e})", s.error, s.argument),
            Some(s) => format!("{:.digits$} ({:e})", s.error, s.argument),
            None => "0".to_string(),
        };
        let of = row.ratio.map_or("0".to_string(), |s| format!("{:.2}", s.error));
        table.add_row([
            verdict,
            row.name,
            &row.arguments.to_string(),
            &at(&row.ulps, 2),
            &at(&row.absolute, 0),
            &of,
            &row.bound,
        ]);
    }
    let mut text = format!("{table}\n");
    for row in rows {
        if let Some(first) = &row.first {
            let said = format!(
                "{}: {} results; of {:e} it is {:e}, should be {:e}",
                row.name, row.wrong, first.argument, first.found, first.exact
            );
            text.push_str(&format!("{}\n", error(said)));
        }
    }
    let right = rows.iter().filter(|row| row.is_right()).count();
    text.push_str(&format!(
        "{right} of {} functions are within their bounds on {}\n",
        rows.len(),
        device.name()
    ));
    text
}

fn sides(device: &dyn Device) -> [String; 2] {
    let other = if device.kind() == DeviceKind::Sim { "the rows' own evaluation" } else { "the simulator" };
    [device.name(), other.to_string()]
}

fn as_json(rows: &[Row], device: &dyn Device, config: &Config) -> serde_json::Value {
    let [device, other] = sides(device);
    let all: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "row": row.name,
                "mnemonic": row.mnemonic,
                "cases": row.cases,
                "exact": row.exact,
                "nans": row.nans,
                "worst": if row.worst.is_finite() { json!(row.worst) } else { json!(null) },
                "bound": row.bound,
                "wrong": row.wrong,
                "first": row.first,
                "right": row.is_right(),
            })
        })
        .collect();
    json!({
        "device": device,
        "against": other,
        "blocks": config.blocks,
        "seed": config.seed,
        "rows": all,
        "right": rows.iter().all(Row::is_right),
    })
}

fn table(rows: &[Row], device: &dyn Device) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "row", "cases", "exact", "NaNs", "worst", "may differ"]);
    for row in rows {
        let verdict = if row.is_right() { "ok" } else { "WRONG" };
        let worst = if row.worst == 0.0 { "0".to_string() } else { format!("{:.1e}", row.worst) };
        let numbers = [row.cases, row.exact, row.nans].map(|n| n.to_string());
        let [cases, exact, nans] = &numbers;
        table.add_row([verdict, &row.name, cases, exact, nans, &worst, &row.bound]);
    }
    let mut text = format!("{table}\n");
    for row in rows {
        if let Some(first) = &row.first {
            text.push_str(&format!("{}\n", error(format!("{}: {} values; {first}", row.name, row.wrong))));
        }
    }
    let right = rows.iter().filter(|row| row.is_right()).count();
    let [device, other] = sides(device);
    text.push_str(&format!("{right} of {} rows agree: {device} and {other}\n", rows.len()));
    text
}
