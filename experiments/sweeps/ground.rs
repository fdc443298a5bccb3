//! What a sweep stands on: a folder, the cores, and whoever watches.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::folder::Folder;
use crate::process::NotMeasured;
use crate::progress::Progress;

pub struct Ground<'g> {
    pub folder: Folder,
    name: &'static str,
    progress: &'g Progress,
}

impl<'g> Ground<'g> {
    /// A folder in memory where the system has one: what a disk may do is the recording disk's to say, and a sweep syncs
    /// more often than a real disk would care for.
    ///
    /// # Errors
    /// As [`Folder::create`].
    pub fn prepare(name: &'static str, progress: &'g Progress) -> Result<Ground<'g>, NotMeasured> {
        Ok(Ground { folder: Folder::create_in_memory()?, name, progress })
    }

    /// How many threads a sweep may use.
    pub fn cores(&self) -> usize {
        thread::available_parallelism().map_or(1, NonZero::get)
    }

    /// Does `work` for every item on all cores; the results come in the items' order. Stops at the first that could not be
    /// measured.
    ///
    /// # Errors
    /// Of the items that could not be measured, the first in order.
    pub fn for_each<T, R>(
        &self,
        items: &[T],
        work: impl Fn(&T) -> Result<R, NotMeasured> + Sync,
    ) -> Result<Vec<R>, NotMeasured>
    where
        T: Sync,
        R: Send,
    {
        let next = AtomicUsize::new(0);
        let done = AtomicUsize::new(0);
        let results = Mutex::new(Vec::with_capacity(items.len()));
        thread::scope(|scope| {
            for _ in 0..self.cores() {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(item) = items.get(index) else { break };
                        let result = work(item);
                        if result.is_err() {
                            next.store(items.len(), Ordering::Relaxed);
                        }
                        self.count(done.fetch_add(1, Ordering::Relaxed) + 1, items.len());
                        results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((index, result));
                    }
                });
            }
        });
        let mut results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Tells whoever watches how far it is.
    pub fn count(&self, done: usize, of: usize) {
        self.progress.note(|| format!("{}: {done} of {of}", self.name));
    }
}
