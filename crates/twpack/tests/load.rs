//! Kernels of packs on the stand-in driver: which code a GPU gets, and whom one trusts.
#![allow(unsafe_code, reason = "the stand-in runs no code")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use tilewright_launch::{Driver, Formula, Gpu, Item, LaunchError, Passed, Recipe, Size, Stream, Target};
use tilewright_stand_in_driver::StandIn;
use tilewright_twpack::{Entry, Included, Pack, PackError, PackFile};

/// The stand-in, of which tests take turns.
struct Turn {
    stand_in: StandIn,
    driver: &'static Driver,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    fn new() -> Turn {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let stand_in = StandIn::of_this_test();
        // SAFETY: the stand-in has the functions of a driver.
        let driver = unsafe { Driver::open(stand_in.path()) }.unwrap();
        stand_in.make_current(0);
        Turn { stand_in, driver, _turn: turn }
    }

    /// A GPU of a compute capability; what was written down before is forgotten.
    fn gpu(&self, capability: i64) -> Gpu {
        self.stand_in.set("capability", capability);
        let gpu = Gpu::current_of(self.driver).unwrap();
        self.stand_in.calls();
        gpu
    }

    /// The number of options with which code was loaded: none for a binary, those of the assembler for a text.
    fn loaded(&self) -> Vec<String> {
        let load = |call: String| call.strip_prefix("cuLibraryLoadData ").map(str::to_string);
        self.stand_in.calls().into_iter().filter_map(load).collect()
    }
}

const BINARY: &str = "options=0";
const TEXT: &str = "options=2";

/// A kernel with one size, and a block for each 64 of it.
fn kernel(name: &str, target: &str, capability: (u32, u32), threads: u32) -> Entry {
    let specific = target.ends_with('a');
    let mut recipe = Recipe::new(name, "run", Target { name: target.into(), capability, specific });
    recipe.threads = threads;
    recipe.sizes = vec![Size::new("n", 64, 1 << 20)];
    recipe.passed = vec![Passed::Size(0)];
    let blocks = [Item::Size(0), Item::Int(64), Item::Op(tilewright_launch::Op::CeilDiv)];
    recipe.grid = vec![Formula::new(blocks.to_vec()).unwrap()];
    Entry::of_ptx(recipe, format!(".version 8.0\n.target {target}\n.entry run(.param .u32 n) {{ ret; }}"))
}

/// Kernels `scale` for sm_80 on, with a binary for 8.6, and for sm_90a alone; `old` as a binary alone.
fn bytes() -> Vec<u8> {
    let mut pack = Pack::new("a test");
    let elf = || b"\x7fELF of a test".to_vec();
    pack.add(kernel("scale", "sm_80", (8, 0), 32).with_binary((8, 6), elf())).unwrap();
    pack.add(kernel("scale", "sm_90a", (9, 0), 64)).unwrap();
    let old = kernel("old", "sm_80", (8, 0), 32);
    pack.add(Entry::of_binary(old.recipe, (8, 0), elf())).unwrap();
    pack.to_bytes().unwrap()
}

#[test]
fn a_gpu_gets_the_kernel_and_the_code_that_suit_it() {
    let turn = Turn::new();
    let file = PackFile::open(bytes()).unwrap();
    for (capability, threads, code) in
        [(80, 32, TEXT), (86, 32, BINARY), (89, 32, BINARY), (90, 64, TEXT), (100, 32, TEXT)]
    {
        let gpu = turn.gpu(capability);
        // SAFETY: nothing runs.
        let kernel = unsafe { file.load(&gpu, "scale") }.unwrap();
        assert_eq!(kernel.recipe().threads, threads, "{capability}");
        assert_eq!(turn.loaded(), [code], "{capability}");
    }
    let gpu = turn.gpu(90);
    let plan = PackFile::open(bytes()).unwrap().pinned(&file.hash()).unwrap().load(&gpu, "scale").unwrap();
    plan.plan(&[1000]).unwrap().launch(Stream::legacy(), ()).unwrap();
    let launch = "cuLaunchKernelEx grid=16,1,1 block=64,1,1 shared=0 stream=0x1 attributes=[] function=run params=[e8030000]";
    assert_eq!(turn.stand_in.calls().last().unwrap(), launch);
}

#[test]
fn what_is_not_there_or_does_not_run_is_refused() {
    let turn = Turn::new();
    let file = PackFile::open(bytes()).unwrap();
    let trusted = PackFile::open(bytes()).unwrap().pinned(&file.hash()).unwrap();
    let gpu = turn.gpu(90);
    let text = |name: &str, gpu: &Gpu| trusted.load(gpu, name).unwrap_err().to_string();
    assert_eq!(text("gemm", &gpu), "the pack has no kernel of the name `gemm`; it has old, scale");
    assert_eq!(
        text("old", &gpu),
        "kernel `old` of the pack has code for sm_80 (binary), which Stand-in GPU (compute capability 9.0) does not run"
    );
    let gpu = turn.gpu(75);
    assert_eq!(
        text("scale", &gpu),
        "kernel `scale` of the pack has code for sm_80 (PTX), sm_86 (binary), sm_90a (PTX), which Stand-in GPU (compute \
         capability 7.5) does not run"
    );
    assert_eq!(turn.loaded(), [""; 0]);

    // A kernel that is damaged is not loaded; the others are.
    let gpu = turn.gpu(80);
    let mut damaged = bytes();
    *damaged.last_mut().unwrap() ^= 1;
    // SAFETY: nothing runs.
    let damaged = unsafe { PackFile::open(damaged).unwrap().trusted() };
    let error = damaged.load(&gpu, "old").unwrap_err();
    assert_eq!(error, PackError::Hash { place: "the code of kernel `old`".into() });
    assert!(damaged.load(&gpu, "scale").is_ok());

    turn.stand_in.set("fail cuLibraryLoadData", 2);
    turn.stand_in.set("fail cuModuleLoadDataEx", 2);
    let error = trusted.load(&gpu, "scale").unwrap_err();
    turn.stand_in.set("fail cuLibraryLoadData", 0);
    turn.stand_in.set("fail cuModuleLoadDataEx", 0);
    assert!(matches!(error, PackError::Launch(LaunchError::Load { .. })), "{error}");

    let error = PackFile::open(bytes()).unwrap().pinned("00").unwrap_err().to_string();
    assert_eq!(error, format!("the pack has the hash {}, and the one with 00 is wanted", file.hash()));
}

#[test]
fn what_is_a_part_of_the_program_begins_as_a_pack_does() {
    let turn = Turn::new();
    let gpu = turn.gpu(90);
    let leaked = |bytes: Vec<u8>| -> &'static [u8] { bytes.leak() };
    // SAFETY: nothing runs.
    let new = |bytes: &'static [u8]| std::panic::catch_unwind(|| unsafe { Included::new(bytes) });
    let included = new(leaked(bytes())).unwrap();
    assert!(included.load(&gpu, "scale").is_ok());
    assert_eq!(included.pack().unwrap().file().kernels().len(), 3);
    let panics = |bytes: Vec<u8>| match new(leaked(bytes)) {
        Ok(_) => String::new(),
        Err(panic) => panic.downcast_ref::<&str>().map_or(String::new(), |text| (*text).to_string()),
    };
    assert_eq!(panics(b"TWPACK".to_vec()), "the file is no pack: it does not begin as one does");
    assert_eq!(panics(vec![0; 100]), "the file is no pack: it does not begin as one does");
    let mut shorter = bytes();
    shorter.pop();
    assert_eq!(panics(shorter), "the pack has another length than it says");
    let mut header = bytes();
    header[14] = 1;
    assert_eq!(panics(header), "the header of the pack is longer than the pack");
    // The rest is found when a kernel is asked for.
    let mut damaged = bytes();
    damaged[60] ^= 1;
    let error = new(leaked(damaged)).unwrap().load(&gpu, "scale").unwrap_err();
    assert_eq!(error, PackError::Hash { place: "the header".into() });
}
