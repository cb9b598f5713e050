//! Variants of a program that are right too, in which a synchronising statement may matter that does not in the program: other layouts, copies and grids, as texts whose lines keep their numbers.

use std::collections::{BTreeMap, BTreeSet};

/// The program with the layout of one register tensor given: each thread holds neighbours, or every element that is a block of threads
/// further, also with even threads ahead of odd ones; where it has one, that with the threads of each warpgroup in another order. Lines keep their numbers. Not all of these need compile.
pub fn pinned(text: &str) -> Vec<String> {
    let mut known = BTreeMap::new();
    for one in text.lines().filter_map(|l| l.strip_prefix("const ")).flat_map(|l| l.split(',')) {
        if let Some((name, value)) = one.split_once('=')
            && let Ok(value) = value.trim().parse::<i64>()
        {
            known.insert(name.trim(), value);
        }
    }
    let value = |word: &str| word.trim().parse().ok().or_else(|| known.get(word.trim()).copied());
    let threads = text.split_once(" threads(").and_then(|(_, rest)| value(rest.split_once(')')?.0));
    let Some(threads) = threads else { return Vec::new() };
    // Of a role the groups of four warps hold the tensor.
    let holders = if text.contains("warpgroup ") { vec![128, 256] } else { vec![threads] };
    let lines: Vec<&str> = text.lines().collect();
    let mut all = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if let Some(other) = in_another_order(line) {
            let changed = lines.iter().enumerate().map(|(i, l)| if i == at { &other } else { *l });
            all.push(changed.collect::<Vec<_>>().join("\n") + "\n");
        }
        let shape = line.split_once("register_tensor(").and_then(|(_, rest)| rest.strip_suffix("])"));
        let Some((_, shape)) = shape.and_then(|s| s.split_once('[')) else { continue };
        let Some(elements) = shape.split(',').map(value).product::<Option<i64>>() else { continue };
        for holders in holders.iter().filter(|h| **h > 0 && elements % **h == 0) {
            let each = elements / holders;
            let mut layouts = vec![
                format!("({holders}, {each}) : ({each}, 1)"),
                format!("({holders}, {each}) : (1, {holders})"),
            ];
            if holders % 2 == 0 {
                let half = holders / 2;
                layouts.push(format!("((2, {half}), {each}) : (({half}, 1), {holders})"));
            }
            for layout in layouts {
                let layout = format!("], layout = {layout})");
                let pinned = line.replace("])", &layout);
                let changed = lines.iter().enumerate().map(|(i, l)| if i == at { &pinned } else { *l });
                all.push(changed.collect::<Vec<_>>().join("\n") + "\n");
            }
        }
    }
    all
}

/// A line that gives a register tensor its layout, with the modes of the first 128 threads, or of all if they are fewer, in another order: the last becomes the first.
fn in_another_order(line: &str) -> Option<String> {
    let (before, layout) = line.split_once("register_tensor(").and_then(|_| line.split_once("layout = "))?;
    let (shape, strides) = layout.split_once(':').map(|(shape, strides)| (shape.trim(), strides.trim()))?;
    // Of `((threads), (values))` the numbers of the threads, and what is behind them.
    let threads = |text: &'_ str| -> Option<(Vec<i64>, String)> {
        let (modes, rest) = text.strip_prefix("((")?.split_once(')')?;
        let modes = modes.split(',').map(|mode| mode.trim().parse().ok());
        Some((modes.collect::<Option<Vec<i64>>>()?, rest.to_string()))
    };
    let ((mut extents, values), (mut steps, of_values)) = (threads(shape)?, threads(strides)?);
    let counts = extents.iter().scan(1, |count, extent| {
        *count *= extent;
        Some(*count)
    });
    let within = counts.take_while(|count| *count <= 128).count();
    if within < 2 || steps.len() != extents.len() {
        return None;
    }
    extents[..within].rotate_right(1);
    steps[..within].rotate_right(1);
    let words = |modes: &[i64]| modes.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    Some(format!("{before}layout = (({}){values} : (({}){of_values}", words(&extents), words(&steps)))
}

/// The program with each `copy` from global to shared memory in two, through a register tensor; `None` if there is no such copy. One that the
/// compiler does with asynchronous instructions waits for all others in flight too, which two copies do not. With `asynchronous`, those that a `copy.async` outside of stages does, too: an engine's are there for all
/// threads once each has waited. Lines keep their numbers.
pub fn through_registers(text: &str, asynchronous: bool) -> Option<String> {
    let made = |word: &'static str| {
        text.lines().filter_map(move |l| {
            let (name, rest) = l.trim().split_once(" = ")?;
            Some((name, rest.strip_prefix(word)?.strip_prefix('(')?))
        })
    };
    let views: BTreeSet<&str> = made("global_view").map(|(name, _)| name).collect();
    let shared: BTreeMap<&str, &str> = made("shared_tensor").collect();
    let name = |reference: &str| reference.split('[').next().unwrap_or("").trim().to_string();
    let mut found = 0;
    let mut produces = false;
    let mut split = |line: &str| {
        let line = line.trim();
        produces = line.starts_with("produce ") || produces && line != "}";
        let by_engines = line.strip_prefix("copy.async(").filter(|_| asynchronous && !produces);
        let operands = line.strip_prefix("copy(").or(by_engines)?.strip_suffix(')')?;
        // The comma that is in no index.
        let mut depth = 0;
        let (comma, _) = operands.char_indices().find(|(_, c)| {
            depth += i32::from("[(".contains(*c)) - i32::from("])".contains(*c));
            *c == ',' && depth == 0
        })?;
        let (src, dst) = (&operands[..comma], operands[comma + 1..].trim());
        let (dtype, extents) = shared.get(name(dst).as_str())?.split_once(", [")?;
        if !views.contains(name(src).as_str()) {
            return None;
        }
        let extents = extents.split_once(']')?.0.split(',').map(str::trim);
        let kept: Vec<&str> = match dst.split_once('[') {
            None => extents.collect(),
            Some((_, index)) => {
                let entries = index.strip_suffix(']')?.split(',').map(str::trim);
                extents.zip(entries).filter(|(_, entry)| [":", "_"].contains(entry)).map(|(e, _)| e).collect()
            }
        };
        let via = format!("through_{found}");
        found += 1;
        let kept = kept.join(", ");
        Some(format!("{via} = register_tensor({dtype}, [{kept}]); copy({src}, {via}); copy({via}, {dst})"))
    };
    let lines: Vec<String> = text.lines().map(|l| split(l).unwrap_or_else(|| l.to_string())).collect();
    (found > 0).then(|| lines.join("\n") + "\n")
}

/// The program with one block, to which all tiles that are dealt out go; `None` if none are. Lines keep their numbers.
pub fn one_block(text: &str) -> Option<String> {
    let (before, rest) = text.split_once(" grid(").filter(|_| text.contains(" tiles("))?;
    // The bracket that closes the first.
    let mut depth = 1;
    let (end, _) = rest.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '(') - i32::from(*c == ')');
        depth == 0
    })?;
    let lines = "\n".repeat(rest[..end].matches('\n').count());
    Some(format!("{before} grid(1{lines}{}", &rest[end..]))
}

#[cfg(test)]
pub mod tests {
    use tilewright::tile::parse;

    use super::*;

    /// A program with two views, a shared tensor and a register tensor.
    pub fn program(body: &str) -> String {
        format!(
            "kernel f(x: f32[64, 64], y: f32[64, 64]) grid(1) threads(64)\n{{\n\
             gx = global_view(x, (64, 64) : (e0, e1))\ngy = global_view(y, (64, 64) : (e0, e1))\n\
             s = shared_tensor(f32, [64, 64, 2])\nr = register_tensor(f32, [64, 64])\n{body}\n}}\n"
        )
    }

    #[test]
    fn layouts_are_given_to_one_tensor_at_a_time() {
        let all = pinned(&program("copy(gx, r)"));
        let layouts: Vec<_> =
            all.iter().map(|t| t.split_once("64], layout = ").unwrap().1.lines().next().unwrap()).collect();
        assert_eq!(layouts, ["(64, 64) : (64, 1))", "(64, 64) : (1, 64))", "((2, 32), 64) : ((32, 1), 64))"]);
        assert!(all.iter().all(|t| parse(t).is_ok()), "{all:?}");
    }

    #[test]
    fn threads_of_a_layout_take_another_order() {
        let line = "ro = register_tensor(f16, [64, 8], layout = ((16,2,4),4):((16,1,4),128))";
        let other = "ro = register_tensor(f16, [64, 8], layout = ((4, 16, 2),4) : ((4, 16, 1),128))";
        assert_eq!(in_another_order(line).as_deref(), Some(other));
        assert_eq!(in_another_order("r = register_tensor(f16, [64, 8], layout = (64, 8) : (8, 1))"), None);
        let three = line.replace("(16,2,4)", "(16,2,4,3)").replace("(16,1,4)", "(16,1,4,256)");
        assert!(
            in_another_order(&three)
                .is_some_and(|other| other.contains("((4, 16, 2, 3),4) : ((4, 16, 1, 256),128)"))
        );
    }

    #[test]
    fn copies_to_shared_memory_go_through_registers() {
        let text = program("copy(gx, s[:, :, 1])\ncopy.async(gx, s[:, :, 0])\ncopy(s[:, :, 0], r)");
        let split = through_registers(&text, false).unwrap();
        let line =
            "through_0 = register_tensor(f32, [64, 64]); copy(gx, through_0); copy(through_0, s[:, :, 1])";
        assert_eq!(split.lines().find(|l| l.starts_with("through")), Some(line));
        assert!(parse(&split).is_ok() && split.lines().count() == text.lines().count(), "{split}");
        assert_eq!(through_registers(&program("copy(gx, r)\ncopy(r, s[:, :, 0])"), true), None);
        let all = through_registers(&text, true).unwrap();
        assert!(
            parse(&all).is_ok() && all.matches("through_").count() == 2 * 3 && !all.contains("copy.async"),
            "{all}"
        );
        let stage = "p = pipeline(2, t)\nproduce p {\ncopy.async(gx, t)\n}";
        let staged = program(&format!("t = shared_tensor(f32, [64, 64])\n{stage}\ncopy(gx, s[:, :, 1])"));
        assert!(through_registers(&staged, true).is_some_and(|split| split.contains(stage)));
    }

    #[test]
    fn all_tiles_go_to_one_block() {
        let dealt = "kernel f(x: f32[m])\n    grid(min(8,\n        ceil_div(m, 4)), 1) threads(64)\n{\nfor (i, j) in tiles(4, 4) {\n}\n}\n";
        let one = one_block(dealt).unwrap();
        assert!(
            one.contains("grid(1\n) threads(64)") && one.lines().count() == dealt.lines().count(),
            "{one}"
        );
        assert_eq!(one_block(&program("copy(gx, r)")), None);
    }
}
