//! A pack of the kernels of all shipped records, each once: `record_pack FILE.twpack`. `scripts/pack-size` measures how long it takes to open it.

use std::collections::BTreeSet;
use std::error::Error;

use tilewright::build;
use tilewright::kernels::operator;
use tilewright::pack::Pack;
use tilewright::prelude::{Options, compile};
use tilewright::tune::{Record, SHIPPED};

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: record_pack FILE.twpack")?;
    let mut pack = Pack::new(concat!("tilewright ", env!("CARGO_PKG_VERSION")));
    let mut known = BTreeSet::new();
    for (number, line) in (1..).zip(SHIPPED.iter().flat_map(|(_, text)| text.lines())) {
        let record = Record::parse(line)?;
        let (problem, target) = (record.problem()?, record.target()?);
        let candidate = record.holds(&problem, &target, true)?;
        let sizes: Vec<(&str, i64)> =
            problem.sizes().iter().map(|(name, size)| (name.as_str(), *size)).collect();
        for program in candidate.programs(operator(&record.operator)?)? {
            let options = Options::new(target.arch).for_own_sizes(&program, &sizes);
            let mut entry = build::entry(&compile(&program, &options)?, &options)?;
            entry.source = None;
            if known.insert(entry.id()?) {
                let name = format!("{}.{number}", entry.name);
                pack.add(entry.named(name))?;
            }
        }
    }
    let bytes = pack.to_bytes()?;
    std::fs::write(&file, &bytes)?;
    println!("{} kernels, {} bytes in {file}", pack.entries().len(), bytes.len());
    Ok(())
}
