//! The experiment harness: plays the scenario groups and says whether the frozen evidence still holds.
#![deny(unsafe_code)]

mod fixture;
mod groups;
mod scene;
mod record;
mod crash;
mod child;
mod process;
mod signal;
mod folder;
mod audit;
mod baseline;

use clap::Parser;
use std::process::ExitCode;
#[derive(Parser)]
enum Cli {
    #[command(subcommand)]
    Child(child::Role),
    Run,
}
fn main() -> ExitCode {
    match Cli::parse() {
        Cli::Child(role) => role.play(),
        Cli::Run => {
            let folder = folder::Folder::create().unwrap();
            let mut done = vec![];
            for group in &groups::GROUPS {
                let t = std::time::Instant::now();
                let played = group.play(&folder).unwrap();
                eprintln!("{} {:?} {:?}", group.name, t.elapsed(), played.broken);
                match played.story {
                    Ok(story) => done.push((group.name, record::Group { shows: group.shows, story })),
                    Err(e) => eprintln!("{e:?}"),
                }
            }
            println!("{}", serde_json::to_string_pretty(&record::Results::new(&fixture::LIMITS, done)).unwrap());
            ExitCode::SUCCESS
        }
    }
}
