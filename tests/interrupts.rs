//! Runs that are interrupted, killed, or left without what they need: what they leave, and how they end.

mod place;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;
use place::{BINARY, FROZEN, Place, differing_in, is_possible, names, skipped};

const GROUP: &str = "global-bytes";
const RACES: [&str; 2] = ["race-of-one-tenant", "race-of-twelve-tenants"];

/// Random moments. The seed is printed: a failed test shows it.
struct Moments(u64);

impl Moments {
    fn new() -> Moments {
        let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
        eprintln!("seed of the moments: {seed}");
        Moments(seed)
    }

    fn next(&mut self, below: Duration) -> Duration {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Duration::from_nanos((self.0 >> 33) % u64::try_from(below.as_nanos()).unwrap())
    }
}

#[test]
fn an_interrupted_check_dies_of_the_signal_and_leaves_nothing() {
    let place = Place::new();
    let mut moments = Moments::new();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().cycle().take(9) {
        let mut run = place.start(place.command(BINARY).args(["--check", "--repeat", "1000"]).args(RACES));
        run.until(|_| !place.processes().is_empty());
        sleep(moments.next(Duration::from_millis(60)));
        run.signal(signal);
        let said = run.end().died_of(signal);
        assert_eq!(said.out, "", "no verdict is given on what the interrupt tore down");
        assert!(!said.err.contains("could not be measured"), "{said:?}");
        place.nothing_is_left();
        place.holds(FROZEN);
    }
}

#[test]
fn a_run_killed_in_the_middle_of_a_race_leaves_no_process_and_the_next_one_no_folder() {
    let place = Place::new();
    for number in 0..3 {
        let mut run = place.start(place.command(BINARY).args(["--check", "--repeat", "1000"]).args(RACES));
        run.until(|_| place.processes().len() > number * 5);
        run.signal(Signal::SIGKILL);
        run.end().died_of(Signal::SIGKILL);
        let deadline = Instant::now() + Duration::from_secs(10);
        while !place.processes().is_empty() {
            assert!(Instant::now() < deadline, "children outlive their parent");
            sleep(Duration::from_millis(1));
        }
        place.until_nobody_holds_what_is_left();
        assert_eq!(place.left().len(), 1, "a killed run can't tidy up");
        place.run(["--check", GROUP]).code(0);
    }
}

#[test]
fn an_interrupt_in_the_middle_of_replacing_leaves_one_whole_file() {
    let old = with_ballast(&differing_in(GROUP));
    let new = with_ballast(FROZEN);
    let place = Place::new();
    let mut met = 0;
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().cycle().take(30) {
        fs::write(&place.results, &old).unwrap();
        let mut run = place.start(place.command(BINARY).arg(GROUP));
        // The temporary file is there, and the run is known to be in the middle.
        let in_the_middle = run.meets(|_| names(&place.folder).len() > 2);
        if in_the_middle {
            run.signal(signal);
        }
        let said = run.end();
        // It may have been through before the signal came.
        if said.status.code() != Some(0) {
            said.died_of(signal);
            met += 1;
        }
        assert_eq!(names(&place.folder), ["Cargo.toml", "results.json"]);
        let held = place.held();
        assert!(held == old || held == new, "torn at {} bytes", held.len());
        place.nothing_is_left();
        if met == 3 {
            return;
        }
    }
    panic!("only {met} signals came in the middle, so this showed nothing");
}

/// Large, so that replacing it takes long enough to be met, and needs more room than the databases.
fn with_ballast(text: &str) -> String {
    let groups = text.strip_suffix("\n  }\n}\n").unwrap();
    format!("{groups},\n    \"ballast\": \"{}\"\n  }}\n}}\n", "x".repeat(4 << 20))
}

#[test]
fn a_disk_too_small_for_the_new_file_leaves_the_old_one_and_nothing_beside_it() {
    let old = with_ballast(&differing_in(GROUP));
    let place = Place::holding(&old);
    // Blocks of 512 bytes: the databases fit, the file does not.
    let said = place.shell("ulimit -f 4096; exec \"$0\" global-bytes", []).code(2);
    assert!(
        said.last_line().starts_with("REFUSED: ") && said.last_line().contains("the file is as it was"),
        "{said:?}"
    );
    place.holds(&old);
    if !is_possible("unshare", &["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]) {
        return skipped("nothing can be mounted here");
    }
    // Room for the old file and half of the new one.
    let script = "mount -t tmpfs -o size=6500k none \"$2\" && cp \"$1\" \"$2\"/results.json &&
        \"$0\" global-bytes --results \"$2\"/results.json; code=$?
        cmp \"$1\" \"$2\"/results.json && test \"$(ls -A \"$2\")\" = results.json || exit 99; exit $code";
    let disk = place.elsewhere("disk");
    fs::create_dir(&disk).unwrap();
    let mut command = place.command("unshare");
    command.args(["-rm", "sh", "-c", script, BINARY]).arg(&place.results).arg(&disk);
    let said = place.end(&mut command).code(2);
    assert!(said.last_line().contains("No space left on device"), "{said:?}");
    assert!(said.out.contains("/groups/global-bytes/steps/0/answer"), "the difference is printed: {said:?}");
}

#[test]
fn interrupted_regenerations_leave_the_old_file_or_the_new_one() {
    regenerate_and_interrupt(12);
}

#[test]
#[ignore = "half a minute; scripts/interrupts runs it, and a short one runs with the others"]
fn a_hundred_regenerations_of_which_fifty_are_interrupted_leave_the_old_file_or_the_new_one() {
    regenerate_and_interrupt(100);
}

/// Every second one is interrupted, at a moment anywhere between its start and its usual end.
fn regenerate_and_interrupt(rounds: usize) {
    let old = differing_in(GROUP);
    let place = Place::holding(&old);
    let began = Instant::now();
    place.run([GROUP]).code(0);
    let usual = began.elapsed();
    let mut moments = Moments::new();
    let [mut kept, mut replaced, mut ended] = [0; 3];
    for round in 0..rounds {
        fs::write(&place.results, &old).unwrap();
        let mut run = place.start(place.command(BINARY).arg(GROUP));
        if round % 2 == 0 {
            run.end().code(0);
            place.holds(FROZEN);
            place.nothing_is_left();
            continue;
        }
        // Before it handles signals it dies of them all the same, and has made nothing yet.
        sleep(moments.next(usual));
        let signal = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL][round / 2 % 3];
        if run.process.try_wait().unwrap().is_none() {
            run.signal(signal);
        }
        let said = run.end();
        if said.status.code() != Some(0) {
            said.died_of(signal);
            ended += 1;
        }
        place.until_nobody_holds_what_is_left();
        let held = place.held();
        assert!(held == old || held == FROZEN, "round {round}: torn at {} bytes", held.len());
        if signal != Signal::SIGKILL {
            place.holds(&held);
            place.nothing_is_left();
        }
        kept += usize::from(held == old);
        replaced += usize::from(held == FROZEN);
    }
    place.run([GROUP]).code(0);
    place.holds(FROZEN);
    eprintln!("of {rounds} runs {ended} ended by a signal; {kept} kept the old file, {replaced} had replaced it");
    assert_eq!(kept + replaced, rounds / 2);
    assert!(ended > rounds / 8, "only {ended} interrupts came before the end, so this showed nothing");
}

#[test]
fn a_temporary_folder_that_can_not_be_used_is_no_verdict() {
    let place = Place::new();
    let file = place.elsewhere("file");
    fs::write(&file, "").unwrap();
    let long = place.elsewhere(&format!("{0}/{0}/{0}", "长".repeat(70)));
    fs::create_dir_all(&long).unwrap();
    let cases: [(PathBuf, &str); 5] = [
        (place.elsewhere("absent"), "does not exist"),
        (file, "is not a folder"),
        ("/proc".into(), "the temporary folder /proc "),
        ("".into(), "does not exist"),
        (long.clone(), "has too long a path"),
    ];
    for (temporary, why) in cases {
        for arguments in [["--check"].as_slice(), &["-q", "--check"], &[GROUP], &["--dry-run"]] {
            let said = place.end(place.command(BINARY).env("TMPDIR", &temporary).args(arguments)).code(3);
            assert!(said.last_line().starts_with("INCONCLUSIVE: "), "{said:?}");
            let told = said.out.contains(why) && said.out.contains("set TMPDIR");
            assert!(told || arguments.contains(&"-q"), "{said:?}");
        }
    }
    assert!(names(&long).is_empty());
    place.holds(FROZEN);
}

#[test]
fn odd_names_of_the_temporary_folder_are_only_names() {
    use std::os::unix::ffi::OsStringExt;
    let place = Place::new();
    let odd = std::ffi::OsString::from_vec(b"a?b#c%20 d'e\"\xff\n{}".to_vec());
    let odd = place.temporary.parent().unwrap().join(odd);
    fs::create_dir(&odd).unwrap();
    place.end(place.command(BINARY).env("TMPDIR", &odd).arg("--check")).code(0);
    assert!(names(&odd).is_empty());
}

/// A file system of our own of so many kibibytes at the temporary folder.
fn on_a_small_disk(place: &Place, kibibytes: u32, arguments: &str) -> place::Said {
    let script = format!(
        "mount -t tmpfs -o size={kibibytes}k none \"$TMPDIR\" && \"$0\" {arguments}; code=$?
         test -z \"$(ls \"$TMPDIR\")\" || exit 99; exit $code"
    );
    place.end(place.command("unshare").args(["-rm", "sh", "-c", &script, BINARY]))
}

#[test]
fn a_full_disk_is_no_verdict() {
    if !is_possible("unshare", &["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]) {
        return skipped("nothing can be mounted here");
    }
    let place = Place::new();
    let said = on_a_small_disk(&place, 512, "--check").code(3);
    assert!(said.out.contains("is full; set TMPDIR"), "{said:?}");
    // Full in the middle, wherever that is; nothing but a pass with room enough.
    let mut full = 0;
    for kibibytes in (1050..1450).step_by(50) {
        let said = on_a_small_disk(&place, kibibytes, "--check");
        assert!(!said.out.contains("broken") && !said.out.contains("differs"), "{said:?}");
        match said.status.code() {
            Some(3) => full += 1,
            code => assert_eq!(code, Some(0), "{said:?}"),
        }
    }
    assert!(full >= 2, "the disk was full in the middle {full} times");
    on_a_small_disk(&place, 1050, "").code(3);
    on_a_small_disk(&place, 100_000, "--check").code(0);
    place.holds(FROZEN);
}

#[test]
fn a_limit_of_the_file_size_is_no_verdict_and_no_death() {
    let place = Place::new();
    // Blocks of 512 bytes.
    for arguments in ["--check", "", "--dry-run"] {
        let said = place.shell(&format!("ulimit -f 100; exec \"$0\" {arguments}"), []).code(3);
        assert!(said.out.contains("can't be used (File too large"), "{said:?}");
    }
    place.holds(FROZEN);
}

#[test]
fn too_few_open_files_are_no_verdict() {
    let place = Place::new();
    let mut inconclusive = 0;
    for files in [5, 6, 7, 8, 9, 10, 11, 12, 16, 20, 30, 40, 45] {
        let said = place.shell(&format!("ulimit -n {files}; exec \"$0\" --check"), []);
        let (code, last) = (said.status.code(), said.out.lines().last().unwrap_or_default());
        match code {
            Some(3) => inconclusive += usize::from(last.starts_with("INCONCLUSIVE: ")),
            // The baseline could not even be found, or opened.
            Some(2) => assert!((said.out.clone() + &said.err).contains("Too many open files"), "{files}: {said:?}"),
            _ => panic!("{files}: {said:?}"),
        }
    }
    assert!(inconclusive > 5);
}

#[test]
fn a_child_that_can_not_be_started_is_no_verdict() {
    let place = Place::new();
    let binary = place.copied_binary();
    let mut run =
        place.start(place.command(&binary).args(["--check", "--repeat", "20", "crash-boundaries"]).args(RACES));
    run.until(|run| run.stderr().contains("played"));
    fs::remove_file(&binary).unwrap();
    let said = run.end().code(3);
    assert!(said.out.contains("can't be started from"), "{said:?}");
    place.nothing_is_left();
}

#[test]
fn too_few_processes_are_no_verdict() {
    if !is_possible("setpriv", &["--reuid=54321", "--regid=54321", "--clear-groups", "prlimit", "--nproc=1", "true"]) {
        return skipped("we can't be another user here");
    }
    let place = Place::new();
    let binary = place.copied_binary();
    for processes in [1, 2, 3, 6, 12] {
        let mut command = place.command("setpriv");
        command
            .args(["--reuid=54321", "--regid=54321", "--clear-groups", "prlimit"])
            .arg(format!("--nproc={processes}"));
        let said = place.end(command.arg(&binary).arg("--check").arg("--results").arg(&place.results)).code(3);
        assert!(said.out.contains("INCONCLUSIVE: ") || said.err.contains("signals can't be handled"), "{said:?}");
    }
    place.holds(FROZEN);
}

/// Stopped, they say nothing and never end by themselves; nobody waits for them for ever.
#[test]
#[ignore = "takes the 30 s that a child is waited for; scripts/interrupts runs it"]
fn children_that_hang_are_no_verdict() {
    let place = Place::new();
    let mut run = place.start(place.command(BINARY).args(["--check", RACES[0]]));
    run.until(|_| !place.processes().is_empty());
    for process in place.processes() {
        let _ = Command::new("kill").args(["-STOP", &process.to_string()]).status();
    }
    let said = run.end().code(3);
    assert!(said.out.contains("was killed; run again"), "{said:?}");
    place.nothing_is_left();
}
