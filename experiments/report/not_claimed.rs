//! What is not claimed: the README's own list, so that there is only one.

const README: &str = include_str!("../../README.md");
const HEADING: &str = "## What is not claimed";

/// The items as Markdown, each on one line.
pub fn items() -> Vec<String> {
    items_in(README)
}

fn items_in(readme: &str) -> Vec<String> {
    let section =
        readme.lines().skip_while(|line| *line != HEADING).skip(1).take_while(|line| !line.starts_with("## "));
    let mut items: Vec<String> = Vec::new();
    for line in section {
        match (line.strip_prefix("- "), items.last_mut()) {
            (Some(item), _) => items.push(item.trim_end().to_owned()),
            (None, Some(item)) if !line.trim().is_empty() => {
                item.push(' ');
                item.push_str(line.trim());
            }
            (None, _) => {}
        }
    }
    items
}

/// An item's plain text and code, in turn: what stands between backquotes is code.
pub fn pieces(item: &str) -> impl Iterator<Item = Piece<'_>> {
    item.split('`').enumerate().map(|(index, text)| if index % 2 == 1 { Piece::Code(text) } else { Piece::Text(text) })
}

#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'t> {
    Text(&'t str),
    Code(&'t str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_of_the_readme_s_list_is_there_whole() {
        let section = README.split(HEADING).nth(1).unwrap_or_else(|| panic!("README.md has no {HEADING:?}"));
        let section = section.split("\n## ").next().unwrap();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let listed = items().iter().map(|item| format!("- {item}")).collect::<Vec<_>>().join("\n");
        // It is all list, and nothing of it is lost.
        assert_eq!(words(&listed), words(section));
        assert_eq!(items().len(), section.lines().filter(|line| line.starts_with("- ")).count());
        assert!(items().iter().any(|item| item.contains("power loss")));
    }

    #[test]
    fn what_stands_between_backquotes_is_code() {
        let pieces = pieces("with `a = b` it").collect::<Vec<_>>();
        assert_eq!(pieces, [Piece::Text("with "), Piece::Code("a = b"), Piece::Text(" it")]);
    }
}
