//! The protocol again, in memory and pure: what every verb must answer and leave behind, to be read as the specification.
//! It shares no code with the library, so a fault in one is not a fault in the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Ticks and generations go up to here; beyond is an error, not a wrap.
pub const CEILING: i64 = 1_000_000_000;
/// The longest request id and the longest tenant, in bytes.
pub const NAME_BYTES: usize = 128;

/// The five limits and the lease that every experiment uses.
pub const FIXTURE: Limits = Limits {
    global: Usage { count: 4, bytes: 256 },
    tenant: Usage { count: 2, bytes: 128 },
    payload_bytes: 96,
    lease_ticks: 5,
};

/// One verb in one state: the state after it and its answer. An error has no state after it: it changes nothing.
pub fn step(limits: &Limits, before: &State, verb: &Verb) -> Result<(State, Answer), Error> {
    verb.check_input(limits)?;
    let mut state = before.clone();
    if let Some(given) = verb.tick() {
        if given < before.tick {
            return Err(Error::TickMovedBack { stored: before.tick, given });
        }
        state.tick = given;
    }
    let answer = match verb {
        Verb::Admit(request) => state.admit(limits, request),
        Verb::Claim { .. } => state.claim(limits)?,
        Verb::Resolve { token, .. } => state.report(token, Phase::Done, Answer::Done),
        Verb::Quarantine { token, .. } => state.report(token, Phase::Quarantined, Answer::Quarantined),
        Verb::Redrive { token } => state.redrive(token)?,
        Verb::CancelUnstarted { request_id } => state.cancel_unstarted(request_id),
        Verb::Status { request_id } => Answer::Status(state.status(request_id)),
        Verb::Snapshot => Answer::Snapshot(state.snapshot()),
    };
    Ok((state, answer))
}

/// All that a store remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct State {
    pub tick: i64,
    /// By sequence. Ended tasks stay, so that their ids are known for ever.
    pub tasks: Vec<Task>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Task {
    pub request: Arc<Request>,
    pub phase: Phase,
    pub generation: i64,
}

/// A task's state, with the lease (the tick at which it runs out) where there is one. `Done` stands for its one effect too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    Queued,
    Inflight { lease: i64 },
    Quarantined,
    Done,
    Cancelled,
}

impl State {
    fn admit(&mut self, limits: &Limits, request: &Arc<Request>) -> Answer {
        if let Some(known) = self.tasks.iter().find(|task| task.request.id == request.id) {
            return if known.request == *request { Answer::Replay } else { Answer::Conflict };
        }
        if request.bytes() > limits.payload_bytes {
            return Answer::Oversize { payload_bytes: request.bytes(), limit: limits.payload_bytes };
        }
        let tenant = self.usage_of_tenant(&request.tenant);
        let full = Full::of(Scope::Global, self.usage(), limits.global, request)
            .or_else(|| Full::of(Scope::Tenant, tenant, limits.tenant, request));
        if let Some(full) = full {
            return Answer::Full(full);
        }
        self.tasks.push(Task { request: Arc::clone(request), phase: Phase::Queued, generation: 0 });
        Answer::Accepted
    }

    fn claim(&mut self, limits: &Limits) -> Result<Answer, Error> {
        let now = self.tick;
        let Some(oldest) = self.tasks.iter_mut().find(|task| match task.phase {
            Phase::Queued => true,
            Phase::Inflight { lease } => lease <= now,
            Phase::Quarantined | Phase::Done | Phase::Cancelled => false,
        }) else {
            return Ok(Answer::Nothing);
        };
        oldest.next_generation()?;
        let lease = now + limits.lease_ticks;
        oldest.phase = Phase::Inflight { lease };
        Ok(Answer::Claimed {
            token: Token { request_id: oldest.request.id.clone(), generation: oldest.generation },
            tenant: oldest.request.tenant.clone(),
            payload: oldest.request.payload.clone(),
            lease,
        })
    }

    /// `resolve` and `quarantine`: the same guard, another end.
    fn report(&mut self, token: &Token, end: Phase, answer: Answer) -> Answer {
        let now = self.tick;
        match self.held_by(token) {
            Some(task) if matches!(task.phase, Phase::Inflight { lease } if lease > now) => {
                task.phase = end;
                answer
            }
            Some(_) | None => Answer::Stale,
        }
    }

    fn redrive(&mut self, token: &Token) -> Result<Answer, Error> {
        match self.held_by(token) {
            Some(task) if task.phase == Phase::Quarantined => {
                task.next_generation()?;
                task.phase = Phase::Queued;
                Ok(Answer::Requeued)
            }
            Some(_) | None => Ok(Answer::Stale),
        }
    }

    fn cancel_unstarted(&mut self, request_id: &str) -> Answer {
        match self.tasks.iter_mut().find(|task| task.request.id == request_id) {
            Some(task) if task.phase == Phase::Queued && task.generation == 0 => {
                task.phase = Phase::Cancelled;
                Answer::Cancelled
            }
            Some(_) | None => Answer::NotCancelled,
        }
    }

    /// Name of the state and generation of one task, if the id is known.
    pub fn status(&self, request_id: &str) -> Option<Status> {
        self.tasks.iter().find(|task| task.request.id == request_id).map(Task::status)
    }

    pub fn snapshot(&self) -> Snapshot {
        let outstanding = self.tasks.iter().filter(|task| task.phase.is_outstanding());
        let tenants = outstanding.map(|task| task.request.tenant.as_str());
        Snapshot {
            usage: self.usage(),
            tenants: tenants.map(|tenant| (tenant.to_owned(), self.usage_of_tenant(tenant))).collect(),
            tick: self.tick,
            tasks: self.tasks.iter().map(|task| (task.request.id.clone(), task.status())).collect(),
            intents: self.tasks.len() as u64,
            effects: self.tasks.iter().filter(|task| task.phase == Phase::Done).count() as u64,
        }
    }

    /// Count and payload bytes of all outstanding tasks.
    pub fn usage(&self) -> Usage {
        self.usage_of(|_| true)
    }

    fn usage_of_tenant(&self, tenant: &str) -> Usage {
        self.usage_of(|task| task.request.tenant == tenant)
    }

    fn usage_of(&self, counted: impl Fn(&Task) -> bool) -> Usage {
        let outstanding = self.tasks.iter().filter(|task| task.phase.is_outstanding() && counted(task));
        outstanding.fold(Usage::default(), |usage, task| Usage {
            count: usage.count + 1,
            bytes: usage.bytes + task.request.bytes(),
        })
    }

    fn held_by(&mut self, token: &Token) -> Option<&mut Task> {
        self.tasks.iter_mut().find(|task| task.request.id == token.request_id && task.generation == token.generation)
    }

    /// Whether `later` may follow, by what only ever grows: ticks and generations never fall, a sequence once given stays,
    /// what has ended stays as it is. Necessary, not sufficient; the small world shows it for every transition.
    pub fn may_precede(&self, later: &State) -> bool {
        self.tick <= later.tick
            && self.tasks.len() <= later.tasks.len()
            && self.tasks.iter().zip(&later.tasks).all(|(now, then)| {
                now.generation <= then.generation
                    && now.request == then.request
                    && (now.phase.is_outstanding() || now == then)
            })
    }
}

impl Task {
    fn next_generation(&mut self) -> Result<(), Error> {
        if self.generation == CEILING {
            return Err(Error::GenerationCeiling);
        }
        self.generation += 1;
        Ok(())
    }

    fn status(&self) -> Status {
        Status { state: self.phase.name().to_owned(), generation: self.generation }
    }
}

impl Phase {
    /// Accepted, not ended.
    pub fn is_outstanding(self) -> bool {
        match self {
            Phase::Queued | Phase::Inflight { .. } | Phase::Quarantined => true,
            Phase::Done | Phase::Cancelled => false,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Phase::Queued => "queued",
            Phase::Inflight { .. } => "inflight",
            Phase::Quarantined => "quarantined",
            Phase::Done => "done",
            Phase::Cancelled => "cancelled",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Limits {
    pub global: Usage,
    pub tenant: Usage,
    /// Of one payload.
    pub payload_bytes: u64,
    pub lease_ticks: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Usage {
    pub count: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Request {
    pub id: String,
    pub tenant: String,
    pub payload: String,
}

impl Request {
    pub fn new(id: &str, tenant: &str, payload: &str) -> Arc<Request> {
        Arc::new(Request { id: id.to_owned(), tenant: tenant.to_owned(), payload: payload.to_owned() })
    }

    fn bytes(&self) -> u64 {
        self.payload.len() as u64
    }
}

/// The right to report on one claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token {
    pub request_id: String,
    pub generation: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Verb {
    Admit(Arc<Request>),
    Claim { tick: i64 },
    Resolve { token: Token, tick: i64 },
    Quarantine { token: Token, tick: i64 },
    Redrive { token: Token },
    CancelUnstarted { request_id: String },
    Status { request_id: String },
    Snapshot,
}

impl Verb {
    /// Refused before anything is read, so it does not depend on the state.
    fn check_input(&self, limits: &Limits) -> Result<(), Error> {
        let named = |name: &str| (1..=NAME_BYTES).contains(&name.len());
        let ticked = |tick: i64| (0..=CEILING).contains(&tick);
        let held = |token: &Token| named(&token.request_id) && (1..=CEILING).contains(&token.generation);
        let legal = match self {
            Verb::Admit(request) => named(&request.id) && named(&request.tenant),
            // The lease that the claim would write must be a tick too.
            Verb::Claim { tick } => ticked(*tick) && *tick <= CEILING - limits.lease_ticks,
            Verb::Resolve { token, tick } | Verb::Quarantine { token, tick } => held(token) && ticked(*tick),
            Verb::Redrive { token } => held(token),
            Verb::CancelUnstarted { request_id } | Verb::Status { request_id } => named(request_id),
            Verb::Snapshot => true,
        };
        if legal { Ok(()) } else { Err(Error::Input) }
    }

    fn tick(&self) -> Option<i64> {
        match self {
            Verb::Claim { tick } | Verb::Resolve { tick, .. } | Verb::Quarantine { tick, .. } => Some(*tick),
            Verb::Admit(_)
            | Verb::Redrive { .. }
            | Verb::CancelUnstarted { .. }
            | Verb::Status { .. }
            | Verb::Snapshot => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Answer {
    Accepted,
    Replay,
    Conflict,
    Oversize { payload_bytes: u64, limit: u64 },
    Full(Full),
    Claimed { token: Token, tenant: String, payload: String, lease: i64 },
    Nothing,
    Done,
    Quarantined,
    Requeued,
    Stale,
    Cancelled,
    NotCancelled,
    Status(Option<Status>),
    Snapshot(Snapshot),
}

impl Answer {
    /// The answer's name as it stands everywhere; what it carries is left out.
    pub fn name(&self) -> &'static str {
        match self {
            Answer::Accepted => "accepted",
            Answer::Replay => "replay",
            Answer::Conflict => "conflict",
            Answer::Oversize { .. } => "oversize",
            Answer::Full(Full { scope: Scope::Global, .. }) => "global_full",
            Answer::Full(Full { scope: Scope::Tenant, .. }) => "tenant_full",
            Answer::Claimed { .. } => "claimed",
            Answer::Nothing => "nothing",
            Answer::Done => "done",
            Answer::Quarantined => "quarantined",
            Answer::Requeued => "requeued",
            Answer::Stale => "stale",
            Answer::Cancelled => "cancelled",
            Answer::NotCancelled => "not_cancelled",
            Answer::Status(_) => "status",
            Answer::Snapshot(_) => "snapshot",
        }
    }
}

/// Why there is no room: `used + needed > limit`, in tasks or in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Full {
    pub scope: Scope,
    pub budget: Budget,
    pub used: u64,
    pub limit: u64,
    pub needed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    Global,
    Tenant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Budget {
    Count,
    Bytes,
}

impl Full {
    fn of(scope: Scope, used: Usage, limit: Usage, request: &Request) -> Option<Full> {
        let budgets =
            [(Budget::Count, used.count, limit.count, 1), (Budget::Bytes, used.bytes, limit.bytes, request.bytes())];
        budgets
            .into_iter()
            .find(|(_, used, limit, needed)| used + needed > *limit)
            .map(|(budget, used, limit, needed)| Full { scope, budget, used, limit, needed })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Status {
    pub state: String,
    pub generation: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    pub usage: Usage,
    /// Of each tenant that holds something.
    pub tenants: BTreeMap<String, Usage>,
    pub tick: i64,
    /// By sequence: request id, state and generation.
    pub tasks: Vec<(String, Status)>,
    pub intents: u64,
    pub effects: u64,
}

/// The errors that follow from the protocol. Those of the machine (busy, I/O, disk full) have no place in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Error {
    Input,
    TickMovedBack { stored: i64, given: i64 },
    GenerationCeiling,
}

impl Error {
    pub fn name(self) -> &'static str {
        match self {
            Error::Input => "error: input",
            Error::TickMovedBack { .. } => "error: tick moved back",
            Error::GenerationCeiling => "error: generation ceiling",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store under the fixture's limits, asked one verb after another.
    #[derive(Default)]
    struct Run {
        state: State,
    }

    impl Run {
        fn hear(&mut self, verb: Verb) -> Result<Answer, Error> {
            let (state, answer) = step(&FIXTURE, &self.state, &verb)?;
            self.state = state;
            Ok(answer)
        }

        #[track_caller]
        fn expect(&mut self, verb: Verb, answer: Answer) {
            assert_eq!(self.hear(verb), Ok(answer));
        }

        #[track_caller]
        fn expect_error(&mut self, verb: Verb, error: Error) {
            assert_eq!(self.hear(verb), Err(error));
        }

        fn usage(&self) -> [u64; 2] {
            [self.state.usage().count, self.state.usage().bytes]
        }
    }

    fn admit(id: &str, tenant: &str, payload: &str) -> Verb {
        Verb::Admit(Request::new(id, tenant, payload))
    }

    fn claim(tick: i64) -> Verb {
        Verb::Claim { tick }
    }

    fn token(id: &str, generation: i64) -> Token {
        Token { request_id: id.to_owned(), generation }
    }

    fn resolve(id: &str, generation: i64, tick: i64) -> Verb {
        Verb::Resolve { token: token(id, generation), tick }
    }

    fn quarantine(id: &str, generation: i64, tick: i64) -> Verb {
        Verb::Quarantine { token: token(id, generation), tick }
    }

    fn redrive(id: &str, generation: i64) -> Verb {
        Verb::Redrive { token: token(id, generation) }
    }

    fn cancel(id: &str) -> Verb {
        Verb::CancelUnstarted { request_id: id.to_owned() }
    }

    fn claimed(id: &str, generation: i64, tenant: &str, payload: &str, lease: i64) -> Answer {
        let (tenant, payload) = (tenant.to_owned(), payload.to_owned());
        Answer::Claimed { token: token(id, generation), tenant, payload, lease }
    }

    fn oversize(payload_bytes: u64) -> Answer {
        Answer::Oversize { payload_bytes, limit: 96 }
    }

    fn full(scope: Scope, budget: Budget, used: u64, needed: u64, limit: u64) -> Answer {
        Answer::Full(Full { scope, budget, used, limit, needed })
    }

    #[test]
    fn a_known_id_is_replay_or_conflict_in_every_state_and_at_a_full_store() {
        let every_state: [(&str, &[Verb]); 5] = [
            ("queued", &[]),
            ("inflight", &[claim(0)]),
            ("quarantined", &[claim(0), quarantine("one", 1, 0)]),
            ("done", &[claim(0), resolve("one", 1, 0)]),
            ("cancelled", &[cancel("one")]),
        ];
        for (state, path) in every_state {
            let mut run = Run::default();
            run.expect(admit("one", "a", "body"), Answer::Accepted);
            for verb in path {
                run.hear(verb.clone()).unwrap();
            }
            for (id, tenant) in [("two", "a"), ("three", "b"), ("four", "b"), ("five", "c")] {
                run.hear(admit(id, tenant, "")).unwrap();
            }
            assert_eq!(run.state.usage().count, 4);
            assert_eq!(run.state.tasks[0].phase.name(), state);
            let before = run.state.clone();
            run.expect(admit("one", "a", "body"), Answer::Replay);
            run.expect(admit("one", "a", "bodY"), Answer::Conflict);
            run.expect(admit("one", "b", "body"), Answer::Conflict);
            run.expect(admit("one", "a", &"x".repeat(97)), Answer::Conflict);
            run.expect(admit("six", "c", ""), full(Scope::Global, Budget::Count, 4, 1, 4));
            assert_eq!(run.state, before);
        }
    }

    #[test]
    fn a_refusal_binds_nothing() {
        let mut run = Run::default();
        run.expect(admit("one", "a", "1"), Answer::Accepted);
        run.expect(admit("two", "a", "2"), Answer::Accepted);
        run.expect(admit("three", "a", "3"), full(Scope::Tenant, Budget::Count, 2, 1, 2));
        run.expect(cancel("one"), Answer::Cancelled);
        run.expect(admit("three", "a", "another body"), Answer::Accepted);
        run.expect(admit("big", "b", &"x".repeat(97)), oversize(97));
        run.expect(admit("big", "b", &"x".repeat(96)), Answer::Accepted);
    }

    #[test]
    fn ninety_seven_bytes_are_oversize_even_at_a_full_store() {
        let mut run = Run::default();
        run.expect(admit("exact", "a", &"x".repeat(96)), Answer::Accepted);
        run.expect(admit("long", "b", &"x".repeat(97)), oversize(97));
        // 33 characters, 99 bytes.
        run.expect(admit("wide", "b", &"字".repeat(33)), oversize(99));
        for (id, tenant) in [("two", "a"), ("three", "b"), ("four", "b")] {
            run.expect(admit(id, tenant, ""), Answer::Accepted);
        }
        run.expect(admit("long", "c", &"x".repeat(97)), oversize(97));
    }

    #[test]
    fn tenant_bytes_are_full_at_129_with_one_task_held() {
        let mut run = Run::default();
        run.expect(admit("ninety", "a", &"字".repeat(30)), Answer::Accepted);
        run.expect(admit("more", "a", &"x".repeat(39)), full(Scope::Tenant, Budget::Bytes, 90, 39, 128));
        run.expect(admit("more", "a", &"x".repeat(38)), Answer::Accepted);
        assert_eq!(run.usage(), [2, 128]);
    }

    #[test]
    fn global_bytes_are_full_at_257_with_two_tasks_held() {
        let mut run = Run::default();
        run.expect(admit("one", "a", &"x".repeat(96)), Answer::Accepted);
        run.expect(admit("two", "b", &"x".repeat(96)), Answer::Accepted);
        run.expect(admit("three", "c", &"x".repeat(65)), full(Scope::Global, Budget::Bytes, 192, 65, 256));
        run.expect(admit("three", "c", &"x".repeat(64)), Answer::Accepted);
    }

    #[test]
    fn a_cap_is_not_a_reservation() {
        let mut run = Run::default();
        for (id, tenant) in [("one", "a"), ("two", "a"), ("three", "b"), ("four", "b")] {
            run.expect(admit(id, tenant, ""), Answer::Accepted);
        }
        run.expect(admit("five", "c", ""), full(Scope::Global, Budget::Count, 4, 1, 4));
        // Both would refuse: the global budget is asked first.
        run.expect(admit("five", "a", ""), full(Scope::Global, Budget::Count, 4, 1, 4));
    }

    #[test]
    fn count_is_checked_before_bytes() {
        let mut run = Run::default();
        run.expect(admit("one", "a", &"x".repeat(96)), Answer::Accepted);
        run.expect(admit("two", "a", &"x".repeat(32)), Answer::Accepted);
        run.expect(admit("three", "a", "x"), full(Scope::Tenant, Budget::Count, 2, 1, 2));
    }

    #[test]
    fn a_limit_of_zero_admits_nothing() {
        let nothing = Limits { global: Usage::default(), ..FIXTURE };
        let (state, answer) = step(&nothing, &State::default(), &admit("one", "a", "")).unwrap();
        assert_eq!((state, answer), (State::default(), full(Scope::Global, Budget::Count, 0, 1, 0)));
    }

    #[test]
    fn an_empty_payload_costs_no_bytes_and_holds_a_slot() {
        let mut run = Run::default();
        run.expect(admit("one", "a", ""), Answer::Accepted);
        assert_eq!(run.usage(), [1, 0]);
    }

    #[test]
    fn names_and_payloads_that_only_look_alike_are_distinct() {
        let mut run = Run::default();
        run.expect(admit("k", "a", "\u{e9}"), Answer::Accepted);
        run.expect(admit("k", "a", "e\u{301}"), Answer::Conflict);
        run.expect(admit("k", "A", "\u{e9}"), Answer::Conflict);
        run.expect(admit("k ", "a", "\u{e9}"), Answer::Accepted);
        run.expect(admit("K", "b", "\u{e9}"), Answer::Accepted);
    }

    #[test]
    fn the_slot_is_held_through_the_life_cycle_until_done() {
        let mut run = Run::default();
        run.expect(admit("one", "a", "abc"), Answer::Accepted);
        let held: [(Verb, Answer); 9] = [
            (claim(0), claimed("one", 1, "a", "abc", 5)),
            (claim(4), Answer::Nothing),
            // Due exactly counts as expired, for the report and for the claim.
            (resolve("one", 1, 5), Answer::Stale),
            (claim(5), claimed("one", 2, "a", "abc", 10)),
            (resolve("one", 1, 6), Answer::Stale),
            (quarantine("one", 2, 6), Answer::Quarantined),
            (redrive("one", 1), Answer::Stale),
            (redrive("one", 2), Answer::Requeued),
            (claim(7), claimed("one", 4, "a", "abc", 12)),
        ];
        for (verb, answer) in held {
            run.expect(verb, answer);
            assert_eq!(run.usage(), [1, 3]);
        }
        run.expect(resolve("one", 4, 7), Answer::Done);
        assert_eq!(run.usage(), [0, 0]);
        run.expect(resolve("one", 4, 7), Answer::Stale);
        assert_eq!(run.state.snapshot().effects, 1);
    }

    #[test]
    fn only_the_unstarted_can_be_cancelled_and_once() {
        let mut run = Run::default();
        run.expect(admit("never", "a", ""), Answer::Accepted);
        run.expect(cancel("never"), Answer::Cancelled);
        run.expect(cancel("never"), Answer::NotCancelled);
        run.expect(cancel("unknown"), Answer::NotCancelled);
        run.expect(admit("one", "a", ""), Answer::Accepted);
        run.expect(claim(0), claimed("one", 1, "a", "", 5));
        run.expect(cancel("one"), Answer::NotCancelled);
        run.expect(claim(5), claimed("one", 2, "a", "", 10));
        run.expect(quarantine("one", 2, 5), Answer::Quarantined);
        run.expect(cancel("one"), Answer::NotCancelled);
        run.expect(redrive("one", 2), Answer::Requeued);
        run.expect(cancel("one"), Answer::NotCancelled);
    }

    #[test]
    fn the_oldest_claimable_goes_first_and_a_redriven_one_keeps_its_place() {
        let mut run = Run::default();
        for id in ["one", "two"] {
            run.expect(admit(id, "a", ""), Answer::Accepted);
        }
        run.expect(claim(0), claimed("one", 1, "a", "", 5));
        run.expect(quarantine("one", 1, 0), Answer::Quarantined);
        run.expect(redrive("one", 1), Answer::Requeued);
        run.expect(claim(0), claimed("one", 3, "a", "", 5));
        run.expect(claim(0), claimed("two", 1, "a", "", 5));
        run.expect(claim(0), Answer::Nothing);
    }

    #[test]
    fn only_reports_within_the_lease_count_whatever_the_end() {
        let mut run = Run::default();
        run.expect(admit("one", "a", ""), Answer::Accepted);
        run.expect(quarantine("one", 1, 0), Answer::Stale);
        run.expect(claim(0), claimed("one", 1, "a", "", 5));
        run.expect(resolve("one", 2, 0), Answer::Stale);
        run.expect(resolve("other", 1, 0), Answer::Stale);
        run.expect(redrive("one", 1), Answer::Stale);
        run.expect(resolve("one", 1, 4), Answer::Done);
        run.expect(quarantine("one", 1, 4), Answer::Stale);
    }

    #[test]
    fn a_tick_is_stored_whatever_the_answer_and_never_moves_back() {
        let mut run = Run::default();
        run.expect(claim(3), Answer::Nothing);
        assert_eq!(run.state.tick, 3);
        run.expect(resolve("one", 1, 4), Answer::Stale);
        run.expect(quarantine("one", 1, 5), Answer::Stale);
        assert_eq!(run.state.tick, 5);
        for verb in [claim(4), resolve("one", 1, 4), quarantine("one", 1, 4)] {
            run.expect_error(verb, Error::TickMovedBack { stored: 5, given: 4 });
        }
        assert_eq!(run.state.tick, 5);
    }

    #[test]
    fn names_are_1_to_128_bytes_and_input_is_refused_before_the_tick_is_read() {
        let longest = "é".repeat(64);
        let too_long = format!("{longest}x");
        let mut run = Run::default();
        run.expect(admit(&longest, &longest, ""), Answer::Accepted);
        run.expect(claim(9), claimed(&longest, 1, &longest, "", 14));
        let before = run.state.clone();
        for name in ["", &too_long] {
            let refused = [
                admit(name, "a", ""),
                admit("id", name, ""),
                resolve(name, 1, 0),
                quarantine(name, 1, 10),
                redrive(name, 1),
                cancel(name),
                Verb::Status { request_id: name.to_owned() },
            ];
            for verb in refused {
                run.expect_error(verb, Error::Input);
            }
        }
        for generation in [i64::MIN, -1, 0, CEILING + 1, i64::MAX] {
            run.expect_error(resolve("id", generation, 9), Error::Input);
            run.expect_error(quarantine("id", generation, 9), Error::Input);
            run.expect_error(redrive("id", generation), Error::Input);
        }
        assert_eq!(run.state, before);
    }

    #[test]
    fn ticks_end_at_the_ceiling_and_a_lease_must_lie_below_it() {
        let mut run = Run::default();
        for tick in [i64::MIN, -1, CEILING - 4, CEILING, CEILING + 1, i64::MAX] {
            run.expect_error(claim(tick), Error::Input);
        }
        run.expect(claim(CEILING - 5), Answer::Nothing);
        run.expect(resolve("one", CEILING, CEILING), Answer::Stale);
        run.expect_error(resolve("one", 1, CEILING + 1), Error::Input);
    }

    #[test]
    fn a_generation_at_the_ceiling_is_an_error_that_changes_nothing() {
        let mut run = Run::default();
        run.expect(admit("one", "a", ""), Answer::Accepted);
        run.expect(admit("two", "a", ""), Answer::Accepted);
        run.state.tasks[0].generation = CEILING;
        let before = run.state.clone();
        // The oldest decides, though a younger one could be claimed.
        run.expect_error(claim(7), Error::GenerationCeiling);
        assert_eq!(run.state, before);
        run.state.tasks[0].phase = Phase::Quarantined;
        run.expect_error(redrive("one", CEILING), Error::GenerationCeiling);
        run.expect(claim(7), claimed("two", 1, "a", "", 12));
        run.state.tasks[0].phase = Phase::Inflight { lease: 9 };
        run.expect(resolve("one", CEILING, 8), Answer::Done);
    }

    #[test]
    fn history_stays_and_every_ended_id_is_a_replay() {
        let mut run = Run::default();
        let ids: Vec<String> = (0..10).map(|number| format!("task-{number}")).collect();
        for id in &ids {
            run.expect(admit(id, "a", "x"), Answer::Accepted);
            run.expect(claim(0), claimed(id, 1, "a", "x", 5));
            run.expect(resolve(id, 1, 0), Answer::Done);
        }
        let snapshot = run.state.snapshot();
        assert_eq!((run.usage(), snapshot.intents, snapshot.effects), ([0, 0], 10, 10));
        for id in &ids {
            run.expect(admit(id, "a", "x"), Answer::Replay);
        }
    }

    #[test]
    fn reads_tell_what_is_there_and_change_nothing() {
        let mut run = Run::default();
        run.expect(admit("one", "a", "abc"), Answer::Accepted);
        run.expect(claim(2), claimed("one", 1, "a", "abc", 7));
        let before = run.state.clone();
        let inflight = Status { state: "inflight".to_owned(), generation: 1 };
        run.expect(Verb::Status { request_id: "one".to_owned() }, Answer::Status(Some(inflight.clone())));
        run.expect(Verb::Status { request_id: "two".to_owned() }, Answer::Status(None));
        let snapshot = Snapshot {
            usage: Usage { count: 1, bytes: 3 },
            tenants: BTreeMap::from([("a".to_owned(), Usage { count: 1, bytes: 3 })]),
            tick: 2,
            tasks: vec![("one".to_owned(), inflight)],
            intents: 1,
            effects: 0,
        };
        run.expect(Verb::Snapshot, Answer::Snapshot(snapshot));
        assert_eq!(run.state, before);
    }
}
