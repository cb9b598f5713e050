//! `tilewright bench`: operators on a GPU, beside a library if wanted.

mod data;
mod ours;
mod shapes;
mod table;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tilewright::lab::CudaRunner;
use tilewright::lab::cublaslt::{Algorithm, CublasLt, Product};
use tilewright::lab::measure::{Condition, Contest, Measure, Score};
use tilewright::runtime::{Buffer, CudaDevice, Device, RuntimeError};
use tilewright::tune::Target;

use crate::args::{BenchArgs, BenchWhat, GemmBenchArgs, PeerName};
use crate::device::open_gpu;
use crate::messages::{Failure, bar, cannot_write, error, print};
use crate::tune::modelled;
use data::{Elements, Factor, Reference, tolerance};
use ours::{Operand, Ours, choose};
use shapes::Shape;
use table::{Missing, Peer, Row, as_json, gap_as_json};

/// Ways of a library that are tried.
const WAYS: usize = 8;
/// Rounds in which they are compared.
const TRIALS: usize = 3;
/// The byte that results are filled with: elements that are not written stay what is no number.
const POISON: u8 = 0xff;

/// Measures what is asked for.
pub fn bench(args: &BenchArgs) -> Result<ExitCode, Failure> {
    match &args.what {
        BenchWhat::Gemm(args) => gemm(args),
    }
}

/// The conditions in the order in which they are measured.
fn conditions(given: &[String]) -> Result<Vec<Condition>, Failure> {
    let mut all = Vec::new();
    for name in given {
        let named = match name.as_str() {
            "all" => vec![Condition::Rested, Condition::Sustained, Condition::Clean],
            name => {
                vec![name.parse().map_err(|e| Failure::usage(format!("{e}, or all of the first three")))?]
            }
        };
        all.extend(named);
    }
    let mut seen = Vec::new();
    for condition in all {
        if !seen.contains(&condition) {
            seen.push(condition);
        }
    }
    Ok(seen)
}

/// A pause of the command line.
fn seconds(given: f64) -> Result<Duration, Failure> {
    let rest = Duration::try_from_secs_f64(given).ok().filter(|rest| rest.as_secs() <= 600);
    rest.ok_or_else(|| Failure::usage(format!("`--rest {given}`: it must be from 0 to 600 seconds")))
}

fn gemm(args: &GemmBenchArgs) -> Result<ExitCode, Failure> {
    let conditions = conditions(&args.condition)?;
    let mut all = Vec::new();
    for text in &args.shapes {
        all.push(text.parse::<Shape>().map_err(Failure::usage)?);
    }
    if let Some(path) = &args.shapes_file {
        all.extend(shapes::read(path)?);
    }
    if all.is_empty() {
        all.push(Shape { m: 4096, n: 4096, k: 4096, batches: 1 });
    }
    let params = crate::kernels::parameters(&args.params)?;
    if args.rounds == 0 {
        return Err(Failure::usage("`--rounds 0`: there must be 1 at least"));
    }
    let rest = args.rest.map(seconds).transpose()?;
    // Says what is wrong with the parameters before a device is opened.
    for shape in &all {
        choose(&args.operator, args.dtype.name(), &params, shape, None).map_err(Failure::usage)?;
    }
    let failed = |e: RuntimeError| Failure::program(error(e));
    let without = "without a GPU, `tilewright run FILE --device sim --profile` estimates the cycles of a program, and `tilewright tune \
                   gemm_hopper -p m=1024 -p n=1024 -p k=1024 --estimate` ranks the configurations of an operator";
    let opened = open_gpu(&args.device, "bench", without)?;
    let Some(device) = opened.cuda() else {
        return Err(Failure::no_device("the simulator has no clock: `bench` needs a GPU", without));
    };
    let library = match args.vs {
        Some(PeerName::Cublaslt) => Some(CublasLt::open(device).map_err(failed)?),
        None => None,
    };
    let bench = Bench { args, params, device, library, rest };
    let bar = bar(all.len() as u64);
    let mut file = args.json.as_deref().map(Lines::create).transpose()?;
    let about = bench.about();
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for shape in &all {
        bar.set_message(shape.to_string());
        let (had, lacked) = (rows.len(), missing.len());
        let ended = bench.shape(shape, &conditions, &mut rows, &mut missing);
        bar.inc(1);
        let lost = ended.err().map(|error| {
            missing.push(Missing { shape: *shape, reason: error.to_string() });
            // What comes after a kernel that failed says nothing.
            matches!(error, RuntimeError::Kernel { .. })
        });
        if let Some(file) = &mut file {
            // Written as soon as it is known, so that it is there when the rest is not.
            for value in rows[had..].iter().map(as_json).chain(missing[lacked..].iter().map(gap_as_json)) {
                file.write(value, &about)?;
            }
        }
        if lost == Some(true) {
            break;
        }
    }
    bar.finish_and_clear();
    let library = bench.library.as_ref().map(CublasLt::library);
    let library =
        library.map(|found| format!(", cuBLASLt {} ({})", found.version, found.path)).unwrap_or_default();
    let (operator, dtype) = (&args.operator, args.dtype.name());
    let measured = table::text(&rows, &missing, &conditions);
    print(&format!("{operator} {dtype} on {}{library}\n{measured}", device.name()))?;
    let right = missing.is_empty() && rows.iter().all(|row| row.wrong().is_none());
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// A file of JSON objects, one a line.
struct Lines<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Lines<'a> {
    fn create(path: &'a Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|e| cannot_write(path, e))?;
        Ok(Lines { path, file })
    }

    /// Writes an object, with what all have in common.
    fn write(&mut self, mut value: Value, about: &Value) -> Result<(), Failure> {
        if let (Value::Object(own), Value::Object(common)) = (&mut value, about) {
            own.extend(common.clone());
        }
        writeln!(self.file, "{value}").map_err(|e| cannot_write(self.path, e))
    }
}

/// Everything that is the same for all shapes.
struct Bench<'a> {
    args: &'a GemmBenchArgs,
    params: Vec<(&'a str, &'a str)>,
    device: &'a CudaDevice,
    library: Option<CublasLt<'a>>,
    rest: Option<Duration>,
}

/// The memory of a product, and what its result is to be.
struct Problem {
    shape: Shape,
    operands: [Operand; 3],
    a: Buffer,
    b: Buffer,
    c: Buffer,
    reference: Reference,
}

/// Our result, looked at.
struct Looked {
    bytes: Vec<u8>,
    error: f64,
    not_finite: usize,
}

impl<'a> Bench<'a> {
    fn about(&self) -> Value {
        let chip = self.device.chip();
        let library = self.library.as_ref().map(CublasLt::library);
        json!({
            "operator": self.args.operator,
            "dtype": self.args.dtype.name(),
            "device": self.device.name(),
            "cuda": chip.cuda,
            "multiprocessors": chip.multiprocessors,
            "tilewright": env!("CARGO_PKG_VERSION"),
            "library": library.map(|found| json!({ "path": found.path, "version": found.version })),
        })
    }

    fn measure(&self, condition: Condition) -> Measure {
        let usual = Measure::new(condition);
        let rest = self.rest.filter(|_| !usual.rest.is_zero()).unwrap_or(usual.rest);
        Measure { rest, ..usual }
    }

    /// Measures a shape under every condition. What is wrong with the operator or refused by the library is noted.
    fn shape(
        &self,
        shape: &Shape,
        conditions: &[Condition],
        rows: &mut Vec<Row>,
        missing: &mut Vec<Missing>,
    ) -> Result<(), RuntimeError> {
        let arch = self.device.arch().unwrap_or(tilewright::machine::Arch::SM_80);
        let store = crate::tune::store(None).ok();
        let target = modelled(Target::new(self.device.name(), arch), None, store.as_ref());
        let target = match &target {
            Ok(target) => Some((target, store.as_ref())),
            Err(failure) => {
                missing.push(Missing { shape: *shape, reason: failure.text.clone() });
                return Ok(());
            }
        };
        let made = choose(&self.args.operator, self.args.dtype.name(), &self.params, shape, target)
            .and_then(|choice| Ok((Ours::new(&choice.programs, shape, arch)?, choice.label)));
        let (ours, label) = match made {
            Ok(made) => made,
            Err(reason) => {
                missing.push(Missing { shape: *shape, reason });
                return Ok(());
            }
        };
        let problem = self.problem(shape, ours.operands)?;
        let buffers = [&problem.a, &problem.b, &problem.c];
        let runner = || ours.runner(self.device, "ours", buffers);
        let before = self.look(&problem, &mut runner()?)?;
        let ways = self.library.as_ref().map_or(Ok(Vec::new()), |library| self.ways(library, &problem));
        let ways = ways.or_else(|error| match error {
            // Ours is measured alone then.
            RuntimeError::Library { .. } => {
                missing.push(Missing { shape: *shape, reason: error.to_string() });
                Ok(Vec::new())
            }
            other => Err(other),
        })?;
        let first = rows.len();
        for condition in conditions {
            let mut contest = Contest::new(self.measure(*condition));
            let own = contest.add(runner()?);
            let best = self.best(&problem, &ways, *condition)?;
            let peer = match best {
                Some(way) => Some((way, contest.add(way.runner(&problem)?))),
                None => None,
            };
            contest.rounds(self.args.rounds)?;
            let peer = match peer.and_then(|(way, id)| Some((way, contest.score(id)?))) {
                Some((way, score)) => Some(self.peer(&problem, &before, way, score)?),
                None => None,
            };
            rows.extend(contest.score(own).map(|score| Row {
                shape: *shape,
                condition: *condition,
                config: label.clone(),
                score,
                error: before.error,
                tolerance: tolerance(problem.operands[0].dtype, problem.operands[2].dtype),
                not_finite: before.not_finite,
                peer,
            }));
        }
        // Once more, after all those launches.
        let after = self.look(&problem, &mut runner()?)?;
        for row in &mut rows[first..] {
            if after.error.is_nan() || after.error > row.error {
                row.error = after.error;
            }
            row.not_finite = row.not_finite.max(after.not_finite);
        }
        Ok(())
    }

    /// Allocates and fills the factors.
    fn problem(&self, shape: &Shape, operands: [Operand; 3]) -> Result<Problem, RuntimeError> {
        let [of_a, of_b, of_c] = operands;
        let factor = |of: Operand, rows: usize, seed| {
            Factor::new(of.dtype, [shape.batches, rows, shape.k], of.row_major, seed)
        };
        let (a, b) = (factor(of_a, shape.m, 1), factor(of_b, shape.n, 2));
        let elements = shape.elements().map(|count| count as usize);
        // The GPU's memory is asked for first: where that is too small, so may be the host's.
        let alloc = |of: Operand, elements: usize| self.device.alloc(of.dtype.bytes_of(elements));
        let buffers = [alloc(of_a, elements[0])?, alloc(of_b, elements[1])?, alloc(of_c, elements[2])?];
        self.device.upload(&buffers[0], &a.bytes())?;
        self.device.upload(&buffers[1], &b.bytes())?;
        let [of_a, of_b, of_c] = buffers;
        let reference = Reference::new(&a, &b);
        Ok(Problem { shape: *shape, operands, a: of_a, b: of_b, c: of_c, reference })
    }

    /// Runs something on a result that holds no numbers, and gives what it holds then.
    fn run(&self, problem: &Problem, runner: &mut CudaRunner<'_>) -> Result<Vec<u8>, RuntimeError> {
        self.device.fill(&problem.c, POISON)?;
        runner.run()?;
        self.device.download(&problem.c)
    }

    fn look(&self, problem: &Problem, runner: &mut CudaRunner<'_>) -> Result<Looked, RuntimeError> {
        let bytes = self.run(problem, runner)?;
        let elements = Elements::new(problem.operands[2].dtype, &bytes);
        let error = problem.reference.error(&problem.shape, &elements);
        let not_finite = elements.not_finite();
        Ok(Looked { bytes, error, not_finite })
    }

    /// The ways that the library proposes, but for those that it then cannot go.
    fn ways<'l>(
        &self,
        library: &'l CublasLt<'a>,
        problem: &Problem,
    ) -> Result<Vec<Way<'l, 'a>>, RuntimeError> {
        let [of_a, of_b, of_c] = problem.operands;
        let Shape { m, n, k, batches } = problem.shape;
        let mut product = Product::new([m, n, k], of_a.dtype, of_c.dtype);
        product.batches = batches;
        product.a.k_major = of_a.row_major;
        (product.b.dtype, product.b.k_major) = (of_b.dtype, of_b.row_major);
        let mut ways = Vec::new();
        for algorithm in library.heuristics(&product, None, WAYS)? {
            let way = Way { library, product, algorithm };
            match way.runner(problem)?.run() {
                Ok(()) => ways.push(way),
                Err(RuntimeError::Library { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(ways)
    }

    /// The fastest of the ways, by a short look.
    fn best<'w, 'l>(
        &self,
        problem: &Problem,
        ways: &'w [Way<'l, 'a>],
        condition: Condition,
    ) -> Result<Option<&'w Way<'l, 'a>>, RuntimeError> {
        let mut trial = Contest::new(Measure::quick(condition));
        let mut runners = Vec::new();
        for way in ways {
            runners.push((trial.add(way.runner(problem)?), way));
        }
        if runners.len() > 1 {
            trial.rounds(TRIALS)?;
        }
        let best = trial.best().or_else(|| trial.active().next());
        Ok(runners.into_iter().find(|(id, _)| Some(*id) == best).map(|(_, way)| way))
    }

    /// Looks at the peer's result.
    fn peer(
        &self,
        problem: &Problem,
        ours: &Looked,
        way: &Way<'_, 'a>,
        score: Score,
    ) -> Result<Peer, RuntimeError> {
        let bytes = self.run(problem, &mut way.runner(problem)?)?;
        let result = problem.operands[2].dtype;
        let theirs = Elements::new(result, &bytes);
        let Algorithm { rank, config, .. } = &way.algorithm;
        Ok(Peer {
            name: "cuBLASLt".to_string(),
            config: format!("no. {} ({config})", rank + 1),
            score,
            error: problem.reference.error(&problem.shape, &theirs),
            difference: Elements::new(result, &ours.bytes).difference(&theirs),
        })
    }
}

/// A way of the library to compute a product.
struct Way<'l, 'a> {
    library: &'l CublasLt<'a>,
    product: Product,
    algorithm: Algorithm,
}

impl<'a> Way<'_, 'a> {
    fn runner(&self, problem: &Problem) -> Result<CudaRunner<'a>, RuntimeError> {
        let buffers = [&problem.a, &problem.b, &problem.c];
        self.library.product("cuBLASLt", &self.product, &self.algorithm, buffers, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_objects() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.jsonl");
        let mut lines = Lines::create(&path).ok().unwrap();
        for ms in [1, 2] {
            lines.write(json!({ "ms": ms }), &json!({ "device": "some" })).ok().unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(all, [1, 2].map(|ms| json!({ "ms": ms, "device": "some" })));
        let failure = Lines::create(&dir.path().join("no/such")).err().unwrap();
        assert!(failure.text.contains("cannot write"), "{}", failure.text);
    }

    #[test]
    fn conditions_come_once_each_in_the_order_given() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            conditions(&names).map_err(|failure| failure.text)
        };
        let all = [Condition::Rested, Condition::Sustained, Condition::Clean];
        assert_eq!(of(&["all"]).unwrap(), all);
        assert_eq!(of(&["warm", "clean", "warm"]).unwrap(), [Condition::Warm, Condition::Clean]);
        assert_eq!(of(&["clean", "all"]).unwrap().len(), 3);
        let error = of(&["hot"]).unwrap_err();
        assert!(error.contains("`hot` is not a condition") && error.contains("or all"), "{error}");
    }
}
