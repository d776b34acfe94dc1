//! What stands in the way of operations on a file beside its opens: claims that other modules hold on its bytes.

use std::any::Any;
use std::fmt::Debug;

use super::lease::Owner;

/// A claim on bytes of a file, such as a region that is mapped for push.
///
/// The node holds obstacles so that each request finds them under the lock of the node. The module that added an
/// obstacle ends and removes it.
pub(crate) trait Obstacle: Any + Debug + Send + Sync {
    /// The owner of the caching under which the claim was made.
    fn owner(&self) -> Owner;
}
