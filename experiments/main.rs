#[expect(dead_code, reason = "the groups that use a temporary folder come next")]
mod folder;
#[expect(dead_code, reason = "the groups that start children come next")]
mod process;
#[cfg_attr(not(test), expect(dead_code, reason = "the groups that start children come next"))]
mod signal;

fn main() {}
