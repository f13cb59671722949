//! A pointer to a service that is cheap to compile.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// An [`Arc`] that is [`Send`] and [`Sync`] without a look into `T`.
///
/// Services hold each other. For each future that holds one, the compiler would check all of them again, which took 37 % of the time to build the
/// portal. [`Shared::new`] has `T` checked once; a trait object hides it from then on.
pub(crate) struct Shared<T>(Arc<dyn Holds<T>>);

/// The trait object's; implemented by every value for itself.
trait Holds<T>: Send + Sync {
    fn value(&self) -> &T;
}

impl<T: Send + Sync> Holds<T> for T {
    fn value(&self) -> &T {
        self
    }
}

impl<T: Send + Sync + 'static> Shared<T> {
    /// Moves the value to the heap.
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T: Default + Send + Sync + 'static> Default for Shared<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        <dyn Holds<T>>::value(&*self.0)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}
