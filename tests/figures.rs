//! README.md tells the figures that are frozen.

use serde_json::Value;

const README: &str = include_str!("../README.md");

fn frozen(text: &str, member: &str) -> Value {
    serde_json::from_str::<Value>(text).unwrap()[member].take()
}

/// 12744 as 12,744.
fn grouped(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        more => format!("{},{:03}", grouped(more / 1000), more % 1000),
    }
}

/// The row of a table that begins with this name.
fn row(name: &str) -> &'static str {
    let start = format!("| `{name}` |");
    README.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("README.md has no row {start}"))
}

fn sum(list: &Value, of: &str) -> u64 {
    list.as_array().unwrap().iter().map(|entry| entry[of].as_u64().unwrap()).sum()
}

#[test]
fn the_table_of_sweeps_counts_what_is_frozen() {
    let sweeps = frozen(include_str!("../experiments/sweeps.json"), "sweeps");
    let count = |sweep: &str, of: &str| sweeps[sweep][of].as_u64().unwrap_or_else(|| panic!("/{sweep}/{of}"));
    let power = |of: &str| -> u64 {
        sweeps["power"]["runs"].as_object().unwrap().values().map(|run| run["all"][of].as_u64().unwrap()).sum()
    };
    let teeth = sweeps["teeth"]["teeth"].as_object().unwrap().len() as u64;
    let (histories, nemesis) = (&sweeps["histories"]["ways"], &sweeps["nemesis"]["databases"]);
    let told = [
        ("exhaustive", vec![count("exhaustive", "states"), count("exhaustive", "transitions")]),
        ("random", vec![count("random", "sequences"), count("random", "verbs")]),
        ("kill", vec![count("kill", "children")]),
        ("fault", vec![count("fault", "points")]),
        ("power", vec![power("states"), power("images"), power("lost"), power("broken")]),
        ("teeth", vec![teeth]),
        ("histories", vec![sum(histories, "rounds"), sum(histories, "lies_rejected")]),
        ("nemesis", vec![sum(nemesis, "rounds"), sum(nemesis, "kills"), sum(nemesis, "lost")]),
        ("group", vec![count("group", "groups")]),
        ("snapshot", vec![count("snapshot", "snapshots")]),
        ("limits", vec![count("limits", "refused")]),
        ("audit", vec![count("audit", "named")]),
    ];
    assert_eq!(told.len(), sweeps.as_object().unwrap().len(), "every sweep has its row");
    for (sweep, figures) in told {
        for figure in figures.into_iter().map(grouped) {
            let words: Vec<&str> = row(sweep).split([' ', '|']).collect();
            assert!(words.contains(&figure.as_str()), "{sweep}: {figure} is not in {}", row(sweep));
        }
    }
}

#[test]
fn the_windows_that_are_sampled_are_told() {
    let sweeps = frozen(include_str!("../experiments/sweeps.json"), "sweeps");
    let runs = sweeps["power"]["runs"].as_object().unwrap();
    let windows = |kind: &str| -> u64 { runs.values().map(|run| run[kind].as_u64().unwrap()).sum() };
    let (whole, sampled) = (windows("exhaustive_windows"), windows("sampled_windows"));
    let text = README.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(&format!("Of the {} windows between two syncs the {whole} with up to", whole + sampled)));
    assert!(text.contains(&format!("the larger {sampled} are sampled")));
}

#[test]
fn the_sql_mutants_are_counted() {
    let mutants = frozen(include_str!("../experiments/flaws/sql.json"), "mutants");
    let mutants = mutants.as_object().unwrap();
    let equivalent = mutants.values().filter(|mutant| mutant.get("equivalent").is_some()).count();
    let all = format!("{} mutants, of which {} are", mutants.len(), mutants.len() - equivalent);
    assert!(README.contains(&all), "README.md does not say: {all}");
    assert!(README.contains(&format!("and {equivalent} are equivalent")));
}

#[test]
fn the_matrix_of_flaws_is_the_frozen_one() {
    let flaws = frozen(include_str!("../experiments/flaws/matrix.json"), "flaws");
    let flaws = flaws.as_object().unwrap();
    assert!(README.contains(&format!("the {} flaws in", flaws.len())));
    for (flaw, row_of_flaw) in flaws {
        let by = |kind: &str| {
            let names = row_of_flaw["convicted_by"][kind].as_array().cloned().unwrap_or_default();
            names.iter().map(|name| format!("`{}`", name.as_str().unwrap())).collect::<Vec<_>>().join(", ")
        };
        let refused = by("not_measured");
        let sweeps = if refused.is_empty() { by("sweeps") } else { format!("none; not measured by {refused}") };
        let cells = [by("groups"), sweeps].map(|names| if names.is_empty() { names } else { format!(" {names}") });
        assert_eq!(row(flaw), format!("| `{flaw}` |{} |{} |", cells[0], cells[1]));
    }
}
