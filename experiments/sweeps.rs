//! What goes beyond the eleven groups: walks over all that could happen, held against the reference model.

pub mod perform;
pub mod world;
pub mod bench;
