#[expect(dead_code, reason = "the sweeps that will use it come next")]
mod disk;

fn main() {}
