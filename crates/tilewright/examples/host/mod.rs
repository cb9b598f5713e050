//! The host's time of launches, beside that of bare calls of the driver with everything computed ahead.

use std::error::Error;
use std::ffi::c_void;
use std::ptr;
use std::time::Instant;

use tilewright::launch::driver::{Function, LaunchAttribute, LaunchConfig, TensorMap};
use tilewright::launch::{Formula, Gpu, Passed, Plan, Stream};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Nanoseconds of the host.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The median of batches.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The median of what a batch takes more than that of the first function in the same turn.
    pub more: f64,
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The host's time of each of some functions, in turns, by batches that the GPU's queue holds.
pub fn costs<const N: usize>(
    mut wait: impl FnMut() -> Fallible<()>,
    mut launches: [&mut dyn FnMut() -> Fallible<()>; N],
) -> Fallible<[Cost; N]> {
    const BATCH: u32 = 200;
    const TURNS: usize = 60;
    let mut times = [const { Vec::new() }; N];
    for _ in 0..TURNS {
        for (launch, times) in launches.iter_mut().zip(&mut times) {
            wait()?;
            let start = Instant::now();
            for _ in 0..BATCH {
                launch()?;
            }
            times.push(start.elapsed().as_nanos() as f64 / f64::from(BATCH));
        }
    }
    wait()?;
    let first = times[0].clone();
    Ok(times.map(|mut times| {
        let mut more: Vec<f64> = times.iter().zip(&first).map(|(own, first)| own - first).collect();
        let (median_of_all, more) = (median(&mut times), median(&mut more));
        Cost { median: median_of_all, least: times[0], more }
    }))
}

/// A bare launch, with everything computed ahead.
pub struct Bare {
    gpu: Gpu,
    function: Function,
    config: LaunchConfig,
    pointers: Vec<*mut c_void>,
    _attributes: Vec<LaunchAttribute>,
    _words: Vec<u64>,
    _maps: Vec<TensorMap>,
}

impl Bare {
    /// The launch of a plan: with addresses and bits of numbers by parameter, and with the attribute of a launch that may begin early, if it is to.
    pub fn new(plan: &Plan, params: &[u64], dependent: bool, stream: Stream<'_>) -> Fallible<Bare> {
        let (recipe, gpu, sizes) = (plan.recipe(), plan.gpu(), plan.sizes());
        let value = |formula: &Formula| formula.value(sizes).unwrap_or(1).cast_unsigned();
        let mut maps = Vec::with_capacity(recipe.maps.len());
        for map in &recipe.maps {
            if map.corners.is_some() {
                return Err(format!(
                    "`{}` has a tensor map of pixels, which a bare launch does not make",
                    recipe.name
                )
                .into());
            }
            let extents: Vec<u64> = map.tensor_extents.iter().map(value).collect();
            let bits = u64::from(map.dtype.bits());
            let strides: Vec<u64> =
                map.tensor_strides.iter().map(|stride| value(stride) * bits / 8).collect();
            let mut made = TensorMap([0; 16]);
            let at = params[map.param as usize] as usize;
            unsafe {
                gpu.driver().encode_tensor_map(
                    &raw mut made,
                    map.dtype.map_code().unwrap_or(0),
                    extents.len() as u32,
                    ptr::without_provenance_mut(at),
                    extents.as_ptr(),
                    strides.as_ptr(),
                    map.extents.as_ptr(),
                    map.steps.as_ptr(),
                    0,
                    map.swizzle.map_code(),
                    2,
                    0,
                )
            }
            .map_err(|error| format!("{error:?}"))?;
            maps.push(made);
        }
        let mut attributes = Vec::new();
        if recipe.cluster > 1 {
            attributes.push(LaunchAttribute::cluster(recipe.cluster));
        }
        if dependent && recipe.waits {
            attributes.push(LaunchAttribute::dependent());
        }
        let words: Vec<u64> =
            params.iter().copied().chain(sizes.iter().map(|size| size.cast_unsigned())).collect();
        let mut pointers = Vec::with_capacity(recipe.passed.len());
        for passed in &recipe.passed {
            let pointer: *const c_void = match *passed {
                Passed::Tensor(param) | Passed::Scalar(param) => ptr::from_ref(&words[param as usize]).cast(),
                Passed::Size(size) => ptr::from_ref(&words[params.len() + size as usize]).cast(),
                Passed::Map(map) => ptr::from_ref(&maps[map as usize]).cast(),
                _ => return Err(format!("`{}` takes what a bare launch does not have", recipe.name).into()),
            };
            pointers.push(pointer.cast_mut());
        }
        let config = LaunchConfig {
            grid: plan.grid(),
            block: [recipe.threads, 1, 1],
            shared_bytes: recipe.shared_bytes,
            stream: stream.raw(),
            attributes: attributes.as_ptr(),
            attribute_count: attributes.len() as u32,
        };
        let (gpu, function) = (gpu.clone(), plan.module().function());
        Ok(Bare { gpu, function, config, pointers, _attributes: attributes, _words: words, _maps: maps })
    }

    /// One call of the driver.
    pub fn launch(&mut self) -> Fallible<()> {
        let (driver, pointers) = (self.gpu.driver(), self.pointers.as_mut_ptr());
        let launched = unsafe {
            driver.launch_kernel_ex(&raw const self.config, self.function, pointers, ptr::null_mut())
        };
        Ok(launched.map_err(|error| format!("{:?}", driver.describe(error)))?)
    }
}
