//! The eleven scenario groups (PROTOCOL, *The eleven scenario groups*): the table, then the scripts.
//!
//! A new group is a row and a function. Each script plays on fresh databases through the public verbs, and names the
//! answer that it expects of each.

use std::collections::BTreeMap;

use crate::child::{self, Finish};
use crate::crash;
use crate::folder::Folder;
use crate::heat::{Heat, Lane};
use crate::process::{NotMeasured, Race};
use crate::record::{Input, Outcome, Payload, Story};
use crate::scene::{Expectation, Laboratory, Scene, Stop, within_lease};

/// One scenario group: a name, what it shows, how it is played.
pub struct Group {
    pub name: &'static str,
    pub shows: &'static str,
    play: fn(&mut Laboratory<'_>) -> Result<Story, Stop>,
}

pub const GROUPS: [Group; 11] = [
    Group {
        name: "identity-before-capacity",
        shows: "A full store never masks an identity: a known id is a replay, or a conflict with another tenant or payload, in every state.",
        play: identity_before_capacity,
    },
    Group {
        name: "refusal-binds-nothing",
        shows: "A refused id is free: with room it may come back with another body and be accepted.",
        play: refusal_binds_nothing,
    },
    Group {
        name: "payload-and-tenant-bytes",
        shows: "Bytes are UTF-8 bytes: a payload of 97 is oversize, and 90 + 39 = 129 bytes are over a tenant's 128 though one task is held.",
        play: payload_and_tenant_bytes,
    },
    Group {
        name: "global-bytes",
        shows: "The global bytes refuse though tasks are left: 96 + 96 bytes are held, and 65 more would be 257 of 256.",
        play: global_bytes,
    },
    Group {
        name: "cap-is-no-reservation",
        shows: "A tenant's cap reserves nothing: two tenants fill the store, and a third that holds nothing is refused.",
        play: cap_is_no_reservation,
    },
    Group {
        name: "slot-held-through-life-cycle",
        shows: "One task holds its room through claim, expiry, reclaim, quarantine and redrive; only done gives it back, once, with one effect.",
        play: slot_held_through_life_cycle,
    },
    Group {
        name: "only-unstarted-cancellable",
        shows: "Only a task that nobody ever claimed can be cancelled, and once; claimed, expired, quarantined, redriven or done, it can't.",
        play: only_unstarted_cancellable,
    },
    Group {
        name: "crash-boundaries",
        shows: "A process that dies at any of the eight boundaries leaves all of a transaction or nothing, and the retry hears which.",
        play: crash_boundaries,
    },
    Group {
        name: "race-of-twelve-tenants",
        shows: "Twelve processes of twelve tenants race for a store of four: four are accepted, eight are refused.",
        play: race_of_twelve_tenants,
    },
    Group {
        name: "race-of-one-tenant",
        shows: "Twelve processes of one tenant race for its cap of two: two are accepted, ten are refused.",
        play: race_of_one_tenant,
    },
    Group {
        name: "history-unbounded",
        shows: "Ended tasks hold no room and are kept for good: after ten, nothing is held, and all ten ids are still replays.",
        play: history_unbounded,
    },
];

/// What playing a group gave.
pub struct Played {
    pub story: Result<Story, Stop>,
    /// Broken expectations and invariants, one sentence each.
    pub broken: Vec<String>,
    /// Of a race: who was when where.
    pub heat: Option<Heat>,
}

impl Group {
    /// Plays the group, then audits every database that it left.
    pub fn play(&self, folder: &Folder) -> Played {
        let mut laboratory = Laboratory::new(folder, self.name);
        let mut story = (self.play)(&mut laboratory);
        let Laboratory { mut broken, databases, heat, .. } = laboratory;
        for database in databases.iter().filter(|database| database.exists()) {
            let name = database.parent().and_then(|folder| folder.file_name()).unwrap_or_default().to_string_lossy();
            match crate::audit::audit(database) {
                Ok(found) => broken.extend(found.into_iter().map(|found| format!("invariant, in {name}: {found}"))),
                Err(what) => story = story.and(Err(NotMeasured { what }.into())),
            }
        }
        Played { story, broken, heat }
    }
}

const ABC: Payload = Payload::new("abc", 1);
const XYZ: Payload = Payload::new("xyz", 1);

fn identity_before_capacity(laboratory: &mut Laboratory<'_>) -> Result<Story, Stop> {
    let mut scene = Scene::new(laboratory)?;
    for (id, tenant) in [("one", "a"), ("two", "a"), ("three", "b"), ("four", "b")] {
        scene.admit(id, tenant, ABC, "accepted")?;
    }
    known_while_full(&mut scene, "one", "a")?;

    let token = scene.claim(0, ("one", 1))?;
    known_while_full(&mut scene, "one", "a")?;
    scene.quarantine(&token, 1, "quarantined")?;
    known_while_full(&mut scene, "one", "a")?;
    scene.redrive(&token, "requeued")?;
    let token = scene.claim(1, ("one", 3))?;
    scene.resolve(&token, 2, "done")?;
    scene.admit("five", "c", ABC, "accepted")?;
    known_while_full(&mut scene, "one", "a")?;

    scene.cancel("two", "cancelled")?;
    scene.admit("six", "c", ABC, "accepted")?;
    known_while_full(&mut scene, "two", "a")?;
    scene.end()
}

/// The store is full; still the known id is known.
fn known_while_full(scene: &mut Scene<'_, '_>, id: &str, tenant: &str) -> Result<(), Stop> {
    scene.admit("stranger", "d", ABC, "global_full")?;
    scene.admit(id, tenant, ABC, "replay")?;
    scene.admit(id, "d", ABC, "conflict")?;
    scene.admit(id, tenant, XYZ, "conflict")?;
    scene.holds(4, 12);
    Ok(())
}

fn refusal_binds_nothing(laboratory: &mut Laboratory<'_>) -> Result<Story, Stop> {
    let mut scene = Scene::new(laboratory)?;
    scene.admit("one", "a", ABC, "accepted")?;
    scene.admit("two", "a", ABC, "accepted")?;
    scene.admit("three", "a", ABC, "tenant_full")?;
    scene.cancel("one", "cancelled")?;
    scene.admit("three", "a", XYZ, "accepted")?;

    scene.admit("four", "b", Payload::new("x", 97), "oversize")?;
    scene.admit("four", "b", XYZ, "accepted")?;

    scene.admit("five", "b", ABC, "accepted")?;
    scene.admit("six", "c", ABC, "global_full")?;
    scene.cancel("five", "cancelled")?;
    scene.admit("six", "d", XYZ, "accepted")?;
    scene.holds(4, 12);
    scene.end()
}

fn payload_and_tenant_bytes(laboratory: &mut Laboratory<'_>) -> Result<Story, Stop> {
    let mut scene = Scene::new(laboratory)?;
    scene.admit("long", "a", Payload::new("x", 97), "oversize")?;
    scene.holds(0, 0);
    scene.admit("ninety", "a", Payload::new("准入", 15), "accepted")?;
    scene.holds(1, 90);
    scene.admit("thirty-nine", "a", Payload::new("积", 13), "tenant_full")?;
    scene.holds(1, 90);
    scene.admit("thirty-eight", "a", Payload::new("x", 38), "accepted")?;
    scene.holds(2, 128);
    scene.end()
}

fn global_bytes(laboratory: &mut Laboratory<'_>) -> Result<Story, Stop> {
    let mut scene = Scene::new(laboratory)?;
    scene.admit("one", "a", Payload::new("x", 96), "accepted")?;
    scene.admit("two", "b", Payload::new("x", 96), "accepted")?;
    scene.holds(2, 192);
    scene.admit("sixty-five", "c", Payload::new("x", 65), "global_full")?;
    scene.holds(2, 192);
    scene.admit("sixty-four", "c", Payload::new("x", 64), "accepted")?;
    scene.holds(3, 256);
    scene.end()
}

fn cap_is_no_reservation(laboratory: &mut Laboratory<'_>) -> Result<Story, Stop> {
    let mut scene = Scene::new(laboratory)?;
    for (id, tenant) in [("one", "a"), ("two", "a"), ("three", "b"), ("four", "b")] {
        scene.admit(id, tenant, ABC, "accepted")?;
    }
    scene.admit("five", "c", ABC, "global_full")?;
    scene.holds(4, 12);
    scene.end()
}

fn slot_held_through_life_cycle(laboratory: &mut Laboratory<'_>) -> Result<Story, Stop> {
    let mut scene = Scene::new(laboratory)?;
    scene.admit("one", "a", ABC, "accepted")?;
    scene.holds(1, 3);
    let first = scene.claim(0, ("one", 1))?;
    scene.holds(1, 3);
    scene.claim_nothing(within_lease(0))?;
    scene.holds(1, 3);
    // Due exactly counts as run out.
    let second = scene.claim(5, ("one", 2))?;
    scene.holds(1, 3);
    scene.resolve(&first, 6, "stale")?;
    scene.quarantine(&first, 6, "stale")?;
    scene.holds(1, 3);
    scene.quarantine(&second, 6, "quarantined")?;
    scene.holds(1, 3);
    scene.claim_nothing(6)?;
    scene.resolve(&second, 6, "stale")?;
    scene.redrive(&first, "stale")?;
    scene.redrive(&second, "requeued")?;
    scene.holds(1, 3);
    let last = scene.claim(7, ("one", 4))?;
    scene.holds(1, 3);
    scene.resolve(&last, within_lease(7), "done")?;
    scene.holds(0, 0);
    scene.resolve(&last, within_lease(7), "stale")?;
    scene.holds(0, 0);
    scene.end()
}

fn only_unstarted_cancellable(laboratory: &mut Laboratory<'_>) -> Result<Story, Stop> {
    let mut scene = Scene::new(laboratory)?;
    scene.cancel("unknown", "not_cancelled")?;
    scene.admit("one", "a", ABC, "accepted")?;
    scene.cancel("one", "cancelled")?;
    scene.holds(0, 0);
    scene.cancel("one", "not_cancelled")?;
    scene.holds(0, 0);

    scene.admit("two", "a", ABC, "accepted")?;
    let claimed = scene.claim(0, ("two", 1))?;
    scene.cancel("two", "not_cancelled")?;
    // Only the tick moves: the lease has run out, nobody has claimed again.
    scene.resolve(&claimed, 5, "stale")?;
    scene.cancel("two", "not_cancelled")?;
    let reclaimed = scene.claim(5, ("two", 2))?;
    scene.quarantine(&reclaimed, 6, "quarantined")?;
    scene.cancel("two", "not_cancelled")?;
    scene.redrive(&reclaimed, "requeued")?;
    scene.cancel("two", "not_cancelled")?;
    scene.holds(1, 3);
    let last = scene.claim(6, ("two", 4))?;
    scene.resolve(&last, 7, "done")?;
    scene.cancel("two", "not_cancelled")?;
    scene.holds(0, 0);
    scene.end()
}

fn crash_boundaries(laboratory: &mut Laboratory<'_>) -> Result<Story, Stop> {
    Ok(Story::Boundaries { boundaries: crash::play(laboratory)? })
}

/// Processes in a race.
const RACERS: usize = 12;

fn race_of_twelve_tenants(laboratory: &mut Laboratory<'_>) -> Result<Story, Stop> {
    race(
        laboratory,
        "request-01 to request-12, each of a tenant of its own, tenant-01 to tenant-12, payload \"abc\"",
        |number| format!("tenant-{number:02}"),
        [("accepted", 4), ("global_full", 8)],
    )
}

fn race_of_one_tenant(laboratory: &mut Laboratory<'_>) -> Result<Story, Stop> {
    race(
        laboratory,
        "request-01 to request-12, all of tenant a, payload \"abc\"",
        |_| "a".to_owned(),
        [("accepted", 2), ("tenant_full", 10)],
    )
}

fn race(
    laboratory: &mut Laboratory<'_>,
    requests: &'static str,
    tenant: impl Fn(usize) -> String,
    expected: [(&str, u64); 2],
) -> Result<Story, Stop> {
    let mut scene = Scene::new(laboratory)?;
    scene.leave()?;
    let request_id = |number| format!("request-{number:02}");
    let starts = (1..=RACERS)
        .map(|number| child::racer(scene.path(), &request_id(number), &tenant(number), ABC))
        .collect::<Result<Vec<_>, _>>()?;
    let deadline = child::deadline();
    let mut racers = Race::assemble(&starts, deadline)?;
    let said = racers.release(deadline)?;
    racers.finish(deadline)?;

    let mut answers: BTreeMap<String, u64> = BTreeMap::new();
    let mut lanes = Vec::new();
    for (number, line) in (1..).zip(said) {
        let Finish { answer, instants } = child::finish_in(&line).ok_or_else(|| NotMeasured {
            what: format!("{}: a racer said {line:?} instead of an answer; run again", scene.next_pointer()),
        })?;
        *answers.entry(answer.to_owned()).or_default() += 1;
        lanes.push(Lane {
            request_id: request_id(number),
            tenant: tenant(number),
            answer: answer.to_owned(),
            instants,
        });
    }
    scene.laboratory.heat = Some(Heat { lanes });
    let pointer = format!("{}/answers", scene.next_pointer());
    let expected: BTreeMap<String, u64> = expected.map(|(answer, count)| (answer.to_owned(), count)).into();
    scene.laboratory.expect(
        || format!("{pointer}: the race gave {answers:?}, not {expected:?}"),
        Expectation::equal(&answers, &expected),
    );
    let accepted = answers.get("accepted").copied().unwrap_or_default();
    let found = scene.return_to()?;
    scene.raced(Input::Race { processes: RACERS, requests }, Outcome::Race { answers }, &found);
    scene.holds(accepted, 3 * accepted);
    scene.end_counted()
}

fn history_unbounded(laboratory: &mut Laboratory<'_>) -> Result<Story, Stop> {
    let mut scene = Scene::new(laboratory)?;
    for tick in 0..10 {
        let id = format!("task-{:02}", tick + 1);
        scene.admit(&id, "a", ABC, "accepted")?;
        let token = scene.claim(tick, (&id, 1))?;
        scene.resolve(&token, tick, "done")?;
        scene.holds(0, 0);
    }
    for number in 1..=10 {
        scene.admit(&format!("task-{number:02}"), "a", ABC, "replay")?;
    }
    scene.holds(0, 0);
    scene.end()
}
