use crate::error::{Error, Result};
use crate::limits::{GENERATION_CEILING, IDENTITY_BYTES, LEASE_TICKS, TICK_CEILING};

/// What is asked for (PROTOCOL, *Terms*). All three are compared as they come, byte for byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Global: the same id under another tenant is a conflict. 1 to 128 UTF-8 bytes.
    pub request_id: &'a str,
    /// The trusted caller's word for whose budget is charged. 1 to 128 UTF-8 bytes.
    pub tenant: &'a str,
    /// Any text, also empty; its UTF-8 bytes are charged.
    pub payload: &'a str,
}

impl Request<'_> {
    pub(crate) fn check(&self) -> Result<()> {
        check_identity("request id", self.request_id)?;
        check_identity("tenant", self.tenant)
    }
}

/// The right to report on one claim (PROTOCOL, *Terms*). Plain data: a worker may store it and come back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// The claimed request.
    pub request_id: String,
    /// The claim's generation, from 1 to [`GENERATION_CEILING`].
    pub generation: i64,
}

impl Token {
    pub(crate) fn check(&self) -> Result<()> {
        check_identity("token's request id", &self.request_id)?;
        if !(1..=GENERATION_CEILING).contains(&self.generation) {
            return Err(Error::Input {
                field: "token's generation",
                problem: format!(
                    "{} is not between 1 and {GENERATION_CEILING}; report with the token that a claim gave",
                    self.generation
                ),
            });
        }
        Ok(())
    }
}

pub(crate) fn check_identity(field: &'static str, text: &str) -> Result<()> {
    if IDENTITY_BYTES.contains(&text.len()) {
        return Ok(());
    }
    let problem = match text.len() {
        0 => "is empty; give 1 to 128 UTF-8 bytes".to_owned(),
        bytes => format!("is {bytes} UTF-8 bytes long; give 1 to 128"),
    };
    Err(Error::Input { field, problem })
}

pub(crate) fn check_report(token: &Token, tick: i64) -> Result<()> {
    token.check()?;
    check_tick_up_to(TICK_CEILING, tick)
}

/// A claim's lease is an instant on the same scale, so its tick has to leave room for it.
pub(crate) fn check_claim_tick(tick: i64) -> Result<()> {
    check_tick_up_to(TICK_CEILING - LEASE_TICKS, tick)
}

fn check_tick_up_to(ceiling: i64, tick: i64) -> Result<()> {
    if (0..=ceiling).contains(&tick) {
        return Ok(());
    }
    Err(Error::Input { field: "tick", problem: format!("{tick} is not between 0 and {ceiling}; give a tick in there") })
}
