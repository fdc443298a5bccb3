//! What a sweep stands on: a folder, the cores, and whoever watches.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::folder::Folder;
use crate::parallel;
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
        parallel::cores()
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
        let (done, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let results = parallel::map(items, self.cores(), |item| {
            if failed.load(Ordering::Relaxed) {
                return None;
            }
            let result = work(item);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            self.count(done.fetch_add(1, Ordering::Relaxed) + 1, items.len());
            Some(result)
        });
        results.into_iter().flatten().collect()
    }

    /// Tells whoever watches how far it is.
    pub fn count(&self, done: usize, of: usize) {
        self.progress.note(|| format!("{}: {done} of {of}", self.name));
    }
}
