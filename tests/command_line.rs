//! The built binary as a shell sees it: what it is called with, from where, by whom, and who listens.

mod place;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use place::{BINARY, FROZEN, Place, copy_binary, differing_in, is_possible, skipped};

/// Quick to play.
const GROUP: &str = "global-bytes";

/// Not 0 and nobody that is there; any number will do.
const NOBODY: [&str; 3] = ["--reuid=54321", "--regid=54321", "--clear-groups"];

#[test]
fn what_is_misspelt_is_a_usage_error_with_a_suggestion_and_nothing_is_played() {
    let old = differing_in(GROUP);
    let place = Place::holding(&old);
    let cases: [(&[&str], &str); 9] = [
        (&["--chekc"], "a similar argument exists: '--check'"),
        (&["--check", "--repaet", "3"], "a similar argument exists: '--repeat'"),
        (&["--dryrun"], "a similar argument exists: '--dry-run'"),
        (&["global-byte"], "a similar value exists: 'global-bytes'"),
        (&["--check", GROUP, "race-of-one-tennant"], "a similar value exists: 'race-of-one-tenant'"),
        // Nothing is near: all are named.
        (&["qqq"], "possible values: identity-before-capacity, "),
        (&["--check", "--format", "jsn"], "a similar value exists: 'json'"),
        (&["--check", "--repeat", "0"], "0 is not in 1.."),
        (&[""], "a value is required"),
    ];
    for (arguments, told) in cases {
        let said = place.end(place.command(BINARY).args(arguments)).code(2);
        assert!(said.err.contains(told), "{arguments:?}: {said:?}");
        assert_eq!(said.out, "");
        assert!(!said.err.contains("played"), "{said:?}");
        place.holds(&old);
    }
}

#[test]
fn a_child_with_a_misspelt_boundary_is_an_error_and_touches_no_store() {
    let place = Place::new();
    let store = place.elsewhere("store.db");
    let parent = std::process::id().to_string();
    for boundary in ["admit.before_comit", "Admit.before_commit", "admit.before_commit ", "", "admit"] {
        let mut command = place.command(BINARY);
        command.args(["child", "crash", &parent]).arg(&store).arg(boundary);
        let said = place.end(&mut command).code(2);
        assert!(said.err.contains("BOUNDARY") && !said.out.contains("dying"), "{said:?}");
        assert!(!store.exists());
    }
    // Spelt right the same command does die there, with the code of a planned death.
    let mut command = place.command(BINARY);
    command.args(["child", "crash", &parent]).arg(&store).arg("admit.before_commit");
    let said = place.end(&mut command).code(73);
    assert_eq!(said.out, "dying at admit.before_commit\n");
}

/// Each a sentence that names the file and says what to do, before anything is played.
#[test]
fn a_file_that_is_not_there_or_can_not_be_written_is_said_before_anything_is_played() {
    let place = Place::new();
    let absent = place.elsewhere("没有/file.json");
    let [absent, folder] = [absent.to_str().unwrap(), place.folder.to_str().unwrap()];
    let cases: [(&[&str], &str); 7] = [
        (&["--check", "--out", folder], "this is a directory, not a file; name a file"),
        (&["--out", folder], "this is a directory, not a file; name a file"),
        (&["--check", "--out", absent], "there is no such folder; make it, or write elsewhere"),
        (&["--out", absent], "there is no such folder; make it, or write elsewhere"),
        (&["--check", "--out", "/dev/full"], "a pipe, socket or device, not a file; name a file"),
        (&["--check", "--results", absent], "there is no such file; run without --check to create it"),
        (&["--results", absent], "there is no such folder; make it, or write elsewhere"),
    ];
    for (arguments, told) in cases {
        let said = place.end(place.command(BINARY).args(arguments)).code(2);
        assert!(said.last_line().starts_with("CANNOT CHECK: /") && said.last_line().contains(told), "{said:?}");
        assert!(!said.err.contains("played"), "{arguments:?}: {said:?}");
    }
    for option in ["--out", "--results"] {
        let said = place.run(["--check", option]).code(2);
        assert!(said.err.contains("a value is required"), "{said:?}");
    }
    place.holds(FROZEN);
    assert!(!Path::new(absent).parent().unwrap().exists());
}

/// Runs with the reading end of its output closed before a word is said.
fn with_nobody_listening(place: &Place, arguments: &[&str]) -> Option<i32> {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = place.command(BINARY);
    command.args(arguments).stdout(writer.try_clone().unwrap()).stderr(writer);
    let code = command.status().unwrap().code();
    place.nothing_is_left();
    code
}

#[test]
fn the_verdict_survives_a_reader_that_leaves() {
    let agreeing = Place::new();
    let differing = Place::holding(differing_in(GROUP));
    for (place, code) in [(&agreeing, 0), (&differing, 1)] {
        for format in ["text", "json", "junit", "github"] {
            let arguments = ["--check", GROUP, "--full", "--format", format];
            assert_eq!(with_nobody_listening(place, &arguments), Some(code), "{format}");
        }
        // The shell's own pipe, whose status is that of `head`.
        let said = place.shell("{ \"$0\" --check --full; echo $? >&3; } 3>&2 2>/dev/null | head -1", []);
        assert_eq!(said.err, format!("{code}\n"));
        assert_eq!(said.out.lines().count(), 1);
    }
    let unreadable = Place::holding("{}");
    assert_eq!(with_nobody_listening(&unreadable, &["--check"]), Some(2));
    assert_eq!(with_nobody_listening(&unreadable, &["--chekc"]), Some(2));
    for told in ["--help", "--version", "--list", "man"] {
        assert_eq!(with_nobody_listening(&agreeing, &[told]), Some(0), "{told}");
    }
}

#[test]
fn a_full_output_device_is_exit_2_whatever_the_verdict() {
    let agreeing = Place::new();
    let differing = Place::holding(differing_in(GROUP));
    let into_full = |place: &Place, arguments: &[&str]| {
        let mut command = place.command(BINARY);
        command.args(arguments).stdout(File::options().write(true).open("/dev/full").unwrap()).stderr(Stdio::piped());
        let ended = command.output().unwrap();
        place.nothing_is_left();
        (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
    };
    for (place, verdict) in [(&agreeing, "pass"), (&differing, "fail")] {
        for format in ["text", "json", "junit", "github"] {
            let (code, said) = into_full(place, &["--check", "-q", GROUP, "--format", format]);
            assert_eq!(code, Some(2), "{said}");
            assert!(said.contains(&format!("the result ({verdict}) can't be written")), "{said}");
        }
    }
    for told in ["--help", "--version", "--list", "man"] {
        let (code, said) = into_full(&agreeing, &[told]);
        assert_eq!((code, said.lines().count()), (Some(2), 1), "{told}: {said}");
    }
    // Nowhere at all to complain: the exit code still says it.
    let script = "exec \"$0\" --check global-bytes >/dev/full 2>/dev/full";
    agreeing.shell(script, []).code(2);
}

#[test]
fn the_file_of_the_checkout_around_is_found_and_its_path_is_shown() {
    let place = Place::new();
    let deep = place.folder.join("a folder/更深");
    fs::create_dir_all(&deep).unwrap();
    let shown = format!("comparing with {}", place.results.display());
    let said = place.end(place.command(BINARY).current_dir(&deep).args(["--check", GROUP])).code(0);
    assert!(said.err.contains(&shown), "{said:?}");
    // The checkout around the current folder, and not the one in which the binary was built.
    let copy = place.copied_binary();
    for binary in [Path::new(BINARY), &copy] {
        let said = place.end(place.command(binary).args(["--check", GROUP])).code(0);
        assert!(said.err.contains(&shown), "{said:?}");
    }
    // `cargo run` says which checkout, wherever it is called from.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = place.command(&copy);
    command.current_dir(&elsewhere).env("CARGO_MANIFEST_DIR", &place.folder).args(["--check", GROUP]);
    assert!(place.end(&mut command).code(0).err.contains(&shown));
    // A binary in a checkout knows it from any folder.
    let target = place.folder.join("target/debug");
    fs::create_dir_all(&target).unwrap();
    copy_binary(&target.join("durable-admission"));
    let mut command = place.command(target.join("durable-admission"));
    let said = place.end(command.current_dir(&elsewhere).args(["--check", GROUP])).code(0);
    assert!(said.err.contains(&shown), "{said:?}");
    // What differs is found by each of them, so it was this file that was read.
    fs::write(&place.results, differing_in(GROUP)).unwrap();
    place.end(place.command(&copy).current_dir(&deep).args(["--check", GROUP])).code(1);
    let mut command = place.command(target.join("durable-admission"));
    place.end(command.current_dir(&elsewhere).args(["--check", GROUP])).code(1);
}

#[test]
fn a_copied_binary_without_a_checkout_asks_for_the_file_and_takes_it_from_anywhere() {
    let place = Place::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = place.copied_binary();
    let said = place.end(place.command(&copy).current_dir(&elsewhere).arg("--check")).code(2);
    assert!(said.err.contains("name the frozen file with --results PATH"), "{said:?}");
    let mut command = place.command(&copy);
    command.current_dir(&elsewhere).arg("--check").arg("--results").arg(&place.results);
    place.end(&mut command).code(0);
    let link = elsewhere.path().join("链 接");
    symlink(&copy, &link).unwrap();
    let mut command = place.command(&link);
    place.end(command.arg("--check")).code(0);
    assert_eq!(place::names(elsewhere.path()), ["链 接"]);
    place.holds(FROZEN);
}

#[test]
fn a_check_passes_on_a_read_only_checkout() {
    let place = Place::new();
    fs::set_permissions(&place.results, Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(&place.folder, Permissions::from_mode(0o555)).unwrap();
    place.run(["--check"]).code(0);
    if is_possible("setpriv", &[&NOBODY[..], &["true"]].concat()) {
        let mut command = place.command("setpriv");
        place.end(command.args(NOBODY).arg(place.copied_binary()).arg("--check")).code(0);
    } else {
        skipped("we can't be another user here");
    }
    // Root writes where it will, but not to a read-only mount.
    if is_possible("unshare", &["-rm", "mount", "--bind", "/mnt", "/mnt"]) {
        let script = "mount --bind . . && mount -o remount,bind,ro . && cd \"$PWD\" &&
            ! touch \"$PWD\"/written 2>/dev/null && exec \"$0\" --check";
        place.end(place.command("unshare").args(["-rm", "sh", "-c", script, BINARY])).code(0);
    } else {
        skipped("nothing can be mounted here");
    }
    fs::set_permissions(&place.folder, Permissions::from_mode(0o755)).unwrap();
    place.holds(FROZEN);
}

#[test]
fn a_check_passes_with_any_of_the_standard_streams_closed() {
    let place = Place::new();
    place.shell("exec \"$0\" --check <&-", []).code(0);
    place.shell("exec \"$0\" --check <&- >&- 2>&-", []).code(0);
    fs::write(&place.results, differing_in(GROUP)).unwrap();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        place.shell(&format!("exec \"$0\" --check {GROUP} {closed}"), []).code(1);
    }
    place.holds(&differing_in(GROUP));
}

/// Whether the machine has the locale or not: what is compared and printed does not ask it.
#[test]
fn a_check_says_the_same_in_every_locale() {
    let place = Place::holding(differing_in(GROUP));
    let locale = |name: &str| {
        let mut command = place.command(BINARY);
        command.env_remove("LANG").env_remove("LANGUAGE").env("LC_ALL", name).args(["--check", "--full", GROUP]);
        place.end(&mut command).code(1).out
    };
    let plain = locale("C");
    assert!(plain.contains("/groups/global-bytes/steps/0/answer"), "{plain}");
    for name in ["tr_TR.UTF-8", "de_DE.ISO-8859-1", "zh_CN.GB18030", "no such locale", ""] {
        assert_eq!(locale(name), plain, "{name}");
    }
    fs::write(&place.results, FROZEN).unwrap();
    for name in ["C", "tr_TR.UTF-8"] {
        place.end(place.command(BINARY).env("LC_ALL", name).arg("--check")).code(0);
    }
}

#[test]
fn a_check_passes_as_root_and_as_an_ordinary_user() {
    let place = Place::new();
    let binary = place.copied_binary();
    let mut command = place.command(&binary);
    place.end(command.arg("--check")).code(0);
    if !is_possible("setpriv", &[&NOBODY[..], &["true"]].concat()) {
        return skipped("we are an ordinary user here, and can't be root as well");
    }
    let mut command = place.command("setpriv");
    place.end(command.args(NOBODY).arg(&binary).arg("--check")).code(0);
    // Who may not write there is told so, and the file is as it was.
    fs::write(&place.results, differing_in(GROUP)).unwrap();
    let mut command = place.command("setpriv");
    let said = place.end(command.args(NOBODY).arg(&binary).arg(GROUP)).code(2);
    assert!(said.last_line().contains("the file is write-protected"), "{said:?}");
    place.holds(&differing_in(GROUP));
    // Nor is a file of their own replaced in a folder of others.
    chown(&place.results, Some(54321), Some(54321)).unwrap();
    let mut command = place.command("setpriv");
    let said = place.end(command.args(NOBODY).arg(&binary).arg(GROUP)).code(2);
    assert!(said.last_line().contains("the folder can't be written"), "{said:?}");
    place.holds(&differing_in(GROUP));
    assert_eq!(place::names(&place.folder), ["Cargo.toml", "results.json"]);
}

/// A run of many children reaps each: as it goes there are never more zombies than one race has children.
#[cfg(target_os = "linux")]
#[test]
fn children_are_reaped_as_the_run_goes() {
    let place = Place::new();
    let mut command = place.command(BINARY);
    command.args(["--check", "--repeat", "4", "crash-boundaries", "race-of-one-tenant"]);
    let mut run = place.start(&mut command);
    let pid = run.process.id();
    let most = std::cell::Cell::new(0);
    let ended = !run.meets(|_| {
        most.set(most.get().max(zombies_of(pid)));
        false
    });
    assert!(ended && most.get() <= 12, "{} zombies at once", most.get());
    run.end().code(0);
    place.nothing_is_left();
}

#[cfg(target_os = "linux")]
fn zombies_of(pid: u32) -> usize {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let is_zombie =
        |child: &&str| fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    children.split_whitespace().filter(is_zombie).count()
}

#[test]
fn a_self_test_that_has_nothing_to_spoil_says_why_by_its_exit_code() {
    let place = Place::new();
    place.end(place.command(BINARY).env("TMPDIR", "/absent").arg("self-test")).code(3);
    fs::write(&place.results, differing_in(GROUP)).unwrap();
    let said = place.run(["self-test"]).code(2);
    assert!(said.err.contains("a run does not agree with it as it is; see --check first"), "{said:?}");
    fs::write(&place.results, "{}").unwrap();
    let said = place.run(["self-test"]).code(2);
    assert!(said.err.contains("there is no object at /groups") && !said.err.contains("played"), "{said:?}");
    assert_eq!(said.out, "");
}

/// What is refused here has to be what the command line offers.
#[test]
fn completions_and_the_manual_page_name_every_flag() {
    let place = Place::new();
    let page = place.run(["man"]).code(0).out;
    let script = place.run(["completions", "bash"]).code(0).out;
    for flag in ["check", "results", "out", "dry-run", "repeat", "format", "full", "color", "quiet", "keep"] {
        assert!(script.contains(&format!("--{flag}")), "{flag}");
        assert!(page.contains(&format!("\\-\\-{}", flag.replace('-', "\\-"))), "{flag}: {page}");
    }
    let parses = Command::new("bash").args(["-n", "-c", &script]).status();
    assert!(parses.is_ok_and(|status| status.success()));
}
