//! README.zh-CN.md says what README.md says: section by section the same commands, the same code, the same figures.
//!
//! Words can't be compared, so numbers that are written as words are not, in either language.

use std::collections::BTreeMap;

const ENGLISH: &str = include_str!("../README.md");
const CHINESE: &str = include_str!("../README.zh-CN.md");

/// What has to be equal, each with how often it is there.
#[derive(Debug, Default, PartialEq)]
struct Section {
    /// Blocks between fences, with their language.
    blocks: Vec<String>,
    /// Code within a line.
    codes: BTreeMap<String, usize>,
    /// Numbers in digits, outside of code.
    figures: BTreeMap<String, usize>,
    /// Rows of tables and items of lists.
    rows: usize,
    items: usize,
}

/// One for what stands before the first heading, and one for each.
fn sections(text: &str) -> Vec<(&str, Section)> {
    let mut sections = vec![("the beginning", Section::default())];
    let mut block: Option<String> = None;
    let mut prose = String::new();
    for line in text.lines() {
        let (_, section) = sections.last_mut().unwrap();
        match &mut block {
            Some(text) if line == "```" => {
                section.blocks.push(std::mem::take(text));
                block = None;
            }
            Some(text) => text.extend([line, "\n"]),
            None if line.starts_with("```") => block = Some(format!("{line}\n")),
            None if line.starts_with("## ") => {
                count(&std::mem::take(&mut prose), section);
                sections.push((line, Section::default()));
            }
            None => {
                section.rows += usize::from(line.starts_with('|'));
                section.items += usize::from(line.starts_with("- "));
                prose.extend([line, "\n"]);
            }
        }
    }
    assert_eq!(block, None, "a block of code does not end");
    count(&prose, &mut sections.last_mut().unwrap().1);
    sections
}

fn count(prose: &str, section: &mut Section) {
    for (index, piece) in prose.split('`').enumerate() {
        if index % 2 == 1 {
            *section.codes.entry(piece.split_whitespace().collect::<Vec<_>>().join(" ")).or_default() += 1;
        } else {
            for figure in figures(piece) {
                *section.figures.entry(figure).or_default() += 1;
            }
        }
    }
}

/// Digits, with commas and points between them.
fn figures(text: &str) -> Vec<String> {
    let number = |character: char| character.is_ascii_digit() || matches!(character, ',' | '.');
    let runs = text.split(|character| !number(character)).map(|run| run.trim_matches([',', '.']));
    runs.filter(|run| !run.is_empty()).map(str::to_owned).collect()
}

/// What one has more often than the other.
fn more<'c>(one: &'c BTreeMap<String, usize>, other: &BTreeMap<String, usize>) -> Vec<&'c str> {
    let often = |text: &String| other.get(text).copied().unwrap_or_default();
    one.iter().filter(|(text, times)| **times > often(text)).map(|(text, _)| text.as_str()).collect()
}

#[test]
fn the_chinese_readme_has_the_commands_and_figures_of_the_english_one() {
    let (english, chinese) = (sections(ENGLISH), sections(CHINESE));
    let headings = |of: &[(&str, Section)]| of.iter().map(|(heading, _)| (*heading).to_owned()).collect::<Vec<_>>();
    assert_eq!(english.len(), chinese.len(), "sections: {:?} and {:?}", headings(&english), headings(&chinese));
    let mut faults = Vec::new();
    for ((heading, english), (_, chinese)) in english.iter().zip(&chinese) {
        let mut fault = |what: String| faults.push(format!("{heading}: {what}"));
        for (what, english, chinese) in
            [("code", &english.codes, &chinese.codes), ("figure", &english.figures, &chinese.figures)]
        {
            for (lacking, found) in [("README.zh-CN.md", more(english, chinese)), ("README.md", more(chinese, english))]
            {
                found.iter().for_each(|text| fault(format!("{lacking} lacks the {what} {text}")));
            }
        }
        if english.blocks != chinese.blocks {
            fault(format!(
                "blocks of code differ:\n{}instead of\n{}",
                chinese.blocks.join("\n"),
                english.blocks.join("\n")
            ));
        }
        if (english.rows, english.items) != (chinese.rows, chinese.items) {
            let (rows, items) = ((english.rows, chinese.rows), (english.items, chinese.items));
            fault(format!("rows of tables {rows:?} or items of lists {items:?} differ"));
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn whatever_differs_is_seen() {
    let of = |text: &str| sections(text).into_iter().map(|(_, section)| section).collect::<Vec<_>>();
    let text = "a `code` 1.8\n## b\n```sh\nrun it 3\n```\n| `x` | 1,000 |\n- four, 4.\n";
    assert_eq!(of(text), of("甲 1.8 倍，`code`\n## 乙\n```sh\nrun it 3\n```\n| `x` | 1,000 |\n- 四（4）\n"));
    for (old, new) in [
        ("`code`", "`cod`"),
        ("1.8", "1.9"),
        ("1.8", ""),
        ("run it 3", "run it 4"),
        ("sh\n", "bash\n"),
        ("1,000", "1,001"),
        ("| `x` | 1,000 |\n", "`x` 1,000\n"),
        ("- four", "four"),
        ("## b\n", ""),
        ("4.", "4. 4"),
    ] {
        assert_ne!(of(text), of(&text.replace(old, new)), "{old:?} became {new:?}");
    }
}
