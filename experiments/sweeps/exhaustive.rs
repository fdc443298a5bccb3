//! The whole of a small world, held against the real store.

use super::bench::Bench;
use super::ground::Ground;
use super::world::{Failure, Summary, World, explore};
use super::{Found, Replay};
use crate::process::NotMeasured;

pub fn sweep(ground: &Ground<'_>) -> Result<Found, NotMeasured> {
    match visit(ground, &World::small()) {
        Ok(summary) => Found::new(&summary, Vec::new()),
        Err(Failure::Disagrees(disagreement)) => {
            Found::new(&Summary::default(), vec![Failure::Disagrees(disagreement).to_string()])
        }
        Err(Failure::NotMeasured(what)) => Err(NotMeasured { what }),
    }
}

/// The larger world, which takes minutes, is a point of its own: `sweep exhaustive --point larger-world`.
pub fn visit_on_request(ground: &Ground<'_>, point: &str) -> Result<Replay, NotMeasured> {
    if point != "larger-world" {
        return Ok(Replay::Unknown(format!("exhaustive has no point {point:?}; its only one is larger-world\n")));
    }
    match visit(ground, &World::large()) {
        Ok(summary) => serde_json::to_string_pretty(&summary)
            .map(|text| Replay::Legal(text + "\n"))
            .map_err(|error| NotMeasured { what: error.to_string() }),
        Err(Failure::Disagrees(disagreement)) => {
            Ok(Replay::Convicted(format!("{}\n", Failure::Disagrees(disagreement))))
        }
        Err(Failure::NotMeasured(what)) => Err(NotMeasured { what }),
    }
}

/// Every state and transition of `world`, on one store for each core.
///
/// # Errors
/// The first disagreement; or why it could not be measured.
pub fn visit(ground: &Ground<'_>, world: &World) -> Result<Summary, Failure> {
    let bench = |number| {
        let path = ground.folder.database(&format!("bench-{number}")).map_err(|error| error.to_string())?;
        Bench::clamp(&path, &world.limits)
    };
    let benches: Result<_, String> = (0..ground.cores()).map(bench).collect();
    explore(world, benches.map_err(Failure::NotMeasured)?)
}
