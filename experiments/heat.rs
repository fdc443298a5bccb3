//! One run of a race as it went in time: told beside the frozen evidence, never part of it.

use std::collections::BTreeMap;

use crate::clock::Nanoseconds;

pub struct Heat {
    /// In the order of the starts.
    pub lanes: Vec<Lane>,
}

/// One process of the race.
pub struct Lane {
    pub request_id: String,
    pub tenant: String,
    pub answer: String,
    /// When it was ready, was let go, had its answer.
    pub instants: [Nanoseconds; 3],
}

impl Heat {
    /// How many had which answer.
    pub fn answers(&self) -> BTreeMap<&str, usize> {
        let mut answers = BTreeMap::new();
        for lane in &self.lanes {
            *answers.entry(lane.answer.as_str()).or_default() += 1;
        }
        answers
    }

    /// Whether all were ready before the first was let go.
    pub fn is_fair_start(&self) -> bool {
        let last_ready = self.lanes.iter().map(|lane| lane.instants[0]).max();
        let first_let_go = self.lanes.iter().map(|lane| lane.instants[1]).min();
        last_ready <= first_let_go
    }

    /// The most processes that were inside the verb at one instant.
    pub fn most_at_once(&self) -> usize {
        let inside =
            |instant| self.lanes.iter().filter(move |lane| (lane.instants[1]..lane.instants[2]).contains(&instant));
        self.lanes.iter().map(|lane| inside(lane.instants[1]).count()).max().unwrap_or_default()
    }

    /// From the first that was let go to the last answer.
    pub fn took(&self) -> Nanoseconds {
        let first = self.lanes.iter().map(|lane| lane.instants[1]).min().unwrap_or_default();
        self.lanes.iter().map(|lane| lane.instants[2]).max().unwrap_or_default().saturating_sub(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heat(instants: &[[Nanoseconds; 3]]) -> Heat {
        let lane = |instants: &_| Lane {
            request_id: String::new(),
            tenant: String::new(),
            answer: "accepted".to_owned(),
            instants: *instants,
        };
        Heat { lanes: instants.iter().map(lane).collect() }
    }

    #[test]
    fn only_what_overlaps_is_at_once() {
        let in_turn = heat(&[[1, 10, 20], [2, 20, 30], [3, 30, 40]]);
        assert_eq!((in_turn.most_at_once(), in_turn.took(), in_turn.is_fair_start()), (1, 30, true));
        let two_of_three = heat(&[[1, 10, 20], [2, 12, 30], [11, 25, 40]]);
        assert_eq!((two_of_three.most_at_once(), two_of_three.took(), two_of_three.is_fair_start()), (2, 30, false));
        assert_eq!(heat(&[[0, 1, 9], [0, 2, 8], [0, 3, 7]]).most_at_once(), 3);
        assert_eq!(two_of_three.answers(), [("accepted", 3)].into());
    }
}
