//! The job's side: tunnel, apps, signals

fn main() {}
