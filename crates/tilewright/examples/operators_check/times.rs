//! Times: of the host for a run, of warm-ups, of kernels that rely on less, and of launches that begin early.

use std::hint::black_box;
use std::ptr;
use std::rc::Rc;
use std::time::Instant;

use tilewright::compiler::{Options, compile};
use tilewright::kernels::Operator;
use tilewright::launch::driver::CAPTURE_THREAD_LOCAL;
use tilewright::launch::{Chain, Code, LaunchOptions, ParamKind, View, ViewMut};
use tilewright::ops::{Gemm, Library, OpsError, Problems};
use tilewright::prelude::{Device, F16};
use tilewright::tune::{Problem, Target, choose};

use crate::host::{self, Bare};
use crate::{Fallible, HALF, Held, Place, Run, wrong};

/// A graph of what a function puts on the stream.
fn captured(
    p: &Place,
    work: impl FnOnce() -> Fallible<()>,
) -> Fallible<tilewright::launch::driver::GraphExec> {
    let failed = |error| format!("{:?}", p.gpu.driver().describe(error));
    unsafe { p.gpu.driver().stream_begin_capture(p.stream.raw(), CAPTURE_THREAD_LOCAL) }.map_err(failed)?;
    let worked = work();
    let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
    unsafe { p.gpu.driver().stream_end_capture(p.stream.raw(), &raw mut graph) }.map_err(failed)?;
    worked?;
    unsafe { p.gpu.driver().graph_instantiate(&raw mut exec, graph, 0) }.map_err(failed)?;
    Ok(exec)
}

/// Microseconds of a graph: the median of several replays.
fn microseconds(p: &Place, exec: tilewright::launch::driver::GraphExec) -> Fallible<f64> {
    let (driver, stream) = (p.gpu.driver(), p.stream.raw());
    let failed = |error| format!("{:?}", driver.describe(error));
    let (mut start, mut end) = (ptr::null_mut(), ptr::null_mut());
    unsafe {
        driver.event_create(&raw mut start, 0).map_err(failed)?;
        driver.event_create(&raw mut end, 0).map_err(failed)?;
    }
    let mut times = Vec::new();
    for round in 0..15 {
        let mut milliseconds = 0f32;
        unsafe {
            driver.event_record(start, stream).map_err(failed)?;
            driver.graph_launch(exec, stream).map_err(failed)?;
            driver.event_record(end, stream).map_err(failed)?;
        }
        p.wait()?;
        unsafe { driver.event_elapsed(&raw mut milliseconds, start, end) }.map_err(failed)?;
        if round > 2 {
            times.push(f64::from(milliseconds) * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// 1,000 runs in a graph, replayed.
pub fn in_a_graph(p: &Place, runs: &[Run]) -> Fallible<()> {
    let expected: Vec<Vec<f64>> = runs.iter().map(|run| p.read(&run.result)).collect::<Fallible<_>>()?;
    let exec = captured(p, || (0..1000).try_for_each(|i| runs[i % runs.len()].run(p)))?;
    for _ in 0..3 {
        for run in runs {
            p.device.upload(&run.result.buffer, &vec![0x11; run.result.buffer.bytes()])?;
        }
        let failed = |error| format!("{:?}", p.gpu.driver().describe(error));
        unsafe { p.gpu.driver().graph_launch(exec, p.stream.raw()) }.map_err(failed)?;
        p.wait()?;
        for (run, expected) in runs.iter().zip(&expected) {
            differ(p, run, expected, "in a graph")?;
        }
    }
    println!("done: 1000 runs of {} operators in a captured graph, replayed 3 times", runs.len());
    Ok(())
}

/// Bare launches of the same kernels with the same tensors, and with a workspace of their own.
fn bare(p: &Place, run: &Run) -> Fallible<Vec<Bare>> {
    let chain = run.launches(p)?;
    let mut free = p.memory + HALF as u64;
    let mut parts: Vec<(String, u64)> = Vec::new();
    let mut launches = Vec::new();
    for (number, plan) in chain.plans().enumerate() {
        let mut words = Vec::new();
        for (place, param) in plan.recipe().params.iter().enumerate() {
            let held = run.tensors.iter().find(|(name, _)| *name == param.name).map(|(_, held)| held.pointer);
            let part = parts.iter().find(|(name, _)| *name == param.name).map(|(_, at)| *at);
            words.push(match (&param.kind, held.or(part)) {
                (ParamKind::Tensor(_), Some(pointer)) => pointer,
                (ParamKind::Tensor(tensor), None) => {
                    let (shape, strides) = plan.tensor(place).ok_or("a tensor without a shape")?;
                    let last: i64 =
                        shape.iter().zip(strides).map(|(extent, stride)| (extent - 1) * stride).sum();
                    let bytes = (last as u64 + 1) * u64::from(tensor.dtype.bits()) / 8;
                    let pointer = free;
                    free += bytes.next_multiple_of(256);
                    parts.push((param.name.clone(), pointer));
                    pointer
                }
                _ => u64::from(1f32.to_bits()),
            });
        }
        launches.push(Bare::new(plan, &words, number > 0, p.stream)?);
    }
    Ok(launches)
}

/// Compares what launches give with what is there.
fn right_again(p: &Place, run: &Run, launch: impl Fn() -> Fallible<()>) -> Fallible<()> {
    let expected = p.read(&run.result)?;
    p.device.upload(&run.result.buffer, &vec![0x11; run.result.buffer.bytes()])?;
    launch()?;
    p.wait()?;
    differ(p, run, &expected, "by launches with their arguments")
}

/// Says if a run's result is not what is expected.
fn differ(p: &Place, run: &Run, expected: &[f64], how: &str) -> Fallible<()> {
    let found = p.read(&run.result)?;
    let count = run.result.shape.iter().product::<i64>() as usize;
    let off = |(a, b): (&f64, &f64)| (a - b).abs() > 2e-3 * (1.0 + b.abs());
    if found[..count].iter().zip(expected).any(off) {
        wrong(format_args!("{} {how}", run.name));
    }
    Ok(())
}

pub fn costs(p: &Place, runs: &[Run]) -> Fallible<()> {
    println!(
        "the host's time in ns of bare launches, of a run with its views, and of its launches with their arguments: medians, least ones, and the medians of the differences"
    );
    for run in runs {
        let (mut launches, prepared) = (bare(p, run)?, run.prepared(p)?);
        // The memory is the run's, which is there.
        let enqueue = || Ok(unsafe { prepared.enqueue(p.stream) }?);
        right_again(p, run, enqueue)?;
        let maps: usize = run.launches(p)?.plans().map(|plan| plan.recipe().maps.len()).sum();
        let [of_bare, of_run, of_prepared] = host::costs(
            || p.wait(),
            [&mut || launches.iter_mut().try_for_each(Bare::launch), &mut || run.run(p), &mut || enqueue()],
        )?;
        println!(
            "  {:<20} {} launches, {maps} tensor maps: bare {:5.0} {:5.0}, run {:5.0} {:5.0}: {:+.0}, prepared {:5.0} {:5.0}: {:+.0}",
            run.name,
            launches.len(),
            of_bare.median,
            of_bare.least,
            of_run.median,
            of_run.least,
            of_run.more,
            of_prepared.median,
            of_prepared.least,
            of_prepared.more
        );
    }
    let (x, y) = (p.random(F16, &[64, 1000], 9)?, p.result(F16, &[64, 1000])?);
    let (a, b, c) =
        (p.random(F16, &[16, 512], 1)?, p.random(F16, &[512, 512], 2)?, p.result(F16, &[16, 512])?);
    let bias = p.random(F16, &[512], 3)?;
    let (x, a, b, bias) = (x.view(), a.view(), b.view(), bias.view());
    let (mut y, mut c) = (y.view_mut(), c.view_mut());
    p.lib.softmax(p.stream, &x, &mut y).run()?;
    p.lib.gemm(p.stream, &a, &b, &mut c).option("split", 1).bias(&bias).gelu().run()?;
    known("softmax, with the call made anew", || p.lib.softmax(p.stream, &x, &mut y).call().is_ready());
    let call = p.lib.softmax(p.stream, &x, &mut y);
    known("softmax", || call.call().is_ready());
    known("gemm with bias and gelu, with the call made anew", || {
        p.lib.gemm(p.stream, &a, &b, &mut c).option("split", 1).bias(&bias).gelu().call().is_ready()
    });
    let call = p.lib.gemm(p.stream, &a, &b, &mut c).option("split", 1).bias(&bias).gelu();
    known("gemm with bias and gelu", || call.call().is_ready());
    Ok(())
}

/// Says how long it takes to find a choice that is known: the least of some batches.
fn known(name: &str, mut found: impl FnMut() -> bool) {
    const BATCH: u32 = 20_000;
    let mut least = f64::INFINITY;
    for _ in 0..50 {
        let start = Instant::now();
        for _ in 0..BATCH {
            black_box(found());
        }
        least = least.min(start.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    println!("the choice of {name}, known: {least:.0} ns");
}

/// The time of a warm-up, and that nothing is compiled afterwards.
pub fn warm_up(p: &Place) -> Fallible<()> {
    let lib = Library::for_gpu(&p.gpu)?.strict();
    for (name, problems) in [
        ("gemm, n = k = 4096, m from 1 to 8192", Gemm::f16().n(4096).k(4096).m(1..=8192).as_ref().clone()),
        ("rmsnorm, n = 4096, m from 1 to 8192", Problems::of("rmsnorm").size("n", 4096).size("m", 1..=8192)),
        (
            "gemm_weights, n = k = 4096, m from 1 to 64",
            Problems::of("gemm_weights").size("n", 4096).size("k", 4096).size("m", 1..=64),
        ),
    ] {
        for (words, lib) in [("", &lib), (", kept on disk", &Library::for_gpu(&p.gpu)?)] {
            let start = Instant::now();
            let warm = lib.warm_up(&problems)?;
            println!("warm: {name}{words}: {warm:?} in {:.2} s", start.elapsed().as_secs_f64());
        }
    }
    let (b, a, c) =
        (p.random(F16, &[4096, 4096], 1)?, p.random(F16, &[8192, 4096], 2)?, p.result(F16, &[8192, 4096])?);
    let mut slowest = 0f64;
    for m in (1..=8192).step_by(61) {
        let a = unsafe { View::new(a.pointer, a.dtype(), &[m, 4096]) };
        let mut c = unsafe { ViewMut::new(c.pointer, c.dtype(), &[m, 4096]) };
        let mut memory = p.workspace()?;
        let start = Instant::now();
        if let Err(error) = lib.gemm(p.stream, &a, &b.view(), &mut c).workspace(&mut memory).run() {
            wrong(format_args!("m = {m} in a warm range: {error}"));
        }
        slowest = slowest.max(start.elapsed().as_secs_f64());
        p.wait()?;
    }
    println!(
        "strict: 135 sizes of the range, the slowest first run took {:.0} µs of the host",
        slowest * 1e6
    );
    let a = unsafe { View::new(a.pointer, a.dtype(), &[16, 2000]) };
    let b = unsafe { View::new(b.pointer, b.dtype(), &[4096, 2000]) };
    let mut c = unsafe { ViewMut::new(c.pointer, c.dtype(), &[16, 4096]) };
    match lib.gemm(p.stream, &a, &b, &mut c).run() {
        Err(error @ OpsError::NotWarm { .. }) => println!("strict: {error}"),
        other => wrong(format_args!("sizes out of the range: {other:?}")),
    }
    Ok(())
}

/// Kernels that rely on 16 bytes, and such as rely on all that divides the sizes.
pub fn specialised(p: &Place) -> Fallible<()> {
    println!("products by the library, and by kernels that rely on all that divides the sizes, µs each");
    let target = Target::new(p.gpu.name(), p.lib.arch());
    for (m, n, k) in
        [(4096, 4096, 4096), (1024, 4096, 14336), (16, 4096, 4096), (1, 4096, 4096), (300, 1000, 2000)]
    {
        let (a, b) = (p.random(F16, &[m, k], 1)?, p.random(F16, &[n, k], 2)?);
        let c = p.result(F16, &[m, n])?;
        let by_library = || {
            let mut memory = p.workspace()?;
            p.lib.gemm(p.stream, &a.view(), &b.view(), &mut c.view_mut()).workspace(&mut memory).run()?;
            Ok(())
        };
        by_library()?;
        let ours = captured(p, || (0..20).try_for_each(|_| by_library()))?;
        let sizes = [("m", m), ("n", n), ("k", k)];
        let named = sizes.map(|(name, size)| (name.to_string(), size)).into();
        let choice = choose(&Problem::new("gemm_hopper", &named, &[])?, &target, None)?;
        let operator: &Operator = tilewright::kernels::operator("gemm_hopper")?;
        let mut plans = Vec::new();
        for program in choice.candidate.programs(operator)? {
            let kernel = compile(&program, &Options::new(p.lib.arch()).for_own_sizes(&program, &sizes))?;
            let mut recipe = kernel.recipe()?;
            for workspace in operator.workspaces() {
                if let Some(tensor) = recipe.tensor_mut(workspace.name) {
                    tensor.workspace = true;
                }
            }
            let values: Vec<i64> = recipe
                .sizes
                .iter()
                .filter_map(|size| sizes.iter().find(|(name, _)| *name == size.name))
                .map(|(_, size)| *size)
                .collect();
            plans.push(unsafe { p.gpu.load(&recipe, Code::Ptx(&kernel.ptx)) }?.plan(&values)?);
        }
        let chain = Chain::new(plans)?;
        let all = || {
            let mut memory = p.workspace()?;
            let (a, b, mut c) = (a.view(), b.view(), c.view_mut());
            let args = chain.params().iter().map(|param| match param.name.as_str() {
                "a" => Some((&a).into()),
                "b" => Some((&b).into()),
                _ => None,
            });
            let args: Vec<Option<tilewright::launch::Arg<'_>>> = args.collect();
            let mut given = Vec::new();
            let mut c = Some((&mut c).into());
            for arg in args {
                given.push(arg.or_else(|| c.take()).ok_or("an argument that there is not")?);
            }
            chain.launch_with(p.stream, &given[..], &LaunchOptions::new().workspace(&mut memory))?;
            Ok(())
        };
        all()?;
        let theirs = captured(p, || (0..20).try_for_each(|_| all()))?;
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..3 {
            times[0].push(microseconds(p, ours)? / 20.0);
            times[1].push(microseconds(p, theirs)? / 20.0);
        }
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[1]
        };
        let (ours, theirs) = (median(&mut times[0]), median(&mut times[1]));
        println!("  {m} × {n} × {k}: {ours:.2} {theirs:.2}; {}: {}", choice.from, choice.candidate);
    }
    Ok(())
}

/// Tiles of few rows, and square ones.
const TALL: &[(&str, &str)] = &[("bm", "64"), ("bn", "16")];
const SQUARE: &[(&str, &str)] = &[("bm", "64"), ("bn", "64")];

/// Products one after another, each of the result of the one ahead: with the same weights again and again, which the L2 cache keeps if it can, and with
/// weights of so many layers that it keeps none, also behind a norm each.
pub fn dependent(p: &Place) -> Fallible<()> {
    const PRODUCTS: usize = 48;
    const BYTES: i64 = 400 << 20;
    println!(
        "products one after another, each in µs: without and with early begins, of the same weights; the same of weights of their own; and each behind an rmsnorm"
    );
    let mut of_layers: Vec<Rc<Held>> = Vec::new();
    let rows = [4096, 2048].into_iter().zip([
        &[1, 16, 64, 128, 256, 512, 1024][..],
        &[16, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048],
    ]);
    for (n, m) in rows.flat_map(|(n, rows)| rows.iter().map(move |m| (n, *m))) {
        let layers = (BYTES / (n * n * 2)).min(PRODUCTS as i64);
        if of_layers.first().is_none_or(|held| held.shape[0] != n) {
            let layer = |layer: i64| p.random(F16, &[n, n], 2 + layer.cast_unsigned());
            of_layers = (0..layers).map(layer).collect::<Fallible<_>>()?;
        }
        let rows = [p.random(F16, &[m, n], 1)?, p.result(F16, &[m, n])?, p.result(F16, &[m, n])?];
        let normal = p.result(F16, &[m, n])?;
        let norm = p.random(F16, &[n], 3)?;
        let mut times = Vec::new();
        for (weights, norms) in [(&of_layers[..1], false), (&of_layers[..], false), (&of_layers[..], true)] {
            let mut results = Vec::new();
            for dependent in [false, true] {
                let products = || -> Fallible<()> {
                    for number in 0..PRODUCTS {
                        let x = &rows[if number == 0 { 0 } else { 1 + number % 2 }];
                        let y = &rows[2 - number % 2];
                        let w = &weights[number % weights.len()];
                        let mut memory = p.workspace()?;
                        let mut from = x;
                        if norms {
                            let (x, norm, mut y) = (x.view(), norm.view(), normal.view_mut());
                            p.lib.rmsnorm(p.stream, &x, &norm, &mut y).dependent(dependent).run()?;
                            from = &normal;
                        }
                        let (x, w, mut y) = (from.view(), w.view(), y.view_mut());
                        let call = p.lib.gemm(p.stream, &x, &w, &mut y).alpha(1.7 / (n as f32).sqrt());
                        call.dependent(dependent).workspace(&mut memory).run()?;
                    }
                    Ok(())
                };
                products()?;
                let exec = captured(p, products)?;
                times.push(microseconds(p, exec)? / PRODUCTS as f64);
                results.push(p.read(&rows[2 - (PRODUCTS - 1) % 2])?);
            }
            if results[0] != results[1] {
                wrong(format_args!("products with early begins, m = {m}"));
            }
        }
        let times: Vec<String> = times.iter().map(|time| format!("{time:.2}")).collect();
        println!("  {m} × {n} × {n}, {layers} layers: {}", times.join(" "));
        let (x, w, mut y) = (rows[0].view(), of_layers[0].view(), rows[1].view_mut());
        let why = p.lib.gemm(p.stream, &x, &w, &mut y).alpha(0.5).dependent(true).call().why()?;
        println!("    {}; {}", why.parameters, why.begin);
        // Clusters, and fewer stages: then blocks of two launches have room on a multiprocessor.
        let forms: &[&[(&str, &str)]] = match m {
            64 if n == 2048 => {
                &[TALL, &[("stages", "10"), TALL[0], TALL[1]], &[("stages", "5"), TALL[0], TALL[1]]]
            }
            256 if n == 2048 => &[
                SQUARE,
                &[("stages", "6"), SQUARE[0], SQUARE[1]],
                &[("stages", "4"), SQUARE[0], SQUARE[1]],
                &[("cluster", "m2")],
                &[("cluster", "n2")],
            ],
            _ => &[],
        };
        for form in forms {
            let mut times = Vec::new();
            for dependent in [false, true] {
                let products = || -> Fallible<()> {
                    for number in 0..PRODUCTS {
                        let mut memory = p.workspace()?;
                        let (x, w) =
                            (rows[1 + number % 2].view(), of_layers[number % of_layers.len()].view());
                        let mut y = rows[2 - number % 2].view_mut();
                        let call = p.lib.gemm(p.stream, &x, &w, &mut y).alpha(1.7 / (n as f32).sqrt());
                        let call = form.iter().fold(call, |call, (name, value)| call.option(name, *value));
                        call.option("split", 1).dependent(dependent).workspace(&mut memory).run()?;
                    }
                    Ok(())
                };
                if let Err(error) = products() {
                    println!("    {form:?}: {error}");
                    break;
                }
                times.push(format!("{:.2}", microseconds(p, captured(p, products)?)? / PRODUCTS as f64));
            }
            let call = p.lib.gemm(p.stream, &x, &w, &mut y).alpha(0.5).option("split", 1);
            let call = form.iter().fold(call, |call, (name, value)| call.option(name, *value));
            if let Ok(why) = call.call().why() {
                println!("    {}: {}", why.parameters, times.join(" "));
            }
        }
    }
    Ok(())
}
