//! Libraries and layers go from thread to thread.

use tilewright_ops::{Experts, Library, OpsError};

#[test]
fn libraries_and_errors_are_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Library>();
    shared::<Experts>();
    shared::<OpsError>();
}
