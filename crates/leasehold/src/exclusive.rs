//! A mutex for state that is never left half-changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A [`Mutex`] that ignores poison: what it guards is changed in steps that cannot panic half-way, so one task's panic
/// must not take every other lock of the process with it.
#[derive(Debug, Default)]
pub(crate) struct Exclusive<T>(Mutex<T>);

impl<T> Exclusive<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Never held across an await: the guard is not `Send`.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is inside, without locking: nobody else can look.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was inside.
    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
