//! A library on the stand-in driver, and tensors of nothing.
#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(unsafe_code, reason = "views and streams are of memory and handles that the tests own")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use tilewright_launch::{DType, Driver, Gpu, Stream, View, ViewMut, Workspace};
use tilewright_ops::Library;
use tilewright_stand_in_driver::StandIn;

/// The stand-in, of which tests of one process take turns.
pub struct Turn {
    pub stand_in: StandIn,
    pub gpu: Gpu,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    /// As a fresh driver with a GPU of a compute capability.
    pub fn new(capability: i64) -> Turn {
        Turn::named(capability, false)
    }

    /// The same with a GPU that says it is an H200.
    pub fn named(capability: i64, h200: bool) -> Turn {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let stand_in = StandIn::of_this_test();
        // SAFETY: the stand-in has the functions of a driver.
        let driver = unsafe { Driver::open(stand_in.path()) }.unwrap();
        stand_in.set("capability", capability);
        stand_in.set("h200", i64::from(h200));
        stand_in.set("resident", 2);
        stand_in.make_current(0);
        stand_in.calls();
        let gpu = Gpu::current_of(driver).unwrap();
        Turn { stand_in, gpu, _turn: turn }
    }

    /// A library without records of the user's.
    pub fn library(&self) -> Library {
        Library::with_store(&self.gpu, None).unwrap()
    }

    pub fn stream(&self) -> Stream<'static> {
        // SAFETY: the stand-in never forgets a stream.
        unsafe { Stream::borrow(self.stand_in.stream(false)) }
    }

    /// A stream that is being captured.
    pub fn captured(&self) -> Stream<'static> {
        // SAFETY: as above.
        unsafe { Stream::borrow(self.stand_in.stream(true)) }
    }

    /// The launches and fillings since the last time, without what else was called.
    pub fn work(&self) -> Vec<String> {
        let is_work = |call: &String| call.starts_with("cuLaunch") || call.starts_with("cuMemset");
        self.stand_in.calls().into_iter().filter(is_work).collect()
    }
}

/// A tensor at an address, which the stand-in never reads.
pub fn view(pointer: u64, dtype: DType, shape: &[i64]) -> View<'static> {
    // SAFETY: nothing runs.
    unsafe { View::new(pointer, dtype, shape) }
}

/// The same, for writing.
pub fn view_mut(pointer: u64, dtype: DType, shape: &[i64]) -> ViewMut<'static> {
    // SAFETY: nothing runs.
    unsafe { ViewMut::new(pointer, dtype, shape) }
}

/// A workspace at an address.
pub fn workspace(pointer: u64, bytes: u64) -> Workspace<'static> {
    // SAFETY: nothing runs.
    unsafe { Workspace::new(pointer, bytes) }
}
