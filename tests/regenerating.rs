//! Runs without `--check`: what is written, what is not, and who is refused.

mod place;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use place::{FROZEN, Place, differing_in};

/// Quick to play.
const GROUP: &str = "global-bytes";
const OTHER: &str = "cap-is-no-reservation";

#[test]
fn equal_is_not_written_and_a_difference_is_written_once() {
    let place = Place::new();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options().append(true).open(&place.results).unwrap().set_modified(long_ago).unwrap();
    for _ in 0..20 {
        let said = place.run([GROUP]).code(0);
        assert_eq!(said.last_line(), "UNCHANGED: 1 of 11 scenario groups matches results.json, which was not written");
    }
    assert_eq!(fs::metadata(&place.results).unwrap().modified().unwrap(), long_ago);
    place.holds(FROZEN);

    fs::write(&place.results, differing_in(GROUP)).unwrap();
    let said = place.run([]).code(0);
    assert_eq!(said.last_line(), "WROTE results.json: 1 difference in 1 of 11 groups");
    assert!(said.out.contains("/groups/global-bytes/steps/0/answer"), "the differences are printed");
    place.holds(FROZEN);
    assert!(place.run([]).code(0).last_line().starts_with("UNCHANGED: "));
}

#[test]
fn values_are_compared_and_not_their_spelling() {
    // CRLF, no final newline, keys in another order.
    let spelled = FROZEN.replace('\n', "\r\n").trim_end().replace("\"format\": 2,\r\n", "");
    let spelled = format!("{},\r\n\"format\": 2}}", spelled.strip_suffix('}').unwrap().trim_end());
    let place = Place::holding(&spelled);
    place.run(["--check", GROUP]).code(0);
    assert!(place.run([GROUP]).code(0).last_line().starts_with("UNCHANGED: "));
    place.holds(&spelled);
}

#[test]
fn a_selection_replaces_only_its_own() {
    let both = {
        let (one, two) = (differing_in(GROUP), differing_in(OTHER));
        let start = two.find(&format!("    \"{OTHER}\"")).unwrap();
        let offset = one.find(&format!("    \"{OTHER}\"")).unwrap();
        format!("{}{}", &one[..offset], &two[start..])
    };
    let place = Place::holding(&both);
    assert!(place.run(["--check"]).code(1).last_line().starts_with("FAIL: 2 differences in 2 of 11 groups"));
    place.run([GROUP]).code(0);
    place.holds(&differing_in(OTHER));
}

#[test]
fn a_selection_is_refused_where_what_it_rests_on_differs() {
    let other_lease = FROZEN.replacen("\"lease_ticks\": 5", "\"lease_ticks\": 6", 1);
    let place = Place::holding(&other_lease);
    for arguments in [[GROUP].as_slice(), &[GROUP, "--dry-run"]] {
        let said = place.end(place.command(place::BINARY).args(arguments)).code(2);
        assert!(said.last_line().starts_with("REFUSED: 1 difference outside the groups, "), "{said:?}");
        assert!(said.out.contains("/protocol/lease_ticks"));
        place.holds(&other_lease);
    }
    place.run([]).code(0);
    place.holds(FROZEN);
}

#[test]
fn ci_may_look_but_not_bless() {
    let old = differing_in(GROUP);
    let place = Place::holding(&old);
    let in_ci = |arguments: &[&str]| place.end(place.command(place::BINARY).env("CI", "true").args(arguments));
    let said = in_ci(&[GROUP]).code(2);
    assert!(
        said.last_line().starts_with("REFUSED: 1 difference in 1 of 1 groups, results.json not written: CI is set")
    );
    assert!(said.out.contains("/groups/global-bytes/steps/0/answer"), "the difference is printed");
    place.holds(&old);
    in_ci(&[GROUP, "--regenerate-in-ci"]).code(0);
    place.holds(FROZEN);
    assert!(in_ci(&[GROUP]).code(0).last_line().starts_with("UNCHANGED: "));
    in_ci(&["--check"]).code(0);

    fs::remove_file(&place.results).unwrap();
    let said = in_ci(&[]).code(2);
    assert!(said.last_line().starts_with("REFUSED: 11 differences in 11 of 11 groups"), "{said:?}");
    assert!(!place.results.exists());
}

#[test]
fn no_file_is_created_but_by_all_groups_at_once() {
    let place = Place::new();
    fs::remove_file(&place.results).unwrap();
    let said = place.run(["--check"]).code(2);
    assert!(said.last_line().contains("there is no such file; run without --check to create it"), "{said:?}");
    let said = place.run([GROUP]).code(2);
    assert!(said.last_line().contains("run without names first"), "{said:?}");
    let said = place.run(["--dry-run"]).code(1);
    assert!(said.last_line().starts_with("DRY RUN: 11 differences in 11 of 11 groups"), "{said:?}");
    assert!(!place.results.exists());
    let said = place.run([]).code(0);
    assert_eq!(said.last_line(), "CREATED results.json with 11 scenario groups: review it");
    place.holds(FROZEN);
}

#[test]
fn what_can_not_be_read_is_neither_checked_nor_replaced_and_nothing_is_played() {
    let twice = FROZEN.replacen("\"format\": 2,", "\"format\": 2,\n  \"format\": 2,", 1);
    let torn = &FROZEN[..FROZEN.len() / 2];
    let marked = format!("\u{feff}{FROZEN}");
    let rounded = FROZEN.replacen("\"format\": 2,", "\"format\": 18446744073709551617,", 1);
    let cases: [(&[u8], &str); 9] = [
        (b"", "the text is empty"),
        (b"{}", "there is no object at /groups"),
        (b"null", "there is no object at /groups"),
        (b"{\"groups\": []}", "there is no object at /groups"),
        (b"{\"groups\": \"\xff\"}", "is not UTF-8"),
        (marked.as_bytes(), "byte order mark"),
        (twice.as_bytes(), "/format: the key \"format\" is there twice, first on line 2"),
        (torn.as_bytes(), "the file is torn"),
        (rounded.as_bytes(), "line 2, column 13, at /format: 18446744073709551617 is beyond"),
    ];
    for (content, why) in cases {
        let place = Place::holding(content);
        for arguments in [["--check"].as_slice(), &[], &["--dry-run"], &[GROUP]] {
            let said = place.end(place.command(place::BINARY).args(arguments)).code(2);
            assert!(said.last_line().starts_with("CANNOT CHECK: ") && said.last_line().contains(why), "{said:?}");
            assert_eq!(said.out.lines().count(), 1);
            assert!(!said.err.contains("played"), "{said:?}");
            assert!(!said.out.contains("write it anew") || said.out.contains("move it away"), "{said:?}");
            assert_eq!(fs::read(&place.results).unwrap(), content);
            assert_eq!(place::names(&place.folder), ["Cargo.toml", "results.json"]);
        }
    }
}

/// What the sentence tells people to do has to work.
#[test]
fn a_foreign_file_that_was_moved_away_is_written_anew() {
    let place = Place::holding("{}");
    let said = place.run([]).code(2);
    assert!(said.last_line().contains("move it away and run without --check"), "{said:?}");
    fs::rename(&place.results, place.elsewhere("away")).unwrap();
    place.run([]).code(0);
    place.holds(FROZEN);
}

#[test]
fn a_folder_a_pipe_and_a_device_are_no_baseline() {
    let place = Place::new();
    let pipe = place.elsewhere("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let absent = place.elsewhere("absent/results.json");
    for (path, why) in [
        (place.folder.to_str().unwrap(), "this is a directory, not a file"),
        (pipe.to_str().unwrap(), "this is a pipe, socket or device, not a file"),
        ("/dev/null", "this is a pipe, socket or device, not a file"),
    ] {
        for arguments in [["--results", path].as_slice(), &["--results", path, "--check"]] {
            let said = place.end(place.command(place::BINARY).args(arguments)).code(2);
            assert!(said.last_line().contains(why), "{said:?}");
        }
    }
    let said = place.run(["--results", absent.to_str().unwrap()]).code(2);
    assert!(said.last_line().contains("absent: there is no such folder; make it, or write elsewhere"), "{said:?}");
    place.holds(FROZEN);
}

#[test]
fn a_protected_file_is_refused_whoever_runs_it() {
    let old = differing_in(GROUP);
    let place = Place::holding(&old);
    fs::set_permissions(&place.results, Permissions::from_mode(0o444)).unwrap();
    let said = place.run([GROUP]).code(2);
    assert!(said.last_line().contains("the file is write-protected"), "{said:?}");
    assert!(said.out.contains("/groups/global-bytes/steps/0/answer"), "the difference is printed");
    place.holds(&old);
    place.run([GROUP, "--dry-run"]).code(1);
    place.run([OTHER]).code(0);
    place.holds(&old);
}

#[test]
fn a_link_stays_a_link_and_the_mode_stays_the_mode() {
    let place = Place::new();
    let real = place.elsewhere("real.json");
    fs::write(&real, differing_in(GROUP)).unwrap();
    fs::set_permissions(&real, Permissions::from_mode(0o640)).unwrap();
    fs::remove_file(&place.results).unwrap();
    symlink("../real.json", &place.results).unwrap();
    place.run([GROUP]).code(0);
    assert_eq!(fs::read_link(&place.results).unwrap().to_str(), Some("../real.json"));
    assert_eq!(fs::metadata(&real).unwrap().mode() & 0o7777, 0o640);
    place.holds(FROZEN);
}

#[test]
fn a_dry_run_shows_and_writes_nothing() {
    let old = differing_in(GROUP);
    let place = Place::holding(&old);
    let said = place.run([GROUP, "--dry-run"]).code(1);
    assert_eq!(said.last_line(), "DRY RUN: 1 difference in 1 of 1 groups, nothing written");
    place.holds(&old);
    let said = place.run([GROUP, "--dry-run", "--out", "elsewhere.json"]).code(2);
    assert!(said.err.contains("cannot be used with"), "it can't write nothing and something: {said:?}");
    place.run(["--dry-run", "--check"]).code(2);
    place.holds(&old);
}

#[test]
fn what_was_seen_goes_elsewhere_and_the_frozen_file_stays() {
    let old = differing_in(GROUP);
    let place = Place::holding(&old);
    let out = place.elsewhere("看到的.json");
    let argument = out.to_str().unwrap();
    for arguments in [["--check", "--out", argument], ["--out", argument, "--quiet"]] {
        let said = place.end(place.command(place::BINARY).args(arguments)).code(1);
        assert!(said.last_line().starts_with("FAIL: 1 difference in 1 of 11 groups"), "{said:?}");
        assert_eq!(fs::read_to_string(&out).unwrap(), FROZEN);
        fs::remove_file(&out).unwrap();
    }
    place.holds(&old);
    for unwritable in [place.elsewhere("absent/out.json"), place.folder.clone(), "/dev/full".into()] {
        let said = place.run(["--check", GROUP, "--out", unwritable.to_str().unwrap()]).code(2);
        assert!(said.last_line().starts_with("CANNOT CHECK: "), "{said:?}");
    }
    place.holds(&old);
}

#[test]
fn the_frozen_file_is_not_reached_by_another_name() {
    let old = differing_in(GROUP);
    let place = Place::holding(&old);
    symlink(&place.results, place.elsewhere("soft")).unwrap();
    fs::hard_link(&place.results, place.elsewhere("hard")).unwrap();
    let names = ["results.json", "./results.json", "../受理 of a checkout/results.json", "../soft", "../hard"];
    for name in names {
        for more in [["--check"].as_slice(), &[]] {
            let said = place.end(place.command(place::BINARY).args([GROUP, "--out", name]).args(more)).code(2);
            assert!(said.last_line().contains("this is the frozen file itself"), "{said:?}");
            assert!(!said.err.contains("played"));
        }
    }
    place.holds(&old);
    // Nor the place where it is to be.
    fs::remove_file(&place.results).unwrap();
    for name in &names[..4] {
        let said = place.run(["--out", name]).code(2);
        assert!(said.last_line().contains("this is the frozen file itself"), "{said:?}");
    }
    assert_eq!(place::names(&place.folder), ["Cargo.toml"]);
}

/// Whoever else writes it, an editor or a checkout of another commit, has not seen what we are about to say.
#[test]
fn a_file_that_is_changed_or_removed_meanwhile_is_not_overwritten() {
    let old = differing_in(GROUP);
    let theirs = differing_in(OTHER);
    let place = Place::holding(&old);
    let mut run = place.start(&mut place.command(place::BINARY));
    run.until(|run| run.stderr().contains("played"));
    fs::write(&place.results, &theirs).unwrap();
    let said = run.end().code(2);
    assert!(said.last_line().contains("changed while"), "{said:?}");
    place.holds(&theirs);

    let mut run = place.start(&mut place.command(place::BINARY));
    run.until(|run| run.stderr().contains("played"));
    fs::remove_file(&place.results).unwrap();
    let said = run.end().code(2);
    assert!(said.last_line().contains("changed while"), "{said:?}");
    assert!(!place.results.exists());

    let mut run = place.start(&mut place.command(place::BINARY));
    run.until(|run| run.stderr().contains("played"));
    fs::write(&place.results, &theirs).unwrap();
    let said = run.end().code(2);
    assert!(said.last_line().contains("changed while"), "{said:?}");
    place.holds(&theirs);

    // A check compares with what it read.
    fs::write(&place.results, FROZEN).unwrap();
    let mut run = place.start(place.command(place::BINARY).arg("--check"));
    run.until(|run| run.stderr().contains("played"));
    fs::remove_file(&place.results).unwrap();
    run.end().code(0);
    place.nothing_is_left();
}
