//! The recording disk: SQLite's I/O as one ordered log, faults at any call, and every disk a power cut may leave.
//!
//! [`vfs`] sits between SQLite and the unix VFS; a [`Recorder`](recorder::Recorder) decides what each call does and
//! keeps the [`Log`](log::Log); [`wrong`] says what a lying disk would have made of it; [`image`] enumerates what
//! is legal after a cut. Only `vfs` holds `unsafe`.
#![deny(unsafe_code)]

pub mod log;

pub mod plan;

pub mod recorder;

#[allow(unsafe_code, reason = "SQLite's VFS is a C interface; this file alone speaks it")]
pub mod vfs;

pub mod wrong;

pub mod image;

#[cfg(test)]
mod tests;
