//! Charts as plain SVG. Lines and letters take the colour of the text; nothing is told by colour alone.

use maud::{Markup, html};

use crate::baseline::show::visible;
use crate::clock::Nanoseconds;
use crate::heat::Heat;

/// What is held after each step, of one unit.
pub struct Panel {
    pub unit: &'static str,
    pub global: Vec<i64>,
    pub global_limit: i64,
    /// Of the tenant that holds most, where it is known.
    pub tenant: Vec<Option<i64>>,
    pub tenant_limit: i64,
}

impl Panel {
    pub fn knows_tenants(&self) -> bool {
        self.tenant.iter().any(Option::is_some)
    }
}

const LEFT: i64 = 120;
const RIGHT: i64 = 20;
const PANEL: i64 = 92;
/// Above each panel, for its name.
const GAP: i64 = 40;
/// Height of a letter that lies on its side.
const LETTER: i64 = 7;

/// Usage against the limits as a step line over the steps, one panel below the other, with each answer beneath.
pub fn steps(panels: &[Panel], answers: &[String]) -> Markup {
    let columns = answers.len().max(1) as i64;
    let column = (600 / columns).clamp(21, 64);
    let width = LEFT + column * columns + RIGHT;
    let longest = answers.iter().map(|answer| answer.chars().count()).max().unwrap_or_default() as i64;
    // Beneath the panels stand the number and the answer of each step.
    let height = (PANEL + GAP) * panels.len() as i64 + 20 + LETTER * longest;
    let middle = |index: usize| LEFT + column * index as i64 + column / 2;
    html! {
        svg.chart xmlns="http://www.w3.org/2000/svg" role="img" width=(width) height=(height)
            viewBox=(format!("0 0 {width} {height}")) font-size="11" font-family="system-ui, sans-serif"
            aria-label=(described(panels)) {
            @for (index, panel) in panels.iter().enumerate() {
                (drawn(panel, index as i64 * (PANEL + GAP) + GAP - 8, column, width))
            }
            @for (index, answer) in answers.iter().enumerate() {
                @let (x, y) = (middle(index), (PANEL + GAP) * panels.len() as i64);
                text x=(x) y=(y + 6) text-anchor="middle" fill="currentColor" font-size="9" { (index + 1) }
                @let (x, y) = (x + 4, y + 14);
                text x=(x) y=(y) text-anchor="end" fill="currentColor" transform=(format!("rotate(-90 {x} {y})")) { (answer) }
            }
        }
    }
}

fn described(panels: &[Panel]) -> String {
    let told = panels.iter().map(|panel| {
        let most = panel.global.iter().max().copied().unwrap_or_default();
        format!("{}: at most {most} of {} are held", panel.unit, panel.global_limit)
    });
    told.collect::<Vec<_>>().join("; ")
}

/// Up to what value a panel reaches; seen over the limit it must still be in the picture.
fn ceiling(panel: &Panel) -> i64 {
    let seen = panel.global.iter().copied().chain(panel.tenant.iter().flatten().copied());
    seen.chain([panel.global_limit, panel.tenant_limit, 1]).max().unwrap_or(1)
}

fn drawn(panel: &Panel, top: i64, column: i64, width: i64) -> Markup {
    let ceiling = ceiling(panel);
    let level = |value: i64| top + PANEL - value * PANEL / ceiling;
    let end = width - RIGHT;
    let limits = [("global limit", panel.global_limit), ("a tenant's limit", panel.tenant_limit)];
    html! {
        text x="2" y=(top - 14) fill="currentColor" font-weight="bold" { (panel.unit) }
        line x1=(LEFT) y1=(top + PANEL) x2=(end) y2=(top + PANEL) stroke="currentColor" stroke-width="1" {}
        text x=(LEFT - 6) y=(top + PANEL + 4) text-anchor="end" fill="currentColor" { "0" }
        @for (name, limit) in limits {
            line.limit x1=(LEFT) y1=(level(limit)) x2=(end) y2=(level(limit)) stroke="currentColor" stroke-width="1"
                stroke-dasharray="2 4" {}
            text x=(LEFT - 6) y=(level(limit) + 4) text-anchor="end" fill="currentColor" { (name) " " (limit) }
        }
        @if panel.knows_tenants() {
            path.tenant d=(path(&panel.tenant, column, level)) fill="none" stroke="currentColor" stroke-width="1.5"
                stroke-dasharray="6 3" {}
        }
        @let global: Vec<Option<i64>> = panel.global.iter().copied().map(Some).collect();
        path.global d=(path(&global, column, level)) fill="none" stroke="currentColor" stroke-width="2.5" {}
    }
}

/// From nothing held, up or down at each step.
fn path(values: &[Option<i64>], column: i64, level: impl Fn(i64) -> i64) -> String {
    let mut path = format!("M{LEFT} {}", level(0));
    for (index, value) in values.iter().enumerate() {
        let x = LEFT + column * index as i64 + column / 2;
        let end = if index + 1 == values.len() { x + column / 2 } else { x + column };
        match value {
            Some(value) => path += &format!("H{x}V{}H{end}", level(*value)),
            None => path += &format!("M{end} {}", level(0)),
        }
    }
    path
}

const LANE: i64 = 20;
const NAMES: i64 = 168;
const WAITING: i64 = 150;
const RUNNING: i64 = 380;
const VERDICTS: i64 = 90;

/// A lane for each process: a thin line from ready to let go, a bar from let go to the answer. The two have a scale each.
pub fn lanes(heat: &Heat) -> Markup {
    let instants = |which: usize| heat.lanes.iter().map(move |lane| lane.instants[which]);
    let first_ready = instants(0).min().unwrap_or_default();
    let first_let_go = instants(1).min().unwrap_or_default();
    let last_answer = instants(2).max().unwrap_or_default();
    let width = NAMES + WAITING + RUNNING + VERDICTS;
    let top = 44;
    let bottom = top + LANE * heat.lanes.len() as i64;
    let height = bottom + 26;
    let go = NAMES + WAITING;
    // Before the first was let go nobody runs; a racer that was ready later than that has no waiting to draw.
    let ready_at = |instant| NAMES + scaled(instant, first_ready, first_let_go, WAITING).min(WAITING);
    let run_at = |instant| go + scaled(instant, first_let_go, last_answer, RUNNING);
    let waited = super::races::milliseconds(first_let_go.saturating_sub(first_ready));
    let ran = super::races::milliseconds(last_answer.saturating_sub(first_let_go));
    let told = format!(
        "{} lanes from ready to answer; at most {} are inside admit at once",
        heat.lanes.len(),
        heat.most_at_once()
    );
    html! {
        svg.chart xmlns="http://www.w3.org/2000/svg" role="img" width=(width) height=(height)
            viewBox=(format!("0 0 {width} {height}")) font-size="11" font-family="system-ui, sans-serif" aria-label=(told) {
            text x=(NAMES) y="12" fill="currentColor" { "○ ready, waiting: " (waited) }
            text x=(go + 6) y="24" fill="currentColor" { "let go, until answered: " (ran) }
            line x1=(go) y1="16" x2=(go) y2=(bottom + 4) stroke="currentColor" stroke-width="1.5" {}
            @for (index, lane) in heat.lanes.iter().enumerate() {
                @let y = top + LANE * index as i64;
                @let [ready, let_go, answered] = lane.instants;
                text x="2" y=(y + 4) fill="currentColor" { (visible(&lane.request_id)) " of " (visible(&lane.tenant)) }
                circle cx=(ready_at(ready)) cy=(y) r="3" fill="none" stroke="currentColor" {}
                line x1=(ready_at(ready) + 3) y1=(y) x2=(run_at(let_go)) y2=(y) stroke="currentColor" stroke-width="1" {}
                rect.(if lane.answer == "accepted" { "won" } else { "lost" }) x=(run_at(let_go)) y=(y - 6)
                    width=((run_at(answered) - run_at(let_go)).max(2)) height="12" stroke="currentColor"
                    fill=(if lane.answer == "accepted" { "currentColor" } else { "none" }) {}
                text x=(run_at(answered) + 6) y=(y + 4) fill="currentColor" { (visible(&lane.answer)) }
            }
            line x1=(NAMES) y1=(bottom + 4) x2=(go + RUNNING) y2=(bottom + 4) stroke="currentColor" stroke-width="1" {}
            text x=(go) y=(bottom + 18) text-anchor="middle" fill="currentColor" { "0" }
            text x=(go + RUNNING) y=(bottom + 18) text-anchor="middle" fill="currentColor" { (ran) }
        }
    }
}

/// Where an instant lies between two others, in so many pixels.
fn scaled(instant: Nanoseconds, from: Nanoseconds, to: Nanoseconds, pixels: i64) -> i64 {
    let (passed, whole) = (instant.saturating_sub(from), to.saturating_sub(from).max(1));
    (u128::from(passed) * pixels.unsigned_abs() as u128 / u128::from(whole)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_line_rises_at_its_step_and_what_is_unknown_leaves_a_gap() {
        let level = |value| 100 - value;
        assert_eq!(path(&[Some(1), Some(0)], 20, level), "M120 100H130V99H150H150V100H160");
        assert_eq!(path(&[None, Some(2)], 20, level), "M120 100M150 100H150V98H160");
    }

    #[test]
    fn usage_over_the_limit_stays_in_the_picture() {
        let panel =
            Panel { unit: "tasks", global: vec![1, 9], global_limit: 4, tenant: vec![Some(1), None], tenant_limit: 2 };
        assert_eq!(ceiling(&panel), 9);
    }

    #[test]
    fn an_instant_is_scaled_without_overflow() {
        assert_eq!(scaled(15, 10, 20, 300), 150);
        assert_eq!(scaled(5, 10, 20, 300), 0);
        assert_eq!(scaled(u64::MAX, 0, u64::MAX, 300), 300);
    }
}
