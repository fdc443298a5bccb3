#[cfg_attr(not(test), expect(dead_code, reason = "no command calls it yet"))]
mod baseline;

fn main() {}
